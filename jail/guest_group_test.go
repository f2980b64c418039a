//go:build guest

package jail_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The jail shares its process group with what the caller started beside it, as in a
// pipeline: kill(0) and its like name that group without a number.
func TestOwnProcessGroup(t *testing.T) {
	for _, tt := range []struct {
		probe string
		met   func(pid int) bool
	}{
		{"renice-group", func(pid int) bool {
			nice, err := unix.Getpriority(unix.PRIO_PROCESS, pid)
			return err == nil && nice == 20-19
		}},
		{"ionice-group", func(pid int) bool {
			priority, _, errno := unix.Syscall(unix.SYS_IOPRIO_GET, ioprioProcess, uintptr(pid), 0)
			return errno == 0 && priority == idle
		}},
		{"kill-group", func(pid int) bool {
			var info unix.Siginfo
			err := unix.Waitid(unix.P_PID, pid, &info,
				unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
			return err == nil && info.Signo == int32(unix.SIGCHLD)
		}},
	} {
		t.Run(tt.probe, func(t *testing.T) {
			dir := project(t)
			user := &syscall.Credential{Uid: uid, Gid: gid}
			// What came last into the group is met first, and an error ends it.
			metFrom := func(attacker *exec.Cmd, as *syscall.Credential) bool {
				stdin, err := attacker.StdinPipe()
				if err != nil {
					t.Fatal(err)
				}
				attacker.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: as}
				start(t, attacker)
				beside := exec.Command(filepath.Join(dir, "probe"), "sleep")
				beside.SysProcAttr = &syscall.SysProcAttr{
					Setpgid: true, Pgid: attacker.Process.Pid, Credential: user,
				}
				start(t, beside)
				stdin.Close()
				_ = attacker.Wait() // it may have killed itself
				time.Sleep(100 * time.Millisecond)
				return tt.met(beside.Process.Pid)
			}
			probe := exec.Command(filepath.Join(dir, "probe"), tt.probe)
			if !metFrom(probe, user) {
				t.Error("without a jail the process beside was not met")
			}
			if metFrom(jailed(dir, []string{"--denials", "off"}, tt.probe), nil) {
				t.Error("the process beside was met from the jail")
			}
		})
	}
}

// As in linux/ioprio.h.
const (
	ioprioProcess, ioprioGroup = 1, 2
	idle                       = 3 << 13
)

func init() {
	for name, attack := range map[string]func() error{
		"kill-group":   func() error { return unix.Kill(0, unix.SIGKILL) },
		"renice-group": func() error { return unix.Setpriority(unix.PRIO_PGRP, 0, 19) },
		"ionice-group": func() error {
			_, _, errno := unix.Syscall(unix.SYS_IOPRIO_SET, ioprioGroup, 0, idle)
			return errno
		},
	} {
		probes[name] = func([]string) int {
			fmt.Println("up")
			_, _ = io.Copy(io.Discard, os.Stdin)
			fmt.Println(attack())
			return 0
		}
	}
}
