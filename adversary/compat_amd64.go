package adversary

import (
	"fmt"
	"runtime/debug"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// int80 makes a 32-bit system call. The kernel sends SIGSEGV where it has none.
func int80(number, a, b, c uint32) int32

// cloneOpen makes a child by a system call with two arguments, clone or clone3,
// and lets it open a file.
//
//go:noescape
func cloneOpen(number, a, b, path uintptr, result *int64) int64

// call32 makes a 32-bit system call, with its pointers to low memory.
func call32(number int, a, b, c uint32) (got int, err error) {
	debug.SetPanicOnFault(true)
	defer func() {
		if recover() != nil {
			got, err = -1, fmt.Errorf("int 0x80: %w: the kernel has no 32-bit calls", unix.ENOSYS)
		}
	}()
	n := int80(uint32(number), a, b, c)
	if n < 0 {
		return -1, call(fmt.Sprint("32-bit system call ", number), syscall.Errno(-n))
	}
	return int(n), nil
}

// low copies bytes to memory that a 32-bit pointer reaches. It is never freed.
func low(data []byte) (uint32, error) {
	b, err := unix.Mmap(-1, 0, len(data)+1, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_32BIT)
	if err != nil {
		return 0, need(call("mmap MAP_32BIT", err))
	}
	copy(b, data)
	return uint32(uintptr(unsafe.Pointer(&b[0]))), nil
}

// openInClone has a process made by clone or clone3 open a file, which shares our
// memory and descriptors, and reads it.
func openInClone(number, a, b uintptr, path string) ([]byte, error) {
	result := int64(-int64(unix.EIO))
	pid := cloneOpen(number, a, b, cstring(path), &result)
	if pid < 0 {
		return nil, call("clone", syscall.Errno(-pid))
	}
	_, _ = unix.Wait4(int(pid), nil, unix.WALL, nil) // a sibling is not ours to wait for
	if result < 0 {
		return nil, call("open in a clone", syscall.Errno(-result))
	}
	return slurp(int(result))
}

// clone3Open does it by clone3 with an exit signal of none.
func clone3Open(flags uint64, path string) ([]byte, error) {
	args := &[11]uint64{flags}
	return openInClone(unix.SYS_CLONE3, uintptr(unsafe.Pointer(args)), unsafe.Sizeof(*args), path)
}
