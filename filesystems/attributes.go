package filesystems

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// attributes is what files have besides names and contents.
var attributes = []check{
	{name: "chmod", what: "chmod, fchmod, of a directory too", do: tryChmod},
	{name: "chown", what: "chown and fchown to the own group, lchown of a link", do: tryChown},
	{name: "times", what: "utimensat with given times, on a link, now", do: tryTimes},
	{name: "xattr", what: "set, get, list and remove an attribute of the user's, by path and " +
		"by descriptor", do: tryXattr},
	{name: "acl", what: "set, read and remove an ACL, and a default one that is inherited",
		do: tryACL},
	{name: "flags", what: "read and set inode flags (FS_IOC_SETFLAGS, nodump)", do: tryFlags},
}

func tryChmod(dir, _ string) (string, error) {
	var s seq
	file := filepath.Join(dir, "f")
	s.do("create", put(file, ""))
	s.do("chmod", unix.Chmod(file, 0o4751))
	var st, std unix.Stat_t
	s.do("stat", unix.Stat(file, &st))
	f, err := os.Open(file)
	if s.do("open", err) {
		s.do("fchmod", unix.Fchmod(int(f.Fd()), 0o640))
		f.Close()
	}
	s.do("chmod directory", unix.Chmod(dir, 0o2755))
	s.do("stat", unix.Stat(dir, &std))
	mode := st.Mode
	s.do("stat", unix.Stat(file, &st))
	return fmt.Sprintf("%o %o %o", mode, st.Mode, std.Mode), s.err
}

func tryChown(dir, _ string) (string, error) {
	var s seq
	file, link := filepath.Join(dir, "f"), filepath.Join(dir, "l")
	uid, gid := os.Getuid(), os.Getgid()
	s.do("create", put(file, ""))
	s.do("symlink", unix.Symlink("f", link))
	s.do("chown", unix.Chown(file, -1, gid))
	s.do("lchown", unix.Lchown(link, uid, gid))
	f, err := os.Open(file)
	if s.do("open", err) {
		s.do("fchown", unix.Fchown(int(f.Fd()), uid, gid))
		f.Close()
	}
	return errorOrNil(unix.Chown(file, 0, -1)), s.err
}

func tryTimes(dir, _ string) (string, error) {
	var s seq
	file, link := filepath.Join(dir, "f"), filepath.Join(dir, "l")
	s.do("create", put(file, ""))
	s.do("symlink", unix.Symlink("f", link))
	at := []unix.Timespec{{Sec: 1e9}, {Sec: 1234567890, Nsec: 5e8}}
	s.do("utimensat", unix.UtimesNanoAt(unix.AT_FDCWD, file, at, 0))
	var st, stl unix.Stat_t
	s.do("stat", unix.Stat(file, &st))
	s.do("utimensat of a link",
		unix.UtimesNanoAt(unix.AT_FDCWD, link, at, unix.AT_SYMLINK_NOFOLLOW))
	s.do("lstat", unix.Lstat(link, &stl))
	now := []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_OMIT}}
	s.do("utimensat now", unix.UtimesNanoAt(unix.AT_FDCWD, file, now, 0))
	return fmt.Sprintf("%d %d %d", st.Atim.Sec, st.Mtim.Sec, stl.Mtim.Sec), s.err
}

func tryXattr(dir, _ string) (string, error) {
	var s seq
	file := filepath.Join(dir, "f")
	s.do("create", put(file, "text"))
	missing := func() string {
		_, err := unix.Getxattr(file, "user.none", nil)
		return errorOrNil(err)
	}()
	s.do("setxattr", unix.Setxattr(file, "user.one", []byte("1"), unix.XATTR_CREATE))
	s.do("setxattr of a directory", unix.Setxattr(dir, "user.dir", []byte("d"), 0))
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if !s.do("open", err) {
		return missing, s.err
	}
	defer f.Close()
	fd := int(f.Fd())
	s.do("fsetxattr", unix.Fsetxattr(fd, "user.two", []byte("22"), 0))
	buf := make([]byte, 256)
	n, err := unix.Getxattr(file, "user.two", buf)
	s.do("getxattr", err)
	two := string(buf[:max(n, 0)])
	n, err = unix.Fgetxattr(fd, "user.one", buf)
	s.do("fgetxattr", err)
	one := string(buf[:max(n, 0)])
	s.do("removexattr", unix.Removexattr(file, "user.one"))
	n, err = unix.Listxattr(file, buf)
	s.do("listxattr", err)
	list := strings.Fields(strings.ReplaceAll(string(buf[:max(n, 0)]), "\x00", " "))
	slices.Sort(list)
	trusted := errorOrNil(unix.Setxattr(file, "trusted.x", []byte("t"), 0))
	return fmt.Sprintf("%s %s %s %v %s", missing, one, two, list, trusted), s.err
}

// acl encodes user::rw-, user:1:r--, group::r--, mask::r--, other::---.
func acl() []byte {
	b := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range [][3]uint32{{1, 6, 1<<32 - 1}, {2, 4, 1}, {4, 4, 1<<32 - 1},
		{0x10, 4, 1<<32 - 1}, {0x20, 0, 1<<32 - 1}} {
		b = binary.LittleEndian.AppendUint16(b, uint16(e[0]))
		b = binary.LittleEndian.AppendUint16(b, uint16(e[1]))
		b = binary.LittleEndian.AppendUint32(b, e[2])
	}
	return b
}

func tryACL(dir, _ string) (string, error) {
	const access, inherit = "system.posix_acl_access", "system.posix_acl_default"
	var s seq
	file, sub := filepath.Join(dir, "f"), filepath.Join(dir, "d")
	s.do("create", put(file, ""))
	s.do("set ACL", unix.Setxattr(file, access, acl(), 0))
	buf := make([]byte, 256)
	n, err := unix.Getxattr(file, access, buf)
	s.do("read ACL", err)
	s.do("mkdir", unix.Mkdir(sub, 0o755))
	s.do("set default ACL", unix.Setxattr(sub, inherit, acl(), 0))
	s.do("create below", put(sub+"/g", ""))
	s.do("mkdir below", unix.Mkdir(sub+"/e", 0o777))
	m, err := unix.Getxattr(sub+"/g", access, buf)
	s.do("read inherited ACL", err)
	s.do("remove ACL", unix.Removexattr(file, access))
	var st unix.Stat_t
	s.do("stat", unix.Stat(sub+"/g", &st))
	return fmt.Sprintf("%d %d %o", n, m, st.Mode), s.err
}

func tryFlags(dir, _ string) (string, error) {
	const nodump = 0x40
	file := filepath.Join(dir, "f")
	f, err := os.Create(file)
	if err != nil {
		return "", failed("create", err)
	}
	defer f.Close()
	fd := int(f.Fd())
	flags, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS)
	if err != nil {
		return "", failed("FS_IOC_GETFLAGS", err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, int(flags|nodump)); err != nil {
		return "", failed("FS_IOC_SETFLAGS", err)
	}
	flags, err = unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS)
	return fmt.Sprint(flags&nodump != 0), failed("FS_IOC_GETFLAGS", err)
}
