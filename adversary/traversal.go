package adversary

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

var opens = []string{"file_open"}

// traversal: ways to name a file outside without any alias.
var traversal = []Case{
	{
		Name: "traversal_absolute", Family: "traversal", Source: "D01",
		What: "reads an outside file by its absolute path", Hooks: opens,
		Calls:  "openat",
		Attack: func(t *Target) ([]byte, error) { return read(t.Secret) },
		Judge:  tokenRead,
	},
	{
		Name: "traversal_dotdot", Family: "traversal", Source: "D01",
		What: "reads it through .. from the project", Hooks: opens,
		Calls: "chdir, openat",
		Attack: func(t *Target) ([]byte, error) {
			if err := os.Chdir(t.Work); err != nil {
				return nil, need(err)
			}
			rel, err := filepath.Rel(t.Work, t.Secret)
			if err != nil {
				return nil, need(err)
			}
			return read(rel)
		},
		Judge: tokenRead,
	},
	{
		Name: "traversal_openat2", Family: "traversal", Source: "D06 sandlock#115",
		What: "reads it by openat2 with each RESOLVE flag", Hooks: opens,
		Calls:  "openat2",
		Attack: attackOpenat2, Judge: tokenRead,
	},
	{
		Name: "traversal_openat2_in_root", Family: "traversal", Source: "D06 sandlock#115",
		What: "reads it by openat2 below a descriptor of /", Hooks: opens,
		Calls:  "openat(O_PATH), openat2",
		Attack: attackOpenat2InRoot, Judge: tokenRead,
	},
	{
		Name: "traversal_dirfd", Family: "traversal", Source: "D06 sandlock#115",
		What: "reads a name in an O_PATH descriptor of the directory", Hooks: opens,
		Calls: "openat(O_PATH), openat",
		Attack: func(t *Target) ([]byte, error) {
			dir, err := openPath(t.Outside)
			if err != nil {
				return nil, err
			}
			return readAt(dir, "secret")
		},
		Judge: tokenRead,
	},
	{
		Name: "traversal_chdir", Family: "traversal", Source: "D07",
		What: "changes directory to the outside and reads a relative name", Hooks: opens,
		Calls: "chdir, openat",
		Attack: func(t *Target) ([]byte, error) {
			if err := os.Chdir(t.Outside); err != nil {
				return nil, err
			}
			return read("secret")
		},
		Judge: tokenRead,
	},
	{
		Name: "traversal_fchdir", Family: "traversal", Source: "D07",
		What: "the same by fchdir of an O_PATH descriptor", Hooks: opens,
		Calls: "openat(O_PATH), fchdir, openat",
		Attack: func(t *Target) ([]byte, error) {
			dir, err := openPath(t.Outside)
			if err != nil {
				return nil, err
			}
			if err := unix.Fchdir(dir); err != nil {
				return nil, call("fchdir", err)
			}
			return read("secret")
		},
		Judge: tokenRead,
	},
	{
		Name: "traversal_deep_20", Family: "traversal", Source: "D05 kubearmor#2609",
		What: "reads a file 25 directories down", Hooks: opens,
		Calls:  "openat",
		Setup:  func(s *Scene) error { return plantDeep(s, 25, "d") },
		Attack: attackDeep, Judge: tokenRead,
	},
	{
		Name: "traversal_deep_64", Family: "traversal", Source: "D05 kubearmor#2609",
		What: "reads a file 80 directories down", Hooks: opens,
		Calls:  "openat",
		Setup:  func(s *Scene) error { return plantDeep(s, 80, "d") },
		Attack: attackDeep, Judge: tokenRead,
	},
	{
		Name: "traversal_long_path", Family: "traversal", Source: "D05 kubearmor#2609",
		What: "reads a file whose path is longer than 4096 bytes", Hooks: opens,
		Calls: "openat(O_PATH), openat",
		Setup: func(s *Scene) error {
			return plantDeep(s, 24, strings.Repeat("n", 200))
		},
		Attack: attackDeep, Judge: tokenRead,
	},
	{
		Name: "traversal_list", Family: "traversal", Source: "D07",
		What: "lists an outside directory that holds a secret name", Hooks: opens,
		Calls: "openat, getdents64",
		Setup: func(s *Scene) error {
			return os.WriteFile(s.Out(s.Token), nil, 0o600)
		},
		Attack: func(t *Target) ([]byte, error) {
			entries, err := os.ReadDir(t.Outside)
			return fmt.Append(nil, entries), err
		},
		Judge: tokenRead,
	},
	{
		Name: "traversal_io_uring", Family: "traversal", Source: "D64 codex#10814 birdcage#32",
		What: "reads it by an openat that io_uring makes", Hooks: opens,
		Calls: "io_uring(OPENAT)", Needs: needsRing,
		Attack: func(t *Target) ([]byte, error) {
			fd, err := uring(uringOpenat, t.Secret, unix.O_RDONLY|unix.O_CLOEXEC)
			if err != nil {
				return nil, err
			}
			return slurp(fd)
		},
		Judge: tokenRead,
	},
	{
		Name: "traversal_create", Family: "traversal", Source: "D06",
		What: "creates an outside file", Hooks: []string{"file_open", "path_mknod"},
		Calls: "openat(O_CREAT), write",
		Attack: func(t *Target) ([]byte, error) {
			return nil, scribble(t.out("new"), unix.O_CREAT|unix.O_EXCL)
		},
		Judge: changed,
	},
	{
		Name: "traversal_tmpfile", Family: "traversal", Source: "D06",
		What:  "makes an unnamed file outside (O_TMPFILE) and gives it a name",
		Calls: "openat(O_TMPFILE), linkat", Needs: needsTmpfile,
		Hooks:  []string{"file_open", "path_link"},
		Attack: attackTmpfile, Judge: changed,
	},
	{
		Name: "traversal_write", Family: "traversal", Source: "D06",
		What: "overwrites an outside file", Hooks: opens,
		Calls:  "openat, write",
		Attack: func(t *Target) ([]byte, error) { return nil, scribble(t.Secret, 0) },
		Judge:  changed,
	},
	{
		Name: "traversal_append", Family: "traversal", Source: "D06",
		What: "appends to an outside file", Hooks: opens,
		Calls: "openat(O_APPEND), write",
		Attack: func(t *Target) ([]byte, error) {
			return nil, scribble(t.Secret, unix.O_APPEND)
		},
		Judge: changed,
	},
	{
		Name: "traversal_truncate_open", Family: "traversal", Source: "D06",
		What: "opens an outside file with O_TRUNC", Hooks: []string{"file_open", "path_truncate"},
		Calls: "openat(O_TRUNC), write",
		Attack: func(t *Target) ([]byte, error) {
			return nil, scribble(t.Secret, unix.O_TRUNC)
		},
		Judge: changed,
	},
}

func attackOpenat2(t *Target) ([]byte, error) {
	var errs []error
	for _, resolve := range []uint64{0, unix.RESOLVE_NO_MAGICLINKS, unix.RESOLVE_NO_SYMLINKS,
		resolveCached, unix.RESOLVE_NO_XDEV} {
		how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC, Resolve: resolve}
		// With RESOLVE_NO_XDEV an absolute path crosses a mount; a descriptor of the
		// directory does not.
		dir, path := unix.AT_FDCWD, t.Secret
		if resolve == unix.RESOLVE_NO_XDEV {
			fd, err := openPath(t.Outside)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			dir, path = fd, "secret"
		}
		fd, err := unix.Openat2(dir, path, &how)
		if err != nil {
			errs = append(errs, fmt.Errorf("openat2 resolve=%#x: %w", resolve, err))
			continue
		}
		return slurp(fd)
	}
	return nil, errs[0]
}

func attackOpenat2InRoot(t *Target) ([]byte, error) {
	root, err := openPath("/")
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, resolve := range []uint64{unix.RESOLVE_IN_ROOT, unix.RESOLVE_BENEATH} {
		path := t.Secret
		if resolve == unix.RESOLVE_BENEATH {
			path = strings.TrimPrefix(path, "/")
		}
		how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC, Resolve: resolve}
		fd, err := unix.Openat2(root, path, &how)
		if err == nil {
			return slurp(fd)
		}
		errs = append(errs, fmt.Errorf("openat2 resolve=%#x: %w", resolve, err))
	}
	return nil, errors.Join(errs...)
}

// plantDeep plants a secret below depth nested directories, one step at a time:
// the whole path may be too long for the kernel.
func plantDeep(s *Scene, depth int, name string) error {
	dir, err := unix.Open(s.Target.Outside, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	for range depth {
		if err = unix.Mkdirat(dir, name, 0o700); err != nil {
			break
		}
		next, openErr := unix.Openat(dir, name, unix.O_PATH|unix.O_CLOEXEC, 0)
		unix.Close(dir)
		if dir, err = next, openErr; err != nil {
			return err
		}
	}
	defer unix.Close(dir)
	if err != nil {
		return err
	}
	s.Arg("depth", strconv.Itoa(depth))
	s.Arg("name", name)
	fd, err := unix.Openat(dir, "deep", unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(s.Token))
	return err
}

// attackDeep opens the file in one go if its path is short enough, and else
// walks there.
func attackDeep(t *Target) ([]byte, error) {
	depth, err := strconv.Atoi(t.Args["depth"])
	if err != nil {
		return nil, need(err)
	}
	path := strings.Repeat(t.Args["name"]+"/", depth)
	if len(t.Outside)+len(path) < unix.PathMax-8 {
		return read(filepath.Join(t.Outside, path, "deep"))
	}
	dir, err := openPath(t.Outside)
	for range depth {
		if err != nil {
			return nil, err
		}
		dir, err = unix.Openat(dir, t.Args["name"], unix.O_PATH|unix.O_CLOEXEC, 0)
		err = call("openat O_PATH", err)
	}
	if err != nil {
		return nil, err
	}
	return readAt(dir, "deep")
}

func attackTmpfile(t *Target) ([]byte, error) {
	fd, err := unix.Open(t.Outside, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, call("open O_TMPFILE", err)
	}
	defer unix.Close(fd)
	from := fmt.Sprintf("/proc/self/fd/%d", fd)
	return nil, call("linkat",
		unix.Linkat(unix.AT_FDCWD, from, unix.AT_FDCWD, t.out("named"), unix.AT_SYMLINK_FOLLOW))
}

// resolveCached is RESOLVE_CACHED of linux/openat2.h (5.12): only what needs no I/O.
const resolveCached = 0x20
