package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/agent-lock/agent-lock/adversary"
	"github.com/agent-lock/agent-lock/jail"
)

// A leakGroup names cases that leak, for one reason, where a layer is missing.
type leakGroup struct {
	cases []string
	why   string
	// from is the first ABI of Landlock under which the group no longer leaks; 0:
	// none is.
	from int
	// seccomp says that the filter stops the group, view that the view does.
	seccomp, view bool
}

// stopped reports whether one of the layers stops the group.
func (g leakGroup) stopped(layers jail.Layers, abi int) bool {
	return layers.Landlock && g.from > 0 && abi >= g.from || layers.Seccomp && g.seccomp ||
		layers.View && g.view
}

// withoutBPF are the leaks of a jail without the BPF layer. docs/layers.md is
// written from it; a leak that it does not name counts.
func withoutBPF() []leakGroup {
	return slices.Concat(leakingFiles(), leakingSockets(), leakingRest())
}

func leakingFiles() []leakGroup {
	return []leakGroup{
		{cases: []string{"metadata_stat_size", "metadata_stat_time", "metadata_statx",
			"metadata_fstat_o_path", "metadata_file_getattr",
			"metadata_readlink", "metadata_readlink_o_path",
			"metadata_getxattr", "metadata_listxattr", "metadata_get_acl"},
			why: "Landlock knows no right for looking at a file without opening it", view: true},
		{cases: []string{"watch_inotify"}, why: "Landlock knows no right for watching",
			view: true},
		{cases: []string{"fd_passed_dir", "fd_passed_o_path", "fd_passed_reopened",
			"fd_passed_reopened_dev"},
			why:  "what is opened by a descriptor that the jail is passed lies where that one does",
			from: 1},
		{cases: []string{"process_pidfd_passed"},
			why: "a process that the jail is passed can be asked for its descriptors", from: 1},
		{cases: []string{"ring_statx", "ring_getxattr"}, why: "a ring looks at files as well",
			seccomp: true, view: true},
		{cases: []string{"fd_passed_file", "fd_passed_writable", "fd_passed_mapped",
			"fd_passed_sent", "fd_passed_spliced", "fd_passed_copied", "fd_passed_chmod",
			"fd_passed_xattr",
			"fd_passed_lease"},
			why: "Landlock decides when a file is opened, not when its descriptor is received"},
		{cases: []string{"hardlink_existing_write", "hardlink_existing_append",
			"hardlink_existing_truncate", "hardlink_existing_chmod", "hardlink_existing_utimes",
			"hardlink_existing_setxattr", "hardlink_crowd_write"},
			why: "Landlock does not count a file's names"},
	}
}

func leakingSockets() []leakGroup {
	return []leakGroup{
		{cases: []string{"socket_stream", "socket_datagram", "socket_ssh_agent",
			"socket_container_daemon", "socket_symlink", "socket_seqpacket", "socket_proc_fd",
			"bus_system_place", "dns_daemon"},
			why: "connecting by path became a right later", from: 9, view: true},
		{cases: []string{"compat_connect"}, why: "32-bit programs connect by path as well",
			from: 9, seccomp: true, view: true},
		{cases: []string{"socket_in_project"},
			why: "a socket of others in the project can be connected to", from: 9},
		{cases: []string{"socket_abstract_stream", "socket_abstract_datagram",
			"bus_session_abstract", "race_address_unix"},
			why: "abstract sockets were scoped later", from: 6},
		{cases: []string{"net_tcp4", "net_tcp6", "net_tcp_mapped", "net_tcp_zero", "net_tcp_zero6",
			"net_tcp_zero6_bound", "net_tcp_other_loopback", "net_tcp_machine",
			"net_tcp_reconnect", "net_tcp_neighbour", "net_tcp_beside", "net_tcp_shared",
			"dns_tcp", "race_address_tcp"},
			why: "TCP ports became a right later", from: 4},
		{cases: []string{"net_tcp_fastopen", "net_tcp_stolen", "net_tcp_metadata",
			"net_tcp_metadata_mapped", "net_udp4", "net_udp6", "net_udp_mapped",
			"net_udp_family", "net_udp_sendmmsg", "net_udp_connected", "net_udp_reconnect",
			"net_udp_successor", "net_udp_moved", "net_udp_beside", "dns_udp",
			"dns_resolver", "dns_configured", "dns_multicast"},
			why: "Landlock knows ports, not addresses, and of TCP's connect(2) alone"},
		{cases: []string{"net_passed_tcp", "net_passed_udp", "net_passed_unix"},
			why: "a socket that the jail is passed stays connected"},
		{cases: []string{"net_tcp_stolen_uring"},
			why: "a ring connects without connect(2)", seccomp: true},
		{cases: []string{"net_tcp_uring", "net_udp_uring", "net_kind_mptcp", "net_kind_udplite",
			"net_kind_sctp", "net_kind_ping", "net_kind_alg", "net_kind_vsock", "net_kind_any",
			"net_kind_netlink", "socket_ring"},
			why: "a system call that no rule on ports covers", seccomp: true},
	}
}

func leakingRest() []leakGroup {
	return []leakGroup{
		{cases: []string{"device_in_project", "device_slabinfo", "device_iomem",
			"device_private_etc", "device_private_dir", "device_private_names",
			"device_private_times"},
			why: "root opens what lies in a place that is allowed"},
		{cases: []string{"identity_chmod", "identity_fchmod", "identity_create",
			"identity_tmpfile", "identity_overwrite"},
			why: "root gives its files in the project any mode"},
		{cases: []string{"kernel_module_request"},
			why: "the kernel starts the host's modprobe for whoever needs a module"},
		{cases: []string{"ns_user", "metadata_handle", "watch_fanotify", "watch_passed_dnotify",
			"key_user_keyring", "key_join", "key_persistent", "kernel_bpf_pin_get",
			"compat_tiocsti", "terminal_tiocsti", "terminal_tiocsti_reopened",
			"terminal_tiocsti_high", "terminal_async", "terminal_async_ioctl", "machine_adjtime"},
			why: "a system call that no rule on files covers", seccomp: true},
		{cases: family("planted"), why: "Landlock knows no names that hold anywhere"},
	}
}

// family returns the names of a family's cases.
func family(name string) []string {
	var names []string
	for _, c := range adversary.Cases() {
		if c.Family == name {
			names = append(names, c.Name)
		}
	}
	return names
}

// ownKnown are the leaks of our own jail with the BPF layer that
// docs/threat-model.md describes.
var ownKnown = map[string]string{
	"hardlink_crowd_read": "a hard link that was there before stays readable; " +
		"--hardlinks=deny closes it",
	"dns_configured": "questions to this machine's resolvers carry data; --net none closes it",
	"hardlink_existing_read": "a hard link that was there before stays readable; " +
		"--hardlinks=deny closes it",
	"planted_env_linked_before": "another name that a denied file had before stays readable; " +
		"--hardlinks=deny closes it",
	"planted_run_bare": "git obeys the config of any directory that looks like a repository; " +
		"safe.bareRepository=explicit closes it",
	"planted_run_replaced": "a repository below the project can be moved aside and another put " +
		"in its place; look before you use one that the agent has made",
}

// knownLeaks are the leaks that a jail with these layers is known for, under a
// version of Landlock.
func knownLeaks(layers jail.Layers, abi int) map[string]string {
	if layers.BPF && layers.Seccomp {
		return ownKnown
	}
	if layers.BPF {
		known := maps.Clone(ownKnown)
		known["metadata_handle"] = "no hook is asked about name_to_handle_at(2)"
		return known
	}
	known := map[string]string{
		"hardlink_existing_read": "a hard link that was there before stays readable",
		"hardlink_crowd_read":    "a hard link that was there before stays readable",
	}
	for _, group := range withoutBPF() {
		if group.stopped(layers, abi) {
			continue
		}
		for _, name := range group.cases {
			known[name] = group.why
		}
	}
	return known
}

// layerSets is a repeatable flag: sets of layers, each to be attacked.
type layerSets []string

// String lists them for package flag.
func (s *layerSets) String() string { return strings.Join(*s, " ") }

// Set adds one.
func (s *layerSets) Set(list string) error {
	if _, err := jail.ParseLayers(list); err != nil {
		return err
	}
	if !slices.Contains(*s, list) {
		*s = append(*s, list)
	}
	return nil
}
