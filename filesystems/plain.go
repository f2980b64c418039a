package filesystems

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// plain is what a first program does.
var plain = []check{
	{name: "create", what: "create, write, read back, stat, a mode that the umask cuts",
		do: tryCreate},
	{name: "exclusive", what: "O_CREAT with O_EXCL, on a name that is there",
		do: tryExclusive},
	{name: "mkdir", what: "mkdir, rmdir, mkdir of a name that is there, rmdir of a full directory",
		do: tryMkdir},
	{name: "readdir", what: "list a directory of 300 names, seek to its start, list again",
		do: tryReaddir},
	{name: "mkfifo", what: "make a pipe and a socket", do: tryMkfifo},
	{name: "execute", what: "run a program that was written there", do: tryExecute},
	{name: "statfs", what: "statfs, access", do: tryStatfs},
}

func tryCreate(dir, _ string) (string, error) {
	var s seq
	file := filepath.Join(dir, "f")
	fd, err := unix.Open(file, unix.O_CREAT|unix.O_RDWR|unix.O_EXCL, 0o666)
	if !s.do("open", err) {
		return "", s.err
	}
	defer unix.Close(fd)
	n, err := unix.Write(fd, []byte("hello world"))
	s.do("write", err)
	buf := make([]byte, 32)
	m, err := unix.Pread(fd, buf, 6)
	s.do("pread", err)
	s.do("fsync", unix.Fsync(fd))
	var st unix.Stat_t
	s.do("fstat", unix.Fstat(fd, &st))
	return fmt.Sprintf("%d %q %o %d", n, buf[:max(m, 0)], st.Mode, st.Size), s.err
}

func tryExclusive(dir, before string) (string, error) {
	const flags = unix.O_CREAT | unix.O_EXCL | unix.O_WRONLY
	_, err := unix.Open(filepath.Join(before, "read"), flags, 0o600)
	saw := errorOrNil(err)
	fd, err := unix.Open(filepath.Join(dir, "new"), flags, 0)
	if err == nil {
		unix.Close(fd)
	}
	return saw, failed("open", err)
}

func errorOrNil(err error) string {
	if err == nil {
		return "done"
	}
	return errorName(err)
}

func tryMkdir(dir, _ string) (string, error) {
	var s seq
	d := filepath.Join(dir, "d")
	s.do("mkdir", unix.Mkdir(d, 0o775))
	again := errorOrNil(unix.Mkdir(d, 0o775))
	s.do("mkdir below", unix.Mkdir(d+"/e", 0o700))
	full := errorOrNil(unix.Rmdir(d))
	s.do("rmdir below", unix.Rmdir(d+"/e"))
	s.do("rmdir", unix.Rmdir(d))
	s.do("mkdir anew", unix.Mkdir(d, 0o700))
	return again + " " + full, s.err
}

func tryReaddir(dir, _ string) (string, error) {
	var want []string
	for i := range 300 {
		name := fmt.Sprintf("%03d-%s", i, strings.Repeat("n", i%40))
		want = append(want, name)
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			return "", failed("create", err)
		}
	}
	f, err := os.Open(dir)
	if err != nil {
		return "", failed("open", err)
	}
	defer f.Close()
	for range 2 {
		names, err := f.Readdirnames(-1)
		if err != nil {
			return "", failed("readdir", err)
		}
		slices.Sort(names)
		if !slices.Equal(names, want) {
			return fmt.Sprintf("%d other names", len(names)), nil
		}
		if _, err := f.Seek(0, 0); err != nil {
			return "", failed("seek", err)
		}
	}
	return "all, twice", nil
}

func tryMkfifo(dir, _ string) (string, error) {
	var s seq
	s.do("mkfifo", unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	fd, err := unix.Open(filepath.Join(dir, "fifo"), unix.O_RDWR|unix.O_NONBLOCK, 0)
	if s.do("open fifo", err) {
		_, err := unix.Write(fd, []byte("x"))
		s.do("write fifo", err)
		unix.Close(fd)
	}
	sock, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if s.do("socket", err) {
		// A short name, since an address holds 107 bytes.
		cwd, _ := os.Getwd()
		s.do("chdir", os.Chdir(dir))
		s.do("bind", unix.Bind(sock, &unix.SockaddrUnix{Name: "sock"}))
		s.do("listen", unix.Listen(sock, 1))
		client, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		s.do("socket", err)
		s.do("connect", unix.Connect(client, &unix.SockaddrUnix{Name: "sock"}))
		unix.Close(client)
		unix.Close(sock)
		_ = os.Chdir(cwd)
	}
	return "", s.err
}

func tryExecute(dir, _ string) (string, error) {
	program := filepath.Join(dir, "program")
	if err := copyFile("/proc/self/exe", program, 0o755); err != nil {
		return "", failed("copy a program", err)
	}
	out, err := command(dir, program, "version")
	return firstWord(out), failed("execute", err)
}

func firstWord(s string) string {
	word, _, _ := strings.Cut(strings.TrimSpace(s), " ")
	return word
}

func tryStatfs(dir, before string) (string, error) {
	var s seq
	var st unix.Statfs_t
	s.do("statfs", unix.Statfs(dir, &st))
	s.do("access", unix.Access(filepath.Join(before, "read"), unix.R_OK|unix.W_OK))
	execute := errorOrNil(unix.Access(filepath.Join(before, "read"), unix.X_OK))
	return fmt.Sprintf("%#x %d %s", st.Type, st.Namelen, execute), s.err
}
