//go:build guest

package jail_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func init() { probes["do"] = doAll }

// doAll does one thing after the other in the current directory and prints for each
// "ok" or the error's name.
func doAll(ops []string) int {
	for _, op := range ops {
		err := do(strings.Fields(op))
		var errno syscall.Errno
		switch {
		case errors.As(err, &errno):
			fmt.Println(unix.ErrnoName(errno))
		case err != nil:
			fmt.Println(err)
		default:
			fmt.Println("ok")
		}
	}
	return 0
}

func do(op []string) error {
	switch op[0] {
	case "mkdir":
		return os.MkdirAll(op[1], 0o755)
	case "write":
		return os.WriteFile(op[1], []byte("x"), 0o644)
	case "read":
		_, err := os.ReadFile(op[1])
		return err
	case "move":
		return unix.Rename(op[1], op[2])
	case "remove":
		return os.RemoveAll(op[1])
	case "chmod":
		return os.Chmod(op[1], 0o600)
	}
	return errors.New("unknown operation " + op[0])
}

// populate makes files of the user's, and what leads to them.
func populate(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, path, []byte("x"), 0o644)
		for p := filepath.Dir(path); p != dir; p = filepath.Dir(p) {
			if err := os.Chown(p, uid, gid); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// What people do in a project works beside the rules for names; what the rules are
// for is refused in the same jail, so that this is no jail without them.
//
// long: a table.
func TestNamesLeaveWorkAlone(t *testing.T) {
	there := []string{"repo/.git/HEAD", "repo/.git/config", "repo/.git/hooks/update.sample",
		"repo/.git/objects/00/x", "repo/.git/refs/heads/main", "repo/.vscode/settings.json",
		".env", ".env.example", "pkg/file", "node_modules/old/.vscode/x", "node_modules/old/.env"}
	for _, tt := range []struct {
		name string
		ops  []string // each works
		not  string   // is refused after them
	}{
		{"init", []string{"mkdir new", "mkdir new/.git", "write new/.git/config",
			"mkdir new/.git/hooks", "write new/.git/hooks/x", "chmod new/.git/hooks/x"},
			"write repo/.git/hooks/x"},
		{"clone", []string{"mkdir c", "mkdir c/.git", "write c/.git/config.lock",
			"move c/.git/config.lock c/.git/config", "mkdir c/a/.vscode",
			"write c/a/.vscode/settings.json", "mkdir c/.claude/skills", "write c/.envrc",
			"write c/.env", "read c/.env"}, "mkdir pkg/.vscode"},
		{"clone_then_rename", []string{"mkdir tmp", "mkdir tmp/.git", "write tmp/.git/config",
			"mkdir tmp/.vscode", "move tmp final", "write final/.vscode/x",
			"write final/.git/config"}, "mkdir tmp/.vscode"},
		{"clone_with_a_long_name", []string{"mkdir " + strings.Repeat("l", 60),
			"mkdir " + strings.Repeat("l", 60) + "/.git",
			"mkdir " + strings.Repeat("l", 60) + "/.vscode"}, "mkdir .vscode"},
		{"worktree_and_submodule", []string{"mkdir repo/.git/modules/m/hooks",
			"write repo/.git/modules/m/config", "write repo/.git/modules/m/hooks/x",
			"mkdir repo/.git/worktrees/w", "write repo/.git/worktrees/w/commondir",
			"mkdir tree", "write tree/.git"}, "write repo/.git/config"},
		{"commit", []string{"write repo/.git/index.lock",
			"move repo/.git/index.lock repo/.git/index",
			"mkdir repo/.git/objects/ab", "write repo/.git/objects/ab/tmp",
			"move repo/.git/objects/ab/tmp repo/.git/objects/ab/cd",
			"write repo/.git/refs/heads/main.lock",
			"move repo/.git/refs/heads/main.lock repo/.git/refs/heads/main",
			"write repo/.git/HEAD.lock", "move repo/.git/HEAD.lock repo/.git/HEAD",
			"write repo/.git/COMMIT_EDITMSG", "read repo/.git/config"},
			"write repo/.git/config.worktree"},
		{"packages", []string{"mkdir node_modules/x/.vscode", "write node_modules/x/.vscode/s",
			"move node_modules/x node_modules/.x-1", "move node_modules/.x-1 node_modules/x",
			"read node_modules/old/.env", "remove node_modules/old", "remove node_modules"},
			"mkdir pkg/.idea"},
		{"read_protected", []string{"read repo/.vscode/settings.json", "read repo/.git/config",
			"read repo/.git/hooks/update.sample"}, "write repo/.vscode/settings.json"},
		{"dotenv", []string{"read .env.example", "write .env.example", "write .environment",
			"mkdir pkg/.env", "mkdir pkg/.env/bin", "write pkg/.env/bin/python",
			"remove pkg/.env"}, "read .env"},
		{"refactor", []string{"mkdir src", "move pkg src/pkg", "move src/pkg lib",
			"write lib/config", "mkdir lib/hooks", "write lib/hooks/x"}, "move repo/.git repo/x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := project(t)
			populate(t, dir, there...)
			cmd := jailed(dir, []string{"--denials", "off"}, append(append([]string{"do"},
				tt.ops...), tt.not)...)
			cmd.Dir = dir
			out, stderr, _ := run(t, cmd)
			got := strings.Fields(out)
			if len(got) != len(tt.ops)+1 {
				t.Fatalf("output %q, want %d lines; stderr: %s", out, len(tt.ops)+1, stderr)
			}
			for i, op := range tt.ops {
				if got[i] != "ok" {
					t.Errorf("%s: %s, want ok", op, got[i])
				}
			}
			if last := got[len(tt.ops)]; last != "EACCES" && last != "EXDEV" {
				t.Errorf("%s: %s, want EACCES or EXDEV", tt.not, last)
			}
		})
	}
}

// A denial by a name says so and names a flag; that flag opens it, whether the
// path is there or not.
func TestNamesAndTheirFlags(t *testing.T) {
	for _, tt := range []struct {
		op, says, flag, path string
	}{
		{"write sub/.vscode/tasks.json", "the name .vscode is kept", "--rw", "sub/.vscode"},
		{"mkdir .idea", "the name .idea is kept", "--rw", ".idea"},
		{"write .envrc", "the name .envrc is kept", "--rw", ".envrc"},
		{"write repo/.git/hooks/x", "the name hooks is kept", "--rw", "repo/.git/hooks"},
		{"write repo/.git/config", "the name config is kept", "--rw", "repo/.git/config"},
		{"read .env", "it may hold secrets", "--ro", ".env"},
		{"write sub/.env.local", "may", "--rw", "sub/.env.local"},
	} {
		t.Run(tt.op, func(t *testing.T) {
			dir := project(t)
			populate(t, dir, "sub/.vscode/tasks.json", "repo/.git/hooks/y",
				"repo/.git/config", ".env")
			first := jailed(dir, nil, "do", tt.op)
			first.Dir = dir
			out, stderr, _ := run(t, first)
			path := filepath.Join(dir, tt.path)
			if out == "ok\n" || !strings.Contains(stderr, tt.says) ||
				!strings.Contains(stderr, "allow it with "+tt.flag+" "+path+"\n") {
				t.Errorf("%s = %q, stderr %q; want a denial with %q and %s %s", tt.op, out, stderr,
					tt.says, tt.flag, path)
			}
			second := jailed(dir, []string{tt.flag, path}, "do", tt.op)
			second.Dir = dir
			if out, stderr, _ := run(t, second); out != "ok\n" {
				t.Errorf("with %s %s, %s = %q; stderr: %s", tt.flag, path, tt.op, out, stderr)
			}
		})
	}
}
