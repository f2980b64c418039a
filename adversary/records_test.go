package adversary

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/agent-lock/agent-lock/report"
	"github.com/google/go-cmp/cmp"
)

func TestDenialLog(t *testing.T) {
	a := &arena{root: t.TempDir()}
	l := newDenialLog(a, "x")
	if lines, err := l.until("fence", 0); err == nil || len(lines) > 0 {
		t.Fatalf("without a log: %q, %v, want an error", lines, err)
	}
	write := func(s string) {
		t.Helper()
		f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(s); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what string, want []string) {
		t.Helper()
		got, err := l.until("fence", 0)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", what, err, diff)
		}
	}
	write("a\nb\nfence\n")
	expect("two denials", []string{"a\n", "b\n"})
	write("fence 1\nc\nfence 2\nd\nfen")
	expect("none", nil)
	expect("one", []string{"c\n"})
	if lines, err := l.until("fence", 0); err == nil {
		t.Errorf("half a line: %q, want an error", lines)
	}
	time.AfterFunc(20*time.Millisecond, func() { write("ce\n") })
	if lines, err := l.until("fence", time.Minute); err != nil || len(lines) > 0 {
		t.Errorf("the rest of the line: %q, %v", lines, err)
	}
	if again := newDenialLog(a, "x"); again.end == 0 {
		t.Error("a log of a jail that is started again is read from its beginning")
	}
}

// A jail without a log has no score. One with a log that says nothing is no jail to score.
func TestRecords(t *testing.T) {
	u, cases := ourselves(t), Select(nil)[:1]
	run := func(command string) ([]report.Result, error) {
		j, err := ParseJail(command)
		if err != nil {
			t.Fatal(err)
		}
		return Run(t.Context(), Options{Jail: j, User: u, Cases: cases})
	}
	results, err := run("env")
	if err != nil || results[0].Outcome != report.Leaked || results[0].Record != "" {
		t.Errorf("env: %+v, %v, want a leak without a score", results, err)
	}
	_, err = run(`sh -c '"$@"' {log}`)
	if err == nil || !strings.Contains(err.Error(), "does not record") {
		t.Errorf("a log that says nothing: %v, want an error about it", err)
	}
}
