//go:build guest

package jail_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func init() { probes["follow"] = follow }

// follow does what it is told by files in a directory, one after the other.
func follow(args []string) int {
	for i := 0; ; i++ {
		name := filepath.Join(args[0], fmt.Sprint(i))
		var op []byte
		for {
			var err error
			if op, err = os.ReadFile(name); err == nil {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		said := "ok"
		if err := do(strings.Fields(string(op))); err != nil {
			said = err.Error()
			for _, errno := range []unix.Errno{unix.EACCES, unix.ENOENT, unix.EXDEV} {
				if strings.HasSuffix(said, errno.Error()) {
					said = unix.ErrnoName(errno)
				}
			}
		}
		os.WriteFile(name+".tmp", []byte(said), 0o644)
		os.Rename(name+".tmp", name+".said")
	}
}

// A follower is a jail that does what it is told while rules' objects are replaced.
type follower struct {
	t       *testing.T
	control string
	told    int
}

func startFollower(t *testing.T, flags ...string) (*follower, string) {
	dir := project(t)
	f := &follower{t: t, control: filepath.Join(dir, "control")}
	if err := os.Mkdir(f.control, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(f.control, uid, gid); err != nil {
		t.Fatal(err)
	}
	cmd := jailed(dir, append(flags, "--denials", "off"), "follow", f.control)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Signal(unix.SIGTERM); cmd.Wait() })
	return f, dir
}

// expect tells it one thing to do.
func (f *follower) expect(op, want string) {
	f.t.Helper()
	name := filepath.Join(f.control, fmt.Sprint(f.told))
	f.told++
	write(f.t, name+".new", []byte(op), 0o644)
	if err := os.Rename(name+".new", name); err != nil {
		f.t.Fatal(err)
	}
	var got []byte
	eventually(f.t, op, func() bool {
		var err error
		got, err = os.ReadFile(name + ".said")
		return err == nil
	})
	if string(got) != want {
		f.t.Errorf("%s: %s, want %s", op, got, want)
	}
}

// replace puts another file into a file's place, as editors do.
func replace(t *testing.T, path string) {
	t.Helper()
	other := filepath.Join(filepath.Dir(path), "~")
	write(t, other, []byte("y"), 0o644)
	must(t, os.Rename(other, path))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Rules hold for what takes the place of their paths, and for what was there.
//
// long: one jail, step by step.
func TestRulesSurviveReplacement(t *testing.T) {
	top, err := os.MkdirTemp(home, "rules")
	must(t, err)
	defer os.RemoveAll(top)
	must(t, os.Chown(top, uid, gid))
	populate(t, top, "ro", "rw", "beside", "dir/file", "pre.json", "open/secret", "open/other")
	at := func(name string) string { return filepath.Join(top, name) }
	must(t, os.Link(at("open/secret"), at("open/alias")))
	f, _ := startFollower(t, "--ro", at("ro"), "--rw", at("rw"), "--ro", at("dir"),
		"--rw", at("pre")+"*", "--rw", at("new"), "--ro", at("open"), "--deny", at("open/secret"))
	for range 2 { // before and after everything is replaced
		f.expect("read "+at("ro"), "ok")
		f.expect("write "+at("ro"), "EACCES")
		f.expect("write "+at("rw"), "ok")
		f.expect("read "+at("beside"), "ENOENT")
		f.expect("write "+at("rw-beside"), "EACCES")
		f.expect("read "+at("dir/file"), "ok")
		f.expect("write "+at("pre.json"), "ok")
		f.expect("read "+at("open/other"), "ok")
		f.expect("read "+at("open/secret"), "ENOENT")
		f.expect("write "+at("new"), "ok")
		f.expect("write "+at("pre.json.tmp"), "ok")
		f.expect("move "+at("pre.json.tmp")+" "+at("pre.json"), "ok")
		f.expect("move "+at("dir")+" "+at("dir2"), "EACCES")
		f.expect("remove "+at("dir"), "EACCES")
		for _, name := range []string{"ro", "rw", "pre.json", "open/secret", "open/other"} {
			replace(t, at(name))
		}
		must(t, os.Remove(at("new")))
	}
	// The denied object stays denied under its other name, and when it is moved.
	f.expect("read "+at("open/alias"), "ENOENT")
	must(t, os.Rename(at("open/secret"), at("open/moved")))
	write(t, at("open/secret"), []byte("z"), 0o644)
	f.expect("read "+at("open/secret"), "ENOENT")
	// Removed and made anew; a directory that is renamed keeps its rights with it, and
	// the one that is made in its place has them by its name.
	must(t, os.Remove(at("ro")))
	f.expect("read "+at("ro"), "ENOENT")
	write(t, at("ro"), []byte("z"), 0o644)
	f.expect("read "+at("ro"), "ok")
	must(t, os.Rename(at("dir"), at("away")))
	f.expect("read "+at("away/file"), "ok")
	populate(t, top, "dir/file")
	f.expect("read "+at("dir/file"), "ok")
	f.expect("write "+at("dir/file"), "EACCES")
}

// Names at and beyond the lengths that the kernel half compares, and odd ones, also
// when the file is replaced.
func TestRulesForOddNames(t *testing.T) {
	for _, name := range []string{strings.Repeat("n", 61), strings.Repeat("n", 62),
		strings.Repeat("n", 63), strings.Repeat("n", 64), strings.Repeat("n", 255),
		"größe-日本", "line\nbreak"} {
		t.Run(fmt.Sprintf("%d_%.8q", len(name), name), func(t *testing.T) {
			top, err := os.MkdirTemp(home, "odd")
			must(t, err)
			defer os.RemoveAll(top)
			must(t, os.Chown(top, uid, gid))
			path, beside := filepath.Join(top, name), filepath.Join(top, "_"+name[1:])
			write(t, path, []byte("x"), 0o644)
			write(t, beside, []byte("x"), 0o644)
			// The probe splits what it is told at blanks.
			must(t, os.Symlink(path, filepath.Join(top, "link")))
			f, _ := startFollower(t, "--ro", top, "--deny", path)
			f.expect("read "+filepath.Join(top, "link"), "ENOENT")
			replace(t, path)
			f.expect("read "+filepath.Join(top, "link"), "ENOENT")
			must(t, os.Remove(filepath.Join(top, "link")))
			must(t, os.Symlink(beside, filepath.Join(top, "link")))
			f.expect("read "+filepath.Join(top, "link"), "ok")
		})
	}
}

// A thousand rules, and rules far down.
func TestManyRules(t *testing.T) {
	top, err := os.MkdirTemp(home, "many")
	must(t, err)
	defer os.RemoveAll(top)
	must(t, os.Chown(top, uid, gid))
	var flags []string
	for i := range 900 {
		path := filepath.Join(top, fmt.Sprint("f", i))
		write(t, path, []byte("x"), 0o644)
		flags = append(flags, "--ro", path)
	}
	deep := strings.Repeat("d/", 70) + "file"
	populate(t, top, "deep/"+deep, "beside")
	flags = append(flags, "--ro", filepath.Join(top, "deep", deep), "--denials", "off")
	dir := project(t)
	for _, tt := range []struct{ name, want string }{
		{"f0", "ok\n"}, {"f899", "ok\n"}, {"beside", "ENOENT\n"}, {"deep/" + deep, "ok\n"},
	} {
		out, stderr, status := run(t, jailed(dir, flags, "open", filepath.Join(top, tt.name)))
		if out != tt.want {
			t.Errorf("open %s = %q, want %q; status %d, stderr: %.300s", tt.name, out, tt.want,
				status, stderr)
		}
	}
	// More than there is room for is an error, not a smaller jail.
	for i := range 200 {
		path := filepath.Join(top, fmt.Sprint("g", i))
		write(t, path, []byte("x"), 0o644)
		flags = append(flags, "--ro", path)
	}
	if _, stderr, status := run(t, jailed(dir, flags, "exit", "0")); status != 125 ||
		!strings.Contains(stderr, "a jail can have") {
		t.Errorf("1100 rules: status %d, stderr %.300q; want 125 and how many there can be", status,
			stderr)
	}
}

// Two jails at once have the rules that each was given.
func TestRulesOfTwoJails(t *testing.T) {
	a, b := secret(t), secret(t)+"-b"
	write(t, b, []byte("x"), 0o644)
	defer os.Remove(b)
	one, _ := startFollower(t, "--rw", a)
	two, _ := startFollower(t, "--ro", b)
	one.expect("write "+a, "ok")
	one.expect("read "+b, "ENOENT")
	two.expect("read "+b, "ok")
	two.expect("write "+b, "EACCES")
	two.expect("read "+a, "ENOENT")
}
