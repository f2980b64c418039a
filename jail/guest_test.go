//go:build guest

// These tests need root and a kernel with the BPF LSM: make guest runs them in
// guests. The test binary is also what runs in the jail (the probes).
package jail_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

const (
	uid, gid  = 1000, 1000
	home      = "/home/dev"
	agentLock = "/bin/agent-lock"
	pins      = "/sys/fs/bpf/agent-lock"
)

var sudoEnv = []string{fmt.Sprint("SUDO_UID=", uid), fmt.Sprint("SUDO_GID=", gid)}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if probe, ok := probes[os.Args[1]]; ok {
			os.Exit(probe(os.Args[2:]))
		}
	}
	for _, e := range sudoEnv {
		name, value, _ := strings.Cut(e, "=")
		os.Setenv(name, value)
	}
	stop, err := keepAttached()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	stopKeeping = stop
	status := m.Run()
	stopKeeping()
	os.Exit(status)
}

// stopKeeping ends the jail that keeps the programs attached, so that most
// tests need not wait for that.
var stopKeeping func()

// withoutKeeping ends that jail for one test.
func withoutKeeping(t *testing.T) {
	t.Helper()
	stopKeeping()
	gone(t, "*-old")
	t.Cleanup(func() {
		stop, err := keepAttached()
		if err != nil {
			t.Fatal(err)
		}
		stopKeeping = stop
	})
}

func keepAttached() (stop func(), err error) {
	dir, err := os.MkdirTemp(home, "keeper")
	if err != nil {
		return nil, err
	}
	if err := os.Chown(dir, uid, gid); err != nil {
		return nil, err
	}
	cmd := exec.Command(agentLock, dir, "--", "/bin/jail.test", "sleep")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := out.Read(make([]byte, 3)); err != nil {
		return nil, fmt.Errorf("start a jail that keeps the programs attached: %w", err)
	}
	return sync.OnceFunc(func() {
		cmd.Process.Signal(unix.SIGTERM)
		cmd.Wait()
		os.RemoveAll(dir)
	}), nil
}

// project makes a project directory of the user's with the probe in it.
func project(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(home, "proj")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	install(t, dir)
	return dir
}

func install(t *testing.T, dir string) {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "probe"), self, 0o755)
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path string, data []byte, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, data, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, uid, gid); err != nil {
		t.Fatal(err)
	}
}

// secret is a file outside every project.
func secret(t *testing.T) string {
	t.Helper()
	path := filepath.Join(home, "secret-"+strings.ReplaceAll(t.Name(), "/", "-"))
	write(t, path, []byte("secret"), 0o644)
	t.Cleanup(func() { os.Remove(path) })
	return path
}

// jailed is a command in a jail in dir; flags come before dir. In a mutation test a hook
// is left out of it.
func jailed(dir string, flags []string, probe ...string) *exec.Cmd {
	if hook := os.Getenv("WITHOUT_HOOK"); hook != "" {
		flags = append(slices.Clone(flags), "--drop-hook="+hook)
	}
	args := append(slices.Clone(flags), dir, "--", filepath.Join(dir, "probe"))
	return exec.Command(agentLock, append(args, probe...)...)
}

// run returns standard output, standard error and the exit status.
func run(t *testing.T, cmd *exec.Cmd) (string, string, int) {
	t.Helper()
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// start runs a probe until it says that it is up.
func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	line := make([]byte, 3)
	if n, err := out.Read(line); err != nil || string(line[:n]) != "up\n" {
		t.Fatalf("%v: got %q, %v; stderr: %s", cmd.Args, line[:n], err, &stderr)
	}
}

// alive returns the processes that run the probe of dir, seen from outside.
func alive(t *testing.T, dir string) []string {
	t.Helper()
	exes, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, exe := range exes {
		if target, err := os.Readlink(exe); err == nil && strings.HasPrefix(target, dir+"/") {
			found = append(found, exe)
		}
	}
	return found
}

// eventually waits for something that the kernel does in its own time.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestExitStatus(t *testing.T) {
	dir := project(t)
	write(t, filepath.Join(dir, "text"), []byte("no program"), 0o644)
	program := secret(t)
	if err := os.Chmod(program, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		cmd  *exec.Cmd
		want int
	}{
		{"success", jailed(dir, nil, "exit", "0"), 0},
		{"the_command's_own", jailed(dir, nil, "exit", "7"), 7},
		{"signal", jailed(dir, nil, "die"), 128 + 9},
		{"not_found", exec.Command(agentLock, dir, "--", "no-such-command"), 127},
		{"not_executable", exec.Command(agentLock, dir, "--", filepath.Join(dir, "text")), 126},
		{"outside_program", exec.Command(agentLock, dir, "--", program), 127},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, stderr, got := run(t, tt.cmd); got != tt.want {
				t.Errorf("%v: status %d, want %d; stderr: %s", tt.cmd.Args, got, tt.want, stderr)
			}
		})
	}
}

func TestPosture(t *testing.T) {
	dir := project(t)
	cmd := jailed(dir, []string{"--env", "PASSED=1"}, "posture")
	leaked, err := os.Open("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	defer leaked.Close()
	cmd.ExtraFiles = []*os.File{leaked, leaked}
	cmd.Env = append(sudoEnv, "AWS_SECRET_ACCESS_KEY=x", "LD_PRELOAD=x", "SSH_AUTH_SOCK=x",
		"TERM=dumb", "LC_ALL=C", "PATH=/bin")
	out, stderr, status := run(t, cmd)
	var got posture
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("status %d: %v; stderr: %s", status, err, stderr)
	}
	none := "0000000000000000"
	want := posture{
		UID: uid, GID: gid, Groups: []int{gid}, NoNewPrivs: "1", Fds: []string{"0", "1", "2"},
		Seccomp: "2",
		Caps: map[string]string{"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none,
			"CapAmb": none},
		Env: []string{"AGENT_LOCK", "HOME", "LC_ALL", "LOGNAME", "PASSED", "PATH", "SHELL", "TERM",
			"TMPDIR", "TMPPREFIX", "USER", "XDG_RUNTIME_DIR"},
		Dir: dir, Parent: 1, Host: "jail", Session: "agent-lock",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("posture (-want +got):\n%s", diff)
	}
}

func TestDenials(t *testing.T) {
	dir, outside := project(t), secret(t)
	log := filepath.Join(home, "denials.jsonl")
	defer os.Remove(log)
	_, stderr, _ := run(t, jailed(dir, []string{"--log", log}, "open", outside))
	want := "agent-lock: denied: open for reading " + outside + " (ENOENT) by probe["
	remedy := "]: no rule covers it; allow it with --ro " + outside + "\n"
	if !strings.HasPrefix(stderr, want) || !strings.HasSuffix(stderr, remedy) {
		t.Errorf("stderr = %q, want %q…%q", stderr, want, remedy)
	}
	line, err := os.ReadFile(log)
	var e struct{ Hook, Path, Errno, Remedy string }
	if err == nil {
		err = json.Unmarshal(line, &e)
	}
	if err != nil || e.Hook != "file_open" || e.Path != outside || e.Errno != "ENOENT" {
		t.Errorf("log = %s, error %v; want file_open of %s, ENOENT", line, err, outside)
	}
}

func TestTwoJailsDoNotSeeEachOther(t *testing.T) {
	a, b := project(t), project(t)
	write(t, filepath.Join(b, "file"), []byte("x"), 0o644)
	start(t, jailed(b, nil, "sleep"))
	for _, tt := range []struct{ dir, want string }{{a, "ENOENT\n"}, {b, "ok\n"}} {
		out, stderr, _ := run(t, jailed(tt.dir, []string{"--denials", "off"}, "open",
			filepath.Join(b, "file")))
		if out != tt.want {
			t.Errorf("from %s: open = %q, want %q; stderr: %s", tt.dir, out, tt.want, stderr)
		}
	}
}

func TestInitKilled(t *testing.T) {
	dir := project(t)
	cmd := jailed(dir, []string{"--denials", "off"}, "forks", secret(t), filepath.Join(dir, "leak"))
	start(t, cmd)
	// Whichever of the supervisor's threads started it is its parent.
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	killed := 0
	for _, list := range lists {
		children, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		for _, pid := range strings.Fields(string(children)) {
			if n, err := strconv.Atoi(pid); err == nil && unix.Kill(n, unix.SIGKILL) == nil {
				killed++
			}
		}
	}
	if killed != 1 {
		t.Fatalf("killed %d children of the supervisor, want pid 1 of the jail alone", killed)
	}
	cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 128+9 {
		t.Errorf("status %d, want %d; stderr: %s", got, 128+9, cmd.Stderr)
	}
	if left := alive(t, dir); len(left) != 0 {
		t.Errorf("left running: %v", left)
	}
}

func TestSignalsReachTheCommand(t *testing.T) {
	cmd := jailed(project(t), nil, "term")
	start(t, cmd)
	cmd.Process.Signal(unix.SIGTERM)
	cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 42 {
		t.Errorf("status %d, want 42, that of the command's handler", got)
	}
}

func TestOnlyRootStartsJails(t *testing.T) {
	cmd := exec.Command(agentLock, project(t))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	_, stderr, status := run(t, cmd)
	if status != 125 || !strings.Contains(stderr, "run it with sudo") {
		t.Errorf("status %d, stderr %q; want 125 and the remedy", status, stderr)
	}
}

func TestBadInput(t *testing.T) {
	dir := project(t)
	file := filepath.Join(dir, "probe")
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"missing", []string{dir + "/none"}, "no such file"},
		{"file", []string{file}, "is not a directory"},
		{"root", []string{"/"}, "home directory"},
		{"home", []string{home}, "home directory"},
		{"system", []string{"/etc"}, "system directory"},
		{"flag", []string{"--nonsense", dir}, "nonsense"},
		{"no_dashes", []string{dir, "ls"}, "put -- between"},
		{"missing_rule", []string{"--ro", "/no/such", dir}, "/no/such"},
		{"hardlinks", []string{"--hardlinks", "maybe", dir}, "allow, readonly or deny"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, stderr, status := run(t, exec.Command(agentLock, tt.args...))
			if status != 125 || !strings.Contains(stderr, tt.want) ||
				strings.Count(stderr, "\n") != 1 || out != "" {
				t.Errorf("agent-lock %v: status %d, stdout %q, stderr %q; want 125, a line with %q",
					tt.args, status, out, stderr, tt.want)
			}
		})
	}
}

// The command's process may have failed, and pid 1 be gone, before the supervisor looks at
// the jail's directories: it does about every other time.
func TestFailedCommandSaysWhy(t *testing.T) {
	closed := t.TempDir()
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 30 {
		_, stderr, status := run(t, jailed(closed, nil, "exit", "0"))
		if status != 125 || !strings.Contains(stderr, "enter "+closed) {
			t.Fatalf("status %d, stderr %q; want 125, and that the user may not enter %s", status,
				stderr, closed)
		}
	}
}

func TestLastJailTakesTheAttachSetAway(t *testing.T) {
	stopKeeping()
	dir := project(t)
	sets := func() int { return len(attachSets(t)) }
	cmd := jailed(dir, nil, "sleep")
	start(t, cmd)
	run(t, jailed(dir, nil, "exit", "0"))
	if n := sets(); n != 1 {
		t.Errorf("%d attach sets while a jail runs, want 1", n)
	}
	cmd.Process.Signal(unix.SIGTERM)
	cmd.Wait()
	if n := sets(); n != 0 {
		t.Errorf("%d attach sets after the last jail, want 0", n)
	}
	nothingPinned(t)
}

// attachSets are those that a jail would use. One that is being removed is not.
func attachSets(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(pins + "/*")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(found, func(set string) bool { return strings.HasSuffix(set, "-old") })
}

// nothingPinned waits for the removal of attach sets, which nobody else does.
func nothingPinned(t *testing.T) {
	t.Helper()
	gone(t, "*")
}

// gone waits until no attach set has a name like that.
func gone(t *testing.T, pattern string) {
	t.Helper()
	eventually(t, "no attach set is called "+pattern, func() bool {
		left, err := filepath.Glob(pins + "/" + pattern)
		return err == nil && len(left) == 0
	})
}

// Killed without warning, a supervisor takes its whole jail with it, nothing
// reads the secret on the way, and the next start cleans up.
func TestSupervisorKilled(t *testing.T) {
	outside := secret(t)
	for i := range 5 {
		dir := project(t)
		leak := filepath.Join(dir, "leak")
		cmd := jailed(dir, []string{"--denials", "off"}, "forks", outside, leak)
		start(t, cmd)
		time.Sleep(time.Duration(i) * 20 * time.Millisecond) // at different moments
		cmd.Process.Kill()
		cmd.Wait()
		eventually(t, "the jail's processes are gone", func() bool {
			return len(alive(t, dir)) == 0
		})
		if data, err := os.ReadFile(leak); err == nil {
			t.Errorf("the jail read %q", data)
		}
	}
	withoutKeeping(t)
	dir := project(t)
	out, stderr, _ := run(t, jailed(dir, nil, "open", filepath.Join(dir, "probe")))
	if out != "ok\n" {
		t.Errorf("after killed supervisors: got %q, stderr %s", out, stderr)
	}
	nothingPinned(t)
	if left, _ := filepath.Glob("/run/agent-lock/*.*"); len(left) != 0 {
		t.Errorf("left locked: %v", left)
	}
}
