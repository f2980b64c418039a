package adversary

import (
	"fmt"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Everything in this file runs in the attacker's process.

// attackRaceUnix has the last byte of an abstract address change.
func attackRaceUnix(t *Target) ([]byte, error) {
	name := t.Args["socket"]
	ours := strings.TrimSuffix(name, "1") + "0"
	own, err := openSocket(unix.AF_UNIX, unix.SOCK_STREAM)
	if err != nil {
		return nil, err
	}
	defer unix.Close(own)
	if err := unix.Bind(own, &unix.SockaddrUnix{Name: ours}); err != nil {
		return nil, need(call("bind", err))
	}
	if err := unix.Listen(own, 1); err != nil {
		return nil, need(call("listen", err))
	}
	at := &unix.RawSockaddrUnix{Family: unix.AF_UNIX}
	for i := 1; i < len(ours); i++ { // the first byte is NUL
		at.Path[i] = int8(ours[i])
	}
	last := &at.Path[len(ours)-1]
	size := unsafe.Offsetof(at.Path) + uintptr(len(ours))
	wanted := func(peer unix.Sockaddr) bool {
		u, ok := peer.(*unix.SockaddrUnix)
		return ok && u.Name == name
	}
	return nil, contend(func(int) { *last ^= 1 }, func() (bool, error) {
		return connectRaw(own, unix.AF_UNIX, unsafe.Pointer(at), size, wanted)
	})
}

// attackRaceTCP has the port of an address change.
func attackRaceTCP(t *Target) ([]byte, error) {
	at, ports, own, err := racePorts(t)
	if err != nil {
		return nil, err
	}
	defer unix.Close(own)
	_, family, err := t.service("")
	if err != nil {
		return nil, err
	}
	want := t.Args["service"]
	return nil, contend(func(turn int) { at.Port = ports[turn%2] }, func() (bool, error) {
		return connectRaw(own, family, unsafe.Pointer(at), unsafe.Sizeof(*at),
			func(peer unix.Sockaddr) bool {
				p, ok := peer.(*unix.SockaddrInet4)
				return ok && fmt.Sprint("127.0.0.1:", p.Port) == want
			})
	})
}

// racePorts is the address that is to change, what its port is to be, in the order of
// bytes of the network, and our own socket at the first of the ports.
func racePorts(t *Target) (*unix.RawSockaddrInet4, [2]uint16, int, error) {
	var ports [2]uint16
	theirs, _, err := t.service("")
	if err != nil {
		return nil, ports, -1, err
	}
	own, err := bindTo(unix.SOCK_STREAM, "127.0.0.1:0")
	if err != nil {
		return nil, ports, -1, err
	}
	ours, err := unix.Getsockname(own)
	if err != nil {
		unix.Close(own)
		return nil, ports, -1, need(err)
	}
	for i, a := range []unix.Sockaddr{ours, theirs} {
		ports[i] = rawInet4(a.(*unix.SockaddrInet4), unix.AF_INET).Port
	}
	return rawInet4(ours.(*unix.SockaddrInet4), unix.AF_INET), ports, own, nil
}

// connectRaw connects to an address in memory. It has won when the peer is the one it
// looks for; a connection to our own listener is taken out of its queue.
func connectRaw(own, family int, at unsafe.Pointer, size uintptr,
	wanted func(unix.Sockaddr) bool) (bool, error) {
	fd, err := openSocket(family, unix.SOCK_STREAM)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(at), size)
	if errno != 0 {
		return false, call("connect", errno)
	}
	peer, err := unix.Getpeername(fd)
	if err != nil {
		return false, call("getpeername", err)
	}
	if wanted(peer) {
		_, err := unix.Write(fd, []byte(mark))
		return err == nil, call("write", err)
	}
	// Closed without a trace: there may be very many.
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	got, _, err := unix.Accept(own)
	if err != nil {
		return false, need(call("accept", err))
	}
	return false, need(call("close", unix.Close(got)))
}
