//go:build guest

package jail_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFiles(t *testing.T) {
	dir, outside := project(t), secret(t)
	write(t, filepath.Join(dir, "own"), []byte("x"), 0o644)
	write(t, filepath.Join(dir, "linked"), []byte("x"), 0o644)
	if err := os.Link(filepath.Join(dir, "linked"), filepath.Join(dir, "linked2")); err != nil {
		t.Fatal(err)
	}
	linked := filepath.Join(dir, "linked")
	for _, tt := range []struct {
		name  string
		flags []string
		probe []string
		want  string
	}{
		{"own_read", nil, []string{"open", filepath.Join(dir, "own")}, "ok"},
		{"own_write", nil, []string{"write", filepath.Join(dir, "own")}, "ok"},
		{"own_create", nil, []string{"create", filepath.Join(dir, "new")}, "ok"},
		{"outside_read", nil, []string{"open", outside}, "ENOENT"},
		{"outside_read_shown", []string{"--outside", "deny"}, []string{"open", outside}, "EACCES"},
		{"outside_write", nil, []string{"write", outside}, "EACCES"},
		{"outside_create", nil, []string{"create", home + "/new"}, "EACCES"},
		{"ro_read", []string{"--ro", outside}, []string{"open", outside}, "ok"},
		{"ro_write", []string{"--ro", outside}, []string{"write", outside}, "EACCES"},
		{"rw_write", []string{"--rw", outside}, []string{"write", outside}, "ok"},
		{"deny_inside", []string{"--deny", filepath.Join(dir, "own")},
			[]string{"open", filepath.Join(dir, "own")}, "ENOENT"},
		{"hard_link_read", nil, []string{"open", linked}, "ok"},
		{"hard_link_write", nil, []string{"write", linked}, "EACCES"},
		{"hard_link_allowed", []string{"--hardlinks", "allow"}, []string{"write", linked}, "ok"},
		{"hard_link_denied", []string{"--hardlinks", "deny"}, []string{"open", linked}, "EACCES"},
		{"null", nil, []string{"write", "/dev/null"}, "ok"},
		{"private_tmp", nil, []string{"create", "/tmp/x"}, "ok"},
		{"device", nil, []string{"open", "/dev/kmsg"}, "ENOENT"},
		{"shadow", nil, []string{"open", "/etc/shadow"}, "ENOENT"},
		{"passwd", nil, []string{"open", "/etc/passwd"}, "ok"},
		{"passwd_write", nil, []string{"write", "/etc/passwd"}, "EACCES"},
		{"sysctl", nil, []string{"open", "/proc/sys/kernel/hostname"}, "ok"},
		{"sysctl_write", nil, []string{"write", "/proc/sys/kernel/hostname"}, "EACCES"},
		{"programs", nil, []string{"open", "/bin/agent-lock"}, "ok"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := jailed(dir, append(tt.flags, "--denials", "off"), tt.probe...)
			out, stderr, _ := run(t, cmd)
			if got := strings.TrimSpace(out); got != tt.want {
				t.Errorf("%v %v = %q, want %q; stderr: %s",
					tt.flags, tt.probe, got, tt.want, stderr)
			}
		})
	}
	if _, err := os.Stat("/tmp/x"); err == nil {
		t.Error("a file made in the private /tmp is in the host's")
	}
}

func TestProjectBelowPrivateDirectory(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "proj")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	install(t, dir)
	write(t, "/tmp/neighbour", []byte("x"), 0o644)
	defer os.Remove("/tmp/neighbour")
	out, stderr, _ := run(t, jailed(dir, nil, "list", "/tmp"))
	if want := filepath.Base(dir) + "\n"; out != want {
		t.Errorf("the jail's /tmp holds %q, want %q; stderr: %s", out, want, stderr)
	}
}

func TestMountBelowProject(t *testing.T) {
	dir := project(t)
	point := filepath.Join(dir, "mnt")
	if err := os.Mkdir(point, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", point, "tmpfs", 0, "mode=0777"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(point, unix.MNT_DETACH)
	out, stderr, _ := run(t, jailed(dir, nil, "create", filepath.Join(point, "file")))
	if out != "ok\n" {
		t.Errorf("create below a mount in the project = %q, want ok; stderr: %s", out, stderr)
	}
}

// A bind mount of a directory that leads to the project must not open it.
func TestBindMountOfHome(t *testing.T) {
	dir, outside := project(t), secret(t)
	point := filepath.Join(dir, "mnt")
	if err := os.Mkdir(point, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(home, point, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(point, unix.MNT_DETACH)
	out, _, _ := run(t, jailed(dir, []string{"--denials", "off"}, "open", outside))
	if out != "ENOENT\n" {
		t.Errorf("open of an outside file = %q, want ENOENT", out)
	}
}

// Git's own files may be links of the user's, and lead no further than that: an earlier
// jail can have left other links where they lead.
func TestLinksOfDefaultRules(t *testing.T) {
	dir, key := project(t), secret(t)
	config := filepath.Join(home, ".config")
	if err := os.Symlink(dir, config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(config) })
	if err := os.Mkdir(filepath.Join(dir, "git"), 0o755); err != nil {
		t.Fatal(err)
	}
	place := filepath.Join(dir, "git", "config")
	asked := filepath.Join(config, "git", "config")
	other := project(t)
	for _, layers := range []string{"bpf", "bpf,view", "view,seccomp", "landlock,seccomp", "all"} {
		if strings.Contains(layers, "landlock") && landlockHere() == 0 {
			continue
		}
		os.Remove(place)
		write(t, place, []byte("[user]"), 0o644)
		for i, jailIn := range []string{other, dir} {
			out, stderr, _ := run(t, jailed(jailIn, []string{"--layers", layers}, "open", asked))
			if out != "ok\n" {
				t.Errorf("%s: git's file, jail %d: %q, want ok; stderr: %s", layers, i, out, stderr)
			}
		}
		if err := errors.Join(os.Remove(place), os.Symlink(key, place)); err != nil {
			t.Fatal(err)
		}
		for i, jailIn := range []string{other, dir} {
			flags := []string{"--layers", layers, "--denials", "off"}
			out, stderr, _ := run(t, jailed(jailIn, flags, "open", asked))
			if out == "ok\n" {
				t.Errorf("%s: a jail's link, jail %d: opened; stderr: %s", layers, i, stderr)
			}
		}
	}
}
