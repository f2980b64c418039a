package adversary

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	changeSource = "D27"
	renameSource = "D11 landstrip"
	attrSource   = "D29"
)

// changes: what can be done to the outside without opening a file.
var changes = []Case{
	change("unlink", changeSource, "deletes a file", "unlinkat", "path_unlink", nil,
		func(t *Target) error {
			return call("unlink", unix.Unlink(t.Secret))
		}),
	change("unlink_io_uring", "D64", "deletes a file by io_uring", "io_uring(UNLINKAT)",
		"path_unlink", nil, func(t *Target) error {
			_, err := uring(uringUnlinkat, t.Secret, 0)
			return err
		}).needing(needsRing).since("5.11"),
	change("rmdir", changeSource, "removes a directory", "unlinkat(AT_REMOVEDIR)", "path_rmdir",
		plantDir, func(t *Target) error { return call("rmdir", unix.Rmdir(t.out("dir"))) }),
	change("mkdir", changeSource, "makes a directory", "mkdirat", "path_mkdir", nil,
		func(t *Target) error {
			return call("mkdir", unix.Mkdir(t.out("new"), 0o700))
		}),
	change("mknod_fifo", changeSource, "makes a fifo", "mknodat", "path_mknod", nil,
		func(t *Target) error {
			return call("mknod", unix.Mknod(t.out("new"), unix.S_IFIFO|0o600, 0))
		}),
	change("mknod_file", changeSource, "makes a file by mknod", "mknodat", "path_mknod", nil,
		func(t *Target) error {
			return call("mknod", unix.Mknod(t.out("new"), unix.S_IFREG|0o600, 0))
		}),
	change("bind", "D30 landstrip", "makes a socket by bind", "socket, bind", "path_mknod", nil,
		attackBind),
	change("symlink", changeSource, "makes a symbolic link", "symlinkat", "path_symlink", nil,
		func(t *Target) error { return call("symlink", unix.Symlink("x", t.out("new"))) }),
	change("rename_out_to_in", renameSource, "moves an outside file into the project", "renameat",
		"path_rename", nil, func(t *Target) error {
			return call("rename", unix.Rename(t.Secret, t.in("stolen")))
		}),
	change("rename_in_to_out", renameSource, "moves a file of the project outside", "renameat2",
		"path_rename", nil, func(t *Target) error {
			return attackRename(t, t.out("new"), 0)
		}),
	change("rename_onto", renameSource, "moves a file of the project over an outside one",
		"renameat2", "path_rename", nil, func(t *Target) error {
			return attackRename(t, t.Secret, 0)
		}),
	change("rename_exchange", renameSource, "exchanges a file of the project for an outside one",
		"renameat2(RENAME_EXCHANGE)", "path_rename", nil, func(t *Target) error {
			return attackRename(t, t.Secret, unix.RENAME_EXCHANGE)
		}).needing(needsExchange),
	change("rename_outside", renameSource, "renames an outside file in its directory", "renameat",
		"path_rename", nil, func(t *Target) error {
			return call("rename", unix.Rename(t.Secret, t.out("moved")))
		}),
	change("rename_dir_in", renameSource, "moves an outside directory into the project", "renameat",
		"path_rename", plantDir, func(t *Target) error {
			return call("rename", unix.Rename(t.out("dir"), t.in("dir")))
		}),
	{
		Name: "change_rename_old", Family: "changes", Source: renameSource,
		What:  "renames an outside directory that was there before the jail",
		Calls: "renameat",
		Hooks: []string{"path_rename"},
		Setup: func(s *Scene) error {
			from, to := s.arena.oldDir(), s.Out("moved")
			s.onClose(func() { os.Rename(to, from) })
			s.Arg("dir", from)
			return nil
		},
		Attack: func(t *Target) ([]byte, error) {
			return nil, call("rename", unix.Rename(t.Args["dir"], t.out("moved")))
		},
		Judge: Judge{"the directory has lost its name", func(s *Scene) string {
			if _, err := os.Lstat(s.arena.oldDir()); err != nil {
				return "the directory has lost its name"
			}
			return ""
		}},
	},
	change("truncate", "D28", "truncates a file by name", "truncate", "path_truncate", nil,
		func(t *Target) error { return call("truncate", unix.Truncate(t.Secret, 0)) }),
	change("chmod", attrSource, "changes a mode", "fchmodat", "path_chmod", nil,
		func(t *Target) error {
			return call("chmod", unix.Chmod(t.Secret, 0o777))
		}),
	change("chmod_proc_fd", "D19", "changes a mode through /proc/self/fd",
		"openat(O_PATH), fchmodat", "path_chmod", nil,
		func(t *Target) error {
			fd, err := openPath(t.Secret)
			if err != nil {
				return err
			}
			return call("chmod", unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), 0o777))
		}),
	change("fchmodat2", attrSource, "changes a mode by fchmodat2", "fchmodat2", "path_chmod", nil,
		func(t *Target) error {
			_, _, errno := unix.Syscall6(unix.SYS_FCHMODAT2, atFDCWD,
				cstring(t.Secret), 0o777, unix.AT_SYMLINK_NOFOLLOW, 0, 0)
			if errno != 0 {
				return call("fchmodat2", errno)
			}
			return nil
		}).since("6.6"),
	change("file_setattr", flagSource, "sets a flag (nodump)", "file_setattr",
		"inode_file_setattr", waitTick, func(t *Target) error {
			return setFlags(t.Secret)
		}).since("6.17").needing(needsFlags),
	change("file_setattr_o_path", flagSource, "sets a flag (nodump) through an O_PATH descriptor",
		"openat(O_PATH), file_setattr", "inode_file_setattr", waitTick,
		func(t *Target) error {
			fd, err := openPath(t.Secret)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return setFlags(fmt.Sprintf("/proc/self/fd/%d", fd))
		}).since("6.17").needing(needsFlags),
	change("chown", attrSource, "changes the owner (to the same)", "fchownat", "path_chown",
		waitTick, func(t *Target) error {
			return call("chown", unix.Chown(t.Secret, os.Getuid(), os.Getgid()))
		}),
	change("lchown", attrSource, "changes the owner (to the same) of a symbolic link", "lchown",
		"path_chown", plantLink, func(t *Target) error {
			return call("lchown", unix.Lchown(t.out("link"), os.Getuid(), os.Getgid()))
		}),
	change("utimes", attrSource, "sets the times", "utimensat", "inode_setattr", nil,
		func(t *Target) error {
			return call("utimensat", unix.UtimesNanoAt(unix.AT_FDCWD, t.Secret, longAgo, 0))
		}),
	change("setxattr", attrSource, "sets an extended attribute", "setxattr", "inode_setxattr", nil,
		func(t *Target) error {
			return call("setxattr", unix.Setxattr(t.Secret, "user.attacker", []byte(mark), 0))
		}),
	change("removexattr", attrSource, "removes an extended attribute", "removexattr",
		"inode_removexattr", func(s *Scene) error {
			return call("setxattr", unix.Setxattr(s.Target.Secret, "user.kept", []byte("x"), 0))
		}, func(t *Target) error {
			return call("removexattr", unix.Removexattr(t.Secret, "user.kept"))
		}),
	change("acl_set", attrSource, "gives somebody else access by an ACL", "setxattr",
		"inode_set_acl", nil, func(t *Target) error {
			return call("setxattr", unix.Setxattr(t.Secret, aclName, someACL(), 0))
		}),
	change("acl_remove", attrSource, "removes an ACL", "removexattr", "inode_remove_acl",
		func(s *Scene) error {
			return call("setxattr", unix.Setxattr(s.Target.Secret, aclName, someACL(), 0))
		}, func(t *Target) error {
			return call("removexattr", unix.Removexattr(t.Secret, aclName))
		}),
}

// change is a case that is judged by the state of the outside. The ACL hooks
// are younger than the attribute ones (6.2), which stand in for them before.
func change(verb, source, what, calls, hook string, setup func(*Scene) error,
	attack func(*Target) error) Case {
	hooks, needs := []string{hook}, ""
	switch hook {
	case "inode_setxattr", "inode_removexattr":
		needs = needsUserXattr
	case "inode_set_acl":
		hooks, needs = append(hooks, "inode_setxattr"), needsACL
	case "inode_remove_acl":
		hooks, needs = append(hooks, "inode_removexattr"), needsACL
	case "path_chmod", "path_chown", "path_truncate":
		hooks = append(hooks, "inode_setattr")
	}
	if !strings.Contains(what, "outside") {
		what += " outside"
	}
	return Case{
		Name: "change_" + verb, Family: "changes", Source: source, What: what,
		Calls: calls, Needs: needs, Hooks: hooks, Setup: setup, Judge: changed,
		Attack: func(t *Target) ([]byte, error) { return nil, attack(t) },
	}
}

func plantDir(s *Scene) error { return os.Mkdir(s.Out("dir"), 0o700) }

func plantLink(s *Scene) error {
	if err := os.Symlink("secret", s.Out("link")); err != nil {
		return err
	}
	return waitTick(s)
}

// waitTick waits until the kernel's clock for inode times has moved on (10 ms at
// most), so that a change of nothing but the time of change can be seen.
func waitTick(*Scene) error {
	var start, now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &start); err != nil {
		return err
	}
	for now = start; now == start; time.Sleep(time.Millisecond) {
		if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now); err != nil {
			return err
		}
	}
	return nil
}

// attackRename moves a fresh file of the project.
func attackRename(t *Target, to string, flags uint) error {
	own, err := t.own("f")
	if err != nil {
		return err
	}
	return call("renameat2", unix.Renameat2(unix.AT_FDCWD, own, unix.AT_FDCWD, to, flags))
}

func attackBind(t *Target) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return call("socket", err)
	}
	defer unix.Close(fd)
	return call("bind", unix.Bind(fd, &unix.SockaddrUnix{Name: t.out("s")}))
}

const aclName = "system.posix_acl_access"

// someACL gives access to somebody else.
func someACL() []byte { return userACL(4242) }

// userACL is an access ACL that names a user, in the form of
// linux/posix_acl_xattr.h: a version and entries of tag, permissions and id, in the
// order of their tags.
func userACL(user uint32) []byte {
	const undefined = 0xffffffff
	b := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{
		{0x01, 6, undefined}, // owner
		{0x02, 7, user},
		{0x04, 0, undefined}, // group
		{0x10, 7, undefined}, // mask
		{0x20, 0, undefined}, // others
	} {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.perm)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}
