package vmtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agent-lock/agent-lock/kernels"
	"github.com/agent-lock/agent-lock/report"
)

// fine is a guest in which everything went well.
func fine() *guest {
	g := &guest{
		cell:       &Cell{Label: "6.1", Fault: FaultQEMU},
		plan:       plan{Steps: []Step{{Name: "load", Results: true}, {Name: "say"}}},
		machine:    &machine{stderr: &limitedBuffer{max: 1 << 10}},
		results:    map[int][]report.Result{},
		stream:     stream{hello: true, ended: true, next: 9},
		exitStatus: debugExitStatus(exitDone),
	}
	g.console.add("[    0.000000] Linux version 6.1")
	g.cell.Steps = []StepStatus{{Step: 0, Results: 3}, {Step: 1, Status: 7}}
	return g
}

const (
	panicLine   = "[ 1.0] Kernel panic - not syncing: x"
	warningLine = "[ 1.0] WARNING: CPU: 0 PID: 1 at x.c:1 x+0x1/0x2"
	oomLine     = "[ 1.0] Out of memory: Killed process 1 (x)"
)

// Each row takes one thing away from a fine guest. The last row is the fine one.
func TestVerdict(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(g *guest)
		want  Fault
	}{
		{"panic", func(g *guest) { g.console.add(panicLine) }, FaultPanic},
		{"panic_explains_truncation", func(g *guest) {
			g.console.add(panicLine)
			g.stream.ended, g.exitStatus = false, 0
		}, FaultPanic},
		{"splat_with_all_results", func(g *guest) { g.console.add(warningLine) }, FaultSplat},
		{"oom", func(g *guest) { g.console.add(oomLine) }, FaultOOM},
		{"oom_explains_hang", func(g *guest) {
			g.console.add(oomLine)
			g.fault, g.stream.ended = FaultHang, false
		}, FaultOOM},
		{"hang", func(g *guest) { g.fault, g.stream.ended = FaultHang, false }, FaultHang},
		{"no_end", func(g *guest) { g.stream.ended = false }, FaultTruncated},
		{"poweroff_after_end", func(g *guest) { g.exitStatus = 0 }, FaultTruncated},
		{"no_end_but_status", func(g *guest) { g.stream.ended = false }, FaultTruncated},
		{"no_hello", func(g *guest) { g.stream = stream{} }, FaultBoot},
		{"no_output_at_all", func(g *guest) {
			g.stream, g.console, g.fault = stream{}, console{}, FaultBoot
		}, FaultNoOutput},
		{"qemu_exits", func(g *guest) {
			g.stream, g.console, g.exitStatus = stream{}, console{}, 1
		}, FaultQEMU},
		{"guest_error", func(g *guest) {
			g.guestError, g.stream.ended = "mount", false
		}, FaultGuest},
		{"no_results", func(g *guest) { g.cell.Steps[0].Results = 0 }, FaultStep},
		{"step_timed_out", func(g *guest) { g.cell.Steps[1].TimedOut = true }, FaultStep},
		{"step_not_started", func(g *guest) { g.cell.Steps[1].Error = "x" }, FaultStep},
		{"step_never_ran", func(g *guest) { g.cell.Steps = g.cell.Steps[:1] }, FaultStep},
		{"check_fails", func(g *guest) { g.plan.Steps[1].Check = LeaksAreStatus }, FaultStep},
		{"fine", func(*guest) {}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := fine()
			tt.spoil(g)
			g.judge()
			if g.cell.Fault != tt.want {
				t.Errorf("Fault = %q (%s), want %q", g.cell.Fault, g.cell.Detail, tt.want)
			}
			wantTail := tt.want != "" && g.console.total > 0
			if wantTail != (len(g.cell.Console) > 0) {
				t.Errorf("cell keeps %d console lines", len(g.cell.Console))
			}
		})
	}
}

func TestQEMUsOwnWordsAreKept(t *testing.T) {
	g := fine()
	g.stream, g.console, g.exitStatus = stream{}, console{}, 1
	g.machine.stderr.Write([]byte("qemu: no such kernel\n"))
	g.judge()
	if !strings.Contains(g.cell.Detail, "no such kernel") {
		t.Errorf("Detail = %q, want QEMU's message in it", g.cell.Detail)
	}
}

func TestLeaksAreStatus(t *testing.T) {
	leaks := func(n int) (rs []report.Result) {
		for range n {
			rs = append(rs, report.Result{Kind: report.Case, Outcome: report.Leaked})
		}
		return rs
	}
	for _, tt := range []struct {
		status, leaks int
		ok            bool
	}{
		{0, 0, true}, {2, 2, true}, {100, 130, true},
		{0, 1, false}, {1, 0, false}, {125, 0, false}, {137, 3, false},
	} {
		if err := LeaksAreStatus(tt.status, leaks(tt.leaks)); (err == nil) != tt.ok {
			t.Errorf("LeaksAreStatus(%d, %d leaks) = %v, want ok %v",
				tt.status, tt.leaks, err, tt.ok)
		}
	}
}

func TestBadIsStatus(t *testing.T) {
	bad := []report.Result{{Outcome: report.Failed}}
	for _, tt := range []struct {
		status  int
		results []report.Result
		ok      bool
	}{{0, nil, true}, {1, bad, true}, {1, nil, false}, {0, bad, false}, {2, bad, false}} {
		if err := BadIsStatus(tt.status, tt.results); (err == nil) != tt.ok {
			t.Errorf("BadIsStatus(%d, %v) = %v, want ok %v", tt.status, tt.results, err, tt.ok)
		}
	}
}

func TestLabels(t *testing.T) {
	got := labels([]kernels.Kernel{
		{Name: "6.1", Version: "6.1.192"},
		{Name: "6.12", Version: "6.12.117"},
		{Name: "./bzImage", Version: "6.1.192"},
		{Name: "./odd"},
	})
	if want := "6.1 6.12.117 ./bzImage ./odd"; strings.Join(got, " ") != want {
		t.Errorf("labels = %q, want %q", got, want)
	}
}

// A kernel without what the programs need is named as such, before it is blamed.
func TestBootNamesWhatTheKernelLacks(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config")
	text := "CONFIG_BPF_LSM=y\nCONFIG_DEBUG_INFO_BTF=y\nCONFIG_PID_NS=y\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := Cell{Kernel: kernels.Kernel{Config: config}}
	if got := c.Boot().Detail; got != "unsupported kernel: lacks CONFIG_SECURITY_NETWORK" {
		t.Errorf("Boot().Detail = %q, want CONFIG_SECURITY_NETWORK in it", got)
	}
}
