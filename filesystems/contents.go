package filesystems

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// contents is what files hold, and how it gets there.
var contents = []check{
	{name: "truncate", what: "truncate by path and descriptor, O_TRUNC, longer and shorter",
		do: tryTruncate},
	{name: "append", what: "O_APPEND from two descriptors", do: tryAppend},
	{name: "sparse", what: "fallocate, punch a hole, SEEK_DATA and SEEK_HOLE", do: trySparse},
	{name: "mmap", what: "shared and private mappings, written and read", do: tryMmap},
	{name: "copy", what: "copy_file_range and sendfile", do: tryCopy},
	{name: "clone", what: "FICLONE", do: tryClone},
	{name: "direct", what: "O_DIRECT write and read", do: tryDirect},
}

func tryTruncate(dir, _ string) (string, error) {
	var s seq
	file := filepath.Join(dir, "f")
	s.do("create", put(file, "0123456789"))
	s.do("truncate", unix.Truncate(file, 6))
	six := get(file)
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if s.do("open", err) {
		s.do("ftruncate", unix.Ftruncate(int(f.Fd()), 8))
		f.Close()
	}
	eight := get(file)
	s.do("O_TRUNC", put(file, "x"))
	return fmt.Sprintf("%q %q %q", six, eight, get(file)), s.err
}

func tryAppend(dir, _ string) (string, error) {
	file := filepath.Join(dir, "f")
	var fds []*os.File
	for range 2 {
		f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			return "", failed("open", err)
		}
		defer f.Close()
		fds = append(fds, f)
	}
	for i := range 4 {
		if _, err := fmt.Fprint(fds[i%2], i); err != nil {
			return "", failed("write", err)
		}
	}
	return get(file), nil
}

func trySparse(dir, _ string) (string, error) {
	var s seq
	f, err := os.Create(filepath.Join(dir, "f"))
	if !s.do("create", err) {
		return "", s.err
	}
	defer f.Close()
	fd := int(f.Fd())
	_, err = unix.Pwrite(fd, []byte("end"), 1<<20)
	s.do("pwrite", err)
	s.do("fallocate", unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 2<<20, 64<<10))
	s.do("punch a hole", unix.Fallocate(fd,
		unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 64<<10))
	data, err := unix.Seek(fd, 0, unix.SEEK_DATA)
	s.do("SEEK_DATA", err)
	hole, err := unix.Seek(fd, 0, unix.SEEK_HOLE)
	s.do("SEEK_HOLE", err)
	var st unix.Stat_t
	s.do("fstat", unix.Fstat(fd, &st))
	return fmt.Sprint(data <= 1<<20, hole, st.Size), s.err
}

func tryMmap(dir, _ string) (string, error) {
	var s seq
	file := filepath.Join(dir, "f")
	s.do("create", put(file, "0123456789"))
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if !s.do("open", err) {
		return "", s.err
	}
	defer f.Close()
	for i, flags := range []int{unix.MAP_SHARED, unix.MAP_PRIVATE} {
		m, err := unix.Mmap(int(f.Fd()), 0, 10, unix.PROT_READ|unix.PROT_WRITE, flags)
		if !s.do("mmap", err) {
			return "", s.err
		}
		m[i] = 'X'
		s.do("msync", unix.Msync(m, unix.MS_SYNC))
		s.do("munmap", unix.Munmap(m))
	}
	return get(file), s.err
}

func tryCopy(dir, before string) (string, error) {
	var s seq
	from, err := os.Open(filepath.Join(before, "read"))
	if !s.do("open", err) {
		return "", s.err
	}
	defer from.Close()
	to, err := os.Create(filepath.Join(dir, "f"))
	if !s.do("create", err) {
		return "", s.err
	}
	defer to.Close()
	offset := int64(0)
	n, err := unix.CopyFileRange(int(from.Fd()), &offset, int(to.Fd()), nil, 100, 0)
	s.do("copy_file_range", err)
	offset = 0
	m, err := unix.Sendfile(int(to.Fd()), int(from.Fd()), &offset, 100)
	s.do("sendfile", err)
	return fmt.Sprintf("%d %d %q", n, m, get(to.Name())), s.err
}

func tryClone(dir, before string) (string, error) {
	from, err := os.Open(filepath.Join(before, "read"))
	if err != nil {
		return "", failed("open", err)
	}
	defer from.Close()
	to, err := os.Create(filepath.Join(dir, "f"))
	if err != nil {
		return "", failed("create", err)
	}
	defer to.Close()
	if err := unix.IoctlFileClone(int(to.Fd()), int(from.Fd())); err != nil {
		return "", failed("FICLONE", err)
	}
	return get(to.Name()), nil
}

func tryDirect(dir, _ string) (string, error) {
	var s seq
	fd, err := unix.Open(filepath.Join(dir, "f"), unix.O_CREAT|unix.O_RDWR|unix.O_DIRECT, 0o644)
	if !s.do("open", err) {
		return "", s.err
	}
	defer unix.Close(fd)
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if !s.do("mmap", err) {
		return "", s.err
	}
	defer func() { _ = unix.Munmap(page) }()
	copy(page, "direct")
	_, err = unix.Pwrite(fd, page, 0)
	s.do("pwrite", err)
	clear(page)
	_, err = unix.Pread(fd, page, 0)
	s.do("pread", err)
	return string(page[:6]), s.err
}
