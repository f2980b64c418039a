package jail

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/agent-lock/agent-lock/bpf"
	"github.com/agent-lock/agent-lock/event"
	"github.com/agent-lock/agent-lock/policy"
	"golang.org/x/sys/unix"
)

// network keeps what the kernel half knows of this machine's network current: its
// own addresses, which a jail must not mistake for others, and its resolvers.
type network struct {
	slot   *bpf.Slot
	mode   bpf.NetworkMode
	events *os.File // rtnetlink socket; nil: nothing to follow
	done   sync.WaitGroup
}

// openNetwork puts the policy's network in force for a slot that is not armed yet.
func openNetwork(slot *bpf.Slot, n policy.Network, pid int) (*network, error) {
	w := &network{slot: slot, mode: bpf.NetworkWeb}
	switch n {
	case policy.NetworkHost:
		w.mode = bpf.NetworkHost
	case policy.NetworkNone:
		apart, err := ownNamespace(pid)
		if err != nil {
			return nil, err
		}
		return w, slot.SetNetwork(bpf.Network{Mode: bpf.NetworkNone, Apart: apart})
	case policy.NetworkWeb:
	}
	// First the subscription, then the state: no change is lost between them.
	var err error
	if w.events, err = subscribe(); err != nil {
		return nil, err
	}
	if err = w.refresh(); err != nil {
		w.events.Close()
		return nil, err
	}
	w.done.Go(w.follow)
	return w, nil
}

// Close ends before the slot is given back: it may be another jail's then.
func (w *network) Close() {
	if w.events != nil {
		w.events.Close()
		w.done.Wait()
	}
}

func (w *network) refresh() error {
	ranges, err := localRanges()
	if err != nil {
		return err
	}
	if err := w.slot.SetLocal(ranges); err != nil {
		return err
	}
	return w.slot.SetNetwork(bpf.Network{Mode: w.mode, Resolvers: resolvers(readFile)})
}

// follow refreshes after every change. When that fails, the jail keeps its own
// listeners and nothing else until it succeeds.
func (w *network) follow() {
	const again = 200 * time.Millisecond
	for {
		var begin [1]byte // what is in the messages does not matter
		_, err := w.events.Read(begin[:])
		if errors.Is(err, os.ErrClosed) {
			return
		}
		// A lost message (ENOBUFS) is one as well.
		if err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, os.ErrDeadlineExceeded) {
			w.slot.SetNetwork(bpf.Network{})
			return
		}
		drain(w.events)
		var deadline time.Time
		if w.refresh() != nil {
			w.slot.SetNetwork(bpf.Network{})
			deadline = time.Now().Add(again)
		}
		w.events.SetReadDeadline(deadline)
	}
}

// drain takes all messages.
func drain(events *os.File) {
	conn, err := events.SyscallConn()
	if err != nil {
		return
	}
	conn.Control(func(fd uintptr) {
		var begin [1]byte
		for {
			_, _, err := unix.Recvfrom(int(fd), begin[:], unix.MSG_DONTWAIT)
			if err != nil && !errors.Is(err, unix.ENOBUFS) {
				return
			}
		}
	})
}

// subscribe opens a socket that tells of changed addresses and routes.
func subscribe() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("follow this machine's addresses: %w", err)
	}
	groups := uint32(unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR |
		unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE)
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups})
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("follow this machine's addresses: %w", err)
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}

// localRanges returns what the kernel delivers to this machine itself: the targets
// of its local and anycast routes, in every table, which are more than the
// addresses of its interfaces.
func localRanges() ([]netip.Prefix, error) {
	var ranges []netip.Prefix
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		raw, err := syscall.NetlinkRIB(unix.RTM_GETROUTE, family)
		if err != nil {
			return nil, fmt.Errorf("read this machine's addresses: %w", err)
		}
		messages, err := syscall.ParseNetlinkMessage(raw)
		if err != nil {
			return nil, fmt.Errorf("read this machine's addresses: %w", err)
		}
		for i := range messages {
			p, ok, err := localRange(&messages[i])
			if err != nil {
				return nil, fmt.Errorf("read this machine's addresses: %w", err)
			}
			if ok {
				ranges = append(ranges, p)
			}
		}
	}
	return ranges, nil
}

// localRange returns the target of a route that leads to this machine.
func localRange(m *syscall.NetlinkMessage) (netip.Prefix, bool, error) {
	if m.Header.Type != unix.RTM_NEWROUTE || len(m.Data) < unix.SizeofRtMsg {
		return netip.Prefix{}, false, nil
	}
	var route unix.RtMsg
	if _, err := binary.Decode(m.Data, binary.NativeEndian, &route); err != nil {
		return netip.Prefix{}, false, err
	}
	if route.Type != unix.RTN_LOCAL && route.Type != unix.RTN_ANYCAST {
		return netip.Prefix{}, false, nil
	}
	to := netip.IPv4Unspecified()
	if route.Family == unix.AF_INET6 {
		to = netip.IPv6Unspecified()
	}
	attributes, err := syscall.ParseNetlinkRouteAttr(m)
	if err != nil {
		return netip.Prefix{}, false, err
	}
	for _, a := range attributes {
		if a.Attr.Type != unix.RTA_DST {
			continue
		}
		var ok bool
		if to, ok = netip.AddrFromSlice(a.Value); !ok {
			return netip.Prefix{}, false, fmt.Errorf("address of %d bytes", len(a.Value))
		}
	}
	p, err := to.Prefix(int(route.Dst_len))
	return p, err == nil, err
}

const (
	resolvConf = "/etc/resolv.conf"
	// What systemd-resolved asks when resolv.conf names itself.
	resolvedConf = "/run/systemd/resolve/resolv.conf"
)

func readFile(name string) []byte {
	data, _ := os.ReadFile(name) // none: as an empty one
	return data
}

// resolvers returns the name servers that this machine uses.
func resolvers(read func(name string) []byte) []netip.Addr {
	found := nameservers(read(resolvConf))
	for _, r := range found {
		if r == netip.MustParseAddr("127.0.0.53") || r == netip.MustParseAddr("127.0.0.54") {
			found = append(found, nameservers(read(resolvedConf))...)
			break
		}
	}
	if len(found) == 0 { // resolv.conf(5)
		found = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	}
	return found[:min(len(found), bpf.MaxResolvers)]
}

// nameservers reads the lines of a resolv.conf that name servers.
func nameservers(conf []byte) []netip.Addr {
	var found []netip.Addr
	lines := bufio.NewScanner(bytes.NewReader(conf))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(fields[1]); err == nil {
			found = append(found, a.WithZone("").Unmap())
		}
	}
	return found
}

// networkFlags is the network namespace of a jail without network.
func networkFlags(n policy.Network) (uintptr, error) {
	if n != policy.NetworkNone {
		return 0, nil
	}
	if !exists("/proc/self/ns/net") {
		return 0, errors.New("--net none: the kernel has no network namespaces to keep others " +
			"from the jail's listeners; it needs CONFIG_NET_NS")
	}
	return unix.CLONE_NEWNET, nil
}

// ownNamespace returns the inode number of a process's network namespace, which must
// not be ours.
func ownNamespace(pid int) (uint32, error) {
	var ours, theirs unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &ours); err != nil {
		return 0, fmt.Errorf("look at the network namespace: %w", err)
	}
	if err := unix.Stat(fmt.Sprintf("/proc/%d/ns/net", pid), &theirs); err != nil {
		return 0, fmt.Errorf("look at the jail's network namespace: %w", err)
	}
	if ours.Ino == theirs.Ino {
		return 0, errors.New("--net none: the jail shares the host's network namespace")
	}
	return uint32(theirs.Ino), nil
}

// raiseLoopback makes 127.0.0.1 and ::1 work in a new network namespace.
func raiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("raise the loopback interface: %w", err)
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("raise the loopback interface: %w", err)
	}
	return nil
}

// explainSocket says whom a socket was to talk to, why not, and what would allow it.
func (d *denials) explainSocket(e *event.Event, r bpf.Record) {
	host := "--net " + string(policy.NetworkHost)
	if r.Why != bpf.WhyKind && r.Peer.Address.Port() != 0 {
		e.Address = event.Peer(r.Peer.Address, r.Peer.Protocol)
	}
	switch r.Why {
	case bpf.WhyMode:
		n := d.cfg.Policy.Network
		e.Rule, e.Remedy = "--net "+string(n)+" gives "+n.Gives(), host
	case bpf.WhyLocal:
		e.Rule, e.Remedy = "it is on this machine and not a socket of the jail's own", host
	case bpf.WhyForbidden:
		e.Rule = "link-local and metadata addresses are out of reach"
	case bpf.WhyKind:
		e.Address = event.Kind(r.Peer.Family, r.Peer.Type, r.Peer.Protocol)
		e.Rule = "a jail has Unix, TCP and UDP sockets and rtnetlink only"
	case bpf.WhyRoute:
		e.Rule, e.Remedy = "packets go to their address and nowhere else", host
	case bpf.WhyPort:
		e.Rule, e.Remedy = "a port that others may share could be a service's", host
	case bpf.WhyOption, bpf.WhyNetlink:
		e.Rule = "the network is the host's; a jail only asks about it"
	}
}
