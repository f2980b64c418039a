package adversary

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/agent-lock/agent-lock/report"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
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
		cases := For(u.UID, Cases())
		results, err := Run(t.Context(), Options{Jail: noJail, User: u, Cases: cases})
		if err != nil {
			t.Fatal(err)
		}
		checkAllLeak(t, results)
		checkEmpty(t, u.Home)
	})
	t.Run("root_for_a_user", func(t *testing.T) {
		requireRoot(t)
		u := User{UID: somebody, GID: somebody, Home: homeOf(t, somebody)}
		results, err := Run(t.Context(), Options{Jail: noJail, User: u,
			Cases: For(u.UID, Cases())})
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

func TestNoCase(t *testing.T) {
	if _, err := Run(t.Context(), Options{User: ourselves(t)}); err == nil {
		t.Error("Run without a case = nil, want an error")
	}
}

// badCases do not work. The attacker's process adds them to its table.
var badCases = []Case{
	badCase("bad_panic", func(*Target) ([]byte, error) { panic("on purpose") }),
	badCase("bad_exit", func(*Target) ([]byte, error) { os.Exit(0); return nil, nil }),
	badCase("bad_hang", func(*Target) ([]byte, error) { time.Sleep(time.Hour); return nil, nil }),
	badCase("bad_forks", func(*Target) ([]byte, error) { return multiply() }),
	badCase("bad_filtered", func(*Target) ([]byte, error) { return filtered() }),
	badCase("bad_unready", func(*Target) ([]byte, error) { return nil, need(os.ErrNotExist) }),
	badCase("bad_claim", func(*Target) ([]byte, error) { return []byte("I did it"), nil }),
	badCase("bad_strays", func(*Target) ([]byte, error) { return nil, os.Chdir("/") }),
	badCase("bad_good", func(t *Target) ([]byte, error) {
		if dir, err := os.Getwd(); err != nil || dir != t.Project {
			return nil, need(fmt.Errorf("the directory is %s: %w", dir, err))
		}
		return read(t.Secret)
	}),
}

// multiplied is an argument of what bad_forks leaves.
const multiplied = "agent-lock-bad-forks"

// multiply starts processes that start processes, each in a session of its own, and hangs.
// Some have an empty environment.
func multiply() ([]byte, error) {
	script := "for i in 1 2 3 4; do setsid sh -c 'sleep 1000; : " + multiplied + "' & " +
		"env -i setsid sh -c 'sleep 1000; : " + multiplied + "' & done; wait"
	return nil, need(exec.Command("sh", "-c", script).Run())
}

// filtered is killed by a filter like that of some jails.
func filtered() ([]byte, error) {
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_PERSONALITY, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_KILL_PROCESS},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, need(err)
	}
	err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER,
		uintptr(unsafe.Pointer(&filter)), 0, 0)
	if err != nil {
		return nil, need(err)
	}
	_, _, errno := unix.Syscall(unix.SYS_PERSONALITY, 0, 0, 0)
	return nil, need(errno)
}

// badCase leaks in the control and goes wrong in the jail.
func badCase(name string, jailed func(*Target) ([]byte, error)) Case {
	return Case{Name: name, Family: "bad", Judge: tokenRead,
		Attack: func(t *Target) ([]byte, error) {
			if strings.HasPrefix(filepath.Base(t.Work), "j") {
				return jailed(t)
			}
			return read(t.Secret)
		}}
}

// TestBadCases checks that a case which did not work is never taken for a denial,
// nor stops the ones after it.
func TestBadCases(t *testing.T) {
	jail := Jail{Name: "env", Argv: []string{"env"}, AsUser: true}
	for _, fresh := range []bool{false, true} {
		cases := slices.Clone(badCases)
		for i := range cases {
			cases[i].Fresh = fresh
		}
		results, err := Run(t.Context(), Options{Jail: jail, User: ourselves(t), Cases: cases,
			Limit: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]report.Outcome{}
		for _, r := range results {
			got[r.Name] = r.Outcome
		}
		want := map[string]report.Outcome{
			"bad_panic": report.Broken, "bad_exit": report.Broken, "bad_hang": report.Broken,
			"bad_forks":    report.Broken,
			"bad_filtered": report.Denied,
			"bad_unready":  report.Broken, "bad_claim": report.Denied,
			"bad_strays": report.Denied, "bad_good": report.Leaked,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("outcomes of bad cases, fresh=%t (-want +got):\n%s", fresh, diff)
		}
		if left, err := exec.Command("pgrep", "-fc", multiplied).Output(); err == nil {
			t.Errorf("%s processes are left of bad_forks", bytes.TrimSpace(left))
		}
	}
}

// The number of a thread names its process too, to some system calls.
func TestOwnProcess(t *testing.T) {
	runtime.LockOSThread() // two threads, one of which is not the leader
	defer runtime.UnlockOSThread()
	tids, done := make(chan int), make(chan struct{})
	defer close(done)
	go func() {
		runtime.LockOSThread()
		tids <- unix.Gettid()
		<-done
	}()
	thread := max(<-tids, unix.Gettid())
	other := exec.Command("sleep", "100")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	}()
	for _, tt := range []struct {
		name string
		pid  int
		want bool
	}{
		{"process", os.Getpid(), true},
		{"thread", thread, true},
		{"parent", os.Getppid(), true},
		{"other", other.Process.Pid, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := ownProcess(tt.pid); got != tt.want {
				t.Errorf("ownProcess(%d) = %t, %v; want %t", tt.pid, got, err, tt.want)
			}
		})
	}
}

// TestInterrupt checks that a run that is stopped leaves nothing behind.
func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	u := ourselves(t)
	results, err := Run(ctx, Options{
		Jail: Jail{Name: "env", Argv: []string{"env"}, AsUser: true}, User: u, Cases: Cases(),
		Progress: func(report.Result) { cancel() },
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Run, interrupted = %v, want %v", err, context.Canceled)
	}
	if n := report.Count(results, report.Broken); n < len(Cases())-2 {
		t.Errorf("%d of %d cases are broken after an interrupt at the first", n, len(Cases()))
	}
	checkEmpty(t, u.Home)
}

// TestDiesWithParent checks that a jail which dies with its parent outlives the thread
// that asked for it: the runner's come and go when it acts for another user.
func TestDiesWithParent(t *testing.T) {
	if _, err := exec.LookPath("setpriv"); err != nil {
		t.Skip(err)
	}
	jail, err := ParseJail("setpriv --pdeathsig KILL")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	a, err := newArena(ourselves(t), program, "")
	if err != nil {
		t.Fatal(err)
	}
	defer a.remove()
	var s *session
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		runtime.LockOSThread() // the thread ends with the goroutine
		s, err = startSession(t.Context(), a, jail, "j", time.Second)
	}()
	<-asked
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	select {
	case <-s.gone:
		t.Error("the jail ended with the thread that asked for it")
	case <-time.After(time.Second / 2):
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
	if diff := cmp.Diff(want, j.argv("/p", "/log", "cmd", "{}")); diff != "" {
		t.Errorf("argv (-want +got):\n%s", diff)
	}
}
