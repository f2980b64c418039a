package filesystems

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// locks are the three kinds that there are, and watching.
var locks = []check{
	{name: "flock", what: "flock, exclusive and refused to a second descriptor", do: tryFlock},
	{name: "fcntl", what: "fcntl(F_SETLK) and F_GETLK", do: tryFcntl},
	{name: "ofd", what: "F_OFD_SETLK, refused to a second descriptor", do: tryOFD},
	{name: "lease", what: "F_SETLEASE", do: tryLease},
	{name: "inotify", what: "a watch that tells of a new file", do: tryInotify},
}

func openTwo(path string) (a, b *os.File, err error) {
	if a, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644); err != nil {
		return nil, nil, failed("open", err)
	}
	if b, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
		a.Close()
		return nil, nil, failed("open", err)
	}
	return a, b, nil
}

func tryFlock(dir, before string) (string, error) {
	var s seq
	a, b, err := openTwo(filepath.Join(dir, "f"))
	if err != nil {
		return "", err
	}
	defer a.Close()
	defer b.Close()
	s.do("flock", unix.Flock(int(a.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	second := errorOrNil(unix.Flock(int(b.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	old, err := os.Open(filepath.Join(before, "locked"))
	if s.do("open", err) {
		s.do("flock of an old file", unix.Flock(int(old.Fd()), unix.LOCK_SH))
		old.Close()
	}
	return second, s.err
}

func tryFcntl(dir, _ string) (string, error) {
	var s seq
	a, b, err := openTwo(filepath.Join(dir, "f"))
	if err != nil {
		return "", err
	}
	defer a.Close()
	defer b.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK, Len: 10}
	s.do("F_SETLK", unix.FcntlFlock(a.Fd(), unix.F_SETLK, &lock))
	ask := unix.Flock_t{Type: unix.F_WRLCK, Len: 10}
	s.do("F_GETLK", unix.FcntlFlock(b.Fd(), unix.F_GETLK, &ask))
	return fmt.Sprint(ask.Type == unix.F_UNLCK), s.err
}

func tryOFD(dir, _ string) (string, error) {
	var s seq
	a, b, err := openTwo(filepath.Join(dir, "f"))
	if err != nil {
		return "", err
	}
	defer a.Close()
	defer b.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK, Len: 10}
	s.do("F_OFD_SETLK", unix.FcntlFlock(a.Fd(), unix.F_OFD_SETLK, &lock))
	lock = unix.Flock_t{Type: unix.F_WRLCK, Len: 10}
	return errorOrNil(unix.FcntlFlock(b.Fd(), unix.F_OFD_SETLK, &lock)), s.err
}

func tryLease(dir, _ string) (string, error) {
	f, err := os.Create(filepath.Join(dir, "f"))
	if err != nil {
		return "", failed("create", err)
	}
	defer f.Close()
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	return "", failed("F_SETLEASE", err)
}

func tryInotify(dir, _ string) (string, error) {
	var s seq
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if !s.do("inotify_init", err) {
		return "", s.err
	}
	defer unix.Close(fd)
	_, err = unix.InotifyAddWatch(fd, dir, unix.IN_CREATE)
	s.do("inotify_add_watch", err)
	s.do("create", put(filepath.Join(dir, "new"), ""))
	buf := make([]byte, 512)
	n, err := unix.Read(fd, buf)
	s.do("read", err)
	return fmt.Sprint(n > 0), s.err
}
