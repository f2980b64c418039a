package filesystems

import (
	"bytes"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// serve does what a request asks for.
func (s *fuseServer) serve(in fuseIn, body []byte) ([]byte, error) {
	if in.Opcode == fuseInit {
		return s.start(body), nil
	}
	n, ok := s.nodes[in.Node]
	if !ok {
		return nil, unix.ESTALE
	}
	switch in.Opcode {
	case fuseLookup:
		return s.entry(n, text(body))
	case fuseGetattr:
		return n.attributes()
	case fuseSetattr:
		return n.change(body)
	case fuseReadlink:
		target := make([]byte, unix.PathMax)
		size, err := unix.Readlinkat(n.fd, "", target)
		return target[:max(size, 0)], err
	case fuseOpen:
		return s.open(n)
	case fuseRelease:
		s.release(in.Node, n)
		return nil, nil
	case fuseRead, fuseWrite:
		return nil, unix.EIO // the kernel should have done it
	case fuseStatfs:
		return n.statfs()
	case fuseFallocate, fuseLseek:
		return n.offsets(in.Opcode, body)
	case fuseSetxattr, fuseGetxattr, fuseListxattr, fuseRemovexattr:
		return n.xattr(in.Opcode, body)
	case fuseOpendir:
		s.last++
		return encode([2]uint64{s.last}), nil
	case fuseReaddir:
		return s.list(n, body)
	case fuseReleasedir:
		handle, _ := take[uint64](body)
		delete(s.listed, handle)
		return nil, nil
	case fuseUnlink, fuseRmdir:
		flags := map[uint32]int{fuseRmdir: unix.AT_REMOVEDIR}[in.Opcode]
		return nil, unix.Unlinkat(n.fd, text(body), flags)
	case fuseRename, fuseRename2:
		return nil, s.rename(in.Opcode, n, body)
	case fuseMknod, fuseMkdir, fuseSymlink, fuseLink, fuseCreate:
		return s.make(in, n, body)
	}
	return nil, unix.ENOSYS
}

// text is a name at the beginning of a request, which ends with a zero.
func text(b []byte) string {
	name, _, _ := bytes.Cut(b, []byte{0})
	return string(name)
}

func after(b []byte) []byte {
	_, rest, _ := bytes.Cut(b, []byte{0})
	return rest
}

// entry is what the kernel is told about a name. It may keep none of it.
func (s *fuseServer) entry(dir *fuseNode, name string) ([]byte, error) {
	fd, err := unix.Openat(dir.fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	number, n, err := s.know(fd)
	if err != nil {
		return nil, err
	}
	attr, err := n.attr()
	return append(encode([5]uint64{0: number}), attr...), err
}

func (n *fuseNode) attributes() ([]byte, error) {
	attr, err := n.attr()
	return append(encode([2]uint64{}), attr...), err
}

func (n *fuseNode) attr() ([]byte, error) {
	var st unix.Stat_t
	err := unix.Fstat(n.fd, &st)
	return encode(st.Ino, st.Size, st.Blocks, st.Atim.Sec, st.Mtim.Sec, st.Ctim.Sec,
		uint32(st.Atim.Nsec), uint32(st.Mtim.Nsec), uint32(st.Ctim.Nsec), st.Mode,
		uint32(st.Nlink), st.Uid, st.Gid, uint32(st.Rdev), uint32(st.Blksize), uint32(0)), err
}

type fuseSetattrIn struct {
	Valid, _                        uint32
	Handle, Size, Owner             uint64
	Atime, Mtime, Ctime             uint64
	AtimeNsec, MtimeNsec, CtimeNsec uint32
	Mode, _, UID, GID, _            uint32
}

// change sets what Valid says: mode, owner, length, times.
func (n *fuseNode) change(body []byte) ([]byte, error) {
	in, _ := take[fuseSetattrIn](body)
	var errs []error
	if in.Valid&1 != 0 {
		errs = append(errs, unix.Chmod(n.path(), in.Mode&0o7777))
	}
	if in.Valid&(2|4) != 0 {
		uid, gid := -1, -1
		if in.Valid&2 != 0 {
			uid = int(in.UID)
		}
		if in.Valid&4 != 0 {
			gid = int(in.GID)
		}
		errs = append(errs, unix.Fchownat(n.fd, "", uid, gid, unix.AT_EMPTY_PATH))
	}
	if in.Valid&8 != 0 {
		errs = append(errs, unix.Truncate(n.path(), int64(in.Size)))
	}
	if in.Valid&(16|32) != 0 {
		times := []unix.Timespec{{Sec: int64(in.Atime), Nsec: int64(in.AtimeNsec)},
			{Sec: int64(in.Mtime), Nsec: int64(in.MtimeNsec)}}
		for i := range uint32(2) {
			if in.Valid&(16<<i) == 0 {
				times[i].Nsec = unix.UTIME_OMIT
			} else if in.Valid&(128<<i) != 0 {
				times[i].Nsec = unix.UTIME_NOW
			}
		}
		errs = append(errs, unix.UtimesNanoAt(n.fd, "", times, unix.AT_EMPTY_PATH))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return n.attributes()
}

// make makes a name, and gives what is new to whoever asked.
func (s *fuseServer) make(in fuseIn, dir *fuseNode, body []byte) ([]byte, error) {
	var err error
	name := text(body)
	switch in.Opcode {
	case fuseMkdir:
		args, rest := take[[2]uint32](body)
		name = text(rest)
		err = unix.Mkdirat(dir.fd, name, args[0])
	case fuseMknod:
		args, rest := take[[4]uint32](body)
		name = text(rest)
		err = unix.Mknodat(dir.fd, name, args[0], int(args[1]))
	case fuseCreate:
		args, rest := take[[4]uint32](body)
		name = text(rest)
		err = unix.Mknodat(dir.fd, name, unix.S_IFREG|args[1]&0o7777, 0)
	case fuseSymlink:
		err = unix.Symlinkat(text(after(body)), dir.fd, name)
	case fuseLink:
		number, rest := take[uint64](body)
		name = text(rest)
		old, ok := s.nodes[number]
		if !ok {
			return nil, unix.ESTALE
		}
		if err := unix.Linkat(old.fd, "", dir.fd, name, unix.AT_EMPTY_PATH); err != nil {
			return nil, err
		}
		return s.entry(dir, name)
	}
	if err != nil {
		return nil, err
	}
	err = unix.Fchownat(dir.fd, name, int(in.UID), int(in.GID), unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	entry, err := s.entry(dir, name)
	if err != nil || in.Opcode != fuseCreate {
		return entry, err
	}
	number, _ := take[uint64](entry)
	opened, err := s.open(s.nodes[number])
	return append(entry, opened...), err
}

func (s *fuseServer) rename(opcode uint32, from *fuseNode, body []byte) error {
	number, rest := take[uint64](body)
	var flags [2]uint32
	if opcode == fuseRename2 {
		flags, rest = take[[2]uint32](rest)
	}
	to, ok := s.nodes[number]
	if !ok {
		return unix.ESTALE
	}
	return unix.Renameat2(from.fd, text(rest), to.fd, text(after(rest)), uint(flags[0]))
}

func (n *fuseNode) statfs() ([]byte, error) {
	var st unix.Statfs_t
	err := unix.Fstatfs(n.fd, &st)
	return encode(st.Blocks, st.Bfree, st.Bavail, st.Files, st.Ffree, uint32(st.Bsize),
		uint32(st.Namelen), uint32(st.Frsize), [7]uint32{}), err
}

type fuseOffsets struct{ Handle, First, Second, Third uint64 }

// offsets are fallocate and lseek, on what the kernel works on.
func (n *fuseNode) offsets(opcode uint32, body []byte) ([]byte, error) {
	in, _ := take[fuseOffsets](body)
	if n.data == nil {
		return nil, unix.EBADF
	}
	fd := int(n.data.Fd())
	if opcode == fuseFallocate {
		return nil, unix.Fallocate(fd, uint32(in.Third), int64(in.First), int64(in.Second))
	}
	at, err := unix.Seek(fd, int64(in.First), int(uint32(in.Second)))
	return encode(at), err
}

func (n *fuseNode) xattr(opcode uint32, body []byte) ([]byte, error) {
	var args [2]uint32
	rest := body
	if opcode != fuseRemovexattr {
		args, rest = take[[2]uint32](body)
	}
	value := make([]byte, args[0])
	size, err := 0, error(nil)
	switch opcode {
	case fuseSetxattr:
		data := after(rest)
		return nil, unix.Setxattr(n.path(), text(rest), data[:min(len(data), len(value))],
			int(args[1]))
	case fuseRemovexattr:
		return nil, unix.Removexattr(n.path(), text(rest))
	case fuseGetxattr:
		size, err = unix.Getxattr(n.path(), text(rest), value)
	case fuseListxattr:
		size, err = unix.Listxattr(n.path(), value)
	}
	if err != nil || len(value) > 0 {
		return value[:max(size, 0)], err
	}
	return encode([2]uint32{uint32(size)}), nil
}

// list tells the names that were there when it was last asked from the start.
func (s *fuseServer) list(n *fuseNode, body []byte) ([]byte, error) {
	in, rest := take[[2]uint64](body)
	handle, from := in[0], in[1]
	room, _ := take[uint32](rest)
	if from == 0 {
		entries, err := os.ReadDir(n.path())
		if err != nil {
			return nil, err
		}
		s.listed[handle] = entries
	}
	var out []byte
	for i := int(from); i < len(s.listed[handle]); i++ {
		name := s.listed[handle][i].Name()
		next, kind := uint64(i+1), uint32(unix.DT_UNKNOWN)
		entry := encode(next, next, uint32(len(name)), kind, []byte(name))
		if entry = append(entry, make([]byte, -len(entry)&7)...); len(out)+len(entry) > int(room) {
			break
		}
		out = append(out, entry...)
	}
	return out, nil
}
