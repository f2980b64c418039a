package adversary

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	flagSource = "D29 D31 file_setattr(2)"
	needsFlags = "a file system with flags"
)

// The system calls of Linux 6.17 that get and set a file's flags by name, on every
// architecture (fs/file_attr.c). Before, that took a descriptor and an ioctl.
const (
	sysFileGetattr = 468
	sysFileSetattr = 469

	xflagNodump = 0x80 // FS_XFLAG_NODUMP, which an owner may set
)

// fileAttr is struct file_attr (include/uapi/linux/fs.h).
type fileAttr struct {
	xflags     uint64
	extsize    uint32
	nextents   uint32
	projid     uint32
	cowextsize uint32
}

func setFlags(path string) error {
	attr := fileAttr{xflags: xflagNodump}
	_, _, errno := unix.Syscall6(sysFileSetattr, atFDCWD, cstring(path),
		uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0, 0)
	if errno != 0 {
		return call("file_setattr", errno)
	}
	return nil
}

func xflagsOf(path string) (uint64, error) {
	var attr fileAttr
	_, _, errno := unix.Syscall6(sysFileGetattr, atFDCWD, cstring(path),
		uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0, 0)
	if errno != 0 {
		return 0, call("file_getattr", errno)
	}
	return attr.xflags & xflagNodump, nil
}

// hideFlags gives the secret file a flag that files do not have.
func hideFlags(s *Scene) error {
	f, err := os.Open(s.Target.Secret)
	if err != nil {
		return err
	}
	defer f.Close()
	const nodump = 0x40 // FS_NODUMP_FL
	// The others must stay: ext4 has one for how the file is laid out.
	flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		return call("ioctl FS_IOC_GETFLAGS", err)
	}
	s.secrets["flags"] = fmt.Sprintf("%#x", xflagNodump)
	return call("ioctl FS_IOC_SETFLAGS",
		unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(uint32(flags))|nodump))
}
