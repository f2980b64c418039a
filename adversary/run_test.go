package adversary

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/agent-lock/agent-lock/report"
	"github.com/google/go-cmp/cmp"
)

// somebody is an ordinary user. It need not be in /etc/passwd.
const somebody = 12345

// homeOf makes a home directory for a user, in reach of that user.
func homeOf(t *testing.T, uid int) string {
	t.Helper()
	// Not t.TempDir: it is closed to others, and its name is too long for sockets.
	home, err := os.MkdirTemp("/tmp", "adv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	if err := os.Chown(home, uid, uid); err != nil {
		t.Fatal(err)
	}
	return home
}

func requireRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to act for another user")
	}
}

// checkAllLeak fails unless every result is a leak or a skip with its reason,
// and few are skipped.
func checkAllLeak(t *testing.T, results []report.Result) {
	t.Helper()
	for _, r := range results {
		switch {
		case r.Outcome == report.Leaked && r.Detail != "":
		case r.Outcome == report.Skipped && r.Detail != "":
			t.Logf("%s skipped: %s", r.Name, r.Detail)
		default:
			t.Errorf("%s without a jail: %s (%s), want leaked or skipped, with a reason",
				r.Name, r.Outcome, r.Detail)
		}
	}
	if n := report.Count(results, report.Leaked); n < len(results)*3/4 {
		t.Errorf("%d of %d cases leak without a jail, want three quarters", n, len(results))
	}
}

// TestNoJailLeaks shows that each case can fail, for whoever runs the suite.
func TestNoJailLeaks(t *testing.T) {
	noJail := Jail{Name: "env", Argv: []string{"env"}, AsUser: true}
	t.Run("as_ourselves", func(t *testing.T) {
		u := User{UID: os.Getuid(), GID: os.Getgid(), Home: homeOf(t, os.Getuid())}
		results, err := Run(t.Context(), Options{Jail: noJail, User: u, Cases: Cases()})
		if err != nil {
			t.Fatal(err)
		}
		checkAllLeak(t, results)
		checkEmpty(t, u.Home)
	})
	t.Run("root_for_a_user", func(t *testing.T) {
		requireRoot(t)
		u := User{UID: somebody, GID: somebody, Home: homeOf(t, somebody)}
		results, err := Run(t.Context(), Options{Jail: noJail, User: u, Cases: Cases()})
		if err != nil {
			t.Fatal(err)
		}
		checkAllLeak(t, results)
		checkEmpty(t, u.Home)
	})
}

// checkEmpty fails if the run has left something behind.
func checkEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) > 0 {
		t.Errorf("the run left %v in %s, want nothing", entries, dir)
	}
}

// TestNoJailLeaksAsUser runs the first test again as an ordinary user.
func TestNoJailLeaksAsUser(t *testing.T) {
	requireRoot(t)
	home := homeOf(t, somebody)
	program := filepath.Join(home, "test")
	copyProgram(t, program)
	cmd := exec.Command(program, "-test.run", "^TestNoJailLeaks$/^as_ourselves$")
	cmd.Dir = home
	cmd.Env = []string{"HOME=" + home, "TMPDIR=/tmp", "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: somebody, Gid: somebody},
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("as uid %d: %v\n%s", somebody, err, out)
	}
}

func copyProgram(t *testing.T, to string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	src, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	defer dst.Close()
	if _, err := io.Copy(dst, src); err != nil {
		t.Fatal(err)
	}
}

func ourselves(t *testing.T) User {
	t.Helper()
	return User{UID: os.Getuid(), GID: os.Getgid(), Home: homeOf(t, os.Getuid())}
}

// TestUselessJails checks that what is no jail at all does not pass for one.
func TestUselessJails(t *testing.T) {
	tests := []struct {
		name, command, want string
	}{
		{"missing", "/no/such/program", "no such file"},
		{"refuses", "false", "no attacker came up inside"},
		{"runs_something_else", "true", "no attacker came up inside"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			jail, err := ParseJail(tt.command)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Run(t.Context(), Options{Jail: jail, User: ourselves(t), Cases: Cases()[:1]})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Run against %q = %v, want an error with %q", tt.command, err, tt.want)
			}
		})
	}
}

// TestBadCases checks what becomes of cases that do not work.
func TestBadCases(t *testing.T) {
	if _, err := Run(t.Context(), Options{User: ourselves(t)}); err == nil {
		t.Error("Run without a case = nil, want an error")
	}
}

func TestKnown(t *testing.T) {
	jail := Jail{Name: "env", Argv: []string{"env"}, AsUser: true,
		Known: map[string]string{"hardlink_existing_read": "by design"}}
	cases := Select(regexp.MustCompile("^hardlink_existing_(read|write)$"))
	results, err := Run(t.Context(), Options{Jail: jail, User: ourselves(t), Cases: cases})
	if err != nil {
		t.Fatal(err)
	}
	var got []report.Outcome
	for _, r := range results {
		got = append(got, r.Outcome)
	}
	if diff := cmp.Diff([]report.Outcome{report.Known, report.Leaked}, got); diff != "" {
		t.Errorf("outcomes with a known leak (-want +got):\n%s", diff)
	}
}

func TestParseJail(t *testing.T) {
	tests := []struct {
		in   string
		want []string // nil: an error
	}{
		{"env", []string{"env"}},
		{"  bwrap  --bind {} {}\t--", []string{"bwrap", "--bind", "{}", "{}", "--"}},
		{`a 'b c' "d \"e\" $f" g\ h`, []string{"a", "b c", `d "e" $f`, "g h"}},
		{`a "" ''`, []string{"a", "", ""}},
		{`a"b"'c'd`, []string{"abcd"}},
		{`"a\b"`, []string{`a\b`}},
		{"", nil},
		{"a 'b", nil},
		{`a\`, nil},
	}
	for _, tt := range tests {
		got, err := ParseJail(tt.in)
		if (err != nil) != (tt.want == nil) {
			t.Errorf("ParseJail(%q): error %v, want error %t", tt.in, err, tt.want == nil)
		}
		if diff := cmp.Diff(tt.want, got.Argv); diff != "" {
			t.Errorf("ParseJail(%q) (-want +got):\n%s", tt.in, diff)
		}
	}
}

func TestJailArgv(t *testing.T) {
	j := Jail{Argv: []string{"box", "--rw={}", "--"}}
	want := []string{"box", "--rw=/p", "--", "cmd", "{}"}
	if diff := cmp.Diff(want, j.argv("/p", "cmd", "{}")); diff != "" {
		t.Errorf("argv (-want +got):\n%s", diff)
	}
}
