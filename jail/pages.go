package jail

import "golang.org/x/sys/unix"

// Our own processes live for milliseconds in which the kernel would clear huge pages
// for their heaps, 2 MB each. They do without; the command gets them back.

// withoutHugePages is for this process and all that it starts. It reports whether
// that is a change.
func withoutHugePages() bool {
	off, err := unix.PrctlRetInt(unix.PR_GET_THP_DISABLE, 0, 0, 0, 0)
	return err == nil && off == 0 && unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0) == nil
}

func withHugePages() { unix.Prctl(unix.PR_SET_THP_DISABLE, 0, 0, 0, 0) }
