//go:build vm

package vmtest

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agent-lock/agent-lock/kernels"
	"github.com/agent-lock/agent-lock/report"
)

// These tests boot real kernels: go test -tags vm ./vmtest

// vmKernel is the kernel that they boot.
func vmKernel(t *testing.T) kernels.Kernel {
	t.Helper()
	if _, err := boards[kernels.AMD64].find(); err != nil {
		t.Skip(err)
	}
	spec := os.Getenv("VMTEST_KERNEL")
	if spec == "" {
		spec = "6.12"
	}
	k, err := kernels.Resolve(t.Context(), spec, kernels.Options{Logf: t.Logf})
	if err != nil {
		t.Skip(err)
	}
	return k
}

// vmBinary builds the command that is in the guest.
func vmBinary(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "agent-lock")
	cmd := exec.Command("go", "build", "-o", bin, "../cmd/agent-lock")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build = %v\n%s", err, out)
	}
	return bin
}

func provoke(what string) Step {
	return Step{Name: what, Argv: []string{"agent-lock", "guest-provoke", what}}
}

// A guest that goes wrong in one way each. The cell has to say which.
func TestFaultsOfRealGuests(t *testing.T) {
	k, bin := vmKernel(t), vmBinary(t)
	results := func(what string) Step {
		s := provoke(what)
		s.Results = true
		return s
	}
	slow := provoke("sleep")
	slow.Timeout = time.Second
	for _, tt := range []struct {
		name   string
		plan   []Step
		want   Fault
		detail string // in the cell's detail
	}{
		{"panic", []Step{provoke("panic")}, FaultPanic, "sysrq triggered crash"},
		{"panic_after_results", []Step{results("results"), provoke("panic")}, FaultPanic, "sysrq"},
		{"taint", []Step{results("results"), provoke("taint")}, FaultSplat, "tainted 0x200"},
		{"warning", []Step{results("results"), provoke("warning")}, FaultSplat, "WARNING: CPU: 0"},
		{"memory", []Step{provoke("memory")}, FaultOOM, "Killed process"},
		{"freeze", []Step{provoke("freeze"), provoke("sleep")}, FaultHang, "no frame within"},
		{"truncate", []Step{results("results"), provoke("truncate")}, FaultTruncated,
			"without its end"},
		{"power_off", []Step{provoke("power")}, FaultTruncated, "without its end"},
		{"step_hangs", []Step{slow}, FaultStep, "killed after its timeout"},
		{"no_results", []Step{results("orphan")}, FaultStep, "no results"},
		{"garbage", []Step{results("garbage")}, FaultStep, "is no result"},
		{"no_command", []Step{{Name: "x", Argv: []string{"x"}}}, FaultStep, "not in the guest"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cells, err := Run(t.Context(), Config{
				Kernels: []kernels.Kernel{k}, Binary: bin, Plan: tt.plan, Idle: 6 * time.Second,
			})
			if err != nil {
				t.Fatalf("Run = %v", err)
			}
			c := cells[0]
			if c.Fault != tt.want || !strings.Contains(c.Detail, tt.detail) {
				t.Errorf("cell = %q (%s), want %q (…%s…)",
					c.Fault, c.Detail, tt.want, tt.detail)
			}
			if len(c.Console) != ConsoleTail {
				t.Errorf("cell keeps %d console lines, want %d", len(c.Console), ConsoleTail)
			}
			if got := Judge(cells); got != Broken {
				t.Errorf("Judge = %d, want Broken", got)
			}
			if r := c.Boot(); r.Outcome != report.Broken || r.Console == "" {
				t.Errorf("boot result = %s with %d bytes of console", r.Outcome, len(r.Console))
			}
		})
	}
}

func TestDeathOfInit(t *testing.T) {
	k := vmKernel(t)
	dir := t.TempDir()
	src, bin := filepath.Join(dir, "main.go"), filepath.Join(dir, "init")
	if err := os.WriteFile(src, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", bin, src).CombinedOutput(); err != nil {
		t.Fatalf("go build = %v\n%s", err, out)
	}
	cells, err := Run(t.Context(), Config{Kernels: []kernels.Kernel{k}, Binary: bin})
	if err != nil {
		t.Fatalf("Run = %v", err)
	}
	if c := cells[0]; c.Fault != FaultPanic || !strings.Contains(c.Detail, "kill init") {
		t.Errorf("cell = %q (%s), want a panic about init", c.Fault, c.Detail)
	}
}

// What a step prints, however like a frame it looks, is only text; what it leaves
// running does not hold up the next one; its own results arrive.
func TestGoodGuest(t *testing.T) {
	k, bin := vmKernel(t), vmBinary(t)
	good := provoke("results")
	good.Results = true
	var text bytes.Buffer
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("#!/bin/agent-lock\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	cells, err := Run(t.Context(), Config{
		Kernels: []kernels.Kernel{k},
		Binary:  bin,
		Plan:    []Step{provoke("forge"), provoke("orphan"), provoke("flood"), good},
		Files:   []File{{Host: file, Guest: "/opt/deep/file"}},
		Text:    &text,
	})
	if err != nil {
		t.Fatalf("Run = %v", err)
	}
	c := cells[0]
	if c.Fault != "" {
		t.Fatalf("cell = %q (%s), want no fault", c.Fault, c.Detail)
	}
	var names []string
	for _, r := range c.Results {
		names = append(names, r.Name)
		if r.Kernel != c.Label {
			t.Errorf("result %s is of kernel %q, want %q", r.Name, r.Kernel, c.Label)
		}
	}
	if want := []string{"example", "example_held", "example_skipped"}; !slices.Equal(names, want) {
		t.Errorf("results = %q, want %q", names, want)
	}
	if !strings.HasPrefix(text.String(), "@AL1 0 hello") {
		t.Errorf("text starts with %.40q, want the forged frame", text.String())
	}
	if want := 1<<18 + 1<<18; text.Len() < want {
		t.Errorf("text has %d bytes, want at least %d", text.Len(), want)
	}
	if !slices.Contains(strings.Split(c.LSM, ","), "bpf") {
		t.Errorf("security modules = %q, want bpf among them", c.LSM)
	}
	if got := Judge(cells); got != Passed {
		t.Errorf("Judge = %d, want Passed", got)
	}
}

// An interrupted run leaves neither a machine nor a temporary file.
func TestInterruptedRun(t *testing.T) {
	k, bin := vmKernel(t), vmBinary(t)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cells, err := Run(ctx, Config{
		Kernels: []kernels.Kernel{k},
		Binary:  bin,
		Plan:    []Step{provoke("forge"), provoke("sleep")},
		Text:    writerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil }),
	})
	if err != nil {
		t.Fatalf("Run = %v", err)
	}
	if c := cells[0]; c.Fault != FaultInterrupted {
		t.Errorf("cell = %q (%s), want interrupted", c.Fault, c.Detail)
	}
	left, err := os.ReadDir(tmp)
	if err != nil || len(left) > 0 {
		t.Errorf("temporary files left: %v, %v", left, err)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// The exit statuses of the command, and that JSON comes out whatever happens.
func TestCommandStatus(t *testing.T) {
	k, bin := vmKernel(t), vmBinary(t)
	for _, tt := range []struct {
		name string
		args []string
		want int
	}{
		{"step_ok", []string{"--step", "agent-lock guest-provoke forge"}, 0},
		{"step_fails", []string{"--step", "agent-lock no-such-verb"}, 125},
		{"panic", []string{"--step", "agent-lock guest-provoke panic"}, 2},
		{"missing_kernel", []string{"--kernels", "1.0"}, 2},
		{"no_kvm", []string{"--accel", "kvm"}, 2},
		{"bad_flag", []string{"--frobnicate"}, 125},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := os.Stat("/dev/kvm"); tt.name == "no_kvm" && err == nil {
				t.Skip("needs a machine without /dev/kvm")
			}
			out := filepath.Join(t.TempDir(), "results")
			args := append([]string{"vmtest", "--kernels", k.Name, "--json", out}, tt.args...)
			text, err := exec.Command(bin, args...).CombinedOutput()
			if got := (&machine{err: err}).status(); got != tt.want {
				t.Fatalf("exit status = %d, want %d\n%s", got, tt.want, text)
			}
			if tt.want == 125 && tt.name == "bad_flag" {
				return
			}
			data, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			var boot report.Result
			line, _, _ := bytes.Cut(data, []byte("\n"))
			if err := json.Unmarshal(line, &boot); err != nil || boot.Kind != report.Boot {
				t.Errorf("first JSON line = %s, want a boot result", line)
			}
			if (boot.Outcome == report.OK) != (tt.want != 2) {
				t.Errorf("boot = %s with exit status %d", boot.Outcome, tt.want)
			}
		})
	}
}
