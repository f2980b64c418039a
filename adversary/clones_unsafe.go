package adversary

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// cloneOpen makes a child by a system call with two arguments, clone or clone3,
// and lets it open a file.
//
//go:noescape
func cloneOpen(number, a, b, path uintptr, result *int64) int64

// cloneIdle makes a child that shares our memory, and does nothing until it is killed. It
// returns its number, or an error's, negative.
//
//go:noescape
func cloneIdle(flags uintptr) int64

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
