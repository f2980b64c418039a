//go:build guest

package jail_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

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
			asUser := &syscall.Credential{Uid: uid, Gid: gid}
			beside := exec.Command(filepath.Join(dir, "probe"), "sleep")
			beside.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: asUser}
			start(t, beside)
			inGroup := func(cmd *exec.Cmd, as *syscall.Credential) {
				cmd.SysProcAttr = &syscall.SysProcAttr{
					Setpgid: true, Pgid: beside.Process.Pid, Credential: as,
				}
				run(t, cmd)
			}
			inGroup(jailed(dir, []string{"--denials", "off"}, tt.probe), nil)
			if tt.met(beside.Process.Pid) {
				t.Error("the process beside was met from the jail")
			}
			inGroup(exec.Command(filepath.Join(dir, "probe"), tt.probe), asUser)
			eventually(t, "the process beside is met without a jail", func() bool {
				return tt.met(beside.Process.Pid)
			})
		})
	}
}

// As in linux/ioprio.h.
const (
	ioprioProcess, ioprioGroup = 1, 2
	idle                       = 3 << 13
)

func init() {
	probes["kill-group"] = func([]string) int {
		fmt.Println(unix.Kill(0, unix.SIGKILL))
		return 0
	}
	probes["renice-group"] = func([]string) int {
		fmt.Println(unix.Setpriority(unix.PRIO_PGRP, 0, 19))
		return 0
	}
	probes["ionice-group"] = func([]string) int {
		_, _, errno := unix.Syscall(unix.SYS_IOPRIO_SET, ioprioGroup, 0, idle)
		fmt.Println(errno)
		return 0
	}
}
