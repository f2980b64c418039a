//go:build vm

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agent-lock/agent-lock/report"
	gocmp "github.com/google/go-cmp/cmp"
)

// Objects that have nothing to do with a jail get the verdict of a real kernel's verifier.
func TestObjects(t *testing.T) {
	dir := t.TempDir()
	bin := filepath.Join(dir, "agent-lock")
	build(t, "go", "build", "-o", bin, ".")
	args := []string{"vmtest", "--kernels", cmp.Or(os.Getenv("VMTEST_KERNEL"), "6.12"),
		"--json", "-"}
	for _, name := range []string{"lsm", "trace", "bad"} {
		object := filepath.Join(dir, name+".bpf.o")
		build(t, cmp.Or(os.Getenv("BPF2GO_CC"), "clang-19"), "-g", "-O2", "-target", "bpf",
			"-D__TARGET_ARCH_x86", "-I/usr/include/x86_64-linux-gnu",
			"-c", "testdata/objects/"+name+".bpf.c", "-o", object)
		args = append(args, "--object", object)
	}
	cmd := exec.Command(bin, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitFailed {
		t.Fatalf("vmtest = %v, want exit status %d\n%s", err, exitFailed, &stderr)
	}
	got := map[string]report.Outcome{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var r report.Result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("%v in %s", err, lines.Text())
		}
		got[r.Name] = r.Outcome
		switch {
		case r.Name == "bad:unchecked":
			for _, part := range []string{"invalid mem access", "*count = 3"} {
				if !strings.Contains(r.Detail, part) {
					t.Errorf("%s: detail %q, want %q in it", r.Name, r.Detail, part)
				}
			}
		case r.Kind == report.Program && r.Outcome == report.OK && (r.Insns == 0 || r.States == 0):
			t.Errorf("%s: the verifier's costs are missing: %+v", r.Name, r)
		}
	}
	want := map[string]report.Outcome{
		"boot": report.OK, "lsm:watch_open": report.OK, "lsm:no_hook": report.Unsupported,
		"trace:unlink_entry": report.OK, "trace:exec": report.OK,
		"bad:unchecked": report.Failed, "bad:unread": report.Failed,
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
}

func build(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s = %v\n%s", name, err, out)
	}
}
