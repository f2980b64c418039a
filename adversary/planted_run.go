package adversary

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// plantedRun are judged by what happens: git runs outside, as the user does afterwards.
var plantedRun = []Case{
	later("hook", "adds a hook; later the user commits", "open, write", repository,
		func(t *Target) error { return t.script(t.in("repo/.git/hooks/post-commit")) },
		[]string{"path_mknod"}, "commit", "-q", "--allow-empty", "-m", "later"),
	later("hooks_path", "sets core.hooksPath; later the user commits", "open, write", repository,
		func(t *Target) error {
			return t.configure("repo", t.in("hooks/post-commit"),
				"[core]\n\thooksPath = "+t.in("hooks")+"\n")
		}, []string{"file_open"}, "commit", "-q", "--allow-empty", "-m", "later"),
	later("fsmonitor", "sets core.fsmonitor; later the user asks for the status", "open, write",
		repository,
		func(t *Target) error {
			return t.configure("repo", t.in("run"), "[core]\n\tfsmonitor = "+t.in("run")+"\n")
		}, []string{"file_open"}, "status"),
	later("fsmonitor_moved", "the same by moving another config there", "rename", repository,
		func(t *Target) error {
			if err := t.monitor("evil", "evil/.git"); err != nil {
				return need(err)
			}
			return t.move("evil/.git/config", "repo/.git/config")
		}, []string{"path_rename"}, "status"),
	later("ssh_command", "sets core.sshCommand; later the user fetches", "open, write",
		func(s *Scene) error {
			if err := repository(s); err != nil {
				return err
			}
			return s.git("repo", "remote", "add", "origin", "ssh://host.invalid/x")
		}, func(t *Target) error {
			return t.configure("repo", t.in("run"), "[core]\n\tsshCommand = "+t.in("run")+"\n")
		}, []string{"file_open"}, "fetch"),
	later("filter", "sets a filter and an attribute; later the user adds files", "open, write",
		repository,
		func(t *Target) error {
			err := os.WriteFile(t.in("repo/.gitattributes"), []byte("* filter=x\n"), 0o600)
			if err != nil {
				return need(err)
			}
			return t.configure("repo", t.in("run"), "[filter \"x\"]\n\tclean = "+t.in("run")+"\n")
		}, []string{"file_open"}, "add", "."),
	later("diff", "sets diff.external; later the user looks at changes", "open, write", repository,
		func(t *Target) error {
			if err := os.WriteFile(t.in("repo/file"), []byte("new\n"), 0o600); err != nil {
				return need(err)
			}
			return t.configure("repo", t.in("run"), "[diff]\n\texternal = "+t.in("run")+"\n")
		}, []string{"file_open"}, "diff"),
	inTree(later("worktree", "leads a worktree to a repository of its own (commondir); later "+
		"the user asks for its status", "open, write", func(s *Scene) error {
		if err := repository(s); err != nil {
			return err
		}
		return s.git("repo", "worktree", "add", "-q", s.In("tree"))
	}, func(t *Target) error {
		return t.lead("repo/.git/worktrees/tree/commondir", t.in("evil/.git")+"\n")
	}, []string{"file_open"}, "status")),
	inTree(later("git_file", "leads a .git that is a file to a repository of its own; later the "+
		"user asks for the status", "open, write", func(s *Scene) error {
		return s.git("", "init", "-q", "--separate-git-dir", s.In("store"), s.In("tree"))
	}, func(t *Target) error {
		return t.lead("tree/.git", "gitdir: "+t.in("evil/.git")+"\n")
	}, []string{"file_open"}, "status")),
	inTree(later("bare", "makes a directory a bare repository; later the user asks for the "+
		"status in it", "mkdir, open, write", nil, func(t *Target) error {
		return t.monitor("tree", "tree/.")
	}, []string{"path_mkdir"}, "status")),
	inTree(later("replaced", "moves a repository away and makes another there; later the user "+
		"asks for the status", "rename, mkdir, open, write", func(s *Scene) error {
		return s.git("", "init", "-q", s.In("tree"))
	}, func(t *Target) error {
		if err := t.move("tree", "gone"); err != nil {
			return err
		}
		return t.monitor("tree", "tree/.git")
	}, []string{"path_rename"}, "status")),
}

// later is a case that git judges, with the arguments, in the repository "repo".
func later(verb, what, calls string, setup func(*Scene) error, attack func(*Target) error,
	hooks []string, git ...string) Case {
	return Case{
		Name: "planted_run_" + verb, Family: "planted", Source: gitSource, What: what,
		Calls: calls, Needs: "git", Hooks: hooks,
		Setup: func(s *Scene) error {
			if _, err := exec.LookPath("git"); err != nil {
				return err
			}
			s.Arg("ran", s.Out("ran"))
			if setup == nil {
				return nil
			}
			return setup(s)
		},
		Attack: func(t *Target) ([]byte, error) { return nil, attack(t) },
		Judge:  ranLater("repo", git),
	}
}

// inTree makes it the repository "tree".
func inTree(c Case) Case {
	c.Judge = ranLater("tree", []string{"status"})
	return c
}

// ranLater runs git and finds what the attacker's script leaves. How git itself fares does
// not matter.
func ranLater(dir string, args []string) Judge {
	proof := fmt.Sprintf("git %s, run outside, ran the attacker's program", args[0])
	return Judge{proof, func(s *Scene) string {
		_ = s.git(dir, args...)
		if _, err := os.Stat(s.Target.Args["ran"]); err != nil {
			return ""
		}
		return proof
	}}
}

// repository makes a repository with a commit, as the user: a copy of one that git made.
func repository(s *Scene) error {
	model := filepath.Join(s.arena.root, "model-"+s.session.label)
	if _, err := os.Lstat(model); err == nil {
		return os.CopyFS(s.In("repo"), os.DirFS(model))
	}
	if err := s.git("", "init", "-q", s.In("repo")); err != nil {
		return err
	}
	if err := os.WriteFile(s.In("repo/file"), []byte("old\n"), 0o600); err != nil {
		return err
	}
	if err := s.git("repo", "add", "."); err != nil {
		return err
	}
	if err := s.git("repo", "commit", "-q", "-m", "first"); err != nil {
		return err
	}
	return os.CopyFS(model, os.DirFS(s.In("repo")))
}

// git runs outside, as the user, with nothing of the user's own settings.
func (s *Scene) git(dir string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = s.In(dir)
	cmd.Env = append(s.arena.user.environment(), "GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0",
		"GIT_CEILING_DIRECTORIES="+s.arena.root, // the home directory may be a repository
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=maintenance.auto", "GIT_CONFIG_VALUE_0=false",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@host.invalid",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@host.invalid")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.arena.user.credential()}
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git %q: %w: %s", args, err, out)
	}
	return nil
}

// script plants a program that leaves a trace outside.
func (t *Target) script(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o755)
	if err != nil {
		return call("open", err)
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, fmt.Appendf(nil, "#!/bin/sh\n: > '%s'\n", t.Args["ran"]))
	return call("write", err)
}

// configure makes a program and adds settings to a repository.
func (t *Target) configure(dir, program, settings string) error {
	if err := t.script(program); err != nil {
		return need(err)
	}
	return t.add(dir+"/.git/config", settings, unix.O_APPEND)
}

// monitor makes a repository, as far as git needs it, whose status runs a program.
func (t *Target) monitor(tree, dir string) error {
	if err := t.script(t.in("run")); err != nil {
		return need(err)
	}
	for _, d := range []string{"objects", "refs"} {
		if err := os.MkdirAll(t.in(dir+"/"+d), 0o700); err != nil {
			return err
		}
	}
	err := t.add(dir+"/HEAD", "ref: refs/heads/main\n", unix.O_CREAT|unix.O_TRUNC)
	if err != nil {
		return err
	}
	return t.add(dir+"/config", fmt.Sprintf("[core]\n\trepositoryformatversion = 0\n"+
		"\tworktree = %s\n\tfsmonitor = %s\n", t.in(tree), t.in("run")), unix.O_CREAT|unix.O_APPEND)
}

// lead writes a file that leads git to a repository of the attacker's.
func (t *Target) lead(path, to string) error {
	if err := t.monitor("evil", "evil/.git"); err != nil {
		return need(err)
	}
	return t.add(path, to, unix.O_TRUNC)
}

func (t *Target) add(path, text string, flags int) error {
	fd, err := unix.Open(t.in(path), unix.O_WRONLY|unix.O_CLOEXEC|flags, 0o600)
	if err != nil {
		return call("open", err)
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(text))
	return call("write", err)
}
