package adversary

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const (
	linkSource     = "D08 KubeArmor#988 sandlock#179 openclaw#26051"
	existingSource = "D09 scode#2"
)

// hardlinks: second names of outside files. The existing_ cases have one in the
// project before the attacker comes.
var hardlinks = []Case{
	{
		Name: "hardlink_create_read", Family: "hardlinks", Source: linkSource,
		What:  "links an outside file into the project and reads it",
		Calls: "linkat, openat",
		Hooks: []string{"path_link", "file_open"},
		Attack: func(t *Target) ([]byte, error) {
			if err := unix.Link(t.Secret, t.in("h")); err != nil {
				return nil, call("link", err)
			}
			return read(t.in("h"))
		},
		Judge: anyOf(tokenRead, changed),
	},
	{
		Name: "hardlink_create_write", Family: "hardlinks", Source: linkSource,
		What:  "links an outside file into the project and overwrites it",
		Calls: "linkat, openat, write",
		Hooks: []string{"path_link", "file_open"},
		Attack: func(t *Target) ([]byte, error) {
			if err := unix.Link(t.Secret, t.in("h")); err != nil {
				return nil, call("link", err)
			}
			return nil, scribble(t.in("h"), 0)
		},
		Judge: changed,
	},
	{
		Name: "hardlink_out", Family: "hardlinks", Source: linkSource,
		What:  "gives a file of the project a name outside",
		Calls: "linkat",
		Hooks: []string{"path_link"},
		Attack: func(t *Target) ([]byte, error) {
			own, err := t.own("f")
			if err != nil {
				return nil, err
			}
			return nil, call("link", unix.Link(own, t.out("planted")))
		},
		Judge: changed,
	},
	{
		Name: "hardlink_proc_fd", Family: "hardlinks", Source: "D12",
		What:  "links an O_PATH descriptor of the file through /proc/self/fd",
		Calls: "openat(O_PATH), linkat(AT_SYMLINK_FOLLOW), openat",
		Hooks: []string{"path_link", "file_open"},
		Attack: func(t *Target) ([]byte, error) {
			fd, err := openPath(t.Secret)
			if err != nil {
				return nil, err
			}
			from := fmt.Sprintf("/proc/self/fd/%d", fd)
			err = unix.Linkat(unix.AT_FDCWD, from, unix.AT_FDCWD, t.in("h"),
				unix.AT_SYMLINK_FOLLOW)
			if err != nil {
				return nil, call("linkat", err)
			}
			return read(t.in("h"))
		},
		Judge: anyOf(tokenRead, changed),
	},
	{
		Name: "hardlink_empty_path", Family: "hardlinks", Source: "D12",
		What:  "links an O_PATH descriptor of the file with AT_EMPTY_PATH",
		Calls: "openat(O_PATH), linkat(AT_EMPTY_PATH), openat",
		Since: "6.10",
		Hooks: []string{"path_link", "file_open"},
		Attack: func(t *Target) ([]byte, error) {
			fd, err := openPath(t.Secret)
			if err != nil {
				return nil, err
			}
			err = unix.Linkat(fd, "", unix.AT_FDCWD, t.in("h"), unix.AT_EMPTY_PATH)
			if err != nil {
				return nil, call("linkat", err)
			}
			return read(t.in("h"))
		},
		Judge: anyOf(tokenRead, changed),
	},
	existing("read", "openat", "file_open", tokenRead, func(h string) ([]byte, error) {
		return read(h)
	}),
	existing("write", "openat, write", "file_open", changed, func(h string) ([]byte, error) {
		return nil, scribble(h, 0)
	}),
	existing("append", "openat(O_APPEND), write", "file_open", changed,
		func(h string) ([]byte, error) { return nil, scribble(h, unix.O_APPEND) }),
	existing("truncate", "truncate", "path_truncate", changed, func(h string) ([]byte, error) {
		return nil, call("truncate", unix.Truncate(h, 0))
	}),
	existing("chmod", "fchmodat", "path_chmod", changed, func(h string) ([]byte, error) {
		return nil, call("chmod", unix.Chmod(h, 0o777))
	}),
	existing("utimes", "utimensat", "inode_setattr", changed, func(h string) ([]byte, error) {
		return nil, call("utimensat", unix.UtimesNanoAt(unix.AT_FDCWD, h, longAgo, 0))
	}),
	existing("setxattr", "setxattr", "inode_setxattr", changed,
		func(h string) ([]byte, error) {
			return nil, call("setxattr", unix.Setxattr(h, "user.attacker", []byte(mark), 0))
		}).needing(needsUserXattr),
}

// existing is a case on a hard link to an outside file that the user made.
func existing(verb, calls, hook string, judge Judge, do func(string) ([]byte, error)) Case {
	return Case{
		Name: "hardlink_existing_" + verb, Family: "hardlinks", Source: existingSource,
		What:   verb + " on an outside file that had a hard link in the project before",
		Calls:  calls,
		Hooks:  []string{hook},
		Setup:  func(s *Scene) error { return os.Link(s.Target.Secret, s.In("h")) },
		Attack: func(t *Target) ([]byte, error) { return do(t.in("h")) },
		Judge:  judge,
	}
}

// longAgo is 1970, as access and modification time.
var longAgo = []unix.Timespec{{Sec: 1}, {Sec: 1}}
