package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBad(t *testing.T) {
	for outcome, want := range map[Outcome]bool{
		OK: false, Denied: false, Known: false, Skipped: false, Unsupported: false,
		Failed: true, Leaked: true, Broken: true, "": true, "from a newer version": true,
	} {
		if got := (Result{Outcome: outcome}).Bad(); got != want {
			t.Errorf("Bad() of outcome %q = %v, want %v", outcome, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	results := []Result{{Outcome: OK}, {Outcome: Leaked}, {Outcome: OK}, {Outcome: Broken}}
	if got := Count(results, OK, Leaked); got != 3 {
		t.Errorf("Count(ok, leaked) = %d, want 3", got)
	}
	if got := Count(results); got != 0 {
		t.Errorf("Count() = %d, want 0", got)
	}
}

func TestJSONRoundTrip(t *testing.T) {
	want := []Result{
		{Kernel: "6.1.192", Kind: Program, Name: "file_open", Outcome: OK, Insns: 37655},
		{Kind: Case, Name: "a", Family: "f", Jail: "j", Layer: "l", Outcome: Denied,
			Errno: "ENOENT", Detail: "<x> & y", Millis: 1.5},
		{Kind: Bench, Name: "stat", Outcome: OK, Value: 8600, Unit: "insns/op"},
	}
	var b bytes.Buffer
	if err := WriteJSON(&b, want...); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "\n"); n != len(want) {
		t.Errorf("WriteJSON wrote %d lines, want %d", n, len(want))
	}
	if !strings.Contains(b.String(), "<x> & y") {
		t.Errorf("WriteJSON escaped text: %s", &b)
	}
	got, err := ReadJSON(&b)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("ReadJSON: error %v, (-want +got):\n%s", err, diff)
	}
}

func TestReadJSONStopsAtForeignLines(t *testing.T) {
	in := `{"kind":"case","name":"a","outcome":"ok"}` + "\npanic: x\n"
	got, err := ReadJSON(strings.NewReader(in))
	if err == nil || !strings.Contains(err.Error(), "line 2") || len(got) != 1 {
		t.Errorf("ReadJSON = %d results, %v; want one and an error about line 2", len(got), err)
	}
}

func TestWriteLine(t *testing.T) {
	for want, r := range map[string]Result{
		"denied  a  EACCES\n": {Name: "a", Outcome: Denied, Errno: "EACCES"},
		"LEAKED  b  why\n":    {Name: "b", Outcome: Leaked, Detail: "why\nat length"},
	} {
		var b bytes.Buffer
		if err := WriteLine(&b, r); b.String() != want || err != nil {
			t.Errorf("WriteLine(%+v) = %q, %v; want %q", r, b.String(), err, want)
		}
	}
}

func TestSummaryScoresRecords(t *testing.T) {
	results := []Result{{Outcome: Denied, Record: Recorded}, {Outcome: Denied, Record: Unrecorded},
		{Outcome: Denied}, {Outcome: Leaked}}
	const want = "4 cases: 3 denied (1 recorded, 1 not), 1 leaked"
	if got := Summary(results); got != want {
		t.Errorf("Summary = %q, want %q", got, want)
	}
	if got, want := Summary(results[2:]), "2 cases: 1 denied, 1 leaked"; got != want {
		t.Errorf("Summary without a log = %q, want %q", got, want)
	}
}
