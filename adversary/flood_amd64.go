package adversary

import "golang.org/x/sys/unix"

// cloneIdle makes a child that shares our memory, and does nothing until it is killed. It
// returns its number, or an error's, negative.
//
//go:noescape
func cloneIdle(flags uintptr) int64

// creat is creat(2), which x/sys does without.
func creat(path string) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_CREAT, cstring(path), 0o600, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}
