package adversary

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const stoppedSource = "D47"

// supervision: moments at which nobody looks after the jail, or a process is between two
// programs.
var supervision = []Case{
	whileStopped("life_supervisor_stopped", "opens the file while the jail's supervisor is "+
		"stopped", "openat", func(t *Target) ([]byte, error) { return read(t.Secret) }),
	whileStopped("life_supervisor_stopped_new", "opens a file that is made, and whose directory "+
		"is replaced, while the supervisor is stopped", "openat",
		func(t *Target) ([]byte, error) { return read(t.out("later/secret")) }),
	life("life_exec_race", "D41", "opens the file in a thread while the leader executes the "+
		"program anew, again and again", "execve, openat",
		func(t *Target) ([]byte, error) {
			return start(os.Args[0], nil, "execrace", t.Secret, "0")
		}),
}

// whileStopped is a case whose attack is made while the process that was started as the
// jail is stopped. In the control there is none: that process is the attacker.
func whileStopped(name, what, calls string,
	attack func(*Target) ([]byte, error)) Case {
	return Case{
		Name: name, Family: "lifecycle", Source: stoppedSource, What: what,
		Calls: calls, Hooks: opens,
		Judge: tokenRead,
		Attack: func(t *Target) ([]byte, error) {
			if err := t.Sync(); err != nil {
				return nil, err
			}
			return attack(t)
		},
		Meanwhile: func(s *Scene, _ int) error {
			if err := s.stopSupervisor(); err != nil {
				return err
			}
			if err := os.Mkdir(s.Out("new"), 0o700); err != nil {
				return err
			}
			if err := s.Plant("new/secret"); err != nil {
				return err
			}
			return os.Rename(s.Out("new"), s.Out("later"))
		},
	}
}

// stopSupervisor stops it until the attempt ends, or for as long as a jail that copies its
// command's output may hold us up.
func (s *Scene) stopSupervisor() error {
	pid := s.session.cmd.Process.Pid
	if pid == s.session.pid {
		return nil
	}
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		return call("stop the supervisor", err)
	}
	wake := func() { _ = unix.Kill(pid, unix.SIGCONT) }
	timer := time.AfterFunc(s.Target.Limit/2, wake)
	s.onClose(func() {
		timer.Stop()
		wake()
	})
	return awaitState(pid, "T")
}

// awaitState waits until a process is in a state, as /proc/PID/stat has it.
func awaitState(pid int, state string) error {
	for range 1000 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return err
		}
		if got := afterName(string(stat)); got == state {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return fmt.Errorf("process %d does not come to be in state %s", pid, state)
}

// afterName returns the field of /proc/PID/stat after the name, which may hold anything.
func afterName(stat string) string {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	return strings.Join(fields[:min(len(fields), 1)], "")
}

// execRounds is how often stepExecRace executes itself.
const execRounds = 8

// stepExecRace opens a file in one thread until another, the first, executes the program
// anew. The last of them reports, unless a thread has read the file before.
func stepExecRace(args []string) ([]byte, error) {
	round, err := strconv.Atoi(args[1])
	if err != nil {
		return nil, need(err)
	}
	if round == execRounds {
		return read(args[0])
	}
	var got atomic.Bool
	running := make(chan struct{})
	go func() {
		for i := 0; ; i++ {
			if data, err := read(args[0]); err == nil && got.CompareAndSwap(false, true) {
				say(data, nil)
				os.Exit(0)
			}
			if i == 0 {
				close(running)
			}
		}
	}()
	<-running
	argv := []string{os.Args[0], attackerVerb, "step", "execrace", args[0], fmt.Sprint(round + 1)}
	err = syscall.Exec(os.Args[0], argv, os.Environ())
	return nil, need(errors.Join(errors.New("execve"), err))
}
