//go:build guest

package jail_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
)

// landlockHere is how many rulesets a jail with all layers adds on this kernel.
func landlockHere() int {
	if _, err := ll.LandlockGetABIVersion(); err != nil {
		return 0
	}
	return 1
}

// Each layer is there when it is asked for, and only then; whoever refuses first,
// the BPF layer's errno and record are what the user sees.
func TestLayers(t *testing.T) {
	outside := secret(t)
	for _, tt := range []struct {
		layers   string
		seccomp  string
		landlock int
		open     string
		create   string // without bpf, mounts help out
		record   bool
	}{
		{"", "2", 0, "ENOENT\n", "EACCES\n", true},
		{"bpf,landlock,seccomp", "2", landlockHere(), "ENOENT\n", "EACCES\n", true},
		{"bpf", "0", 0, "ENOENT\n", "EACCES\n", true},
		{"landlock,seccomp", "2", 1, "EACCES\n", "EROFS\n", false},
		{"landlock", "0", 1, "EACCES\n", "EROFS\n", false},
	} {
		t.Run(tt.layers, func(t *testing.T) {
			if strings.HasPrefix(tt.layers, "landlock") && landlockHere() == 0 {
				t.Skip("the kernel has no Landlock")
			}
			dir := project(t)
			flags := []string{"--layers=" + tt.layers}
			out, stderr, status := run(t, jailed(dir, flags, "posture"))
			var got posture
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				t.Fatalf("status %d: %v; stderr: %s", status, err, stderr)
			}
			if got.Seccomp != tt.seccomp || got.Landlock != tt.landlock {
				t.Errorf("seccomp mode %s and %d rulesets, want %s and %d", got.Seccomp,
					got.Landlock, tt.seccomp, tt.landlock)
			}
			out, stderr, _ = run(t, jailed(dir, flags, "open", outside))
			record := strings.Contains(stderr, "agent-lock: denied: open for reading "+outside)
			if out != tt.open || record != tt.record {
				t.Errorf("open = %q, reported %v, want %q, %v; stderr: %s", out, record, tt.open,
					tt.record, stderr)
			}
			fresh := filepath.Join(filepath.Dir(outside), "new")
			out, stderr, _ = run(t, jailed(dir, flags, "create", fresh))
			record = strings.Contains(stderr, "agent-lock: denied: ")
			if out != tt.create || record != tt.record {
				t.Errorf("create = %q, reported %v, want %q, %v; stderr: %s", out, record,
					tt.create, tt.record, stderr)
			}
		})
	}
}

// What cannot be kept is refused, not left out.
func TestLayersThatCannotBe(t *testing.T) {
	dir := project(t)
	for _, tt := range []struct {
		name  string
		flags []string
		want  string
	}{
		{"unknown", []string{"--layers", "selinux"}, "bpf, landlock, seccomp or view"},
		{"seccomp_alone", []string{"--layers", "seccomp"}, "keeps no file"},
		{"hardlinks", []string{"--layers", "landlock", "--hardlinks", "deny"},
			"cannot be kept without the bpf layer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, stderr, status := run(t, jailed(dir, tt.flags, "exit", "0"))
			if status != 125 || !strings.Contains(stderr, tt.want) || out != "" {
				t.Errorf("status %d, stdout %q, stderr %q; want 125 and %q", status, out, stderr,
					tt.want)
			}
		})
	}
}

// Without the BPF layer, what is taken away below what is given is covered by mounts.
func TestMasks(t *testing.T) {
	if landlockHere() == 0 {
		t.Skip("the kernel has no Landlock")
	}
	dir := project(t)
	hidden, kept := filepath.Join(dir, "hidden"), filepath.Join(dir, "kept")
	for _, path := range []string{hidden, kept} {
		write(t, path, []byte("x"), 0o644)
	}
	flags := []string{"--layers", "landlock", "--deny", hidden, "--ro", kept}
	for _, tt := range []struct{ probe, path, want string }{
		{"open", filepath.Join(dir, "probe"), "ok\n"},
		{"open", hidden, "EACCES\n"},
		{"write", hidden, "EACCES\n"},
		{"open", kept, "ok\n"},
		{"write", kept, "EROFS\n"},
		{"open", "/etc/passwd", "ok\n"},
		{"open", "/sys/kernel/security/lsm", "EACCES\n"},
		{"write", "/proc/self/comm", "ok\n"},
	} {
		out, stderr, _ := run(t, jailed(dir, flags, tt.probe, tt.path))
		if out != tt.want {
			t.Errorf("%s %s = %q, want %q; stderr: %s", tt.probe, tt.path, out, tt.want, stderr)
		}
	}
}
