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

// creat is creat(2), which x/sys does without.
func creat(path string) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_CREAT, cstring(path), 0o600, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}
