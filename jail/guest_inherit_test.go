//go:build guest

package jail_test

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/agent-lock/agent-lock/jail/limit"
	"golang.org/x/sys/unix"
)

// The command finds what its caller gave, though the supervisor, a Go program, has
// changed some of it for itself.
func TestWhatTheCallerGives(t *testing.T) {
	dir := project(t)
	probe := filepath.Join(dir, "probe")
	const want = "descriptors 300 of 4000, blocked 0000000000000800, ignored 0000000000000001, " +
		"nice 5\n"
	for _, tt := range []struct {
		name string
		args []string
	}{
		{"control", []string{probe, "inherited"}},
		{"jailed", []string{agentLock, dir, "--", probe, "inherited"}},
		{"weaker", []string{agentLock, "--layers", "landlock", dir, "--", probe, "inherited"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.Command(probe, append([]string{"give"}, tt.args...)...)
			if got, stderr, status := run(t, cmd); got != want || status != 0 {
				t.Errorf("got %q, want %q; status %d, stderr: %s", got, want, status, stderr)
			}
		})
	}
}

func TestArgumentsAreBytes(t *testing.T) {
	dir := project(t)
	args := []string{"\xff\xfe", "", "two\nlines", "\xc3\x28"}
	got, stderr, _ := run(t, jailed(dir, nil, append([]string{"arguments"}, args...)...))
	if want := fmt.Sprintf("%q\n", args); got != want {
		t.Errorf("got %s, want %s; stderr: %s", got, want, stderr)
	}
}

func init() {
	probes["arguments"] = func(args []string) int { fmt.Printf("%q\n", args); return 0 }
	probes["inherited"] = func([]string) int {
		fmt.Printf("descriptors %d of %d", limit.Descriptors.Cur, limit.Descriptors.Max)
		status, _ := os.ReadFile("/proc/thread-self/status")
		for line := range strings.Lines(string(status)) {
			if mask, ok := strings.CutPrefix(line, "SigBlk:\t"); ok {
				fmt.Printf(", blocked %s", strings.TrimSpace(mask))
			}
			if mask, ok := strings.CutPrefix(line, "SigIgn:\t"); ok {
				fmt.Printf(", ignored %s", strings.TrimSpace(mask))
			}
		}
		nice, _ := unix.Getpriority(unix.PRIO_PROCESS, 0)
		fmt.Printf(", nice %d\n", 20-nice)
		return 0
	}
	// give executes a program with what TestWhatTheCallerGives wants to be passed on.
	probes["give"] = func(args []string) int {
		runtime.LockOSThread()
		signal.Ignore(unix.SIGHUP)
		blocked := uint64(1) << (unix.SIGUSR2 - 1)
		unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK,
			uintptr(unsafe.Pointer(&blocked)), 0, unsafe.Sizeof(blocked), 0, 0)
		err := unix.Setpriority(unix.PRIO_PROCESS, 0, 5)
		if err == nil {
			err = syscall.Setrlimit(unix.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 300, Max: 4000})
		}
		if err == nil {
			err = syscall.Exec(args[0], args, os.Environ())
		}
		fmt.Println(err)
		return 1
	}
}
