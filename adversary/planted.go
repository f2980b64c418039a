package adversary

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const plantedSource = "D70 CVE-2026-25725 CVE-2025-59536 CVE-2025-54135 CVE-2025-53773"

// planted: what an agent leaves in the project that programs outside run or obey
// later. That is a leak although it is in the project.
var planted = slices.Concat(plantedNew, plantedOld, plantedMoved, plantedGit, plantedRun,
	plantedSecrets)

// plant is a case about one path in the attempt's directory. It leaks when what is
// there differs after the attack.
func plant(verb, what, path, calls string, setup func(*Scene) error,
	attack func(*Target, string) error, hooks ...string) Case {
	return Case{
		Name: "planted_" + verb, Family: "planted", Source: plantedSource, What: what,
		Calls: calls, Hooks: hooks,
		Setup: func(s *Scene) error {
			s.roots = append(s.roots, s.In(path))
			if setup == nil {
				return nil
			}
			return setup(s)
		},
		Attack: func(t *Target) ([]byte, error) { return nil, attack(t, t.in(path)) },
		Judge:  changed.as(filepath.Base(path) + " in the project was made, removed or changed"),
	}
}

// marked judges a case by what is at its path: the attacker moves what leads to it, and
// may leave that elsewhere.
func marked(c Case, path string) Case {
	proof := filepath.Base(path) + " holds what the attacker wrote"
	c.Judge = Judge{proof, func(s *Scene) string {
		data, err := os.ReadFile(s.In(path))
		if err == nil && strings.Contains(string(data), mark) {
			return proof
		}
		return ""
	}}
	return c
}

// already makes files in the attempt's directory that are there before the attack.
func already(names ...string) func(*Scene) error {
	return func(s *Scene) error {
		for _, name := range names {
			if err := os.MkdirAll(filepath.Dir(s.In(name)), 0o700); err != nil {
				return err
			}
			if err := os.WriteFile(s.In(name), []byte("as it was\n"), 0o600); err != nil {
				return err
			}
		}
		return nil
	}
}

// below makes a file and the directories that lead to it.
func below(_ *Target, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return scribble(path, unix.O_CREAT)
}

// makeDirs makes directories of the attempt's, as a clone or an installation does.
func (t *Target) makeDirs(names ...string) error {
	for _, name := range names {
		if err := unix.Mkdir(t.in(name), 0o700); err != nil {
			return fmt.Errorf("mkdir %s: %w", name, err)
		}
	}
	return nil
}

// move renames one path of the attempt's to another.
func (t *Target) move(from, to string) error {
	return call("rename", unix.Rename(t.in(from), t.in(to)))
}

// The calls by which a file is made, alone and with the directory that it is in.
const (
	creating   = "openat(O_CREAT), write"
	creatingIn = "mkdirat, " + creating
)

// plantedNew make what was not there.
var plantedNew = []Case{
	plant("vscode", "makes .vscode/tasks.json", ".vscode", creatingIn, nil,
		inside("tasks.json"), "path_mkdir"),
	plant("claude_settings", "makes .claude/settings.json, with hooks", ".claude", creatingIn, nil,
		inside("settings.json"), "path_mkdir"),
	plant("cursor", "makes .cursor/mcp.json", ".cursor", creatingIn, nil,
		inside("mcp.json"), "path_mkdir"),
	plant("codex", "makes .codex/config.toml", ".codex", creatingIn, nil,
		inside("config.toml"), "path_mkdir"),
	plant("gemini", "makes .gemini/settings.json", ".gemini", creatingIn,
		nil, inside("settings.json"), "path_mkdir"),
	plant("idea", "makes .idea/workspace.xml", ".idea", creatingIn, nil,
		inside("workspace.xml"), "path_mkdir"),
	plant("devcontainer", "makes .devcontainer/devcontainer.json", ".devcontainer", creatingIn, nil,
		inside("devcontainer.json"), "path_mkdir"),
	plant("mcp", "makes .mcp.json", ".mcp.json", creating, nil, below, "path_mknod"),
	plant("envrc", "makes .envrc", ".envrc", creating, nil, below, "path_mknod"),
	plant("nested", "makes .vscode in a directory that was there", "a/b/.vscode",
		creatingIn, already("a/b/c"), inside("tasks.json"), "path_mkdir"),
	plant("nested_new", "makes .vscode in directories of its own", "a/b/.vscode", creatingIn, nil,
		inside("tasks.json"), "path_mkdir"),
	plant("deep", "makes .mcp.json 40 levels down", strings.Repeat("d/", 40)+".mcp.json",
		creatingIn, nil, below, "path_mknod"),
	plant("case", "makes .VSCode", ".VSCode", creatingIn, nil, inside("tasks.json"), "path_mkdir"),
	plant("in_existing", "adds a file to a .vscode", ".vscode", creating,
		already(".vscode/settings.json"), inside("tasks.json"), "path_mknod"),
	plant("in_existing_dir", "adds a file two levels below a .claude", ".claude", creating,
		already(".claude/skills/settings.json"), inside("skills/deploy.md"), "path_mknod"),
	plant("rename_file", "moves a file to .envrc", ".envrc", "renameat", nil,
		fromOwn(unix.Rename, "rename"), "path_rename"),
	plant("rename_dir", "moves a directory to .vscode", ".vscode", "mkdirat, renameat", nil,
		func(t *Target, path string) error {
			if err := below(t, t.in("dir/tasks.json")); err != nil {
				return need(err)
			}
			return call("rename", unix.Rename(t.in("dir"), path))
		}, "path_rename"),
	plant("link", "links a file to .envrc", ".envrc", "linkat", nil, fromOwn(unix.Link, "link"),
		"path_link"),
	plant("symlink", "makes .vscode a symbolic link", ".vscode", "symlinkat", nil,
		func(t *Target, path string) error { return call("symlink", unix.Symlink("own", path)) },
		"path_symlink"),
	plant("dangling", "creates .mcp.json through a symbolic link to it", ".mcp.json",
		"symlinkat, "+creating, nil, func(t *Target, path string) error {
			if err := need(unix.Symlink(".mcp.json", t.in("l"))); err != nil {
				return err
			}
			return scribble(t.in("l"), unix.O_CREAT)
		}, "path_mknod"),
	plant("tmpfile", "gives a nameless file the name .envrc", ".envrc", "openat(O_TMPFILE), linkat",
		nil, attackNameless, "path_link").needing(needsTmpfile),
	plant("bind", "binds a socket to .envrc", ".envrc", "socket, bind", nil,
		func(t *Target, path string) error {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return call("socket", err)
			}
			defer unix.Close(fd)
			return call("bind", unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
		}, "path_mknod"),
	plant("fifo", "makes .envrc a fifo", ".envrc", "mknodat", nil,
		func(t *Target, path string) error {
			return call("mknod", unix.Mknod(path, unix.S_IFIFO|0o600, 0))
		}, "path_mknod"),
}

// inside makes a file below a path.
func inside(name string) func(*Target, string) error {
	return func(t *Target, path string) error { return below(t, filepath.Join(path, name)) }
}

// fromOwn makes a file of the attacker's appear at a path.
func fromOwn(do func(from, to string) error, name string) func(*Target, string) error {
	return func(t *Target, path string) error {
		own, err := t.own("own")
		if err != nil {
			return err
		}
		return call(name, do(own, path))
	}
}

func attackNameless(t *Target, path string) error {
	fd, err := unix.Open(t.Work, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("open O_TMPFILE: %w", err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(mark)); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return call("linkat", unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd),
		unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW))
}

// plantedOld change what was there.
var plantedOld = []Case{
	old("write", "overwrites", "openat, write",
		func(_ *Target, p string) error { return scribble(p, 0) },
		"file_open"),
	old("append", "appends to", "openat(O_APPEND), write", func(_ *Target, p string) error {
		return scribble(p, unix.O_APPEND)
	}, "file_open"),
	old("truncate", "truncates", "truncate", func(_ *Target, p string) error {
		return call("truncate", unix.Truncate(p, 0))
	}, "path_truncate", "inode_setattr"),
	old("open_truncate", "opens to read, and truncates,", "openat(O_TRUNC)",
		func(_ *Target, p string) error {
			fd, err := unix.Open(p, unix.O_RDONLY|unix.O_TRUNC|unix.O_CLOEXEC, 0)
			unix.Close(fd)
			return call("open", err)
		}, "file_open", "path_truncate", "inode_setattr"),
	old("chmod", "changes the mode of", "fchmodat", func(_ *Target, p string) error {
		return call("chmod", unix.Chmod(p, 0o777))
	}, "path_chmod", "inode_setattr"),
	old("utimes", "sets the times of", "utimensat", func(_ *Target, p string) error {
		return call("utimensat", unix.UtimesNanoAt(unix.AT_FDCWD, p, longAgo, 0))
	}, "inode_setattr"),
	old("setxattr", "sets an attribute of", "setxattr", func(_ *Target, p string) error {
		return call("setxattr", unix.Setxattr(p, "user.attacker", []byte(mark), 0))
	}, "inode_setxattr").needing(needsUserXattr),
	old("unlink", "removes", "unlinkat", func(_ *Target, p string) error {
		return call("unlink", unix.Unlink(p))
	}, "path_unlink"),
	old("recreate", "removes, and makes anew,", "unlinkat, "+creating,
		func(_ *Target, p string) error {
			if err := unix.Unlink(p); err != nil {
				return call("unlink", err)
			}
			return scribble(p, unix.O_CREAT)
		}, "path_unlink"),
	old("rename_away", "moves away", "renameat", func(t *Target, p string) error {
		return call("rename", unix.Rename(p, t.in("gone")))
	}, "path_rename"),
	old("rename_onto", "moves a file over", "renameat", fromOwn(unix.Rename, "rename"),
		"path_rename"),
	old("exchange", "exchanges a file for", "renameat2(RENAME_EXCHANGE)",
		func(t *Target, p string) error {
			return attackRename(t, p, unix.RENAME_EXCHANGE)
		}, "path_rename").needing(needsExchange),
	old("link_out", "gives another name to, and writes to it,", "linkat, openat, write",
		func(t *Target, p string) error {
			if err := unix.Link(p, t.in("alias")); err != nil {
				return call("link", err)
			}
			return scribble(t.in("alias"), 0)
		}, "path_link"),
	old("symlinked", "overwrites, through a symbolic link,", "symlinkat, openat, write",
		func(t *Target, p string) error {
			if err := need(unix.Symlink(p, t.in("alias"))); err != nil {
				return err
			}
			return scribble(t.in("alias"), 0)
		}, "file_open"),
	old("reopened", "opens to read, then again to write through /proc/self/fd,",
		"openat, openat, write", func(_ *Target, p string) error {
			fd, err := unix.Open(p, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return call("open", err)
			}
			defer unix.Close(fd)
			return scribble(fmt.Sprintf("/proc/self/fd/%d", fd), 0)
		}, "file_open"),
	plant("old_rmdir", "removes an empty .vscode", ".vscode", "unlinkat(AT_REMOVEDIR)",
		func(s *Scene) error { return os.Mkdir(s.In(".vscode"), 0o700) },
		func(_ *Target, p string) error { return call("rmdir", unix.Rmdir(p)) }, "path_rmdir"),
	plant("old_rename_dir", "moves a .vscode away and makes another", ".vscode",
		"renameat, "+creatingIn, already(".vscode/tasks.json"), func(t *Target, p string) error {
			if err := unix.Rename(p, t.in("gone")); err != nil {
				return call("rename", err)
			}
			return inside("tasks.json")(t, p)
		}, "path_rename"),
}

// old is a case on a file in a .vscode that was there before.
func old(verb, what, calls string, attack func(*Target, string) error, hooks ...string) Case {
	return plant("old_"+verb, what+" a .vscode/tasks.json", ".vscode/tasks.json", calls,
		already(".vscode/tasks.json"), attack, hooks...)
}
