package adversary

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

var (
	connects = []string{"socket_connect"}
	sends    = []string{"socket_sendmsg"}
)

const (
	needsIPv6     = "IPv6"
	needsMetadata = "169.254.169.254 as an address of the machine"
)

// network: talking to services of this machine over TCP and UDP, which stand for
// everything that --net does not give.
var network = []Case{
	{
		Name: "net_tcp4", Family: "network", Source: "D62 LibreCodeInterpreter#95",
		What: "connects to a service on 127.0.0.1", Hooks: connects,
		Calls: "socket, connect",
		Setup: serving("tcp", "127.0.0.1"), Attack: attackTCP(""), Judge: heard,
	},
	{
		Name: "net_tcp6", Family: "network", Source: "D56 leash",
		What: "connects to a service on ::1", Hooks: connects,
		Calls: "socket, connect", Needs: needsIPv6,
		Setup: serving("tcp", "::1"), Attack: attackTCP(""), Judge: heard,
	},
	{
		Name: "net_tcp_mapped", Family: "network", Source: "D57 sandlock#151 tetragon#4618",
		What: "connects to it as ::ffff:127.0.0.1 from an IPv6 socket", Hooks: connects,
		Calls: "socket, connect", Needs: needsIPv6,
		Setup: serving("tcp", "127.0.0.1"), Attack: attackTCP("::ffff:127.0.0.1"), Judge: heard,
	},
	{
		Name: "net_tcp_zero", Family: "network", Source: "D57 cowrie#40329",
		What: "connects to it as 0.0.0.0", Hooks: connects,
		Calls: "socket, connect",
		Setup: serving("tcp", "127.0.0.1"), Attack: attackTCP("0.0.0.0"), Judge: heard,
	},
	{
		Name: "net_tcp_zero6", Family: "network", Source: "D57 cowrie#40329",
		What: "connects to a service on ::1 as ::", Hooks: connects,
		Calls: "socket, connect", Needs: needsIPv6,
		Setup: serving("tcp", "::1"), Attack: attackTCP("::"), Judge: heard,
	},
	{
		Name: "net_tcp_zero6_bound", Family: "network", Source: "D57 cowrie#40329",
		What:  "owns ::1 and connects to :: from an IPv4-mapped address, which is 127.0.0.1",
		Calls: "socket, bind, listen, bind, connect", Needs: needsIPv6,
		Hooks: connects, Setup: serving("tcp", "127.0.0.1"), Attack: attackBoundZero6, Judge: heard,
	},
	{
		Name: "net_tcp_other_loopback", Family: "network", Source: "D57",
		What: "connects to a service on all addresses as 127.1.2.3", Hooks: connects,
		Calls: "socket, connect",
		Setup: serving("tcp", "0.0.0.0"), Attack: attackTCP("127.1.2.3"), Judge: heard,
	},
	{
		Name: "net_tcp_machine", Family: "network", Source: "D62",
		What: "connects to a service on an address of the machine's interfaces", Hooks: connects,
		Calls: "socket, connect", Needs: "an address besides the loopback's",
		Setup: func(s *Scene) error {
			address, err := machineAddress()
			if err != nil {
				return err
			}
			return s.ListenInet("service", unix.SOCK_STREAM, address, 0)
		},
		Attack: attackTCP(""), Judge: heard,
	},
	{
		Name: "net_tcp_metadata", Family: "network", Source: "D61 OMAC#80 CVE-2025-55284",
		What: "connects to what answers on the metadata address of clouds", Hooks: connects,
		Calls: "socket, connect", Needs: needsMetadata,
		Setup: serving("tcp", "169.254.169.254"), Attack: attackTCP(""), Judge: heard,
	},
	{
		Name: "net_tcp_metadata_mapped", Family: "network", Source: "D57 D61",
		What: "connects to it as an IPv4-mapped address", Hooks: connects,
		Calls: "socket, connect", Needs: needsIPv6 + ", " + needsMetadata,
		Setup:  serving("tcp", "169.254.169.254"),
		Attack: attackTCP("::ffff:169.254.169.254"), Judge: heard,
	},
	{
		Name: "net_tcp_fastopen", Family: "network", Source: "D59 landlock-lsm/linux#41",
		What: "sends with MSG_FASTOPEN instead of connecting", Hooks: sends,
		Calls: "socket, sendto(MSG_FASTOPEN)", Needs: "net.ipv4.tcp_fastopen with bit 1",
		Setup: serving("tcp", "127.0.0.1"), Attack: attackFastOpen, Judge: heard,
	},
	{
		Name: "net_tcp_uring", Family: "network", Source: "D64 codex#10814",
		What: "connects through io_uring", Hooks: connects,
		Calls: "socket, io_uring(CONNECT)", Needs: needsRing,
		Setup: serving("tcp", "127.0.0.1"), Attack: attackUringConnect, Judge: heard,
	},
	{
		Name: "net_tcp_reconnect", Family: "network", Source: "D58",
		What:  "connects to its own listener, disconnects (AF_UNSPEC) and connects again",
		Calls: "socket, connect, connect(AF_UNSPEC), connect",
		Hooks: connects, Setup: serving("tcp", "127.0.0.1"),
		Attack: attackReconnect(unix.SOCK_STREAM), Judge: heard,
	},
	{
		Name: "net_tcp_neighbour", Family: "network", Source: "D62",
		What:  "listens on the service's port at 127.0.0.2 and on all of IPv6, then connects to it",
		Calls: "socket, bind, listen, connect", Needs: needsIPv6,
		Hooks: connects, Setup: serving("tcp", "127.0.0.1"), Attack: attackNeighbour, Judge: heard,
	},
	{
		Name: "net_tcp_beside", Family: "network", Source: "D62",
		What:  "binds the service's port with SO_REUSEADDR, then connects to the service",
		Calls: "socket, setsockopt(SO_REUSEADDR), bind, listen, connect",
		Hooks: connects, Setup: serving("tcp", "127.0.0.1"),
		Attack: attackBeside(unix.SOCK_STREAM, unix.SO_REUSEADDR), Judge: heard,
	},
	{
		Name: "net_tcp_shared", Family: "network", Source: "D62",
		What:   "joins the service's port with SO_REUSEPORT, then connects to it many times",
		Calls:  "socket, setsockopt(SO_REUSEPORT), bind, listen, connect",
		Hooks:  []string{"socket_connect", "socket_setsockopt"},
		Setup:  servingShared("tcp", "127.0.0.1", unix.SO_REUSEPORT),
		Attack: attackBeside(unix.SOCK_STREAM, unix.SO_REUSEPORT), Judge: heard,
	},
	{
		Name: "net_tcp_stolen", Family: "network", Source: "D62",
		What:  "takes connections from a service by joining its port with SO_REUSEPORT",
		Calls: "socket, setsockopt(SO_REUSEPORT), bind, listen, accept4",
		Hooks: []string{"socket_setsockopt"},
		Setup: servingShared("tcp", "127.0.0.1", unix.SO_REUSEPORT), Attack: attackSteal,
		Meanwhile: callService, Judge: tokenRead,
	},
	{
		Name: "net_tcp_stolen_uring", Family: "network", Source: "D62 D64",
		What:  "the same, with the option set through io_uring",
		Calls: "socket, io_uring(URING_CMD), bind, listen, accept4", Needs: needsRing, Since: "6.7",
		Hooks: []string{"uring_cmd", "socket_setsockopt"},
		Setup: servingShared("tcp", "127.0.0.1", unix.SO_REUSEPORT), Attack: attackUringSteal,
		Meanwhile: callService, Judge: tokenRead,
	},
	{
		Name: "net_udp4", Family: "network", Source: "D58 landlock-lsm/linux#10",
		What: "sends a datagram to 127.0.0.1 without connecting", Hooks: sends,
		Calls: "socket, sendto",
		Setup: serving("udp", "127.0.0.1"), Attack: attackUDP(""), Judge: heard,
	},
	{
		Name: "net_udp6", Family: "network", Source: "D56 D58 dust#25991",
		What: "sends a datagram to ::1", Hooks: sends,
		Calls: "socket, sendto", Needs: needsIPv6,
		Setup: serving("udp", "::1"), Attack: attackUDP(""), Judge: heard,
	},
	{
		Name: "net_udp_mapped", Family: "network", Source: "D57 D58",
		What: "sends a datagram to ::ffff:127.0.0.1", Hooks: sends,
		Calls: "socket, sendto", Needs: needsIPv6,
		Setup: serving("udp", "127.0.0.1"), Attack: attackUDP("::ffff:127.0.0.1"), Judge: heard,
	},
	{
		Name: "net_udp_family", Family: "network", Source: "D58",
		What:  "sends a datagram to an IPv4 address without a family, or on an IPv6 socket",
		Calls: "socket, sendto",
		Hooks: sends, Setup: serving("udp", "127.0.0.1"), Attack: attackUDPFamily, Judge: heard,
	},
	{
		Name: "net_udp_sendmmsg", Family: "network", Source: "D58",
		What: "sends datagrams with sendmmsg, the first to itself", Hooks: sends,
		Calls: "socket, bind, sendmmsg",
		Setup: serving("udp", "127.0.0.1"), Attack: attackSendmmsg, Judge: heard,
	},
	{
		Name: "net_udp_uring", Family: "network", Source: "D58 D64",
		What: "sends a datagram through io_uring", Hooks: sends,
		Calls: "socket, io_uring(SENDMSG)", Needs: needsRing,
		Setup: serving("udp", "127.0.0.1"), Attack: attackUringSend, Judge: heard,
	},
	{
		Name: "net_udp_connected", Family: "network", Source: "D58",
		What:  "connects a UDP socket and writes",
		Calls: "socket, connect, write",
		Hooks: []string{"socket_connect", "socket_sendmsg"},
		Setup: serving("udp", "127.0.0.1"), Attack: attackUDPConnected, Judge: heard,
	},
	{
		Name: "net_udp_reconnect", Family: "network", Source: "D58",
		What:  "connects to its own UDP socket, disconnects (AF_UNSPEC) and connects again",
		Calls: "socket, connect, connect(AF_UNSPEC), connect, write",
		Hooks: []string{"socket_connect", "socket_sendmsg"},
		Setup: serving("udp", "127.0.0.1"), Attack: attackReconnect(unix.SOCK_DGRAM), Judge: heard,
	},
	{
		Name: "net_udp_successor", Family: "network", Source: "D58",
		What:  "connects to its own UDP socket, whose port a service outside takes then",
		Calls: "socket, bind, connect, write",
		Hooks: sends, Setup: findPort, Attack: attackSuccessor, Meanwhile: takePort, Judge: heard,
	},
	{
		Name: "net_udp_moved", Family: "network", Source: "D62",
		What:  "owns a port on all addresses but for a while, in which a service takes it on one",
		Calls: "socket, bind, connect, connect(AF_UNSPEC), sendto", Needs: needsIPv6,
		Hooks: []string{"socket_sendmsg", "socket_connect"},
		Setup: findPort, Attack: attackMoved, Meanwhile: takePort, Judge: heard,
	},
	{
		Name: "net_udp_beside", Family: "network", Source: "D62",
		What:  "binds the service's port on all addresses with SO_REUSEADDR, then sends to it",
		Calls: "socket, setsockopt(SO_REUSEADDR), bind, sendto",
		Hooks: sends, Setup: servingShared("udp", "127.0.0.1", unix.SO_REUSEADDR),
		Attack: attackBeside(unix.SOCK_DGRAM, unix.SO_REUSEADDR), Judge: heard,
	},
	{
		Name: "net_passed_tcp", Family: "network", Source: "D20 D62",
		What:  "is passed a TCP socket that is connected to a service",
		Calls: "recvmsg, write",
		Hooks: []string{"file_receive"}, Setup: passConnected("tcp4", "127.0.0.1:0"),
		Attack: attackPassed, Judge: arrived,
	},
	{
		Name: "net_passed_udp", Family: "network", Source: "D20 D58",
		What:  "is passed a UDP socket that is connected to a service",
		Calls: "recvmsg, write",
		Hooks: []string{"file_receive", "socket_sendmsg"}, Setup: passUDP,
		Attack: attackPassed, Judge: heard,
	},
	{
		Name: "net_passed_unix", Family: "network", Source: "D20 D49",
		What:  "is passed a Unix socket that is connected to a daemon",
		Calls: "recvmsg, write",
		Hooks: []string{"file_receive"}, Setup: passConnected("unix", ""),
		Attack: attackPassed, Judge: arrived,
	},
}

// serving is the setup with a service on a port of its own.
func serving(network, address string) func(*Scene) error {
	return servingShared(network, address, 0)
}

// servingShared is the same with an option that lets others have the port as well.
func servingShared(network, address string, option int) func(*Scene) error {
	kind := unix.SOCK_STREAM
	if network == "udp" {
		kind = unix.SOCK_DGRAM
	}
	return func(s *Scene) error { return s.ListenInet("service", kind, address, option) }
}

// ListenInet binds a TCP or UDP socket to a port of its own at an address and tells
// the attacker where as name. The judge [heard] looks whether anything arrived.
func (s *Scene) ListenInet(name string, kind int, address string, option int) error {
	fd, err := s.listenAt(kind, net.JoinHostPort(address, "0"), option)
	if err != nil {
		return err
	}
	port, err := portOf(fd)
	if err != nil {
		return err
	}
	s.Arg(name, net.JoinHostPort(address, fmt.Sprint(port)))
	return nil
}

// listenAt binds a TCP or UDP socket to an address with its port, after setting a socket
// option that is not 0.
func (s *Scene) listenAt(kind int, address string, option int) (int, error) {
	at, family, err := inetAddress(address)
	if err != nil {
		return -1, err
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	s.onClose(func() { unix.Close(fd) })
	if option != 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, 1); err != nil {
			return -1, fmt.Errorf("setsockopt: %w", err)
		}
	}
	if err := unix.Bind(fd, at); err != nil {
		return -1, fmt.Errorf("bind %s: %w", address, err)
	}
	if kind == unix.SOCK_STREAM {
		if err := unix.Listen(fd, 64); err != nil {
			return -1, fmt.Errorf("listen: %w", err)
		}
	}
	s.listeners = append(s.listeners, listener{fd, kind})
	return fd, nil
}

// machineAddress is one that other machines could use.
func machineAddress() (string, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return "", err
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			return n.IP.String(), nil
		}
	}
	return "", errors.New("no interface has an address but the loopback")
}

// passConnected passes one end of a connection. What arrives at the other is judged.
func passConnected(network, address string) func(*Scene) error {
	return func(s *Scene) error {
		if network == "unix" {
			address = s.Out("daemon")
		}
		l, err := net.Listen(network, address)
		if err != nil {
			return err
		}
		s.onClose(func() { l.Close() })
		ours, err := net.Dial(network, l.Addr().String())
		if err != nil {
			return err
		}
		s.onClose(func() { ours.Close() })
		theirs, err := l.Accept()
		if err != nil {
			return err
		}
		s.onClose(func() { theirs.Close() })
		if s.conn, err = fileOf(theirs); err != nil {
			return err
		}
		return s.passConn(ours)
	}
}

func passUDP(s *Scene) error {
	if err := serving("udp", "127.0.0.1")(s); err != nil {
		return err
	}
	conn, err := net.Dial("udp", s.Target.Args["service"])
	if err != nil {
		return err
	}
	s.onClose(func() { conn.Close() })
	return s.passConn(conn)
}

func (s *Scene) passConn(conn net.Conn) error {
	fd, err := fileOf(conn)
	if err == nil {
		s.pass = append(s.pass, fd)
		s.onClose(func() { unix.Close(fd) })
	}
	return err
}

// fileOf returns another descriptor of a connection.
func fileOf(conn net.Conn) (int, error) {
	var fd int
	var dupErr error
	raw, err := conn.(interface {
		SyscallConn() (syscall.RawConn, error)
	}).SyscallConn()
	if err != nil {
		return -1, err
	}
	err = raw.Control(func(n uintptr) { fd, dupErr = unix.Dup(int(n)) })
	return fd, errors.Join(err, dupErr)
}

// arrived finds data at the scene's connection.
var arrived = Judge{"data arrived at the other end of the passed socket", func(s *Scene) string {
	var buf [64]byte
	if n, _, err := unix.Recvfrom(s.conn, buf[:], unix.MSG_DONTWAIT); err == nil && n > 0 {
		return "data arrived at the service outside"
	}
	return ""
}}

// callService connects to the service as its user would, and says the canary.
func callService(s *Scene, _ int) error {
	for range 32 {
		conn, err := net.Dial("tcp", s.Target.Args["service"])
		if err != nil {
			return err
		}
		s.onClose(func() { conn.Close() })
		if _, err := conn.Write([]byte(s.Token)); err != nil {
			return err
		}
	}
	return nil
}

// findPort tells the attacker of a UDP port that is free.
func findPort(s *Scene) error {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.Arg("service", conn.LocalAddr().String())
	return conn.Close()
}

// takePort is a service that is started where the attacker's socket was or is.
func takePort(s *Scene, _ int) error {
	_, err := s.listenAt(unix.SOCK_DGRAM, s.Target.Args["service"], 0)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil // the attacker still has it: nothing will be heard
	}
	return err
}
