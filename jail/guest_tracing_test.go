//go:build guest

package jail_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Until it executes, the command's process shares the supervisor's memory and belongs to
// the user already: the user's other processes, outside, must not trace it.
func TestNobodyTracesAStart(t *testing.T) {
	for path, value := range map[string]string{
		"/proc/sys/kernel/yama/ptrace_scope": "0", // where there is yama
		"/proc/sys/fs/suid_dumpable":         "1", // else setresuid(2) does it
	} {
		before, _ := os.ReadFile(path)
		os.WriteFile(path, []byte(value), 0)
		defer os.WriteFile(path, before, 0)
	}
	dir := project(t)
	probe := filepath.Join(dir, "probe")
	asUser := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	other := &exec.Cmd{Path: probe, Args: []string{"probe", "sleep"}, SysProcAttr: asUser}
	start(t, other)
	defer other.Process.Kill()
	tracer := &exec.Cmd{Path: probe, SysProcAttr: asUser,
		Args: []string{"probe", "tracer", strconv.Itoa(other.Process.Pid)}}
	in, err := tracer.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := tracer.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := tracer.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); line != "control ok\n" {
		t.Fatalf("tracing a process of the same user outside = %q, %v; want ok", line, err)
	}
	var said strings.Builder
	var met atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			line, err := lines.ReadString('\n')
			if said.WriteString(line); err != nil {
				return
			}
			met.Store(true)
		}
	}()
	// The moment is short: a tracer that comes too late each time shows nothing.
	for i := 0; i < 10 || i < 300 && !met.Load(); i++ {
		if _, stderr, status := run(t, jailed(dir, nil, "exit", "0")); status != 0 {
			t.Errorf("a start beside a tracer: status %d, stderr %q", status, stderr)
		}
	}
	in.Close()
	<-ended
	tracer.Wait()
	if said.String() != "refused\n" {
		t.Errorf("the tracer said %q; want that it was refused, and nothing else", said.String())
	}
}

func init() { probes["tracer"] = traceStarts }

// traceStarts tries to trace every process of ours that belongs to this user, until its
// input ends. First it traces another one, which works.
func traceStarts(args []string) int {
	runtime.LockOSThread()
	control, _ := strconv.Atoi(args[0])
	fmt.Println("control", errnoName(seize(control)))
	var over atomic.Bool
	go func() {
		io.Copy(io.Discard, os.Stdin)
		over.Store(true)
	}()
	refused := false
	for !over.Load() {
		entries, _ := os.ReadDir("/proc")
		for _, e := range entries {
			pid, err := strconv.Atoi(e.Name())
			if err != nil || !isOurs(pid) {
				continue
			}
			switch err := seize(pid); err {
			case nil:
				exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
				if strings.HasSuffix(exe, "/agent-lock") {
					fmt.Println("traced", exe)
				}
				unix.PtraceInterrupt(pid)
				unix.Wait4(pid, nil, unix.WALL, nil)
				unix.PtraceDetach(pid)
			case unix.EPERM:
				if !refused {
					fmt.Println("refused")
				}
				refused = true
			}
		}
	}
	return 0
}

func seize(pid int) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// isOurs reports whether a process has our name and this user.
func isOurs(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err == nil && strings.HasPrefix(string(status), "Name:\tagent-lock\n") &&
		strings.Contains(string(status), fmt.Sprintf("\nUid:\t%d\t", os.Getuid()))
}
