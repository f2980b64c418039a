package adversary

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/agent-lock/agent-lock/report"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// loggerVerb is a jail that stops nothing and logs some cases as denied: its arguments are
// the log and the attacker's command line.
const loggerVerb = "test-logger"

// loggedCases are refused in the jail by what they ask, and leak in the control. The logger
// logs the second alone.
var loggedCases = []Case{loggedCase("bad_first"), loggedCase("bad_logged"),
	loggedCase("bad_flood"), loggedCase("bad_after")}

func loggedCase(name string) Case {
	return badCase(name, func(t *Target) ([]byte, error) {
		_, err := unix.Open(t.in("missing"), unix.O_RDONLY, 0)
		return nil, call("open", err)
	})
}

// beLogger stands between the runner and the attacker.
func beLogger(args []string) int {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)
	if err != nil {
		return 1
	}
	theirs := os.NewFile(uintptr(fds[1]), "control")
	cmd := exec.Command(args[1], args[2:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, os.Stderr
	if err := cmd.Start(); err != nil {
		return 1
	}
	theirs.Close()
	go func() { // all but requests
		for buf := make([]byte, 1<<16); ; {
			n, err := unix.Read(fds[0], buf)
			if err != nil || n == 0 {
				os.Exit(0)
			}
			_, _ = unix.Write(1, buf[:n])
		}
	}()
	log, err := os.OpenFile(args[0], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 1
	}
	fmt.Fprintln(log, "denied at the start") // as of the file that is read first of all
	last := ""
	for buf := make([]byte, 1<<16); ; {
		n, err := unix.Read(0, buf)
		if err != nil || n == 0 {
			return 0
		}
		var m message
		if json.Unmarshal(buf[:n], &m) != nil || m.Target == nil {
			m.Target = &Target{}
		}
		flooded := last == "bad_flood" && m.Kind == "fence" // which drops one record
		last = m.Target.Case
		if !flooded && m.Kind == "fence" || m.Target.Case == "bad_logged" {
			fmt.Fprintln(log, "denied", m.Target.Secret)
		}
		_, _ = unix.Write(fds[0], buf[:n])
	}
}

// Each case has the score of its own records.
func TestRecordsOfEachCase(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	j := Jail{Name: "logger", AsUser: true, Argv: []string{self, loggerVerb, logHolder}}
	results, err := Run(t.Context(), Options{Jail: j, User: ourselves(t),
		Cases: slices.Clone(loggedCases)})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]report.Record{}
	for _, r := range results {
		if r.Outcome != report.Denied {
			t.Errorf("%s: %s (%s), want denied", r.Name, r.Outcome, r.Detail)
		}
		got[r.Name] = r.Record
	}
	want := map[string]report.Record{"bad_first": report.Unrecorded,
		"bad_logged": report.Recorded, "bad_flood": report.Unrecorded,
		"bad_after": report.Unrecorded}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("scores (-want +got):\n%s", diff)
	}
}
