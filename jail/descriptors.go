package jail

import "golang.org/x/sys/unix"

// tableSize is more than a start has descriptors, and less than any limit.
const tableSize = 512

// growTable lets the table of descriptors grow while the command's process starts,
// which we wait for anyway. When it grows under a process with several threads, the
// kernel waits until no processor reads the old one (expand_fdtable in fs/file.c).
func growTable() {
	fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, tableSize-1)
	if err == nil { // else it grows when it must
		unix.Close(fd)
	}
}
