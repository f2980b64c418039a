package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agent-lock/agent-lock/adversary"
	"github.com/agent-lock/agent-lock/report"
)

// writeFile puts a file into a fresh folder.
func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAdversaryReportRefuses(t *testing.T) {
	foreign := writeFile(t, "foreign", "{}\n")
	cut := writeFile(t, "cut", `{"kind":"case","name":"a","outcome":"denied"}`+"\n{\"kind\n")
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"bad_skip", []string{"--skip", "("}, "read --skip"},
		{"skip_all", []string{"--skip", "."}, "leave no case"},
		{"no_family", []string{"--family", "rings,cats"}, `there is no "cats"; the families are`},
		{"other_family", []string{"--run", "^key_", "--family", "rings"}, "leave no case"},
		{"no_rounds", []string{"--repeat", "0"}, "--repeat 0: it is at least 1"},
		{"two_on_stdout", []string{"--json", "-", "--html", "-"},
			"--html and --json both write -; name two files"},
		{"same_file", []string{"--junit", "/tmp/x", "--sarif", "/tmp/../tmp/x"}, "both write"},
		{"no_dir", []string{"--junit", "/no/such/dir/x"}, "write --junit: open /no/such/dir/x"},
		{"no_baseline", []string{"--baseline", "/no/such/file"}, "read --baseline: open"},
		{"foreign_baseline", []string{"--baseline", foreign}, "it has no result of a case"},
		{"cut_baseline", []string{"--baseline", cut}, "line 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("HOME", t.TempDir())
			t.Setenv("SUDO_UID", "")
			args := append([]string{"--against", "env"}, tt.args...)
			out, stderr, status := runVerb(runAdversary, args...)
			if status != exitUsage || !strings.Contains(stderr, tt.want) || out != "" {
				t.Errorf("adversary %q = %d, %q, %q, want %d and %q on stderr only",
					args, status, out, stderr, exitUsage, tt.want)
			}
			if strings.Count(stderr, "\n") != 1 {
				t.Errorf("adversary %q wrote %q, want one line", args, stderr)
			}
		})
	}
}

func TestAdversaryLeaves(t *testing.T) {
	args := []string{"--list", "--family", "keys,hardlinks"}
	out, stderr, status := runVerb(runAdversary, args...)
	skipped, _, _ := runVerb(runAdversary, append(args, "--skip", "^key_")...)
	if status != 0 || !strings.Contains(out, "key_") || !strings.Contains(out, "hardlink_") {
		t.Fatalf("adversary %q = %d, %q, %q, want cases of both families", args, status, out,
			stderr)
	}
	if strings.Contains(skipped, "key_") || !strings.Contains(skipped, "hardlink_") {
		t.Errorf("with --skip ^key_: %q, want those of hardlinks only", skipped)
	}
}

// TestAdversaryFiles makes every form in one run, and one of them on standard output.
func TestAdversaryFiles(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("SUDO_UID", "")
	dir := t.TempDir()
	args := []string{"--against", "env", "--run", "^hardlink_existing_(read|write)$"}
	want := map[string]string{
		"json": `"outcome":"leaked"`, "junit": `failures="2"`, "html": `<td class="leaked">LEAKED`,
		"markdown": "### Leaked (2)", "sarif": `"executionSuccessful": true`,
	}
	for form := range want {
		args = append(args, "--"+form, filepath.Join(dir, form))
	}
	if out, stderr, status := runVerb(runAdversary, args...); status != 2 ||
		!strings.Contains(out, "LEAKED") {
		t.Errorf("adversary %q = %d, %q, %q, want 2 and the table", args, status, out, stderr)
	}
	for form, part := range want {
		data, err := os.ReadFile(filepath.Join(dir, form))
		if err != nil || !strings.Contains(string(data), part) {
			t.Errorf("--%s wrote %q, %v, want %q in it", form, data, err, part)
		}
	}
	out, stderr, status := runVerb(runAdversary, append(args, "--junit", "-")...)
	if status != 2 || !strings.HasPrefix(out, "<?xml") || !strings.Contains(stderr, "LEAKED") {
		t.Errorf("--junit -: %d, stdout %q, stderr %q, want XML and the table", status, out, stderr)
	}
}

// TestAdversaryFilesOfNoRun checks that a suite which did not run leaves no file that looks
// like success.
func TestAdversaryFilesOfNoRun(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("SUDO_UID", "")
	dir := t.TempDir()
	args := []string{"--against", "false"}
	want := map[string]string{"junit": `errors="1"`, "html": "BROKEN", "markdown": "1 broken",
		"sarif": `"executionSuccessful": false`}
	for form := range want {
		args = append(args, "--"+form, filepath.Join(dir, form))
	}
	if _, stderr, status := runVerb(runAdversary, args...); status != exitUsage {
		t.Errorf("adversary %q = %d, %q, want %d", args, status, stderr, exitUsage)
	}
	for form, part := range want {
		data, err := os.ReadFile(filepath.Join(dir, form))
		if err != nil || !strings.Contains(string(data), part) {
			t.Errorf("--%s wrote %q, %v, want %q in it", form, data, err, part)
		}
	}
}

func TestAdversaryBaseline(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("SUDO_UID", "")
	file := filepath.Join(t.TempDir(), "results")
	run := func(pattern string, flags ...string) (string, int) {
		t.Helper()
		args := append([]string{"--against", "env", "--run", pattern}, flags...)
		out, stderr, status := runVerb(runAdversary, args...)
		if stderr != "" {
			t.Errorf("adversary %q wrote %q to stderr", args, stderr)
		}
		return out, status
	}
	if _, status := run("^hardlink_existing_write$", "--json", file); status != 1 {
		t.Fatalf("the first run: status %d, want 1", status)
	}
	// The baseline may be the file that is written: it is read first.
	out, status := run("^hardlink_existing_(read|write)$", "--baseline", file, "--json", file)
	if status != 1 || !strings.Contains(out, "new leaks:\n+ hardlink_existing_read LEAKED") {
		t.Errorf("a leak more: status %d, %q, want 1 and its name", status, out)
	}
	out, status = run("^hardlink_existing_(read|write)$", "--baseline", file)
	if status != 0 || !strings.Contains(out, "new leaks: 0, broken: 0, ") {
		t.Errorf("the same leaks: status %d, %q, want 0", status, out)
	}
	// Not to run a case is no change.
	out, status = run("^hardlink_existing_read$", "--baseline", file)
	if status != 0 || !strings.Contains(out, "gone: 0") {
		t.Errorf("a part of the baseline: status %d, %q, want 0 and nothing gone", status, out)
	}
	// It outlives a run that fails, and is none for another jail.
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, jail, want string }{
		{"jail_that_fails", "env=false", "no attacker came up"},
		{"another_jail", "other=env", "no result of what is attacked now"},
	} {
		_, stderr, status := runVerb(runAdversary, "--against", tt.jail, "--run",
			"^hardlink_existing", "--baseline", file, "--json", file)
		after, err := os.ReadFile(file)
		kept := bytes.Equal(before, after)
		if status != exitUsage || !strings.Contains(stderr, tt.want) || !kept {
			t.Errorf("%s: status %d, %q, %v; want 125, %q and the baseline as it was", tt.name,
				status, stderr, err, tt.want)
		}
	}
}

// TestAdversaryBaselineStatus checks what counts.
func TestAdversaryBaselineStatus(t *testing.T) {
	run := func(outcome report.Outcome) []report.Result {
		return []report.Result{{Kind: report.Case, Name: "a", Outcome: outcome}}
	}
	tests := []struct {
		name          string
		before, after report.Outcome
		strict        bool
		want          int
	}{
		{"new_leak", report.Denied, report.Leaked, false, 1},
		{"old_leak", report.Leaked, report.Leaked, false, 0},
		{"new_known", report.Denied, report.Known, false, 0},
		{"new_known_strict", report.Denied, report.Known, true, 1},
		{"old_known_strict", report.Known, report.Known, true, 0},
		{"unlisted", report.Known, report.Leaked, false, 1},
		{"broken", report.Denied, report.Broken, false, exitUsage},
		{"still_broken", report.Broken, report.Broken, false, exitUsage},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, got := runVerb(func(std stdio, _ []string) int {
				out := &resultOutput{std: std, baseline: true, before: run(tt.before)}
				return out.status("", run(tt.after), tt.strict)
			})
			if got != tt.want {
				t.Errorf("status of %s after %s = %d, want %d", tt.after, tt.before, got, tt.want)
			}
		})
	}
}

// fickle is a jail that hides the environment except when it is started first.
const fickle = `#!/bin/sh
if mkdir "$0.started" 2>/dev/null; then exec "$@"; fi
exec env -i "$@"
`

func TestAdversaryRepeat(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("SUDO_UID", "")
	file := filepath.Join(t.TempDir(), "results")
	args := []string{"--run", "^(environ_cloud_key|hardlink_existing_read)$", "--repeat", "3",
		"--json", file, "--against"}
	if out, stderr, status := runVerb(runAdversary, append(args, "env")...); status != 2 {
		t.Errorf("three equal rounds = %d, %q, %q, want 2", status, out, stderr)
	}
	jail := writeFile(t, "fickle", fickle)
	out, stderr, status := runVerb(runAdversary, append(args, jail)...)
	want := "the rounds differ: leaked, denied, denied (leaked: the canary in"
	if status != exitUsage || !strings.Contains(out, want) ||
		!strings.Contains(stderr, "broken cases: 1 of 2") {
		t.Errorf("rounds that differ = %d, %q, %q, want %d and %q", status, out, stderr, exitUsage,
			want)
	}
	data, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	results, err := report.ReadJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range results {
		got = append(got, r.Name+" "+string(r.Outcome))
	}
	wantLines := []string{"environ_cloud_key broken", "hardlink_existing_read leaked"}
	if diff := cmp.Diff(wantLines, got); diff != "" {
		t.Errorf("--json after rounds that differ (-want +got):\n%s", diff)
	}
}

// TestCollectStops checks that a run which ends in one of its rounds is broken as a whole.
func TestCollectStops(t *testing.T) {
	denied := report.Result{Kind: report.Case, Name: "a", Outcome: report.Denied}
	var lines strings.Builder
	var err error
	var results []report.Result
	runVerb(func(std stdio, _ []string) int {
		out := &resultOutput{std: std, repeat: 3, lines: &lines}
		round := 0
		results, err = out.collect(1, func(tell func(report.Result)) ([]report.Result, error) {
			round++
			if round == 2 {
				broken := denied
				broken.Outcome, broken.Detail = report.Broken, "not run"
				return []report.Result{broken}, errors.New("interrupted")
			}
			tell(denied)
			return []report.Result{denied}, nil
		})
		return 0
	})
	if err == nil || len(results) != 1 || results[0].Outcome != report.Broken ||
		strings.Count(lines.String(), "\n") != 1 || !strings.Contains(lines.String(), "broken") {
		t.Errorf("collect = %+v, %v, lines %q, want one broken result and the error", results, err,
			&lines)
	}
}

func TestCaseRules(t *testing.T) {
	rules := caseRules()
	for _, c := range adversary.Cases() {
		if r := rules[c.Name]; r.What != c.What || r.Family != c.Family || r.Source != c.Source {
			t.Errorf("caseRules()[%s] = %+v, want what the case says", c.Name, r)
		}
	}
}

// Root writes results through no link that a jail could have left: what that leads to stays.
func TestResultsFollowNoLink(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("others write what they may")
	}
	dir := t.TempDir()
	kept, link := filepath.Join(dir, "kept"), filepath.Join(dir, "results.json")
	err := errors.Join(os.WriteFile(kept, []byte("kept"), 0o600), os.Symlink(kept, link))
	if err != nil {
		t.Fatal(err)
	}
	const flags = os.O_RDWR | os.O_CREATE | os.O_TRUNC
	if f, err := openResults(link, flags); err == nil {
		f.Close()
		t.Error("a link was followed")
	}
	if data, err := os.ReadFile(kept); string(data) != "kept" {
		t.Errorf("what the link leads to holds %q, %v", data, err)
	}
	f, err := openResults(filepath.Join(dir, "own.json"), flags)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}
