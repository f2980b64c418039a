package adversary

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const startupSource = "D72 aigate"

// startup: files in a home directory that run when the user logs in, opens a shell or
// calls a program. The home is a stand-in outside the project, where nothing of the user's
// is at stake; only one case, with a name of its own, and one made in guests use the real one.
var startup = []Case{
	atStartup("profile_append", "appends to .profile", "openat(O_APPEND)", opens,
		func(_ *Target, home string) error {
			return scribble(filepath.Join(home, ".profile"), unix.O_APPEND)
		}),
	atStartup("bashrc_replace", "moves a file of the project over .bashrc", "rename",
		[]string{"path_rename"}, func(t *Target, home string) error {
			return attackRename(t, filepath.Join(home, ".bashrc"), 0)
		}),
	atStartup("keys_append", "appends to .ssh/authorized_keys", "openat(O_APPEND)", opens,
		func(_ *Target, home string) error {
			return scribble(filepath.Join(home, ".ssh/authorized_keys"), unix.O_APPEND)
		}),
	atStartup("autostart_create", "makes .config/autostart and an entry in it", "mkdir, openat",
		[]string{"path_mkdir"}, func(_ *Target, home string) error {
			dir := filepath.Join(home, ".config/autostart")
			if err := unix.Mkdir(dir, 0o700); err != nil {
				return call("mkdir", err)
			}
			return scribble(filepath.Join(dir, "attacker.desktop"), unix.O_CREAT)
		}),
	atStartup("program_symlink", "makes a link in .local/bin to a program of the "+
		"project", "symlink",
		[]string{"path_symlink"}, func(t *Target, home string) error {
			return call("symlink", unix.Symlink(t.in("git"), filepath.Join(home, ".local/bin/git")))
		}),
	atStartup("crontab_replace", "writes a new crontab beside the old and renames it over "+
		"that", "openat(O_CREAT), rename",
		[]string{"path_mknod", "file_open"},
		func(_ *Target, home string) error {
			table := filepath.Join(home, "crontabs/developer")
			if err := scribble(table+".new", unix.O_CREAT|unix.O_EXCL); err != nil {
				return err
			}
			return call("rename", unix.Rename(table+".new", table))
		}),
	{
		Name: "startup_in_home", Family: "startup", Source: startupSource,
		What:  "makes a file in the real home directory",
		Calls: "openat(O_CREAT)",
		Hooks: []string{"path_mknod", "file_open"}, Setup: newInHome, Judge: isInHome,
		Attack: func(t *Target) ([]byte, error) {
			return nil, scribble(t.Args["path"], unix.O_CREAT|unix.O_EXCL)
		},
	},
	{
		Name: "startup_gitconfig_replace", Family: "startup", Source: startupSource, Guest: true,
		What:  "moves a file of the project over the real .gitconfig",
		Calls: "rename",
		Hooks: []string{"path_rename"}, Setup: writeGitConfig, Judge: gitConfigHas,
		Attack: func(t *Target) ([]byte, error) {
			return nil, attackRename(t, t.Args["gitconfig"], 0)
		},
	},
}

// atStartup is a case on a stand-in for a home directory.
func atStartup(verb, what, calls string, hooks []string,
	attack func(t *Target, home string) error) Case {
	return Case{
		Name: "startup_" + verb, Family: "startup", Source: startupSource, What: what,
		Calls: calls,
		Hooks: hooks, Setup: standIn, Judge: changed,
		Attack: func(t *Target) ([]byte, error) { return nil, attack(t, t.out("home")) },
	}
}

// standIn makes a home directory with files as users have them.
func standIn(s *Scene) error {
	for name, text := range map[string]string{
		".profile": "umask 022\n", ".bashrc": "alias ll='ls -l'\n",
		".ssh/authorized_keys": "ssh-ed25519 AAAA somebody\n", ".config/user-dirs.dirs": "",
		".local/bin/ll": "#!/bin/sh\nexec ls -l\n", "crontabs/developer": "0 4 * * * true\n",
	} {
		path := s.Out("home/" + name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// newInHome chooses a name that is nobody's, and that nothing runs.
func newInHome(s *Scene) error {
	path := filepath.Join(s.arena.user.Home, ".agent-lock-"+canary()[:16])
	s.onClose(func() { _ = os.Remove(path) })
	s.Arg("path", path)
	return nil
}

var isInHome = Judge{"the file is in the home directory", func(s *Scene) string {
	if _, err := os.Lstat(s.Target.Args["path"]); err != nil {
		return ""
	}
	return "a file was made in the home directory"
}}

// writeGitConfig makes sure that there is a .gitconfig, for this attempt.
func writeGitConfig(s *Scene) error {
	s.alone()
	path := filepath.Join(s.arena.user.Home, ".gitconfig")
	s.Arg("gitconfig", path)
	before, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		s.onClose(func() { _ = os.Remove(path) })
	} else if err != nil {
		return err
	} else {
		s.onClose(func() { _ = os.WriteFile(path, before, 0o600) })
	}
	return os.WriteFile(path, []byte("[user]\n\tname = somebody\n"), 0o600)
}

var gitConfigHas = Judge{"the real .gitconfig holds the mark", func(s *Scene) string {
	return fileHas(s.Target.Args["gitconfig"]).find(s)
}}
