//go:build guest

package jail_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// maxJails is bpf.MaxJails.
const maxJails = 64

// Many jails start at once, all hold, all end, and nothing is left. As many as there
// are slots run beside the one that keeps the programs attached; the next is refused.
func TestAsManyJailsAsThereAreSlots(t *testing.T) {
	outside := secret(t)
	before := leftovers(t)
	dir := project(t)
	cmds := make([]*exec.Cmd, maxJails-1)
	var wg sync.WaitGroup
	for i := range cmds {
		name := fmt.Sprint("jail-", i)
		cmds[i] = jailed(dir, []string{"--denials", "off"}, "open-when-told", name, outside)
		wg.Go(func() { startWith(t, cmds[i], filepath.Join(dir, name)) })
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	_, stderr, status := run(t, jailed(dir, nil, "exit", "0"))
	if status != 125 || !strings.Contains(stderr, fmt.Sprint(maxJails, " are running")) ||
		strings.Count(stderr, "\n") != 1 {
		t.Errorf("one jail more: status %d, stderr %q; want 125 and how many are running",
			status, stderr)
	}
	for i, cmd := range cmds {
		write(t, filepath.Join(dir, fmt.Sprint("jail-", i, "-go")), nil, 0o644)
		cmd.Wait()
		got, err := os.ReadFile(filepath.Join(dir, fmt.Sprint("jail-", i, "-result")))
		if string(got) != "ENOENT" || cmd.ProcessState.ExitCode() != 0 {
			t.Errorf("jail %d: opening an outside file gave %q (%v), status %d; want ENOENT, 0",
				i, got, err, cmd.ProcessState.ExitCode())
		}
	}
	if left := alive(t, dir); len(left) > 0 {
		t.Errorf("left running: %v", left)
	}
	if diff := cmp.Diff(before, leftovers(t)); diff != "" {
		t.Errorf("left behind (-before +after):\n%s", diff)
	}
}

// startWith starts a command and waits until it says that it is up, by a file. It
// goes on when there is another one.
func startWith(t *testing.T, cmd *exec.Cmd, file string) {
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	for range 6000 {
		if _, err := os.Stat(file + "-up"); err == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("%v is not up after two minutes; stderr: %s", cmd.Args, &stderr)
}

// The supervisor, pid 1 or the process that becomes the command is killed at any
// moment of a start, a run and an end.
func TestKilledAtAnyMoment(t *testing.T) {
	dir, outside := project(t), secret(t)
	before := leftovers(t)
	leak := filepath.Join(dir, "leak")
	for i := range 60 {
		role := []string{"supervisor", "pid 1", "command's process"}[i%3]
		cmd := jailed(dir, []string{"--denials", "off"}, "twice", outside)
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
		for _, pid := range family(cmd.Process.Pid) {
			if roleOf(pid) == role {
				unix.Kill(pid, unix.SIGKILL)
			}
		}
		cmd.Wait()
		eventually(t, "the jail's processes are gone", func() bool {
			return len(alive(t, dir)) == 0
		})
		if slices.Contains(strings.Split(out.String(), "\n"), "ok") {
			t.Errorf("%s killed: the jail said %q", role, &out)
		}
	}
	if data, err := os.ReadFile(leak); err == nil {
		t.Errorf("the jail read %q", data)
	}
	if _, stderr, status := run(t, jailed(dir, nil, "exit", "0")); status != 0 || stderr != "" {
		t.Errorf("the next start: status %d, stderr %q", status, stderr)
	}
	if diff := cmp.Diff(before, leftovers(t)); diff != "" {
		t.Errorf("left behind (-before +after):\n%s", diff)
	}
}

// family is a process and all that descend from it.
func family(pid int) []int {
	found := []int{pid}
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		children, _ := os.ReadFile(list)
		for _, child := range strings.Fields(string(children)) {
			var n int
			if _, err := fmt.Sscan(child, &n); err == nil {
				found = append(found, family(n)...)
			}
		}
	}
	return found
}

// Two users have a jail each at the same time: neither reads what is the other's.
func TestTwoUsersAtOnce(t *testing.T) {
	const second = 1001
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	line := fmt.Sprintf("second:x:%d:%d:::/home/second:/bin/sh\n", second, second)
	line = strings.Replace(line, ":::", "::", 1)
	write(t, "/etc/passwd", append(passwd, line...), 0o644)
	defer os.WriteFile("/etc/passwd", passwd, 0o644)
	// Where the modes of files would let each read what is the other's.
	one, two := "/srv/one", "/srv/two"
	for dir, owner := range map[string]int{one: uid, two: second, "/home/second": second} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		install(t, dir)
		if err := os.Chown(dir, owner, owner); err != nil {
			t.Fatal(err)
		}
	}
	as := func(uid int, dir string, probe ...string) *exec.Cmd {
		cmd := jailed(dir, []string{"--denials", "off"}, probe...)
		cmd.Env = []string{fmt.Sprint("SUDO_UID=", uid), fmt.Sprint("SUDO_GID=", uid), "PATH=/bin"}
		return cmd
	}
	start(t, as(uid, one, "sleep"))
	start(t, as(second, two, "sleep"))
	for _, tt := range []struct {
		uid       int
		dir, path string
		want      string
	}{
		{uid, one, one + "/probe", "ok\n"}, {uid, one, two + "/probe", "ENOENT\n"},
		{second, two, two + "/probe", "ok\n"}, {second, two, one + "/probe", "ENOENT\n"},
	} {
		out, stderr, _ := run(t, as(tt.uid, tt.dir, "open", tt.path))
		if out != tt.want {
			t.Errorf("user %d opens %s from %s: %q, want %q; stderr: %s", tt.uid, tt.path, tt.dir,
				out, tt.want, stderr)
		}
	}
}

// Inside a jail no other one is started, and the message says why.
func TestStartInsideAJail(t *testing.T) {
	dir := project(t)
	data, err := os.ReadFile(agentLock)
	if err != nil {
		t.Fatal(err)
	}
	inner := filepath.Join(dir, "agent-lock")
	write(t, inner, data, 0o755)
	_, stderr, status := run(t, exec.Command(agentLock, "--denials", "off", dir, "--", inner, dir,
		"--", filepath.Join(dir, "probe"), "exit", "0"))
	if status != 125 || !strings.Contains(stderr, "already in a jail") ||
		strings.Count(stderr, "\n") != 1 {
		t.Errorf("status %d, stderr %q; want 125 and a line that says so", status, stderr)
	}
}

// What a jail's command may have in its environment does not keep others from
// starting outside.
func TestVariableAloneIsNoJail(t *testing.T) {
	cmd := jailed(project(t), nil, "exit", "0")
	cmd.Env = append(sudoEnv, "AGENT_LOCK=1", "PATH=/bin")
	if _, stderr, status := run(t, cmd); status != 0 {
		t.Errorf("status %d, stderr %q; want 0", status, stderr)
	}
}

// Pid 1 of a jail is out of reach of the jail.
func TestInitIsOutOfReach(t *testing.T) {
	out, stderr, _ := run(t, jailed(project(t), []string{"--denials", "off"}, "reach-init"))
	want := "kill EPERM\nattach EPERM\nseize EPERM\nmem EACCES\nenviron EACCES\nroot EACCES\n" +
		"vm EPERM\n"
	if out != want {
		t.Errorf("from inside = %q, want %q; stderr: %s", out, want, stderr)
	}
	// Control: the same on a process of the own works.
	out, _, _ = run(t, jailed(project(t), []string{"--denials", "off"}, "reach-own"))
	if !strings.HasPrefix(out, "kill ok\nattach ok\n") {
		t.Errorf("on an own process = %q, want kill and attach to work", out)
	}
}

// whenTold says by a file next to the program that it is up, waits for another one,
// and writes what f returns into a third.
func whenTold(name string, f func() string) int {
	file := filepath.Join(filepath.Dir(os.Args[0]), name)
	os.WriteFile(file+"-up", nil, 0o644)
	for range 30_000 {
		if _, err := os.Stat(file + "-go"); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if os.WriteFile(file+"-result", []byte(f()), 0o644) != nil {
		return 1
	}
	return 0
}

func reach(pid int) int {
	file := func(name string) error {
		f, err := os.Open(fmt.Sprintf("/proc/%d/%s", pid, name))
		if err == nil {
			f.Close()
		}
		return err
	}
	fmt.Println("kill", errnoName(unix.Kill(pid, 0)))
	attach := unix.PtraceAttach(pid)
	fmt.Println("attach", errnoName(attach))
	if attach == nil {
		unix.Wait4(pid, nil, unix.WALL, nil)
		unix.PtraceDetach(pid)
	}
	seize := unix.PtraceSeize(pid)
	fmt.Println("seize", errnoName(seize))
	for _, name := range []string{"mem", "environ"} {
		fmt.Println(name, errnoName(file(name)))
	}
	_, err := os.Readlink(fmt.Sprintf("/proc/%d/root", pid))
	fmt.Println("root", errnoName(err))
	buf := make([]byte, 8)
	local := []unix.Iovec{{Base: &buf[0], Len: 8}}
	_, err = unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
	fmt.Println("vm", errnoName(err))
	return 0
}

func init() {
	probes["open-when-told"] = func(args []string) int {
		return whenTold(args[0], func() string {
			_, err := os.Open(args[1])
			return errnoName(err)
		})
	}
	probes["reach-init"] = func([]string) int { return reach(1) }
	probes["reach-own"] = func([]string) int {
		cmd := exec.Command("/proc/self/exe", "sleep")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			fmt.Println(err)
			return 1
		}
		defer cmd.Process.Kill()
		return reach(cmd.Process.Pid)
	}
}
