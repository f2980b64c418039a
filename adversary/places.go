package adversary

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// oneAttempt is held from Setup to the end of an attempt that uses a place, or takes room, of
// which the machine has one only: control and jailed attack may come at the same time.
var oneAttempt sync.Mutex

func (s *Scene) alone() {
	oneAttempt.Lock()
	s.onClose(oneAttempt.Unlock)
}

// ourselves runs f with the file system identity of the runner, not of the user.
func (s *Scene) ourselves(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }() // not on this thread, whose identity is the user's
	return <-done
}

// makeParents makes a directory and what leads to it, and removes at the end of the
// attempt those that were missing, if they are empty.
func (s *Scene) makeParents(dir string) error {
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, os.ErrNotExist) {
		if err = s.makeParents(filepath.Dir(dir)); err == nil {
			err = os.Mkdir(dir, 0o755)
		}
	}
	if err == nil {
		s.onClose(func() { _ = os.Remove(dir) })
	} else if errors.Is(err, os.ErrExist) {
		err = nil
	}
	return err
}

// listenAtPlace listens at a path that programs know, unless something is there: it is
// then a real service, which stays as it is. It runs as the runner where the user may not.
func (s *Scene) listenAtPlace(name, path string) error {
	s.alone()
	listen := func() error {
		if _, err := os.Lstat(path); err == nil {
			return fmt.Errorf("%s is there; the suite does not touch it", path)
		}
		if err := s.makeParents(filepath.Dir(path)); err != nil {
			return err
		}
		if err := s.Listen(name, unix.SOCK_STREAM, path); err != nil {
			return err
		}
		s.onClose(func() { _ = os.Remove(path) })
		return os.Chmod(path, 0o666)
	}
	err := listen()
	if errors.Is(err, os.ErrPermission) {
		err = s.ourselves(listen)
	}
	return err
}

// received takes what one client has sent to a listener, without waiting, or what one
// datagram holds. ok says that there was a client.
func (l listener) received() (data []byte, ok bool) {
	buf := make([]byte, 8192)
	if l.kind == unix.SOCK_DGRAM {
		n, _, err := unix.Recvfrom(l.fd, buf, unix.MSG_DONTWAIT)
		return buf[:max(n, 0)], err == nil
	}
	fd, _, err := unix.Accept4(l.fd, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
	if err != nil {
		return nil, false
	}
	defer unix.Close(fd)
	for len(data) < maxLoot {
		n, err := unix.Read(fd, buf)
		if err != nil || n == 0 {
			break
		}
		data = append(data, buf[:n]...)
	}
	return data, true
}
