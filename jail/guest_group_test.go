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

// The jail shares its process group with what the caller started beside it, as in
// a pipeline: kill(0) and setpriority(PRIO_PGRP) name that group without a number.
func TestOwnProcessGroup(t *testing.T) {
	for _, tt := range []struct {
		name   string
		jailed bool
		dead   bool
		nice   int
	}{
		{"control", false, true, 19},
		{"jailed", true, false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := project(t)
			asUser := &syscall.Credential{Uid: uid, Gid: gid}
			beside := exec.Command(filepath.Join(dir, "probe"), "sleep")
			beside.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: asUser}
			start(t, beside)
			attack := func(probe string) {
				cmd := jailed(dir, []string{"--denials", "off"}, probe)
				if !tt.jailed {
					cmd = exec.Command(filepath.Join(dir, "probe"), probe)
				}
				cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: beside.Process.Pid}
				if !tt.jailed {
					cmd.SysProcAttr.Credential = asUser
				}
				run(t, cmd)
			}
			attack("renice-group")
			nice, err := unix.Getpriority(unix.PRIO_PROCESS, beside.Process.Pid)
			if got := 20 - nice; err != nil || got != tt.nice {
				t.Errorf("the process beside has nice %d (%v), want %d", got, err, tt.nice)
			}
			attack("kill-group")
			var ws unix.WaitStatus
			options := unix.WNOHANG
			if tt.dead {
				options = 0 // it is dying
			}
			pid, err := unix.Wait4(beside.Process.Pid, &ws, options, nil)
			if dead := pid != 0; err != nil || dead != tt.dead {
				t.Errorf("the process beside is dead: %v (%v), want %v", dead, err, tt.dead)
			}
		})
	}
}

func init() {
	probes["kill-group"] = func([]string) int {
		fmt.Println(unix.Kill(0, unix.SIGKILL))
		return 0
	}
	probes["renice-group"] = func([]string) int {
		fmt.Println(unix.Setpriority(unix.PRIO_PGRP, 0, 19))
		return 0
	}
}
