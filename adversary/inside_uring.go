package adversary

import (
	"encoding/binary"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Operations of io_uring (linux/io_uring.h): sendmsg since 5.3, connect since 5.5,
// openat, statx and read since 5.6, renameat and unlinkat since 5.11, the other
// names since 5.15, attributes since 5.19, truncation since 6.9, bind since 6.11.
const (
	uringSendmsg   = 9
	uringConnect   = 16
	uringOpenat    = 18
	uringStatx     = 21
	uringRead      = 22
	uringOpenat2   = 28
	uringRenameat  = 35
	uringUnlinkat  = 36
	uringMkdirat   = 37
	uringSymlinkat = 38
	uringLinkat    = 39
	uringSetxattr  = 42
	uringGetxattr  = 44
	uringBind      = 56
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

// uringRequest makes the request that fill writes, through a ring of its own.
func uringRequest(fill func(sqe []byte)) (int, error) {
	r, err := newRing(0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(r.fd)
	return r.request(fill)
}

// A ring is an instance of io_uring with room for one request at a time.
type ring struct {
	fd          int
	params      uringParams
	sq, cq, sqe []byte
	made        uint32 // requests so far
}

func newRing(flags uint32) (*ring, error) {
	p := uringParams{flags: flags, threadIdle: 1000}
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil, call("io_uring_setup", errno)
	}
	return mapRing(int(fd), p)
}

// mapRing maps the queues of a ring.
func mapRing(fd int, p uringParams) (*ring, error) {
	r := &ring{fd: fd, params: p}
	var err error
	mem := func(offset int64, size uint32) []byte {
		b, mapErr := unix.Mmap(fd, offset, int(size), unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_SHARED)
		if err == nil {
			err = call("mmap io_uring", mapErr)
		}
		return b
	}
	r.sq = mem(0, p.sq.array+4*p.sqEntries)
	r.cq = mem(0x8000000, p.cq.cqes+16*p.cqEntries)
	r.sqe = mem(0x10000000, 64*p.sqEntries)
	return r, err
}

// word is a number in a queue that the kernel reads and writes as well.
func word(queue []byte, offset uint32) *uint32 {
	return (*uint32)(unsafe.Pointer(&queue[offset]))
}

// request makes one request and returns its result.
func (r *ring) request(fill func(sqe []byte)) (int, error) {
	order := binary.NativeEndian
	clear(r.sqe)
	fill(r.sqe)
	order.PutUint32(r.sq[r.params.sq.array:], 0)
	slot := r.made % r.params.cqEntries
	r.made++
	atomic.StoreUint32(word(r.sq, r.params.sq.tail), r.made)
	// A signal, of which Go has its own, ends the call before the result is there.
	done := func() bool { return atomic.LoadUint32(word(r.cq, r.params.cq.tail)) == r.made }
	for submit := uintptr(1); submit == 1 || !done(); {
		const getEvents, wakeUp = 1, 2
		_, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), submit, 1,
			getEvents|wakeUp, 0, 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return -1, call("io_uring_enter", errno)
		}
		submit = 0
	}
	result := int32(order.Uint32(r.cq[r.params.cq.cqes+16*slot+8:]))
	atomic.StoreUint32(word(r.cq, r.params.cq.head), r.made)
	if result < 0 {
		return -1, call("io_uring operation", syscall.Errno(-result))
	}
	return int(result), nil
}

// register hands the ring something, or asks for it.
func (r *ring) register(what int, arg unsafe.Pointer, n int) (int, error) {
	got, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), uintptr(what),
		uintptr(arg), uintptr(n), 0, 0)
	if errno != 0 {
		return -1, call("io_uring_register", errno)
	}
	return int(got), nil
}

// registerFiles gives the ring a table with one descriptor; -1 leaves it empty.
func (r *ring) registerFiles(fd int) error {
	const registerFiles = 2
	table := int32(fd)
	_, err := r.register(registerFiles, unsafe.Pointer(&table), 1)
	return err
}

// readSlot reads the file in the ring's table, which has no descriptor here.
func (r *ring) readSlot() ([]byte, error) {
	buf := make([]byte, 256)
	n, err := r.request(func(sqe []byte) {
		const fixedFile = 1
		sqe[0], sqe[1] = uringRead, fixedFile
		binary.NativeEndian.PutUint64(sqe[16:], address(&buf[0]))
		binary.NativeEndian.PutUint32(sqe[24:], uint32(len(buf)))
	})
	return buf[:max(n, 0)], err
}
