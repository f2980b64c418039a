package filesystems

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// git is what an agent does all day.
var git = []check{
	{name: "git", what: "git init, add, commit, status, branch, stash, clone --local, gc, fsck",
		do: tryGit},
	{name: "subvolume", what: "make a subvolume (btrfs), and files in it", do: trySubvolume},
}

func copyFile(from, to string, mode os.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if e := out.Close(); err == nil {
		err = e
	}
	return err
}

// command runs a program in dir. Its error has what the program printed.
func command(dir string, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org", "GIT_TERMINAL_PROMPT=0"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		text := strings.ReplaceAll(strings.TrimSpace(string(out)), dir, "DIR")
		return string(out), fmt.Errorf("%w: %s", err, text)
	}
	return string(out), nil
}

func tryGit(dir, _ string) (string, error) {
	var s seq
	repo := filepath.Join(dir, "r")
	s.do("mkdir", unix.Mkdir(repo, 0o755))
	git := func(at string, args ...string) string {
		if s.err != nil {
			return ""
		}
		out, err := command(at, append([]string{"git"}, args...)...)
		s.do("git "+args[0], err)
		return strings.TrimSpace(out)
	}
	git(repo, "init", "--quiet", "--initial-branch=main")
	for i := range 20 {
		s.do("create", put(filepath.Join(repo, fmt.Sprintf("file%d", i)), strings.Repeat("x\n", i)))
	}
	git(repo, "add", ".")
	git(repo, "commit", "--quiet", "-m", "one")
	git(repo, "branch", "other")
	s.do("change", put(filepath.Join(repo, "file3"), "changed"))
	status := git(repo, "status", "--porcelain")
	git(repo, "stash", "--quiet")
	clean := git(repo, "status", "--porcelain")
	git(repo, "stash", "pop", "--quiet")
	git(repo, "commit", "--quiet", "-a", "-m", "two")
	git(repo, "checkout", "--quiet", "other")
	git(repo, "merge", "--quiet", "main")
	git(dir, "clone", "--quiet", "--local", repo, filepath.Join(dir, "clone"))
	git(repo, "gc", "--quiet")
	git(repo, "fsck", "--no-progress")
	count := git(filepath.Join(dir, "clone"), "rev-list", "--count", "HEAD")
	return fmt.Sprintf("%q %q %s", status, clean, count), s.err
}

// subvolCreate is BTRFS_IOC_SUBVOL_CREATE.
const subvolCreate = 0x5000940e

func trySubvolume(dir, _ string) (string, error) {
	var s seq
	f, err := os.Open(dir)
	if !s.do("open", err) {
		return "", s.err
	}
	defer f.Close()
	args := make([]byte, 4096) // struct btrfs_ioctl_vol_args
	copy(args[8:], "sub")
	if !s.do("BTRFS_IOC_SUBVOL_CREATE", ioctl(f, subvolCreate, args)) {
		return "", s.err
	}
	file := filepath.Join(dir, "sub/f")
	s.do("create", put(file, "in a subvolume"))
	s.do("link", unix.Link(file, file+"2"))
	s.do("rename", unix.Rename(file+"2", file+"3"))
	across := errorOrNil(unix.Link(file, filepath.Join(dir, "out")))
	return get(file) + " " + across, s.err
}
