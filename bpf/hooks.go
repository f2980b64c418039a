package bpf

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/hashicorp/go-multierror"
)

// Hook is one LSM hook that the jail uses. docs/hooks.md is written from the
// table of them.
type Hook struct {
	// Name is the hook's name in the kernel (include/linux/lsm_hook_defs.h).
	Name string
	// Programs are tried in order: the first whose prototype the kernel's
	// BTF matches is attached.
	Programs []Program
	// Closes says what the jail would leak without it.
	Closes string
	// Since is the first kernel series at or after 6.1 that has the hook.
	Since string
	// When says on which kernels the hook is used.
	When When
	// Required hooks must exist, or no jail is built. Any hook that exists
	// must load and attach.
	Required bool
	// Without says what is lost on a kernel that lacks an optional hook.
	Without string
}

// When tells kernels with path_* hooks (CONFIG_SECURITY_PATH) from those without.
type When int

// The kernels on which a hook is used.
const (
	Always When = iota
	WithPathHooks
	WithoutPathHooks
)

// String is the text of docs/hooks.md.
func (w When) String() string {
	return [...]string{"always", "with path_* hooks", "without path_* hooks"}[w]
}

// Program is a BPF program for a hook.
type Program struct {
	Name string
	// Params is the number of the hook's parameters that it is written for. The
	// verdict of the program before it comes after the last.
	Params int
}

func one(name string, params int) []Program { return []Program{{name, params}} }

// Hooks returns the table of hooks, grouped as the C files are.
func Hooks() []Hook {
	return slices.Concat(fileHooks(), pathHooks(), inodeHooks(), lookHooks(), socketHooks(),
		processHooks())
}

func required(name string, params int, closes string) Hook {
	return Hook{
		Name: name, Programs: one(name, params), Closes: closes, Since: "6.1", Required: true,
	}
}

// optional hooks come and go with a feature of the kernel's configuration.
func optional(name string, params int, closes, without string) Hook {
	h := required(name, params, closes)
	h.Required, h.Without = false, without
	return h
}

const (
	noKeys  = "nothing: there are no keyrings"
	noURing = "nothing: there is no io_uring"
)

func fileHooks() []Hook {
	return []Hook{
		required("file_open", 1, "opening to read, write or execute"),
		required("file_receive", 1, "descriptors of outside files passed over a socket"),
		required("inode_setxattr", 6, "setting extended attributes outside; ACLs up to 6.1"),
		required("inode_removexattr", 3, "removing extended attributes outside"),
		{
			Name: "inode_set_acl", Programs: one("inode_set_acl", 4), Since: "6.6",
			Closes:  "setting ACLs outside",
			Without: "nothing: such kernels set ACLs through inode_setxattr",
		},
		{
			Name: "inode_remove_acl", Programs: one("inode_remove_acl", 3), Since: "6.6",
			Closes:  "removing ACLs outside",
			Without: "nothing: such kernels remove ACLs through inode_removexattr",
		},
		{
			Name: "inode_file_setattr", Programs: one("inode_file_setattr", 2), Since: "6.17",
			Closes:  "setting flags outside by name (file_setattr)",
			Without: "nothing: such kernels set flags of open files only, by ioctl",
		},
	}
}

// pathHooks decide on changes without an open, system call by system call.
func pathHooks() []Hook {
	times := required("inode_setattr", 3, "changing times outside")
	times.Programs = []Program{{"inode_setattr", 3}, {"inode_setattr_noidmap", 2}}
	return when(WithPathHooks, []Hook{
		required("path_unlink", 2, "removing outside files"),
		required("path_rmdir", 2, "removing outside directories"),
		required("path_mkdir", 3, "making directories outside"),
		required("path_mknod", 4, "making files, fifos, sockets and devices outside"),
		required("path_symlink", 3, "making symbolic links outside"),
		required("path_link", 3, "an inside name for an outside file"),
		required("path_rename", 5, "moving files in, out, over or against each other"),
		required("path_truncate", 1, "truncate(2) outside"),
		required("path_chmod", 2, "changing modes outside"),
		required("path_chown", 3, "changing owners outside"),
		required("path_chroot", 1, "changing the root directory"),
		times,
	})
}

// inodeHooks do the work of pathHooks where the kernel has none.
func inodeHooks() []Hook {
	attributes := required("inode_setattr", 3, "changing mode, owner, length or times outside")
	attributes.Programs = []Program{{"inode_setattr_all", 3}, {"inode_setattr_all_noidmap", 2}}
	return when(WithoutPathHooks, []Hook{
		required("inode_unlink", 2, "removing outside files"),
		required("inode_rmdir", 2, "removing outside directories"),
		required("inode_mkdir", 3, "making directories outside"),
		required("inode_create", 3, "making files outside"),
		required("inode_mknod", 4, "making fifos, sockets and devices outside"),
		required("inode_symlink", 3, "making symbolic links outside"),
		required("inode_link", 3, "an inside name for an outside file"),
		required("inode_rename", 4, "moving files in, out, over or against each other"),
		attributes,
	})
}

func when(w When, hooks []Hook) []Hook {
	for i := range hooks {
		hooks[i].When = w
	}
	return hooks
}

func lookHooks() []Hook {
	return []Hook{
		required("inode_getattr", 1, "size, times and owner of outside files"),
		required("inode_readlink", 1, "targets of outside symbolic links"),
		required("inode_getxattr", 2, "values of outside extended attributes"),
		required("inode_listxattr", 1, "names of outside extended attributes"),
		{
			Name: "inode_get_acl", Programs: one("inode_get_acl", 3), Since: "6.6",
			Closes:  "reading outside ACLs",
			Without: "nothing: such kernels read ACLs through inode_getxattr",
		},
		{
			Name: "inode_file_getattr", Programs: one("inode_file_getattr", 2), Since: "6.17",
			Closes:  "flags of outside files (file_getattr)",
			Without: "nothing: such kernels tell flags of open files only, by ioctl",
		},
		required("sb_statfs", 1, "free space of outside file systems"),
		required("path_notify", 3, "watching outside directories"),
		required("file_ioctl", 3, "typing into the terminal; changing readable files by ioctl"),
		required("file_fcntl", 3, "signals to what runs in the terminal's foreground (O_ASYNC)"),
		{
			Name: "file_ioctl_compat", Programs: one("file_ioctl_compat", 3), Since: "6.1",
			Closes:  "the same from a 32-bit process",
			Without: "nothing: such kernels ask file_ioctl about 32-bit processes too",
		},
	}
}

func socketHooks() []Hook {
	return []Hook{
		required("socket_post_create", 5, "nothing itself: it marks the jail's own sockets"),
		required("sock_graft", 2, "nothing itself: it marks sockets that the jail accepts"),
		required("unix_stream_connect", 3, "connecting to the host's Unix sockets"),
		required("unix_may_send", 2, "datagrams to the host's Unix sockets"),
		required("socket_create", 4, "sockets other than Unix, TCP, UDP and rtnetlink"),
		required("socket_connect", 3, "connecting to addresses that --net does not give"),
		required("socket_sendmsg", 3, "datagrams, and data with TCP Fast Open, to such addresses"),
		required("socket_listen", 2, "nothing itself: it enters the jail's own listeners"),
		required("socket_setsockopt", 3, "taking connections from a service by sharing its port; "+
			"routes in packets; the host's packet filters"),
		required("netlink_send", 2, "changing the host's network with capabilities"),
	}
}

func processHooks() []Hook {
	bpf := required("bpf", 4, "bpf(2), and so the jail's own programs")
	bpf.Programs = []Program{{"bpf", 4}, {"bpf_nokernel", 3}}
	perf := optional("perf_event_open", 1,
		"performance counters, which can watch other processes", "nothing: there are none")
	perf.Programs = []Program{{"perf_event_open", 1}, {"perf_event_open_attr", 2}}
	return []Hook{
		required("ptrace_access_check", 2, "tracing and reading processes outside, and pid 1"),
		required("userns_create", 1, "new user namespaces, and the capabilities in them"),
		required("sb_mount", 5, "mounting"),
		required("sb_umount", 2, "unmounting what hides something"),
		required("sb_pivotroot", 2, "changing the root mount"),
		required("sb_remount", 2, "remounting with other options"),
		required("move_mount", 2, "attaching mounts of the new mount interface"),
		bpf,
		required("bpf_map", 2, "descriptors of BPF maps"),
		required("bpf_prog", 1, "descriptors of BPF programs"),
		required("task_kill", 4, "signals to the caller's process group, kill(0)"),
		required("task_setnice", 2, "priorities of processes outside"),
		required("task_setioprio", 2, "disk priorities of processes outside"),
		optional("key_alloc", 3, "nothing itself: it marks the jail's own keys", noKeys),
		optional("key_permission", 3, "keys of the user and of other sessions", noKeys),
		perf,
		required("kernel_module_request", 1, "making the kernel load modules"),
		required("kernel_load_data", 2, "init_module(2), kexec_load(2)"),
		required("kernel_read_file", 3, "finit_module(2), kexec_file_load(2), firmware"),
		required("syslog", 1, "the kernel's log"),
		optional("uring_sqpoll", 0, "kernel threads that work for io_uring", noURing),
		optional("uring_override_creds", 1, "io_uring requests under another identity", noURing),
		optional("uring_cmd", 1, "io_uring commands to devices and sockets", noURing),
		required("capable", 4, "what root's capabilities reach beyond the jail: namespaces, swap, "+
			"accounting, ports, the clock, the network, handles"),
		required("quotactl", 4, "quotas"),
		required("settime", 2, "the system's clock"),
		required("task_free", 1, "nothing itself: it ends the jail after its last process"),
		required("sk_free_security", 1, "nothing itself: it forgets the jail's own sockets"),
	}
}

// helpers are the programs that are not LSM hooks.
var helpers = []string{jailProgDescriptors, jailProgSupervisorExit, jailProgUdpPortTaken}

// traced are the kernel's functions that helpers follow. On a kernel without one, as
// on one that inlines it, the jail does without: its own UDP sockets then cannot
// be reached from within.
var traced = map[string]string{jailProgUdpPortTaken: "udp_lib_get_port"}

// canTrace reports whether a helper can be used on this kernel.
func canTrace(helper string, kernel *btf.Spec) bool {
	name, ok := traced[helper]
	var fn *btf.Func
	return !ok || kernel.TypeByName(name, &fn) == nil && len(fn.Type.(*btf.FuncProto).Params) == 3
}

// fit removes from spec the programs that are not for this kernel: twins with
// another prototype, optional hooks that it lacks, and either the path_* hooks or
// those in their place. A missing required hook is an error.
func fit(spec *ebpf.CollectionSpec, kernel *btf.Spec, opts SetOptions) error {
	var lacks *multierror.Error
	keep := map[string]bool{}
	for _, name := range helpers {
		keep[name] = canTrace(name, kernel)
	}
	unused := WithoutPathHooks
	if opts.NoPathHooks || !hasPathHooks(kernel) {
		unused = WithPathHooks
	}
	for _, hook := range Hooks() {
		if hook.When == unused || slices.Contains(opts.Drop, hook.Name) {
			continue
		}
		program, err := choose(hook, kernel)
		if err == nil {
			keep[program] = true
			if opts.First {
				keep[addTwin(spec, kernel, hook, program)] = true
			}
		} else if hook.Required {
			lacks = multierror.Append(lacks, fmt.Errorf("%w (it closes %s)", err, hook.Closes))
		}
	}
	for name := range spec.Programs {
		if !keep[name] {
			delete(spec.Programs, name)
		}
	}
	return lacks.ErrorOrNil()
}

// hasPathHooks reports whether the kernel was built with CONFIG_SECURITY_PATH.
func hasPathHooks(kernel *btf.Spec) bool {
	var fn *btf.Func
	return kernel.TypeByName("bpf_lsm_path_unlink", &fn) == nil
}

// option is what makes a kernel have the hook (include/linux/lsm_hook_defs.h). All
// others are there whenever BPF programs can be LSMs, used by the kernel or not.
func (h Hook) option() string {
	for prefix, option := range map[string]string{
		"unix_": "CONFIG_SECURITY_NETWORK", "socket_": "CONFIG_SECURITY_NETWORK",
		"key_": "CONFIG_KEYS", "uring_": "CONFIG_IO_URING", "bpf": "CONFIG_BPF_SYSCALL",
		"perf_": "CONFIG_PERF_EVENTS",
	} {
		if strings.HasPrefix(h.Name, prefix) {
			return option
		}
	}
	if h.When == WithPathHooks && h.Name != "inode_setattr" {
		return "CONFIG_SECURITY_PATH"
	}
	return "CONFIG_BPF_LSM, Linux " + h.Since
}

// choose returns the name of the hook's program for this kernel.
func choose(hook Hook, kernel *btf.Spec) (string, error) {
	var fn *btf.Func
	err := kernel.TypeByName("bpf_lsm_"+hook.Name, &fn)
	if errors.Is(err, btf.ErrNotFound) {
		return "", fmt.Errorf("kernel has no LSM hook %s (%s)", hook.Name, hook.option())
	}
	if err != nil {
		return "", fmt.Errorf("look up LSM hook %s: %w", hook.Name, err)
	}
	params := len(fn.Type.(*btf.FuncProto).Params)
	for _, p := range hook.Programs {
		if p.Params == params {
			return p.Name, nil
		}
	}
	return "", fmt.Errorf("LSM hook %s has %d parameters, no program is written for that",
		hook.Name, params)
}
