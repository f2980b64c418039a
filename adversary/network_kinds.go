package adversary

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

var creates = []string{"socket_create"}

// kinds: sockets that reach the kernel's less tried parts, or go round rules about TCP
// and UDP. Whether one was made is read outside, from the attacker's descriptors.
var kinds = []Case{
	kind("net_kind_mptcp", "D59 landlock-lsm/linux#54", "an MPTCP socket", "MPTCP", "CONFIG_MPTCP",
		socketKind{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP},
		socketKind{unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}),
	kind("net_kind_udplite", "D63", "a UDP-Lite socket", "UDP-Lite", "UDP-Lite",
		socketKind{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE},
		socketKind{unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE}),
	kind("net_kind_sctp", "D63", "an SCTP socket", "SCTP", "CONFIG_IP_SCTP",
		socketKind{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP},
		socketKind{unix.AF_INET6, unix.SOCK_SEQPACKET, unix.IPPROTO_SCTP}),
	kind("net_kind_ping", "D63", "a ping socket", "PING",
		"net.ipv4.ping_group_range with a group of the user",
		socketKind{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP},
		socketKind{unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_ICMPV6}),
	kind("net_kind_netlink", "D63 codex", "a netlink socket other than rtnetlink", "NETLINK", "",
		netlinkKinds()...),
	kind("net_kind_alg", "D63 D67 CVE-2026-31431", "a socket of the kernel's cryptography", "ALG",
		"CONFIG_CRYPTO_USER_API",
		socketKind{unix.AF_ALG, unix.SOCK_SEQPACKET, 0}),
	kind("net_kind_vsock", "D63 codex", "a socket to the hypervisor", "AF_VSOCK", "CONFIG_VSOCKETS",
		socketKind{unix.AF_VSOCK, unix.SOCK_STREAM, 0},
		socketKind{unix.AF_VSOCK, unix.SOCK_DGRAM, 0}),
	kind("net_kind_any", "D63 CVE-2020-14386 CVE-2017-7308 CVE-2016-8655",
		"a socket of every family but Unix, IP and netlink", "", "a protocol family of that kind",
		otherFamilies()...),
}

// socketKind is what socket(2) takes.
type socketKind struct{ family, kind, protocol int }

// kind is a case that makes sockets, found by the name of their protocol ("" is any
// but the usual ones').
func kind(name, source, what, protocol, needs string, sockets ...socketKind) Case {
	proof := protocol
	if proof == "" {
		proof = "no usual protocol"
	}
	return Case{
		Name: name, Family: "network", Source: source, What: "makes " + what, Calls: "socket",
		Needs: needs, Hooks: creates,
		Attack:    func(t *Target) ([]byte, error) { return makeSockets(t, sockets) },
		Meanwhile: func(s *Scene, pid int) error { return findSocket(s, pid, protocol) },
		Judge:     seen("a descriptor of the attacker's is a socket of " + proof),
	}
}

func netlinkKinds() []socketKind {
	var all []socketKind
	for protocol := 1; protocol < 32; protocol++ {
		all = append(all, socketKind{unix.AF_NETLINK, unix.SOCK_RAW, protocol})
	}
	return all
}

func otherFamilies() []socketKind {
	var all []socketKind
	usual := []int{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}
	for family := range 46 {
		if slices.Contains(usual, family) {
			continue
		}
		for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_RAW, unix.SOCK_RDM,
			unix.SOCK_SEQPACKET} {
			all = append(all, socketKind{family, kind, 0})
		}
	}
	return all
}

// makeSockets makes what sockets it can and lets the runner look. It runs inside.
func makeSockets(t *Target, kinds []socketKind) ([]byte, error) {
	var failed error
	made, missing := 0, -1
	for _, k := range kinds {
		if k.family == missing {
			continue // each try would have the kernel look for a module
		}
		fd, err := unix.Socket(k.family, k.kind|unix.SOCK_CLOEXEC, k.protocol)
		if err != nil {
			failed = errors.Join(failed, call(fmt.Sprintf("socket(%d, %d, %d)", k.family, k.kind,
				k.protocol), err))
			if errors.Is(err, unix.EAFNOSUPPORT) {
				missing = k.family
			}
			continue
		}
		made++
		defer unix.Close(fd)
	}
	if made == 0 {
		return nil, failed
	}
	return nil, t.Sync()
}

// usualProtocols are those of sockets that every process may have.
var usualProtocols = []string{
	"UNIX", "UNIX-STREAM", "TCP", "TCPv6", "UDP", "UDPv6", "NETLINK",
}

// findSocket looks for a socket among a process's descriptors; sockets tell the name
// of their protocol as an extended attribute.
func findSocket(s *Scene, pid int, protocol string) error {
	var name [64]byte
	for fd := range 1024 {
		path := fmt.Sprintf("/proc/%d/fd/%d", pid, fd)
		n, err := unix.Getxattr(path, "system.sockprotoname", name[:])
		if err != nil {
			continue
		}
		got := strings.TrimRight(string(name[:n]), "\x00")
		if protocol == "" && !slices.Contains(usualProtocols, got) ||
			protocol != "" && strings.HasPrefix(got, protocol) {
			s.Evidence = "the attacker has a socket of the protocol " + got
		}
	}
	return nil
}
