//go:build guest

package jail_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Other machines are a network namespace at the end of a pair of interfaces.
const (
	here, there   = "203.0.113.1", "203.0.113.5"
	here6, there6 = "2001:db8::1", "2001:db8::5"
)

// outsideNetwork makes such a machine with listeners, once for all tests.
func outsideNetwork(t *testing.T) {
	t.Helper()
	write(t, "/etc/resolv.conf", []byte("nameserver "+there+"\n"), 0o644)
	namespace, configure := make(chan int), make(chan bool)
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the namespace
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			failed <- err
			return
		}
		fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			failed <- err
			return
		}
		namespace <- fd
		<-configure
		if err := addresses("in0", there+"/24", there6+"/64"); err != nil {
			failed <- err
			return
		}
		failed <- serveOutside()
		select {} // keeps the namespace
	}()
	var fd int
	select {
	case fd = <-namespace:
	case err := <-failed:
		t.Fatal(err)
	}
	if err := makePair(fd); err != nil {
		t.Skipf("no pair of interfaces can be made (veth or netkit): %v", err)
	}
	t.Cleanup(func() { removeLink("out0") })
	if err := addresses("out0", here+"/24", here6+"/64"); err != nil {
		t.Fatal(err)
	}
	configure <- true
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
}

func serveOutside() error {
	for _, port := range []string{"80", "443", "25", "53"} {
		for _, host := range []string{there, there6} {
			if err := serveTCP(net.JoinHostPort(host, port)); err != nil {
				return err
			}
			if err := serveUDP(net.JoinHostPort(host, port)); err != nil {
				return err
			}
		}
	}
	return nil
}

func serveTCP(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	return nil
}

func serveUDP(address string) error {
	conn, err := net.ListenPacket("udp", address)
	if err != nil {
		return err
	}
	go func() {
		buf := make([]byte, 64)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			conn.WriteTo(buf[:n], from)
		}
	}()
	return nil
}

// reached runs the probe in a jail, and returns what it says about each peer.
func reached(t *testing.T, dir string, flags []string, peers ...string) map[string]string {
	t.Helper()
	out, stderr, status := run(t, jailed(dir, append([]string{"--denials", "off"}, flags...),
		append([]string{"reach"}, peers...)...))
	got := map[string]string{}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("reach: status %d, output %q: %v; stderr: %s", status, out, err, stderr)
	}
	return got
}

const ok, no = "ok", "EACCES"

// modeTests say what comes of talking to a peer in each mode.
var modeTests = []struct{ peer, none, web, host string }{
	{"tcp " + there + ":80", no, ok, ok},
	{"tcp " + there + ":443", no, ok, ok},
	{"tcp [" + there6 + "]:443", no, ok, ok},
	{"tcp [::ffff:" + there + "]:443", no, ok, ok},
	{"tcp " + there + ":25", no, no, ok},
	{"tcp " + there + ":53", no, ok, ok},
	{"udp " + there + ":53", no, ok, ok},
	{"udp [" + there6 + "]:53", no, no, ok}, // not the resolver
	{"udp " + there + ":443", no, no, ok},
	{"tcp " + here + ":80", no, no, ok},
	{"tcp 127.0.0.1:4711", "ECONNREFUSED", no, ok}, // none: its loopback is another one
	{"tcp 169.254.169.254:80", no, no, no},
	{"tcp [::ffff:169.254.169.254]:80", no, no, no},
	{"tcp [64:ff9b::a9fe:a9fe]:80", no, no, no},
	{"tcp [64:ff9b::7f00:1]:80", no, no, "ENETUNREACH"},
	{"tcp [2002:a9fe:a9fe::1]:80", no, no, no},
	{"tcp [fd00:ec2::254]:80", no, no, no},
	{"tcp [fe80::1%out0]:80", no, no, no},
	{"tcp 100.100.100.200:80", no, no, no},
}

func TestNetworkModes(t *testing.T) {
	outsideNetwork(t)
	dir := project(t)
	for _, address := range []string{"127.0.0.1:4711", here + ":80", "169.254.169.254:80"} {
		if err := serveTCP(address); err != nil {
			t.Fatalf("listen on %s: %v", address, err)
		}
	}
	var peers []string
	for _, tt := range modeTests {
		peers = append(peers, tt.peer)
	}
	for _, mode := range []string{"none", "web", "host"} {
		got := reached(t, dir, []string{"--net", mode}, peers...)
		for _, tt := range modeTests {
			want := map[string]string{"none": tt.none, "web": tt.web, "host": tt.host}[mode]
			if got[tt.peer] != want {
				t.Errorf("--net %s: %s: got %s, want %s", mode, tt.peer, got[tt.peer], want)
			}
		}
	}
	t.Run("denial", func(t *testing.T) {
		_, stderr, _ := run(t, jailed(dir, nil, "reach", "tcp "+there+":25"))
		want := "denied: connect to " + there + ":25 (TCP) (EACCES) by probe["
		const remedy = "allow it with --net host\n"
		if !strings.Contains(stderr, want) || !strings.Contains(stderr, remedy) {
			t.Errorf("stderr = %q, want %q and %q in it", stderr, want, remedy)
		}
	})
	t.Run("address_added_later", func(t *testing.T) {
		start(t, jailed(dir, []string{"--denials", "off"}, "refused", "203.0.113.9:443",
			filepath.Join(dir, "refused")))
		if err := addresses("out0", "203.0.113.9/32"); err != nil {
			t.Fatal(err)
		}
		if err := serveTCP("203.0.113.9:443"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a new address of this machine is refused", func() bool {
			_, err := os.Stat(filepath.Join(dir, "refused"))
			return err == nil
		})
	})
}

func TestOwnListeners(t *testing.T) {
	dir := project(t)
	for _, mode := range []string{"none", "web", "host"} {
		out, stderr, status := run(t, jailed(dir, []string{"--net", mode}, "listeners"))
		if out != "ok\n" || status != 0 {
			t.Errorf("--net %s: status %d, %s; stderr: %s", mode, status, out, stderr)
		}
	}
}

func TestListenersOfOtherJails(t *testing.T) {
	a, b := project(t), project(t)
	const address = "127.0.0.1:47200"
	start(t, jailed(a, nil, "serve", address))
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatalf("connect to the jail's listener from outside: %v", err)
	}
	conn.Close()
	if got := reached(t, b, nil, "tcp "+address)["tcp "+address]; got != "EACCES" {
		t.Errorf("another jail's listener: %s, want EACCES", got)
	}
}

func TestSocketFlag(t *testing.T) {
	dir, path := project(t), filepath.Join(home, "daemon.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chown(path, uid, gid); err != nil {
		t.Fatal(err)
	}
	peer := "unix " + path
	if got := reached(t, dir, nil, peer)[peer]; got != "ENOENT" {
		t.Errorf("without --socket: %s, want ENOENT", got)
	}
	if got := reached(t, dir, []string{"--socket", path}, peer)[peer]; got != "ok" {
		t.Errorf("with --socket: %s, want ok", got)
	}
	_, stderr, _ := run(t, jailed(dir, nil, "reach", peer))
	if want := "allow it with --socket " + path + "\n"; !strings.Contains(stderr, want) {
		t.Errorf("stderr = %q, want %q in it", stderr, want)
	}
}

// What only somebody with capabilities could do is refused by the jail as well.
func TestNetworkIsTheHosts(t *testing.T) {
	out, stderr, status := run(t, jailed(project(t), nil, "change"))
	if out != "ok\n" || status != 0 {
		t.Errorf("status %d, %s", status, out)
	}
	for _, want := range []string{
		"denied: change the host's network (EPERM)",
		"denied: control (ioctl) (EPERM)",
		"denied: set an option of the socket (EPERM)",
	} {
		if !strings.Contains(stderr, want) {
			t.Errorf("stderr = %q, want %q in it", stderr, want)
		}
	}
}

// ---- rtnetlink ----

func attribute(kind uint16, data []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(data)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), data...)
	return append(b, make([]byte, (4-len(b)%4)%4)...)
}

func attributes(parts ...[]byte) []byte {
	var b []byte
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

// request makes a request of rtnetlink's in the thread's network namespace.
func request(kind, flags uint16, body []byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	header := unix.NlMsghdr{Len: uint32(unix.SizeofNlMsghdr + len(body)), Type: kind,
		Flags: unix.NLM_F_REQUEST | unix.NLM_F_ACK | flags}
	message, err := binary.Append(nil, binary.NativeEndian, header)
	if err != nil {
		return err
	}
	to := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	if err := unix.Sendto(fd, append(message, body...), 0, to); err != nil {
		return err
	}
	var buf [4096]byte
	if _, _, err := unix.Recvfrom(fd, buf[:], 0); err != nil {
		return err
	}
	if errno := -int32(binary.NativeEndian.Uint32(buf[unix.SizeofNlMsghdr:])); errno != 0 {
		return unix.Errno(errno)
	}
	return nil
}

// makePair makes out0 here and in0 in another network namespace.
func makePair(namespace int) error {
	ns := binary.NativeEndian.AppendUint32(nil, uint32(namespace))
	none := make([]byte, unix.SizeofIfInfomsg)
	peer := attributes(none, attribute(unix.IFLA_IFNAME, []byte("in0\x00")),
		attribute(unix.IFLA_NET_NS_FD, ns))
	var failed error
	for _, kind := range []string{"veth", "netkit"} {
		err := request(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, attributes(none,
			attribute(unix.IFLA_IFNAME, []byte("out0\x00")),
			attribute(unix.IFLA_LINKINFO, attributes(
				attribute(unix.IFLA_INFO_KIND, []byte(kind)),
				attribute(unix.IFLA_INFO_DATA, attribute(1, peer)))))) // VETH_INFO_PEER
		if err == nil {
			return nil
		}
		failed = errors.Join(failed, fmt.Errorf("%s: %w", kind, err))
	}
	return failed
}

func removeLink(name string) {
	if index, err := linkIndex(name); err == nil {
		request(unix.RTM_DELLINK, 0, linkMessage(index))
	}
}

func linkMessage(index uint32) []byte {
	b, _ := binary.Append(nil, binary.NativeEndian, unix.IfInfomsg{Index: int32(index)})
	return b
}

func ifreq(name string, ioctl uint, set func(*unix.Ifreq)) (*unix.Ifreq, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq(name)
	if err != nil {
		return nil, err
	}
	if set != nil {
		set(r)
	}
	return r, unix.IoctlIfreq(fd, ioctl, r)
}

func linkIndex(name string) (uint32, error) {
	r, err := ifreq(name, unix.SIOCGIFINDEX, nil)
	if err != nil {
		return 0, err
	}
	return r.Uint32(), nil
}

// addresses raises an interface and gives it addresses.
func addresses(name string, prefixes ...string) error {
	index, err := linkIndex(name)
	if err != nil {
		return err
	}
	_, err = ifreq(name, unix.SIOCSIFFLAGS, func(r *unix.Ifreq) { r.SetUint16(unix.IFF_UP) })
	if err != nil {
		return err
	}
	for _, p := range prefixes {
		prefix := netip.MustParsePrefix(p)
		family := uint8(unix.AF_INET)
		if prefix.Addr().Is6() {
			family = unix.AF_INET6
		}
		body, err := binary.Append(nil, binary.NativeEndian, unix.IfAddrmsg{Family: family,
			Prefixlen: uint8(prefix.Bits()), Flags: unix.IFA_F_NODAD, Index: index})
		if err != nil {
			return err
		}
		raw := prefix.Addr().AsSlice()
		err = request(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, attributes(body,
			attribute(unix.IFA_LOCAL, raw), attribute(unix.IFA_ADDRESS, raw)))
		if err != nil {
			return fmt.Errorf("add %s: %w", p, err)
		}
	}
	return nil
}
