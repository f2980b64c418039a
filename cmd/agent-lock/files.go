package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/agent-lock/agent-lock/jail"
	"github.com/agent-lock/agent-lock/policy"
	"golang.org/x/sys/unix"
)

// openResults opens a file that results are written to. Root opens it as the user who
// called sudo, and follows no link that a jail could have made: it may lie in a project.
func openResults(name string, flags int) (*os.File, error) {
	if os.Geteuid() != 0 {
		return os.OpenFile(name, flags, 0o644)
	}
	path, err := policy.Physical(name)
	if err != nil {
		return nil, err
	}
	user, err := jail.InvokingUser(os.Getenv)
	if err != nil {
		return nil, err
	}
	return openAs(user, path, flags, 0o644)
}

// openAs opens a file as a user, through no symbolic link.
func openAs(user jail.User, name string, flags int, mode uint64) (*os.File, error) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return nil, err
	}
	type opened struct {
		fd  int
		err error
	}
	done := make(chan opened)
	go func() {
		// Not unlocked: the thread ends with its file system ids.
		runtime.LockOSThread()
		unix.SetfsgidRetGid(user.GID)
		unix.SetfsuidRetUid(user.UID)
		how := &unix.OpenHow{
			Flags:   uint64(flags | unix.O_NOCTTY | unix.O_CLOEXEC),
			Resolve: unix.RESOLVE_NO_SYMLINKS,
		}
		if flags&unix.O_CREAT != 0 {
			how.Mode = mode
		}
		fd, err := unix.Openat2(unix.AT_FDCWD, abs, how)
		done <- opened{fd, err}
	}()
	o := <-done
	if errors.Is(o.err, unix.ELOOP) {
		return nil, fmt.Errorf("%s: a symbolic link is in the path, which a jail could have "+
			"made; name the file without it", abs)
	}
	if o.err != nil {
		return nil, fmt.Errorf("open %s as %s: %w", abs, user.Name, o.err)
	}
	return os.NewFile(uintptr(o.fd), abs), nil
}
