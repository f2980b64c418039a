package filesystems

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// copyUp is the same with files that were there before. On an overlay those are in a
// lower layer, which nothing may change: each is copied when it is written to, and
// a whiteout takes the place of one that is removed.
var copyUp = []check{
	{name: "old_read", what: "read, stat, map and list files of before", do: tryOldRead},
	{name: "old_append", what: "append to one, and read it through an earlier descriptor",
		do: tryOldAppend},
	{name: "old_truncate", what: "truncate one by path, another with O_TRUNC", do: tryOldTruncate},
	{name: "old_attributes", what: "chmod, chown and utimensat of one", do: tryOldAttributes},
	{name: "old_xattr", what: "set an attribute of one, read it, list them", do: tryOldXattr},
	{name: "old_rename", what: "rename one, and a new file onto another", do: tryOldRename},
	{name: "old_rename_dir", what: "rename a directory of before", do: tryOldRenameDir},
	{name: "old_link", what: "link one", do: tryOldLink},
	{name: "old_remove", what: "remove one, make it anew; remove a directory, make it anew " +
		"with nothing of before in it", do: tryOldRemove},
	{name: "old_mixed", what: "list a directory with old and new names", do: tryOldMixed},
}

func tryOldRead(_, before string) (string, error) {
	var s seq
	f, err := os.Open(filepath.Join(before, "mapped"))
	if !s.do("open", err) {
		return "", s.err
	}
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, 7, unix.PROT_READ, unix.MAP_SHARED)
	if !s.do("mmap", err) {
		return "", s.err
	}
	defer func() { _ = unix.Munmap(m) }()
	var st unix.Stat_t
	s.do("stat", unix.Stat(filepath.Join(before, "read"), &st))
	names, err := namesIn(filepath.Join(before, "dir"))
	s.do("list", err)
	return fmt.Sprintf("%q %q %o %d %s %q", m, get(filepath.Join(before, "read")), st.Mode, st.Size,
		names, get(filepath.Join(before, "dir/deep/c"))), s.err
}

func namesIn(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return strings.Join(names, " "), err
}

func tryOldAppend(_, before string) (string, error) {
	var s seq
	file := filepath.Join(before, "append")
	earlier, err := os.Open(file)
	if !s.do("open", err) {
		return "", s.err
	}
	defer earlier.Close()
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if s.do("open to append", err) {
		_, err := f.WriteString("more")
		s.do("write", err)
		f.Close()
	}
	buf := make([]byte, 32)
	n, err := earlier.ReadAt(buf, 0)
	if n == 0 {
		s.do("read", err)
	}
	return fmt.Sprintf("%q %q", get(file), buf[:n]), s.err
}

func tryOldTruncate(_, before string) (string, error) {
	var s seq
	a, b := filepath.Join(before, "truncate"), filepath.Join(before, "over")
	s.do("truncate", unix.Truncate(a, 3))
	s.do("open with O_TRUNC", put(b, "new"))
	return get(a) + " " + get(b), s.err
}

func tryOldAttributes(_, before string) (string, error) {
	var s seq
	a, b := filepath.Join(before, "chmod"), filepath.Join(before, "times")
	s.do("chmod", unix.Chmod(a, 0o600))
	s.do("chown", unix.Chown(a, -1, os.Getgid()))
	at := []unix.Timespec{{Sec: 1e9}, {Sec: 1e9}}
	s.do("utimensat", unix.UtimesNanoAt(unix.AT_FDCWD, b, at, 0))
	var st unix.Stat_t
	s.do("stat", unix.Stat(a, &st))
	mode := st.Mode
	s.do("stat", unix.Stat(b, &st))
	return fmt.Sprintf("%o %d %q", mode, st.Mtim.Sec, get(a)), s.err
}

func tryOldXattr(_, before string) (string, error) {
	var s seq
	file := filepath.Join(before, "attr")
	buf := make([]byte, 256)
	_, err := unix.Getxattr(file, "user.none", buf)
	none := errorOrNil(err)
	n, err := unix.Listxattr(file, buf)
	s.do("listxattr", err)
	s.do("setxattr", unix.Setxattr(file, "user.a", []byte("b"), 0))
	m, err := unix.Getxattr(file, "user.a", buf)
	s.do("getxattr", err)
	return fmt.Sprintf("%s %d %d %q", none, n, m, get(file)), s.err
}

func tryOldRename(dir, before string) (string, error) {
	var s seq
	moved, made := filepath.Join(dir, "moved"), filepath.Join(dir, "made")
	s.do("rename", unix.Rename(filepath.Join(before, "renamed"), moved))
	s.do("create", put(made, "made"))
	s.do("rename onto", unix.Rename(made, filepath.Join(before, "dir/b")))
	return get(moved) + get(filepath.Join(before, "renamed")) + get(filepath.Join(before, "dir/b")),
		s.err
}

func tryOldRenameDir(dir, before string) (string, error) {
	moved := filepath.Join(dir, "moved")
	err := unix.Rename(filepath.Join(before, "moved"), moved)
	return get(moved + "/y"), failed("rename", err)
}

func tryOldLink(dir, before string) (string, error) {
	var s seq
	name := filepath.Join(dir, "name")
	s.do("link", unix.Link(filepath.Join(before, "linked"), name))
	var st unix.Stat_t
	s.do("stat", unix.Stat(name, &st))
	return fmt.Sprintf("%d %q", st.Nlink, get(name)), s.err
}

func tryOldRemove(_, before string) (string, error) {
	var s seq
	file, dir := filepath.Join(before, "removed"), filepath.Join(before, "gone")
	s.do("unlink", unix.Unlink(file))
	gone := get(file)
	s.do("create anew", put(file, "anew"))
	full := errorOrNil(unix.Rmdir(filepath.Join(before, "full")))
	s.do("remove all", os.RemoveAll(dir))
	s.do("mkdir anew", unix.Mkdir(dir, 0o755))
	names, err := namesIn(dir)
	s.do("list", err)
	s.do("create below", put(dir+"/n", ""))
	return fmt.Sprintf("%s %s %s %q", gone, get(file), full, names), s.err
}

func tryOldMixed(_, before string) (string, error) {
	var s seq
	dir := filepath.Join(before, "dir")
	s.do("create", put(dir+"/new", ""))
	s.do("mkdir", unix.Mkdir(dir+"/newdir", 0o755))
	names, err := namesIn(dir)
	s.do("list", err)
	return names, s.err
}
