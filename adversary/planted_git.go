package adversary

import (
	"os"

	"golang.org/x/sys/unix"
)

const gitSource = "D71 fletch#564 sandvault#177 DefenseClaw#573"

// plantedGit change what git outside obeys in a repository that was there before.
var plantedGit = inGit(
	plant("git_hook", "adds a hook", repo+"/hooks/post-checkout", creating,
		aRepository, below, "path_mknod"),
	plant("hook_existing", "overwrites a hook", repo+"/hooks/update", "openat(O_TRUNC), write",
		aRepository,
		func(_ *Target, p string) error { return scribble(p, unix.O_TRUNC) }, "file_open",
		"path_truncate"),
	plant("git_hook_rename", "moves a hook into place", repo+"/hooks/pre-commit", "renameat",
		aRepository, fromOwn(unix.Rename, "rename"), "path_rename"),
	plant("git_hook_link", "links a hook into place", repo+"/hooks/pre-commit", "linkat",
		aRepository, fromOwn(unix.Link, "link"), "path_link"),
	plant("git_hook_symlink", "makes a hook a symbolic link", repo+"/hooks/pre-commit", "symlinkat",
		aRepository, func(_ *Target, p string) error {
			return call("symlink", unix.Symlink("/tmp/x", p))
		}, "path_symlink"),
	plant("git_hook_chmod", "makes a sample a hook by its mode", repo+"/hooks/update", "fchmodat",
		aRepository, func(_ *Target, p string) error {
			return call("chmod", unix.Chmod(p, 0o755))
		}, "path_chmod", "inode_setattr"),
	plant("git_hooks_replaced", "moves hooks away and makes others", repo+"/hooks",
		"renameat, "+creatingIn, aRepository, func(t *Target, p string) error {
			if err := unix.Rename(p, t.in("gone")); err != nil {
				return call("rename", err)
			}
			return inside("pre-commit")(t, p)
		}, "path_rename"),
	plant("git_config", "changes config: core.fsmonitor, hooksPath", repo+"/config",
		"openat(O_APPEND), write", aRepository,
		func(_ *Target, p string) error { return scribble(p, unix.O_APPEND) }, "file_open"),
	plant("git_config_lock", "changes config by config.lock and a rename, as git does",
		repo+"/config", creating+", renameat", aRepository, func(_ *Target, p string) error {
			if err := scribble(p+".lock", unix.O_CREAT); err != nil {
				return err
			}
			return call("rename", unix.Rename(p+".lock", p))
		}, "path_rename"),
	plant("git_config_exchange", "exchanges config for a file", repo+"/config",
		"renameat2(RENAME_EXCHANGE)", aRepository,
		func(t *Target, p string) error { return attackRename(t, p, unix.RENAME_EXCHANGE) },
		"path_rename").needing(needsExchange),
	plant("git_config_worktree", "makes config.worktree", repo+"/config.worktree",
		creating, aRepository, below, "path_mknod"),
	plant("git_commondir", "makes commondir, which leads to another config", repo+"/commondir",
		creating, aRepository, below, "path_mknod"),
	plant("git_renamed", "moves .git away and makes another", repo,
		"renameat, "+creatingIn, aRepository, func(t *Target, p string) error {
			if err := unix.Rename(p, t.in("gone")); err != nil {
				return call("rename", err)
			}
			return inside("config")(t, p)
		}, "path_rename"),
	plant("git_exchanged", "exchanges .git for another", repo,
		"mkdirat, renameat2(RENAME_EXCHANGE)", aRepository,
		func(t *Target, p string) error {
			if err := below(t, t.in("new/config")); err != nil {
				return need(err)
			}
			return call("renameat2", unix.Renameat2(unix.AT_FDCWD, p, unix.AT_FDCWD, t.in("new"),
				unix.RENAME_EXCHANGE))
		}, "path_rename").needing(needsExchange),
	plant("git_file", "changes a .git that is a file: gitdir", "tree/.git", "openat, write",
		already("tree/.git"),
		func(_ *Target, p string) error { return scribble(p, 0) }, "file_open"),
	plant("git_file_onto", "moves a file over a .git that is one", "tree/.git", "renameat",
		already("tree/.git"), fromOwn(unix.Rename, "rename"), "path_rename"),
	plant("git_file_removed", "removes a .git that is a file", "tree/.git", "unlinkat",
		already("tree/.git"),
		func(_ *Target, p string) error { return call("unlink", unix.Unlink(p)) }, "path_unlink"),
	plant("git_module_config", "changes the config of a submodule", repo+"/modules/a/m/config",
		"openat, write",
		aRepository, func(_ *Target, p string) error { return scribble(p, 0) }, "file_open"),
	plant("git_module_hook", "adds a hook to a submodule", repo+"/modules/a/m/hooks/update",
		creatingIn, aRepository, below, "path_mkdir", "path_mknod"),
	plant("git_module_replaced", "moves a submodule's repository away and makes another",
		repo+"/modules/a/m", "renameat, "+creatingIn, aRepository, func(t *Target, p string) error {
			if err := unix.Rename(p, t.in("gone")); err != nil {
				return call("rename", err)
			}
			return inside("config")(t, p)
		}, "path_rename"),
	plant("git_modules_replaced", "moves all submodules' repositories away", repo+"/modules",
		"renameat", aRepository, func(t *Target, p string) error {
			return call("rename", unix.Rename(p, t.in("gone")))
		}, "path_rename"),
	plant("git_worktree_commondir", "leads a worktree to another repository",
		repo+"/worktrees/w/commondir", "openat, write", aRepository,
		func(_ *Target, p string) error { return scribble(p, 0) }, "file_open"),
	plant("git_worktree_config", "makes a worktree's config.worktree",
		repo+"/worktrees/w/config.worktree", creating, aRepository, below, "path_mknod"),
	reinit(),
	hide("git_in_git", "a .git of its own", func(t *Target) error {
		return t.makeDirs("own", "own/.git")
	}, "own/.git/sub"),
	hide("git_in_clone", "a clone", func(t *Target) error {
		return t.makeDirs("own", "own/.git")
	}, "own/sub"),
	hide("git_in_other", "another repository's .git", nil, repo+"/sub"),
	hide("git_in_packages", "node_modules", func(t *Target) error {
		return t.makeDirs("node_modules")
	}, "node_modules/sub"),
)

const repo = "repo/.git"

// inGit marks cases as being about git.
func inGit(cases ...Case) []Case {
	for i := range cases {
		cases[i].Source = gitSource
	}
	return cases
}

// aRepository makes what git makes, as far as the cases need it.
func aRepository(s *Scene) error {
	for _, dir := range []string{"objects", "refs/heads"} {
		if err := os.MkdirAll(s.In(repo+"/"+dir), 0o700); err != nil {
			return err
		}
	}
	return already(repo+"/HEAD", repo+"/config", repo+"/hooks/update", repo+"/modules/a/m/HEAD",
		repo+"/modules/a/m/config", repo+"/worktrees/w/commondir", repo+"/worktrees/w/gitdir",
		"sub/.git/HEAD", "sub/.git/config")(s)
}

// hide is a case that moves a repository to where names are free, changes its
// settings there and moves it back.
func hide(verb, where string, prepare func(*Target) error, to string) Case {
	calls := "renameat, openat, write, renameat"
	if prepare != nil {
		calls = "mkdirat, " + calls
	}
	return marked(plant(verb, "moves a repository into "+where+", changes config, moves it back",
		"sub/.git/config", calls, aRepository,
		func(t *Target, _ string) error {
			if prepare != nil {
				if err := prepare(t); err != nil {
					return err
				}
			}
			if err := t.move("sub", to); err != nil {
				return err
			}
			if err := scribble(t.in(to+"/.git/config"), 0); err != nil {
				return err
			}
			return t.move(to, "sub")
		}, "path_rename", "file_open"), "sub/.git/config")
}

// reinit is a case in which the user makes a repository where the attacker had one.
func reinit() Case {
	const config = "own/.git/config"
	c := marked(plant("git_init_outside",
		"changes a repository that the user makes where it had one",
		config, "mkdirat, unlinkat(AT_REMOVEDIR), openat, write", nil,
		func(t *Target, path string) error {
			if err := t.makeDirs("own", "own/.git"); err != nil {
				return err
			}
			if err := unix.Rmdir(t.in("own/.git")); err != nil {
				return call("rmdir", err)
			}
			if err := t.Sync(); err != nil {
				return err
			}
			return scribble(path, 0)
		}, "file_open"), config)
	c.Meanwhile = func(s *Scene, _ int) error { return already(config)(s) }
	return c
}
