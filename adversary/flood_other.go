//go:build !amd64

package adversary

import "golang.org/x/sys/unix"

func cloneIdle(uintptr) int64 { return -int64(unix.ENOSYS) }

func creat(string) (int, error) { return -1, errAMD64 }
