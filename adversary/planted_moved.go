package adversary

import (
	"golang.org/x/sys/unix"
)

// What is in a clone of the attacker's own, or in node_modules, is free of rules for
// names: the cases here move directories into such places and out of them.

const tasks = "sub/.vscode/tasks.json"

// plantedMoved change directories that lead to a protected name.
var plantedMoved = []Case{
	marked(plant("parent", "moves away a directory with a .vscode, and makes both anew",
		tasks, "renameat, "+creatingIn, already(tasks),
		func(t *Target, path string) error {
			if err := t.move("sub", "old"); err != nil {
				return err
			}
			return below(t, path)
		}, "path_mkdir", "path_mknod"), tasks),
	visit("into_clone", "into a clone", func(t *Target) error {
		return t.makeDirs("clone", "clone/.git")
	}, "clone/sub"),
	visit("into_packages", "into node_modules", func(t *Target) error {
		return t.makeDirs("node_modules")
	}, "node_modules/sub"),
	visit("into_vscode", "into the .vscode of a clone", func(t *Target) error {
		return t.makeDirs("clone", "clone/.git", "clone/.vscode")
	}, "clone/.vscode/sub"),
	marked(plant("clone_around", "makes a clone of what is around a directory with a .vscode",
		tasks, "mkdirat, renameat, mkdirat, openat, write, renameat", already(tasks),
		func(t *Target, path string) error {
			if err := t.makeDirs("clone"); err != nil {
				return need(err)
			}
			if err := t.move("sub", "clone/sub"); err != nil {
				return err
			}
			if err := t.makeDirs("clone/.git"); err != nil {
				return err
			}
			if err := scribble(t.in("clone/sub/.vscode/tasks.json"), 0); err != nil {
				return err
			}
			return t.move("clone/sub", "sub")
		}, "file_open"), tasks),
	marked(plant("packages_around",
		"makes node_modules of what is around a directory with a .vscode",
		tasks, "mkdirat, renameat, openat, write, renameat", already(tasks),
		func(t *Target, path string) error {
			if err := t.makeDirs("dir"); err != nil {
				return need(err)
			}
			if err := t.move("sub", "dir/sub"); err != nil {
				return err
			}
			if err := t.move("dir", "node_modules"); err != nil {
				return err
			}
			if err := scribble(t.in("node_modules/sub/.vscode/tasks.json"), 0); err != nil {
				return err
			}
			return t.move("node_modules/sub", "sub")
		}, "path_rename", "file_open"), tasks),
	emerge("out_of_clone", "a clone", []string{"clone", "clone/.git", "clone/dir"}, 0),
	emerge("out_of_packages", "node_modules", []string{"node_modules", "node_modules/dir"}, 0),
	emerge("exchange_clone", "a clone, in exchange,",
		[]string{"clone", "clone/.git", "clone/dir"}, unix.RENAME_EXCHANGE),
	emerge("exchange_packages", "node_modules, in exchange,",
		[]string{"node_modules", "node_modules/dir"}, unix.RENAME_EXCHANGE),
}

// visit is a case that moves a directory to where names are free, changes what is
// protected in it, and moves it back.
func visit(verb, where string, prepare func(*Target) error, to string) Case {
	return marked(plant(verb,
		"moves a directory "+where+", changes the .vscode in it, moves it back",
		tasks, "mkdirat, renameat, openat, write, renameat", already(tasks),
		func(t *Target, _ string) error {
			if err := prepare(t); err != nil {
				return err
			}
			if err := t.move("sub", to); err != nil {
				return err
			}
			if err := scribble(t.in(to+"/.vscode/tasks.json"), 0); err != nil {
				return err
			}
			return t.move(to, "sub")
		}, "path_rename", "file_open"), tasks)
}

// emerge is a case that makes a .vscode where that is free and moves the directory
// around it, the last of dirs, over one that was there.
func emerge(verb, from string, dirs []string, flags uint) Case {
	calls := "mkdirat, renameat, renameat2"
	if flags != 0 {
		calls = "mkdirat, renameat2(RENAME_EXCHANGE)"
	}
	c := plant(verb, "makes a .vscode in "+from+" and moves it to where it is used",
		tasks, calls, already("sub/file"), func(t *Target, _ string) error {
			if err := t.makeDirs(dirs...); err != nil {
				return err
			}
			last := dirs[len(dirs)-1]
			if err := below(t, t.in(last+"/.vscode/tasks.json")); err != nil {
				return err
			}
			if flags == 0 {
				if err := t.move("sub", "old"); err != nil {
					return err
				}
			}
			return call("renameat2", unix.Renameat2(unix.AT_FDCWD, t.in(last), unix.AT_FDCWD,
				t.in("sub"), flags))
		}, "path_rename")
	if flags != 0 {
		c = c.needing(needsExchange)
	}
	return c
}
