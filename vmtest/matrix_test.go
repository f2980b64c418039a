package vmtest

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agent-lock/agent-lock/kernels"
	"github.com/agent-lock/agent-lock/report"
)

func program(name string, o report.Outcome, detail string) report.Result {
	return report.Result{Kind: report.Program, Name: name, Outcome: o, Detail: detail}
}

func attack(name string, o report.Outcome, detail string) report.Result {
	return report.Result{Kind: report.Case, Name: name, Family: "f", Outcome: o, Detail: detail}
}

// mixed is a run in which everything happened.
func mixed() []Cell {
	cells := []Cell{
		{
			Label: "6.1.192", Accel: "tcg", Kernel: kernels.Kernel{Source: "apt linux-image"},
			Hello: 1900 * time.Millisecond, Wall: 3100 * time.Millisecond,
			Results: []report.Result{
				program("file_open", report.OK, ""),
				program("userns_create", report.Failed, "permission denied\n0: R1=ctx\n1: exit"),
				attack("sym_link", report.Denied, ""),
				attack("hard_link", report.Known, "documented"),
				attack("dots", report.Leaked, "the canary came back"),
			},
		},
		{
			Label: "6.12.117", Accel: "tcg", Kernel: kernels.Kernel{Source: "apt linux-image"},
			Hello: 2 * time.Second, Wall: 3 * time.Second,
			Results: []report.Result{
				program("file_open", report.OK, ""),
				program("userns_create", report.OK, ""),
				attack("sym_link", report.Denied, ""),
				attack("dots", report.Denied, ""),
			},
		},
		{
			Label: "6.6.1", Accel: "tcg", Wall: time.Second,
			Fault: FaultPanic, Detail: "Kernel panic - not syncing: x",
			Console: []string{"[    1.0] one", "[    1.1] Kernel panic - not syncing: x"},
			Results: []report.Result{program("file_open", report.OK, "")},
		},
		MissingCell("6.9", fmt.Errorf("%w: 6.9 (tried: nothing)", kernels.ErrMissing), true),
	}
	for _, c := range cells {
		for i := range c.Results {
			c.Results[i].Kernel = c.Label
		}
	}
	return cells
}

func TestWriteMatrix(t *testing.T) {
	for name, verbose := range map[string]bool{"matrix": false, "matrix_verbose": true} {
		t.Run(name, func(t *testing.T) {
			var got strings.Builder
			if err := WriteMatrix(&got, mixed(), verbose); err != nil {
				t.Fatal(err)
			}
			golden := "testdata/" + name + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("WriteMatrix (-want +got):\n%s", diff)
			}
		})
	}
}

func TestResultsNameSilence(t *testing.T) {
	var got []string
	for _, r := range Results(mixed()) {
		if r.Outcome == report.Broken {
			got = append(got, r.Kernel+" "+string(r.Kind)+" "+r.Name)
		}
	}
	want := []string{"6.12.117 case hard_link", "6.6.1 boot boot"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("broken results (-want +got):\n%s", diff)
	}
}

func TestJudge(t *testing.T) {
	ok := Cell{Label: "a", Results: []report.Result{program("p", report.OK, "")}}
	failed := Cell{Label: "b", Results: []report.Result{program("p", report.Failed, "")}}
	leaked := Cell{Label: "b", Results: []report.Result{
		program("p", report.OK, ""), attack("c", report.Leaked, "")}}
	silent := Cell{Label: "c"}
	broken := Cell{Label: "d", Fault: FaultPanic}
	tolerated := Cell{Label: "e", Fault: FaultMissing, Skipped: true}
	odd := Cell{Label: "f", Results: []report.Result{program("p", "splendid", "")}}
	for _, tt := range []struct {
		name  string
		cells []Cell
		want  Status
	}{
		{"ok", []Cell{ok}, Passed},
		{"failed", []Cell{ok, failed}, Failed},
		{"leaked", []Cell{leaked}, Failed},
		{"silent", []Cell{ok, silent}, Failed},
		{"unknown_outcome", []Cell{odd}, Failed},
		{"broken", []Cell{ok, broken}, Broken},
		{"broken_beats_failed", []Cell{failed, broken}, Broken},
		{"one_tolerated", []Cell{ok, tolerated}, Passed},
		{"all_tolerated", []Cell{tolerated}, Broken},
		{"none", nil, Broken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Judge(tt.cells); got != tt.want {
				t.Errorf("Judge = %d, want %d", got, tt.want)
			}
		})
	}
}

func TestMissingCell(t *testing.T) {
	missing := fmt.Errorf("%w: 6.9", kernels.ErrMissing)
	for _, tt := range []struct {
		err      error
		tolerate bool
		skipped  bool
		outcome  report.Outcome
	}{
		{missing, false, false, report.Broken},
		{missing, true, true, report.Skipped},
		{errors.New("unreadable"), true, false, report.Broken},
	} {
		c := MissingCell("6.9", tt.err, tt.tolerate)
		if c.Skipped != tt.skipped || c.Boot().Outcome != tt.outcome {
			t.Errorf("MissingCell(%v, %v) = skipped %v, %s, want %v, %s", tt.err, tt.tolerate,
				c.Skipped, c.Boot().Outcome, tt.skipped, tt.outcome)
		}
	}
}

func TestErrors(t *testing.T) {
	err := Errors(mixed())
	if want := "6.6.1: panic: Kernel panic - not syncing: x"; err == nil || err.Error() != want {
		t.Errorf("Errors = %v, want %s", err, want)
	}
	if err := Errors(nil); err != nil {
		t.Errorf("Errors(nil) = %v, want nil", err)
	}
}
