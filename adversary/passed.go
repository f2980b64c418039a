package adversary

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// passed: uses of a descriptor of an outside file that are neither read nor write.
var passed = []Case{
	passedCase("mapped", "maps it", "mmap", unix.O_RDONLY, func(_ *Target, fd int) ([]byte, error) {
		return mapped(fd)
	}),
	passedCase("sent", "sends it into a pipe (sendfile)", "sendfile", unix.O_RDONLY,
		func(_ *Target, fd int) ([]byte, error) { return sent(fd) }),
	passedCase("spliced", "splices it into a pipe", "splice", unix.O_RDONLY,
		func(_ *Target, fd int) ([]byte, error) { return spliced(fd) }),
	passedCase("copied", "copies it into the project (copy_file_range)", "copy_file_range",
		unix.O_RDONLY,
		func(t *Target, fd int) ([]byte, error) { return copied(t, fd) }),
	passedCase("cloned", "shares its blocks with a file of the project (FICLONE)",
		"ioctl(FICLONE), openat", unix.O_RDONLY,
		func(t *Target, fd int) ([]byte, error) {
			to, err := os.Create(t.in("clone"))
			if err != nil {
				return nil, need(err)
			}
			defer to.Close()
			if err := unix.IoctlFileClone(int(to.Fd()), fd); err != nil {
				return nil, call("ioctl FICLONE", err)
			}
			return read(t.in("clone"))
		}).needing("a file system with reflinks"),
	passedChange("reopened", "opens it for writing through /proc/self/fd", "openat, write",
		func(fd int) error { return scribble(fmt.Sprintf("/proc/self/fd/%d", fd), 0) }),
	passedChange("reopened_dev", "opens it for writing through /dev/fd", "openat, write",
		func(fd int) error { return scribble(fmt.Sprintf("/dev/fd/%d", fd), 0) }),
	passedChange("chmod", "changes its mode (fchmod)", "fchmod",
		func(fd int) error { return call("fchmod", unix.Fchmod(fd, 0o777)) }),
	passedChange("xattr", "sets an extended attribute (fsetxattr)", "fsetxattr",
		func(fd int) error {
			return call("fsetxattr", unix.Fsetxattr(fd, "user.attacker", []byte(mark), 0))
		}).needing(needsUserXattr),
	{
		Name: "fd_passed_lease", Family: "descriptors", Source: passedSource, Fresh: true,
		What:  "is passed an outside file and takes a lease, which holds up its writers",
		Calls: "recvmsg, fcntl(F_SETLEASE)",
		Hooks: received,
		Setup: func(s *Scene) error { return s.Pass(s.Target.Secret, unix.O_RDONLY) },
		Attack: withPassed(func(t *Target, fd int) ([]byte, error) {
			return lease(t, fd)
		}),
		Meanwhile: tryWriting, Judge: leased,
	},
	{
		Name: "fd_lease", Family: "descriptors", Source: "D33 fcntl(2)", Fresh: true,
		What: "opens an outside file and takes a lease", Hooks: opens,
		Calls: "openat, fcntl(F_SETLEASE)",
		Attack: func(t *Target) ([]byte, error) {
			fd, err := unix.Open(t.Secret, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return nil, call("open", err)
			}
			return lease(t, fd)
		},
		Meanwhile: tryWriting, Judge: leased,
	},
	{
		Name: "watch_passed_dnotify", Family: "descriptors", Source: "D20 D33", Fresh: true,
		What:  "is passed an outside directory and watches it (F_NOTIFY)",
		Calls: "recvmsg, fcntl(F_SETOWN_EX), fcntl(F_SETSIG), fcntl(F_NOTIFY)",
		Needs: "CONFIG_DNOTIFY",
		Hooks: []string{"file_receive", "path_notify"},
		Setup: func(s *Scene) error {
			err := s.Pass(s.Target.Outside, unix.O_RDONLY|unix.O_DIRECTORY)
			return errors.Join(err, hideCount(s))
		},
		Attack: withPassed(countSignals), Meanwhile: makeFiles, Judge: secretRead("count"),
	},
	{
		Name: "watch_dnotify", Family: "descriptors", Source: watchSource, Fresh: true,
		What:  "opens an outside directory by its O_PATH descriptor and watches it (F_NOTIFY)",
		Calls: "openat(O_PATH), openat, fcntl(F_SETOWN_EX), fcntl(F_SETSIG), fcntl(F_NOTIFY)",
		Needs: "CONFIG_DNOTIFY",
		Hooks: []string{"file_open", "path_notify"}, Setup: hideCount,
		Attack: func(t *Target) ([]byte, error) {
			path, err := openPath(t.Outside)
			if err != nil {
				return nil, err
			}
			fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", path),
				unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return nil, call("open", err)
			}
			return countSignals(t, fd)
		},
		Meanwhile: makeFiles, Judge: secretRead("count"),
	},
	{
		Name: "fd_inherited_copied", Family: "descriptors", Source: inheritedSource, Fresh: true,
		What:  "maps, sends, splices and copies every descriptor that was left open",
		Calls: "mmap, sendfile, splice, copy_file_range",
		Attack: func(t *Target) ([]byte, error) {
			return eachFD(func(fd int) ([]byte, error) {
				var loot []byte
				var errs []error
				for _, use := range []func(int) ([]byte, error){mapped, sent, spliced,
					func(fd int) ([]byte, error) { return copied(t, fd) }} {
					data, err := use(fd)
					loot, errs = append(loot, data...), append(errs, err)
				}
				return loot, errors.Join(errs...)
			})
		},
		Judge: sessionRead("inherited descriptor"),
	},
}

func withPassed(use func(*Target, int) ([]byte, error)) func(*Target) ([]byte, error) {
	return func(t *Target) ([]byte, error) {
		fd, err := receiveFD(0)
		if err != nil {
			return nil, err
		}
		defer unix.Close(fd)
		return use(t, fd)
	}
}

func passedCase(verb, what, calls string, flags int,
	use func(*Target, int) ([]byte, error)) Case {
	return Case{
		Name: "fd_passed_" + verb, Family: "descriptors", Source: passedSource,
		What: "is passed an outside file and " + what, Calls: "recvmsg, " + calls,
		Hooks: received, Judge: tokenRead,
		Setup:  func(s *Scene) error { return s.Pass(s.Target.Secret, flags) },
		Attack: withPassed(use),
	}
}

func passedChange(verb, what, calls string, use func(fd int) error) Case {
	c := passedCase(verb, what, calls, unix.O_RDONLY, func(_ *Target, fd int) ([]byte, error) {
		return nil, use(fd)
	})
	c.Judge = changed
	return c
}

func mapped(fd int) ([]byte, error) {
	b, err := unix.Mmap(fd, 0, 64, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return nil, call("mmap", err)
	}
	loot := bytes.Clone(b)
	return loot, unix.Munmap(b)
}

func sent(fd int) ([]byte, error) {
	return throughPipe(func(to int) error {
		at := int64(0)
		_, err := unix.Sendfile(to, fd, &at, 256)
		return call("sendfile", err)
	})
}

func spliced(fd int) ([]byte, error) {
	return throughPipe(func(to int) error {
		at := int64(0)
		_, err := unix.Splice(fd, &at, to, nil, 256, unix.SPLICE_F_NONBLOCK)
		return call("splice", err)
	})
}

func copied(t *Target, fd int) ([]byte, error) {
	to, err := os.Create(t.in("copy"))
	if err != nil {
		return nil, need(err)
	}
	defer to.Close()
	from := int64(0)
	if _, err := unix.CopyFileRange(fd, &from, int(to.Fd()), nil, 256, 0); err != nil {
		return nil, call("copy_file_range", err)
	}
	return read(t.in("copy"))
}

// throughPipe returns what fill put into a pipe.
func throughPipe(fill func(to int) error) ([]byte, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, need(err)
	}
	defer unix.Close(p[0])
	defer unix.Close(p[1])
	if err := fill(p[1]); err != nil {
		return nil, err
	}
	buf := make([]byte, 256)
	n, err := unix.Read(p[0], buf)
	return buf[:max(n, 0)], call("read", err)
}

func lease(t *Target, fd int) ([]byte, error) {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		return nil, call("fcntl F_SETLEASE", err)
	}
	return nil, t.Sync()
}

var leased = seen("a lease keeps the user from opening the file for writing")

// tryWriting opens the file for writing, as its user would, who must not wait.
func tryWriting(s *Scene, _ int) error {
	fd, err := unix.Open(s.Target.Secret, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EAGAIN) {
		s.Evidence = "a lease keeps the user from writing"
		return nil
	}
	if err == nil {
		unix.Close(fd)
	}
	return err
}
