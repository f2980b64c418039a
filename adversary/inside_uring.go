package adversary

import (
	"encoding/binary"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Operations of io_uring (linux/io_uring.h): sendmsg since 5.3, connect since 5.5,
// openat since 5.6, unlinkat since 5.11.
const (
	uringSendmsg  = 9
	uringConnect  = 16
	uringOpenat   = 18
	uringUnlinkat = 36
)

// uringParams is struct io_uring_params.
type uringParams struct {
	sqEntries, cqEntries, flags, threadCPU, threadIdle, features, wqFD uint32
	_                                                                  [3]uint32
	sq                                                                 struct {
		head, tail, mask, entries, flags, dropped, array, _ uint32
		_                                                   uint64
	}
	cq struct {
		head, tail, mask, entries, overflow, cqes, flags, _ uint32
		_                                                   uint64
	}
}

// uring makes one request of an operation on a path through a ring of its own, so
// that the kernel acts without the system call that a filter might look for. It
// returns the result of the operation.
func uring(op byte, path string, flags uint32) (int, error) {
	return uringRequest(func(sqe []byte) {
		order := binary.NativeEndian
		sqe[0] = op
		dirfd := int32(unix.AT_FDCWD)
		order.PutUint32(sqe[4:], uint32(dirfd))
		order.PutUint64(sqe[16:], uint64(cstring(path)))
		order.PutUint32(sqe[28:], flags)
	})
}

// uringRequest makes the request that fill writes.
func uringRequest(fill func(sqe []byte)) (int, error) {
	var p uringParams
	ring, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return -1, call("io_uring_setup", errno)
	}
	defer unix.Close(int(ring))
	mem := func(offset int64, size uint32) ([]byte, error) {
		b, err := unix.Mmap(int(ring), offset, int(size), unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_SHARED)
		return b, call("mmap io_uring", err)
	}
	sq, err := mem(0, p.sq.array+4*p.sqEntries)
	if err != nil {
		return -1, err
	}
	cq, err := mem(0x8000000, p.cq.cqes+16*p.cqEntries)
	if err != nil {
		return -1, err
	}
	sqe, err := mem(0x10000000, 64*p.sqEntries)
	if err != nil {
		return -1, err
	}
	order := binary.NativeEndian
	fill(sqe)
	// The ring is new: our request is number 0 of both queues.
	order.PutUint32(sq[p.sq.array:], 0)
	order.PutUint32(sq[p.sq.tail:], 1)
	_, _, errno = unix.Syscall6(unix.SYS_IO_URING_ENTER, ring, 1, 1, 1, 0, 0) // GETEVENTS
	if errno != 0 {
		return -1, call("io_uring_enter", errno)
	}
	result := int32(order.Uint32(cq[p.cq.cqes+8:]))
	if result < 0 {
		return -1, call("io_uring operation", syscall.Errno(-result))
	}
	return int(result), nil
}
