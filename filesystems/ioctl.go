package filesystems

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

func ioctl(f *os.File, request uintptr, args []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request,
		uintptr(unsafe.Pointer(unsafe.SliceData(args))))
	if errno != 0 {
		return errno
	}
	return nil
}
