package adversary

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const secretsSource = "D70"

// plantedSecrets read what is in the project and kept from the jail by its name.
var plantedSecrets = []Case{
	dotenv("read", "reads .env", ".env", "openat", nil),
	dotenv("local", "reads .env.local", ".env.local", "openat", nil),
	dotenv("nested", "reads .env in a directory", "a/b/.env.production", "openat", nil),
	dotenv("case", "reads .ENV", ".ENV", "openat", nil),
	dotenv("write_only", "opens .env to read and write", ".env", "openat(O_RDWR), read",
		func(_ *Target, p string) ([]byte, error) {
			fd, err := unix.Open(p, unix.O_RDWR|unix.O_CLOEXEC, 0)
			if err != nil {
				return nil, call("open", err)
			}
			return slurp(fd)
		}),
	dotenv("proc_fd", "opens an O_PATH descriptor of .env through /proc/self/fd", ".env",
		"openat(O_PATH), openat", func(_ *Target, p string) ([]byte, error) {
			fd, err := openPath(p)
			if err != nil {
				return nil, err
			}
			defer unix.Close(fd)
			return read(fmt.Sprintf("/proc/self/fd/%d", fd))
		}),
	dotenv("symlink", "reads .env through a symbolic link", ".env", "symlinkat, openat",
		func(t *Target, p string) ([]byte, error) {
			if err := need(unix.Symlink(p, t.in("l"))); err != nil {
				return nil, err
			}
			return read(t.in("l"))
		}),
	dotenv("rename", "renames .env and reads it", ".env", "renameat, openat",
		func(t *Target, p string) ([]byte, error) {
			if err := unix.Rename(p, t.in("x")); err != nil {
				return nil, call("rename", err)
			}
			return read(t.in("x"))
		}, "path_rename"),
	dotenv("rename_allowed", "renames .env to .env.example and reads it", ".env",
		"renameat, openat", func(t *Target, p string) ([]byte, error) {
			if err := unix.Rename(p, p+".example"); err != nil {
				return nil, call("rename", err)
			}
			return read(p + ".example")
		}, "path_rename"),
	dotenv("exchange", "exchanges .env for a file and reads it", ".env",
		"renameat2(RENAME_EXCHANGE), openat",
		func(t *Target, p string) ([]byte, error) {
			if err := attackRename(t, p, unix.RENAME_EXCHANGE); err != nil {
				return nil, err
			}
			return read(t.in("f"))
		}, "path_rename").needing(needsExchange),
	dotenv("link", "links .env and reads the link", ".env", "linkat, openat",
		func(t *Target, p string) ([]byte, error) {
			if err := unix.Link(p, t.in("x")); err != nil {
				return nil, call("link", err)
			}
			return read(t.in("x"))
		}, "path_link"),
	carry("clone", "a clone", func(t *Target) error {
		return t.makeDirs("clone", "clone/.git")
	}, "clone/sub"),
	carry("packages", "node_modules", func(t *Target) error {
		return t.makeDirs("node_modules")
	}, "node_modules/sub"),
	dotenv("clone_around", "makes a clone of what is around a directory with a .env", "sub/.env",
		"mkdirat, renameat, mkdirat, openat", func(t *Target, _ string) ([]byte, error) {
			if err := t.makeDirs("clone"); err != nil {
				return nil, need(err)
			}
			if err := t.move("sub", "clone/sub"); err != nil {
				return nil, err
			}
			if err := t.makeDirs("clone/.git"); err != nil {
				return nil, err
			}
			return read(t.in("clone/sub/.env"))
		}),
	settle("name", "takes the name of a directory of its own that is gone",
		"unlinkat(AT_REMOVEDIR), renameat", func(t *Target) error {
			if err := unix.Rmdir(t.in("own")); err != nil {
				return call("rmdir", err)
			}
			return t.move("sub", "own")
		}, "own"),
	settle("moved_name", "takes the name of a directory of its own that is moved away", "renameat",
		func(t *Target) error {
			if err := t.move("own", "moved"); err != nil {
				return err
			}
			return t.move("sub", "own")
		}, "own"),
	settle("exchanged_name", "exchanges a directory of its own for that of a .env",
		"renameat2(RENAME_EXCHANGE)", func(t *Target) error {
			return call("renameat2", unix.Renameat2(unix.AT_FDCWD, t.in("own"), unix.AT_FDCWD,
				t.in("sub"), unix.RENAME_EXCHANGE))
		}, "own").needing(needsExchange),
	settle("failed_rename", "fails to move a directory of its own over that of a .env", "renameat",
		func(t *Target) error {
			_ = t.move("own", "sub")
			return nil
		}, "sub"),
	dotenv("exchange_dir", "exchanges .env for a directory and reads it", ".env",
		"mkdirat, renameat2(RENAME_EXCHANGE), openat",
		func(t *Target, p string) ([]byte, error) {
			if err := t.makeDirs("dir"); err != nil {
				return nil, need(err)
			}
			if err := unix.Renameat2(unix.AT_FDCWD, t.in("dir"), unix.AT_FDCWD, p,
				unix.RENAME_EXCHANGE); err != nil {
				return nil, call("renameat2", err)
			}
			return read(t.in("dir"))
		}, "path_rename").needing(needsExchange),
	func() Case {
		c := dotenv("linked_before", "reads another name that .env had before", ".env", "openat",
			func(t *Target, _ string) ([]byte, error) { return read(t.in("x")) })
		setup := c.Setup
		c.Setup = func(s *Scene) error {
			if err := setup(s); err != nil {
				return err
			}
			return os.Link(s.In(".env"), s.In("x"))
		}
		return c
	}(),
}

// dotenv is a case that reads a secret in the attempt's directory; without an attack
// it is read by name.
func dotenv(verb, what, path, calls string,
	attack func(*Target, string) ([]byte, error), hooks ...string) Case {
	if attack == nil {
		attack = func(_ *Target, p string) ([]byte, error) { return read(p) }
	}
	if hooks == nil {
		hooks = []string{"file_open"}
	}
	return Case{
		Name: "planted_env_" + verb, Family: "planted", Source: secretsSource, What: what,
		Calls:  calls,
		Hooks:  hooks,
		Setup:  func(s *Scene) error { return s.PlantAt(s.In(path)) },
		Attack: func(t *Target) ([]byte, error) { return attack(t, t.in(path)) },
		Judge:  tokenRead,
	}
}

// carry is a case that moves the directory of a secret to where names are free.
func carry(verb, where string, prepare func(*Target) error, to string) Case {
	return dotenv(verb, "moves a directory into "+where+" and reads the .env in it", "sub/.env",
		"mkdirat, renameat, openat", func(t *Target, _ string) ([]byte, error) {
			if err := prepare(t); err != nil {
				return nil, err
			}
			if err := t.move("sub", to); err != nil {
				return nil, err
			}
			return read(t.in(to + "/.env"))
		}, "path_rename", "file_open")
}

// settle is a case that takes the directory of a secret for one of the attacker's own,
// and makes it a clone.
func settle(verb, what, calls string, mix func(*Target) error, at string) Case {
	return dotenv(verb, what+", makes it a clone and reads the .env in it", "sub/.env",
		"mkdirat, "+calls+", mkdirat, openat", func(t *Target, _ string) ([]byte, error) {
			if err := t.makeDirs("own"); err != nil {
				return nil, need(err)
			}
			if err := mix(t); err != nil {
				return nil, err
			}
			if err := t.makeDirs(at + "/.git"); err != nil {
				return nil, err
			}
			return read(t.in(at + "/.env"))
		})
}
