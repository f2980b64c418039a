//go:build guest

package jail_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A view shows what rules name and nothing else, alone and beside other layers. Without
// it the programs cannot hide that a name is there.
func TestView(t *testing.T) {
	outside, dir := secret(t), project(t)
	hidden, kept := filepath.Join(dir, "hidden"), filepath.Join(dir, "kept")
	single := filepath.Join(home, "single")
	for _, path := range []string{hidden, kept, single} {
		write(t, path, []byte("x"), 0o644)
	}
	t.Cleanup(func() { os.Remove(single) })
	fresh := filepath.Join(filepath.Dir(outside), "new")
	rules := []string{"--deny", hidden, "--ro", kept, "--rw", single}
	for _, tt := range []struct {
		layers string
		access string // to a name outside
		create string
		kept   string // writing what may be read
		hidden string
	}{
		{"bpf,seccomp", "ok\n", "EACCES\n", "EACCES\n", "ENOENT\n"},
		{"bpf,seccomp,view", "ENOENT\n", "EACCES\n", "EROFS\n", "EACCES\n"},
		{"all", "ENOENT\n", "EACCES\n", "EROFS\n", "EACCES\n"},
		{"view", "ENOENT\n", "EROFS\n", "EROFS\n", "EACCES\n"},
		{"view,seccomp", "ENOENT\n", "EROFS\n", "EROFS\n", "EACCES\n"},
		{"landlock,seccomp,view", "ENOENT\n", "EROFS\n", "EROFS\n", "EACCES\n"},
	} {
		if strings.Contains(tt.layers, "landlock") && landlockHere() == 0 {
			continue
		}
		calls := []struct{ probe, path, want string }{
			{"access", outside, tt.access},
			{"open", outside, "ENOENT\n"},
			{"create", fresh, tt.create},
			{"access", filepath.Join(dir, "probe"), "ok\n"},
			{"create", filepath.Join(dir, "made"), "ok\n"},
			{"open", "/etc/passwd", "ok\n"},
			{"open", "/dev/ptmx", "ok\n"},
			{"open", "/dev/null", "ok\n"},
			{"write", "/dev/null", "ok\n"},
			{"open", single, "ok\n"},
			{"write", single, "ok\n"},
			{"open", kept, "ok\n"},
			{"write", kept, tt.kept},
			{"open", hidden, tt.hidden},
		}
		args, want := []string{"several"}, ""
		for _, c := range calls {
			args, want = append(args, c.probe, c.path), want+c.want
		}
		flags := append([]string{"--layers", tt.layers}, rules...)
		out, stderr, _ := run(t, jailed(dir, flags, args...))
		if diff := cmp.Diff(want, out); diff != "" {
			t.Errorf("%s: %q (-want +got):\n%s\nstderr: %s", tt.layers, args, diff, stderr)
		}
		made, err := os.Stat(filepath.Join(dir, "made"))
		if err != nil || made.Mode().Perm() != 0o644 {
			t.Errorf("%s: what the jail made in its project: %v, %v", tt.layers, made, err)
		}
		os.Remove(filepath.Join(dir, "made"))
	}
}

// What a view cannot show is refused, and nothing of it is left on the machine.
func TestViewRefuses(t *testing.T) {
	dir := project(t)
	missing := filepath.Join(home, "missing")
	for _, path := range []string{missing, missing + "*"} {
		_, stderr, status := run(t, jailed(dir, []string{"--layers", "bpf,view", "--rw", path},
			"exit", "0"))
		if status != 125 || !strings.Contains(stderr, "view layer") {
			t.Errorf("--rw %s: status %d, stderr %s; want 125", path, status, stderr)
		}
	}
	before, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	_, stderr, status := run(t, jailed(dir, []string{"--layers", "bpf,view"}, "exit", "7"))
	if status != 7 {
		t.Errorf("status %d, want 7; stderr: %s", status, stderr)
	}
	after, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || string(after) != string(before) {
		t.Errorf("mounts after a jail with a view: %s, %v; before: %s", after, err, before)
	}
}

// A rule opens a single file in a place that is fresh for the jail, though its directory
// there is another one.
func TestFileInPrivatePlace(t *testing.T) {
	dir := project(t)
	file, other := "/tmp/"+filepath.Base(dir), "/tmp/other-"+filepath.Base(dir)
	for _, path := range []string{file, other} {
		write(t, path, []byte("x"), 0o644)
		t.Cleanup(func() { os.Remove(path) })
	}
	for _, layers := range []string{"bpf", "bpf,view"} {
		flags := []string{"--layers", layers, "--ro", file}
		out, stderr, _ := run(t, jailed(dir, flags, "several", "open", file, "open", other,
			"create", "/tmp/new", "access", file))
		if want := "ok\nENOENT\nok\nok\n"; out != want {
			t.Errorf("%s: %q, want %q; stderr: %s", layers, out, want, stderr)
		}
	}
}

// A project in a place that is fresh for the jail keeps what is in it, also where
// rules are about single files of it: mount points are not made in what is the host's.
func TestRulesInPrivatePlace(t *testing.T) {
	dir := "/tmp/kept-" + filepath.Base(project(t))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	install(t, dir)
	files := map[string]string{"readme": "read me", "key": "secret"}
	for _, layers := range []string{"bpf", "bpf", "bpf", "bpf,view", "view", "view"} {
		for name, text := range files {
			write(t, filepath.Join(dir, name), []byte(text), 0o644)
		}
		out, stderr, _ := run(t, jailed(dir, []string{"--layers", layers,
			"--ro", filepath.Join(dir, "readme"), "--deny", filepath.Join(dir, "key")},
			"several", "open", filepath.Join(dir, "readme"), "create", filepath.Join(dir, "new")))
		if out != "ok\nok\n" {
			t.Errorf("%s: %q, want both ok; stderr: %s", layers, out, stderr)
		}
		for name, text := range files {
			if got, err := os.ReadFile(filepath.Join(dir, name)); string(got) != text {
				t.Errorf("%s: %s holds %q, %v, want %q", layers, name, got, err, text)
			}
		}
	}
}

// A device that a rule shows is the host's: its mode stays, also for root in the jail.
func TestDevicesStay(t *testing.T) {
	const device = "/dev/full"
	if err := os.Chmod(device, 0o666); err != nil {
		t.Fatal(err) // the control: outside it can be done
	}
	dir := project(t)
	for _, layers := range []string{"bpf,seccomp", "bpf,view", "view,seccomp", "landlock,seccomp"} {
		if strings.Contains(layers, "landlock") && landlockHere() == 0 {
			continue
		}
		flags := []string{"--layers", layers, "--user", "root"}
		out, stderr, _ := run(t, jailed(dir, flags, "several", "chmod", device, "write", device,
			"open", "/dev/ptmx", "write", "/dev/tty"))
		if chmod, open, _ := strings.Cut(out, "\n"); chmod == "ok" || open != "ok\nok\nENXIO\n" {
			t.Errorf("%s: chmod and open = %q, want an error and ok; stderr: %s", layers, out,
				stderr)
		}
	}
}
