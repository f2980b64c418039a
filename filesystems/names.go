package filesystems

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// names is about names: other ones, more than one, none.
var names = []check{
	{name: "rename", what: "rename a file, onto another one, a directory, with NOREPLACE",
		do: tryRename},
	{name: "exchange", what: "renameat2 with RENAME_EXCHANGE", do: tryExchange},
	{name: "whiteout", what: "renameat2 with RENAME_WHITEOUT", do: tryWhiteout},
	{name: "link", what: "hard link, count of names, read through both, remove one",
		do: tryLink},
	{name: "link_write", what: "write to a file that has two names", do: tryLinkWrite,
		differs: []difference{{failed: "open: EACCES",
			why: "One of the names could be outside; `--hardlinks allow` permits it."}}},
	{name: "symlink", what: "symlink, readlink, lstat, open through it and through a chain",
		do: trySymlink},
	{name: "unlinked", what: "write, read, truncate and chmod a file that is removed and open",
		do: tryUnlinked, differs: []difference{
			{on: "fuse", failed: "fchmod: EACCES", why: "libfuse hides such a file under " +
				"another name, which could be one outside; `--hardlinks allow` permits it."},
			{on: "9p", failed: "ftruncate: EACCES", why: "Up to 6.1, and when it is opened " +
				"anew: the kernel keeps counting the removed name. QEMU says ENOENT anyway."},
		}},
	{name: "tmpfile", what: "O_TMPFILE, then linkat to a name", do: tryTmpfile},
}

func put(path, text string) error { return os.WriteFile(path, []byte(text), 0o644) }

func get(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return errorName(err)
	}
	return string(data)
}

func tryRename(dir, _ string) (string, error) {
	var s seq
	at := func(name string) string { return filepath.Join(dir, name) }
	s.do("create", put(at("a"), "a"))
	s.do("create", put(at("b"), "b"))
	s.do("rename", unix.Rename(at("a"), at("c")))
	s.do("rename onto", unix.Rename(at("c"), at("b")))
	s.do("mkdir", unix.Mkdir(at("d"), 0o755))
	s.do("mkdir", unix.Mkdir(at("d/e"), 0o755))
	s.do("rename into", unix.Rename(at("b"), at("d/e/f")))
	s.do("rename directory", unix.Rename(at("d/e"), at("g")))
	s.do("create", put(at("h"), "h"))
	no := errorOrNil(unix.Renameat2(unix.AT_FDCWD, at("h"), unix.AT_FDCWD, at("g/f"),
		unix.RENAME_NOREPLACE))
	return get(at("g/f")) + " " + no, s.err
}

func tryExchange(dir, _ string) (string, error) {
	var s seq
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	s.do("create", put(a, "a"))
	s.do("create", put(b, "b"))
	s.do("renameat2", unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE))
	return get(a) + get(b), s.err
}

func tryWhiteout(dir, _ string) (string, error) {
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	if err := put(a, "a"); err != nil {
		return "", failed("create", err)
	}
	err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_WHITEOUT)
	return get(b), failed("renameat2", err)
}

func tryLink(dir, _ string) (string, error) {
	var s seq
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	s.do("create", put(a, "text"))
	s.do("link", unix.Link(a, b))
	var st unix.Stat_t
	s.do("stat", unix.Stat(b, &st))
	saw := fmt.Sprintf("%d %s%s", st.Nlink, get(a), get(b))
	s.do("unlink", unix.Unlink(a))
	s.do("stat", unix.Stat(b, &st))
	f, err := os.OpenFile(b, os.O_WRONLY|os.O_APPEND, 0)
	if s.do("open", err) {
		_, err := f.WriteString("+")
		s.do("write", err)
		f.Close()
	}
	return fmt.Sprintf("%s %d %s", saw, st.Nlink, get(b)), s.err
}

func tryLinkWrite(dir, _ string) (string, error) {
	var s seq
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	s.do("create", put(a, "text"))
	s.do("link", unix.Link(a, b))
	fd, err := unix.Open(b, unix.O_WRONLY|unix.O_TRUNC, 0)
	if s.do("open", err) {
		unix.Close(fd)
	}
	if s.err != nil {
		return "", s.err
	}
	return get(a), s.err
}

func trySymlink(dir, before string) (string, error) {
	var s seq
	at := func(name string) string { return filepath.Join(dir, name) }
	s.do("symlink", unix.Symlink("target", at("one")))
	s.do("symlink", unix.Symlink("one", at("two")))
	dangling := get(at("two"))
	s.do("create through", put(at("two"), "made"))
	buf := make([]byte, 64)
	n, err := unix.Readlink(at("two"), buf)
	s.do("readlink", err)
	var st unix.Stat_t
	s.do("lstat", unix.Lstat(at("one"), &st))
	_, err = unix.Open(at("one"), unix.O_RDONLY|unix.O_NOFOLLOW, 0)
	nofollow := errorOrNil(err)
	m, err := unix.Readlink(filepath.Join(before, "link"), buf[32:])
	s.do("readlink of an old one", err)
	return fmt.Sprintf("%s %s %q %o %s %q %s", dangling, get(at("target")), buf[:max(n, 0)],
		st.Mode&unix.S_IFMT, nofollow, buf[32:32+max(m, 0)],
		get(filepath.Join(before, "link"))), s.err
}

func tryUnlinked(dir, _ string) (string, error) {
	var s seq
	file := filepath.Join(dir, "f")
	fd, err := unix.Open(file, unix.O_CREAT|unix.O_RDWR, 0o644)
	if !s.do("open", err) {
		return "", s.err
	}
	defer unix.Close(fd)
	s.do("unlink", unix.Unlink(file))
	_, err = unix.Write(fd, []byte("0123456789"))
	s.do("write", err)
	s.do("ftruncate", unix.Ftruncate(fd, 4))
	s.do("fchmod", unix.Fchmod(fd, 0o600))
	buf := make([]byte, 16)
	n, err := unix.Pread(fd, buf, 0)
	s.do("pread", err)
	again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDWR, 0)
	if s.do("open again", err) {
		unix.Close(again)
	}
	var st unix.Stat_t
	s.do("fstat", unix.Fstat(fd, &st))
	return fmt.Sprintf("%q %o %d", buf[:max(n, 0)], st.Mode, st.Nlink), s.err
}

func tryTmpfile(dir, _ string) (string, error) {
	var s seq
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR, 0o644)
	if !s.do("open", err) {
		return "", s.err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte("unnamed"))
	s.do("write", err)
	name := filepath.Join(dir, "named")
	s.do("linkat", unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd),
		unix.AT_FDCWD, name, unix.AT_SYMLINK_FOLLOW))
	return get(name), s.err
}
