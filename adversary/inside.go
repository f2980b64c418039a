package adversary

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Everything in this file runs in the attacker's process.

// mark is what attackers write into what they get hold of.
const mark = "the attacker was here\n"

// in returns a path in the attempt's directory in the project.
func (t *Target) in(name string) string { return filepath.Join(t.Work, name) }

// out returns a path in the attempt's directory outside.
func (t *Target) out(name string) string { return filepath.Join(t.Outside, name) }

// read reads the beginning of a file by name.
func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxLoot))
}

// readAt is openat, read and close.
func readAt(dirfd int, name string) ([]byte, error) {
	fd, err := unix.Openat(dirfd, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("openat: %w", err)
	}
	return slurp(fd)
}

// slurp reads the beginning of a file and closes it.
func slurp(fd int) ([]byte, error) {
	f := os.NewFile(uintptr(fd), "fd")
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxLoot))
}

// openPath opens a name without asking for any right (O_PATH).
func openPath(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open O_PATH: %w", err)
	}
	return fd, nil
}

// scribble opens a file with more flags than O_WRONLY and writes the mark.
func scribble(path string, flags int) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC|flags, 0o600)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(mark)); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// own makes a file in the attempt's directory and returns its path.
func (t *Target) own(name string) (string, error) {
	path := t.in(name)
	return path, need(os.WriteFile(path, []byte(mark), 0o600))
}

// call names the system call that an error came from.
func call(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}

// worksCase is the name of the check that the jail lets its command work.
const worksCase = "works"

// works does what every command in a project does. A jail that stops it proves
// nothing by stopping attacks.
func works(t *Target) ([]byte, error) {
	a, b, dir := t.in("a"), t.in("b"), t.in("dir")
	if err := os.WriteFile(a, []byte(mark), 0o600); err != nil {
		return nil, err
	}
	if err := os.Rename(a, b); err != nil {
		return nil, err
	}
	got, err := os.ReadFile(b)
	if err != nil {
		return nil, err
	}
	if string(got) != mark {
		return nil, fmt.Errorf("read %s: got %q, want %q", b, got, mark)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.Remove(dir); err != nil {
		return nil, err
	}
	if _, err := os.ReadDir(t.Args["programs"]); err != nil {
		return nil, err
	}
	status, err := os.ReadFile("/proc/self/status")
	if err == nil && !strings.Contains(string(status), "Pid:") {
		err = fmt.Errorf("read /proc/self/status: no Pid in it")
	}
	return []byte("works"), err
}
