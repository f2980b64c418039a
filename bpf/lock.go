package bpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// The locks are directories in bpffs beside what they protect. So whoever shares an
// attach set shares its locks, a container with a /run of its own too.

// lockSets takes the lock that serialises starts and ends.
func lockSets() (unlock func(), err error) {
	if err := mountBPFFS(); err != nil {
		return nil, err
	}
	if err := makeDir(pinRoot); err != nil {
		return nil, err
	}
	if err := checkOwner(pinRoot); err != nil {
		return nil, err
	}
	f, err := lockDir(pinRoot, unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	return func() { f.Close() }, nil
}

// trySlot takes a slot of a set, which is then held until the file is closed or
// the process dies. Someone else's is unix.EWOULDBLOCK. It is clean if there was
// nothing of it. The caller holds the lock of the sets.
func trySlot(set string, number uint32) (held *os.File, clean bool, err error) {
	path := filepath.Join(set, fmt.Sprintf("slot-%d", number))
	err = os.Mkdir(path, 0o700)
	if clean = err == nil; !clean && !errors.Is(err, os.ErrExist) {
		return nil, false, fmt.Errorf("take slot %d: %w", number, err)
	}
	held, err = lockDir(path, unix.LOCK_EX|unix.LOCK_NB)
	return held, clean, err
}

// anyHeld reports whether some supervisor holds a slot of a set.
func anyHeld(set string) (bool, error) {
	slots, err := filepath.Glob(filepath.Join(set, "slot-*"))
	if err != nil {
		return false, err
	}
	for _, path := range slots {
		f, err := lockDir(path, unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		f.Close()
	}
	return false, nil
}

func makeDir(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make lock: %w", err)
	}
	return nil
}

// checkOwner refuses a directory that others can change: where bpffs is mounted for
// everybody, they could have made it first.
func checkOwner(path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fmt.Errorf("lock attach sets: %s: %w", path, err)
	}
	if st.Uid != 0 || st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&0o022 != 0 {
		return fmt.Errorf("lock attach sets: %s is not a directory of root's alone (uid %d, mode "+
			"%o); remove it", path, st.Uid, st.Mode)
	}
	return nil
}

func lockDir(path string, how int) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("lock attach sets: %w", err)
	}
	for {
		err := unix.Flock(int(f.Fd()), how)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
	}
}

// mountBPFFS mounts bpffs where everyone expects it, if nobody has.
func mountBPFFS() error {
	const where = "/sys/fs/bpf"
	mounted, err := isBPFFS(where)
	if mounted || err != nil {
		return err
	}
	// Of two starts one mounts: a second mount would hide the first one's set.
	f, err := lockDir(where, unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer f.Close()
	if mounted, err = isBPFFS(where); mounted || err != nil {
		return err
	}
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if err := unix.Mount("bpf", where, "bpf", flags, "mode=700"); err != nil {
		return fmt.Errorf("mount bpffs on %s: %w", where, orRefused(err))
	}
	return nil
}

func isBPFFS(where string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(where, &st); err != nil {
		return false, fmt.Errorf("find bpffs: %s: %w (the kernel needs CONFIG_BPF_SYSCALL)",
			where, err)
	}
	return st.Type == unix.BPF_FS_MAGIC, nil
}
