package adversary

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Everything in this file but inetAddress and portOf runs in the attacker's process.

// inetAddress reads an address and port, and keeps IPv4-mapped ones as IPv6.
func inetAddress(s string) (unix.Sockaddr, int, error) {
	a, err := netip.ParseAddrPort(s)
	if err != nil {
		return nil, 0, err
	}
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}, unix.AF_INET, nil
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}, unix.AF_INET6, nil
}

func portOf(fd int) (int, error) {
	at, err := unix.Getsockname(fd)
	if err != nil {
		return 0, fmt.Errorf("getsockname: %w", err)
	}
	switch at := at.(type) {
	case *unix.SockaddrInet4:
		return at.Port, nil
	case *unix.SockaddrInet6:
		return at.Port, nil
	}
	return 0, errors.New("getsockname: not an IP address")
}

// service returns the service's address, under another host if that is not empty.
func (t *Target) service(host string) (unix.Sockaddr, int, error) {
	address := t.Args["service"]
	if host != "" {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, 0, need(err)
		}
		address = net.JoinHostPort(host, port)
	}
	at, family, err := inetAddress(address)
	return at, family, need(err)
}

// attackTCP connects to the service and writes.
func attackTCP(host string) func(*Target) ([]byte, error) {
	return func(t *Target) ([]byte, error) {
		at, family, err := t.service(host)
		if err != nil {
			return nil, err
		}
		fd, err := openSocket(family, unix.SOCK_STREAM)
		if err != nil {
			return nil, err
		}
		defer unix.Close(fd)
		return nil, connectAndWrite(fd, at)
	}
}

func openSocket(family, kind int) (int, error) {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	return fd, call("socket", err)
}

func connectAndWrite(fd int, at unix.Sockaddr) error {
	if err := unix.Connect(fd, at); err != nil {
		return call("connect", err)
	}
	_, err := unix.Write(fd, []byte(mark))
	return call("write", err)
}

// bindTo makes a socket that is bound, and listens if it can.
func bindTo(kind int, address string, options ...int) (int, error) {
	return bindAfter(kind, address, func(fd int) error {
		for _, o := range options {
			err := call("setsockopt", unix.SetsockoptInt(fd, unix.SOL_SOCKET, o, 1))
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// bindAfter does something to the socket before.
func bindAfter(kind int, address string, prepare func(fd int) error) (int, error) {
	at, family, err := inetAddress(address)
	if err != nil {
		return -1, need(err)
	}
	fd, err := openSocket(family, kind)
	if err != nil {
		return -1, err
	}
	if err = prepare(fd); err == nil {
		err = call("bind", unix.Bind(fd, at))
	}
	if err == nil && kind == unix.SOCK_STREAM {
		err = call("listen", unix.Listen(fd, 64))
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// attackBoundZero6 has a listener on ::1, so that :: might be taken for it.
func attackBoundZero6(t *Target) ([]byte, error) {
	at, _, err := t.service("::")
	if err != nil {
		return nil, err
	}
	port := fmt.Sprint(at.(*unix.SockaddrInet6).Port)
	own, err := bindTo(unix.SOCK_STREAM, net.JoinHostPort("::1", port))
	if err != nil {
		return nil, err
	}
	defer unix.Close(own)
	fd, err := openSocket(unix.AF_INET6, unix.SOCK_STREAM)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	from := &unix.SockaddrInet6{Addr: netip.MustParseAddr("::ffff:127.0.0.1").As16()}
	if err := unix.Bind(fd, from); err != nil {
		return nil, call("bind", err)
	}
	return nil, connectAndWrite(fd, at)
}

func attackFastOpen(t *Target) ([]byte, error) {
	at, family, err := t.service("")
	if err != nil {
		return nil, err
	}
	fd, err := openSocket(family, unix.SOCK_STREAM)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return nil, call("sendto", unix.Sendto(fd, []byte(mark), unix.MSG_FASTOPEN, at))
}

// disconnect is connect(2) to AF_UNSPEC.
func disconnect(fd int) error {
	var none unix.RawSockaddr
	_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&none)),
		unsafe.Sizeof(none))
	if errno != 0 {
		return call("disconnect", errno)
	}
	return nil
}

// attackReconnect uses a socket that was allowed to connect once.
func attackReconnect(kind int) func(*Target) ([]byte, error) {
	return func(t *Target) ([]byte, error) {
		at, family, err := t.service("")
		if err != nil {
			return nil, err
		}
		own, err := bindTo(kind, "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer unix.Close(own)
		ownAt, err := unix.Getsockname(own)
		if err != nil {
			return nil, need(err)
		}
		fd, err := openSocket(family, kind)
		if err != nil {
			return nil, err
		}
		defer unix.Close(fd)
		if err := unix.Connect(fd, ownAt); err != nil {
			return nil, call("connect to our own", err)
		}
		if err := disconnect(fd); err != nil {
			return nil, err
		}
		return nil, connectAndWrite(fd, at)
	}
}

// attackNeighbour makes the service's port look like its own.
func attackNeighbour(t *Target) ([]byte, error) {
	at, _, err := t.service("")
	if err != nil {
		return nil, err
	}
	port := at.(*unix.SockaddrInet4).Port
	own, err := bindTo(unix.SOCK_STREAM, fmt.Sprint("127.0.0.2:", port), unix.SO_REUSEADDR)
	if err != nil {
		return nil, err
	}
	defer unix.Close(own)
	all, err := openSocket(unix.AF_INET6, unix.SOCK_STREAM)
	if err != nil {
		return nil, err
	}
	defer unix.Close(all)
	if err := unix.SetsockoptInt(all, unix.SOL_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
		return nil, call("setsockopt", err)
	}
	if err := unix.Bind(all, &unix.SockaddrInet6{Port: port}); err != nil {
		return nil, call("bind", err)
	}
	if err := unix.Listen(all, 1); err != nil {
		return nil, call("listen", err)
	}
	return attackTCP("")(t)
}

// attackBeside binds beside the service with an option, takes that back if it can, so
// that it does not show, and talks to the service.
func attackBeside(kind, option int) func(*Target) ([]byte, error) {
	return func(t *Target) ([]byte, error) {
		at, family, err := t.service("0.0.0.0")
		if err != nil {
			return nil, err
		}
		if option == unix.SO_REUSEPORT {
			at, _, _ = t.service("")
		}
		own, err := openSocket(family, kind)
		if err != nil {
			return nil, err
		}
		defer unix.Close(own)
		// Each may fail; what counts is what the service hears.
		_ = unix.SetsockoptInt(own, unix.SOL_SOCKET, option, 1)
		_ = unix.Bind(own, at)
		if kind == unix.SOCK_STREAM {
			_ = unix.Listen(own, 64)
		}
		if option == unix.SO_REUSEADDR {
			_ = unix.SetsockoptInt(own, unix.SOL_SOCKET, option, 0)
		}
		try := attackTCP("")
		if kind == unix.SOCK_DGRAM {
			try = attackUDP("")
		}
		for range 32 { // the kernel chooses one of those that share a port
			if _, err = try(t); err != nil {
				break
			}
		}
		return nil, err
	}
}

// attackSteal waits at the service's port for what others say to it.
func attackSteal(t *Target) ([]byte, error) {
	own, err := bindTo(unix.SOCK_STREAM, t.Args["service"], unix.SO_REUSEPORT)
	if err != nil {
		return nil, err
	}
	defer unix.Close(own)
	return t.takeCall(own)
}

// takeCall takes what a client sends to a listening socket.
func (t *Target) takeCall(own int) ([]byte, error) {
	if err := t.Sync(); err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(own, true); err != nil {
		return nil, need(err)
	}
	fd, _, err := unix.Accept(own)
	if err != nil {
		return nil, call("accept", err)
	}
	defer unix.Close(fd)
	buf := make([]byte, maxLoot)
	n, err := unix.Read(fd, buf)
	return buf[:max(0, n)], call("read", err)
}

// attackUDP sends a datagram without connecting.
func attackUDP(host string) func(*Target) ([]byte, error) {
	return func(t *Target) ([]byte, error) {
		at, family, err := t.service(host)
		if err != nil {
			return nil, err
		}
		fd, err := openSocket(family, unix.SOCK_DGRAM)
		if err != nil {
			return nil, err
		}
		defer unix.Close(fd)
		return nil, call("sendto", unix.Sendto(fd, []byte(mark), 0, at))
	}
}

// attackUDPFamily gives the kernel addresses that it has to make sense of: without a
// family on an IPv4 socket, and of IPv4 on an IPv6 socket.
func attackUDPFamily(t *Target) ([]byte, error) {
	at, _, err := t.service("")
	if err != nil {
		return nil, err
	}
	var failed error
	for _, how := range []struct{ socket, name int }{
		{unix.AF_INET, unix.AF_UNSPEC}, {unix.AF_INET6, unix.AF_INET},
	} {
		fd, err := openSocket(how.socket, unix.SOCK_DGRAM)
		if err != nil {
			return nil, err
		}
		defer unix.Close(fd)
		raw := rawInet4(at.(*unix.SockaddrInet4), how.name)
		data := []byte(mark)
		_, _, errno := unix.Syscall6(unix.SYS_SENDTO, uintptr(fd),
			uintptr(unsafe.Pointer(&data[0])), uintptr(len(data)), 0,
			uintptr(unsafe.Pointer(raw)), unsafe.Sizeof(*raw))
		if errno != 0 {
			failed = call("sendto", errno)
		}
	}
	return nil, failed
}

func rawInet4(at *unix.SockaddrInet4, family int) *unix.RawSockaddrInet4 {
	raw := &unix.RawSockaddrInet4{Family: uint16(family), Addr: at.Addr}
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&raw.Port))[:], uint16(at.Port))
	return raw
}

// attackSendmmsg sends two datagrams with one call, the second to the service.
func attackSendmmsg(t *Target) ([]byte, error) {
	at, _, err := t.service("")
	if err != nil {
		return nil, err
	}
	own, err := bindTo(unix.SOCK_DGRAM, "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer unix.Close(own)
	ownAt, err := unix.Getsockname(own)
	if err != nil {
		return nil, need(err)
	}
	data := []byte(mark)
	var messages [2]struct {
		header unix.Msghdr
		length uint32
		_      uint32
	}
	part := unix.Iovec{Base: &data[0]}
	part.SetLen(len(data))
	for i, to := range []unix.Sockaddr{ownAt, at} {
		raw := rawInet4(to.(*unix.SockaddrInet4), unix.AF_INET)
		messages[i].header = unix.Msghdr{Name: (*byte)(unsafe.Pointer(raw)),
			Namelen: uint32(unsafe.Sizeof(*raw)), Iov: &part, Iovlen: 1}
	}
	n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(own),
		uintptr(unsafe.Pointer(&messages[0])), 2, 0, 0, 0)
	if errno == 0 && n < 2 { // the error of the second is not told
		errno = unix.EACCES
	}
	if errno != 0 {
		return nil, call("sendmmsg", errno)
	}
	return nil, nil
}

func attackUDPConnected(t *Target) ([]byte, error) {
	at, family, err := t.service("")
	if err != nil {
		return nil, err
	}
	fd, err := openSocket(family, unix.SOCK_DGRAM)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return nil, connectAndWrite(fd, at)
}

// attackSuccessor keeps a socket connected to a port that somebody else has by then.
func attackSuccessor(t *Target) ([]byte, error) {
	own, err := bindTo(unix.SOCK_DGRAM, t.Args["service"])
	if err != nil {
		return nil, err
	}
	at, err := unix.Getsockname(own)
	if err != nil {
		unix.Close(own)
		return nil, need(err)
	}
	fd, err := openSocket(unix.AF_INET, unix.SOCK_DGRAM)
	if err != nil {
		unix.Close(own)
		return nil, err
	}
	defer unix.Close(fd)
	err = call("connect to our own", unix.Connect(fd, at))
	unix.Close(own)
	if err != nil {
		return nil, err
	}
	if err := t.Sync(); err != nil {
		return nil, err
	}
	_, err = unix.Write(fd, []byte(mark))
	return nil, call("write", err)
}

// attackMoved gives a port on all addresses up by connecting, and takes it back by
// disconnecting. Meanwhile the service binds one of the addresses.
func attackMoved(t *Target) ([]byte, error) {
	all, _, err := t.service("::")
	if err != nil {
		return nil, err
	}
	own, err := bindTo(unix.SOCK_DGRAM, fmt.Sprint("[::]:", all.(*unix.SockaddrInet6).Port))
	if err != nil {
		return nil, err
	}
	defer unix.Close(own)
	peer, err := bindTo(unix.SOCK_DGRAM, "[::1]:0")
	if err != nil {
		return nil, err
	}
	defer unix.Close(peer)
	peerAt, err := unix.Getsockname(peer)
	if err != nil {
		return nil, need(err)
	}
	if err := unix.Connect(own, peerAt); err != nil {
		return nil, call("connect to our own", err)
	}
	if err := t.Sync(); err != nil {
		return nil, err
	}
	if err := disconnect(own); err != nil {
		return nil, err
	}
	return attackUDP("")(t)
}

// attackPassed writes into a socket that it is passed.
func attackPassed(*Target) ([]byte, error) {
	fd, err := receiveFD(0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(mark))
	return nil, call("write", err)
}
