package filesystems

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/agent-lock/agent-lock/report"
)

// TestMain is also the program that a check copies and runs.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "version" {
		fmt.Println("test")
		return
	}
	os.Exit(m.Run())
}

// run tries the checks in a fresh directory of this machine's.
func run(t *testing.T) []Finding {
	t.Helper()
	dir := t.TempDir()
	if err := Populate(dir); err != nil {
		t.Fatal(err)
	}
	var found []Finding
	err := Try(dir, func(f Finding) error { found = append(found, f); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestTwoRunsAgree(t *testing.T) {
	first, second := run(t), run(t)
	if len(first) != len(checks()) {
		t.Fatalf("Try told %d findings, want %d", len(first), len(checks()))
	}
	for _, r := range Compare("here", first, second) {
		t.Logf("%s %s %s", r.Name, r.Outcome, r.Detail)
		if r.Outcome != report.OK && r.Outcome != report.Unsupported {
			t.Errorf("%s = %s (%s), want two runs that agree", r.Name, r.Outcome, r.Detail)
		}
	}
}

func TestCompare(t *testing.T) {
	all := func(f func(*Finding)) []Finding {
		var found []Finding
		for _, c := range checks() {
			one := Finding{Name: c.name, Saw: "x"}
			f(&one)
			found = append(found, one)
		}
		return found
	}
	same := all(func(*Finding) {})
	for _, tt := range []struct {
		name            string
		outside, inside []Finding
		want            report.Outcome
	}{
		{"same", same, same, report.OK},
		{"fails_alike", all(func(f *Finding) { f.Failed = "open: EIO" }),
			all(func(f *Finding) { f.Failed = "open: EIO" }), report.Unsupported},
		{"fails_inside", same, all(func(f *Finding) { f.Failed = "open: EIO" }), report.Failed},
		{"fails_outside", all(func(f *Finding) { f.Failed = "open: EIO" }), same, report.Failed},
		{"sees_else", same, all(func(f *Finding) { f.Saw = "y" }), report.Failed},
		{"silent_inside", same, nil, report.Broken},
		{"silent_outside", nil, same, report.Broken},
	} {
		results := Compare("x", tt.outside, tt.inside)
		if len(results) != len(checks()) {
			t.Errorf("%s: %d results, want %d", tt.name, len(results), len(checks()))
		}
		for _, r := range results {
			if r.Outcome != tt.want {
				t.Errorf("%s: %s = %s, want %s", tt.name, r.Name, r.Outcome, tt.want)
			}
		}
	}
}

func TestNamesAreUnique(t *testing.T) {
	names, _ := Names()
	slices.Sort(names)
	if len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("Names = %v, want no name twice", names)
	}
}
