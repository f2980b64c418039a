package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agent-lock/agent-lock/adversary"
	"github.com/agent-lock/agent-lock/report"
)

// runVerb calls a verb and returns what it wrote and its exit status.
func runVerb(run func(stdio, []string) int, args ...string) (stdout, stderr string, status int) {
	var out, err bytes.Buffer
	status = run(stdio{strings.NewReader(""), &out, &err}, args)
	return out.String(), err.String(), status
}

func TestAdversaryRefuses(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"unknown_flag", []string{"--frobnicate"}, "-frobnicate"},
		{"argument", []string{"traversal"}, `unexpected argument "traversal"`},
		{"bad_regexp", []string{"--run", "("}, "read --run"},
		{"no_case", []string{"--run", "^nothing$"}, "no case matches"},
		{"layers_of_another", []string{"--layers", "bpf", "--against", "env"},
			"leave --against out"},
		{"empty_command", []string{"--against", " "}, "the command is empty"},
		{"open_quote", []string{"--against", "a 'b"}, "is not closed"},
		{"no_such_dir", []string{"--against", "env", "--json", "/no/such/dir/x"}, "/no/such/dir"},
		{"no_such_jail", []string{"--against", "/no/such/jail"}, "/no/such/jail"},
		{"no_jail", []string{"--against", "false"}, "no attacker came up inside"},
		{"list_and_form", []string{"--list", "--json", "x"}, "leave --json out"},
		{"taken_name", []string{"--against", "env", "--against", "env=env"}, "env is taken"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("HOME", t.TempDir())
			t.Setenv("SUDO_UID", "")
			out, stderr, status := runVerb(runAdversary, tt.args...)
			if status != exitUsage || !strings.Contains(stderr, tt.want) || out != "" {
				t.Errorf("adversary %q = %d, %q, %q, want %d and %q on stderr only",
					tt.args, status, out, stderr, exitUsage, tt.want)
			}
			if strings.Count(stderr, "\n") != 1 {
				t.Errorf("adversary %q wrote %q, want one line", tt.args, stderr)
			}
		})
	}
}

func TestAdversaryList(t *testing.T) {
	out, _, status := runVerb(runAdversary, "--list", "--run", "^traversal_absolute$")
	if fields := strings.Fields(out); status != 0 || len(fields) != 3 {
		t.Errorf("adversary --list = %d, %q, want 0 and name, family, source", status, out)
	}
	out, _, _ = runVerb(runAdversary, "--list")
	if got, want := strings.Count(out, "\n"), len(adversary.Cases()); got != want {
		t.Errorf("adversary --list prints %d lines, want %d", got, want)
	}
}

// TestAdversaryStatus checks the exit status and where the results go.
func TestAdversaryStatus(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("SUDO_UID", "")
	args := []string{"--against", "env", "--run", "^hardlink_existing_(read|write)$"}

	out, _, status := runVerb(runAdversary, args...)
	if status != 2 || !strings.Contains(out, "LEAKED") {
		t.Errorf("two leaks: status %d, table %q, want 2 and LEAKED", status, out)
	}
	out, stderr, status := runVerb(runAdversary, append(args, "--json", "-")...)
	if status != 2 || !strings.HasPrefix(out, "{") || !strings.Contains(stderr, "LEAKED") {
		t.Errorf("--json -: status %d, stdout %q, stderr %q, want JSON and the table",
			status, out, stderr)
	}
	file := filepath.Join(t.TempDir(), "results")
	if _, _, status := runVerb(runAdversary, append(args, "--json", file)...); status != 2 {
		t.Errorf("--json FILE: status %d, want 2", status)
	}
	if data, err := os.ReadFile(file); err != nil || strings.Count(string(data), "\n") != 2 {
		t.Errorf("--json FILE wrote %q, %v, want two lines", data, err)
	}
}

func TestAdversaryCounts(t *testing.T) {
	result := func(o report.Outcome, n int) []report.Result {
		return slices.Repeat([]report.Result{{Kind: report.Case, Outcome: o}}, n)
	}
	tests := []struct {
		name    string
		results []report.Result
		strict  bool
		want    int
	}{
		{"none", result(report.Denied, 3), false, 0},
		{"leaks", result(report.Leaked, 3), false, 3},
		{"cap", result(report.Leaked, 256), false, 100},
		{"known", result(report.Known, 2), false, 0},
		{"known_strict", result(report.Known, 2), true, 2},
		{"skipped", result(report.Skipped, 2), true, 0},
		{"broken", append(result(report.Leaked, 2), result(report.Broken, 1)...), false, 125},
	}
	of := func(jail string, results []report.Result) []report.Result {
		for i := range results {
			results[i].Jail = jail
		}
		return results
	}
	_, _, got := runVerb(func(std stdio, _ []string) int {
		return (&resultOutput{std: std}).status("a", append(of("a", result(report.Leaked, 2)),
			of("b", result(report.Leaked, 3))...), false)
	})
	if got != 2 {
		t.Errorf("status of two leaks, and three of another jail = %d, want 2", got)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, got := runVerb(func(std stdio, _ []string) int {
				return (&resultOutput{std: std}).status("", tt.results, tt.strict)
			})
			if got != tt.want {
				t.Errorf("status(strict=%t) = %d, want %d", tt.strict, got, tt.want)
			}
		})
	}
}
