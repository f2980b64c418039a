package adversary

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A step is a part of an attack that needs a process of its own: a process is
// started anew from our program, since Go cannot fork without exec. It does its
// work and writes the loot to standard output.
type step func(args []string) ([]byte, error)

// steps is filled by a function: a variable could not name functions that start
// steps themselves.
func steps() map[string]step {
	return map[string]step{
		"read":   func(args []string) ([]byte, error) { return read(args[0]) },
		"orphan": stepOrphan,
		"reread": stepReread,
		"heir":   stepHeir,
		"userns": stepUserns,
		"bind":   stepBind,
		"chroot": stepChroot,
		"pivot":  stepPivot,
		"clone":  stepClone,
		"lower":  stepLower,

		"threadexec": stepThreadExec,
		"execrace":   stepExecRace,
		"execveat":   stepExecveat,
		"typing":     stepTyping,

		"cgroup":   stepCgroup,
		"rootbind": privately(stepBind),
		"chrooted": privately(stepChrooted),
		"pivoted":  privately(stepPivoted),
		"moved":    privately(stepMoved),
		"trusted":  privately(stepTrusted),
		"fsmount":  privately(stepFsmount),
		"tmpfs":    privately(stepTmpfs),
		"umount":   privately(stepUmount),
		"remount":  privately(stepRemount),
	}
}

// runStep runs one step. The first byte of the output says how it went: '+'
// and the loot, '!' and why the attack was not made, or the error number in decimal, a
// blank and the error text.
func runStep(name string, args []string) error {
	f, ok := steps()[name]
	if !ok {
		return fmt.Errorf("unknown step %q", name)
	}
	say(f(args))
	return nil
}

func say(loot []byte, err error) {
	var unmade *unmadeError
	if errors.As(err, &unmade) {
		fmt.Print("!", err)
		return
	}
	if err != nil {
		var errno syscall.Errno
		errors.As(err, &errno)
		fmt.Printf("%d %v", int(errno), err)
		return
	}
	_, _ = os.Stdout.Write(append([]byte{'+'}, loot...))
}

// start runs a step in a new process made as attr says, and waits for all that
// holds its output to end rather than for the process: some are not our children.
func start(program string, attr *syscall.SysProcAttr, args ...string) ([]byte, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, need(err)
	}
	defer r.Close()
	argv := append([]string{program, attackerVerb, "step"}, args...)
	pid, err := syscall.ForkExec(program, argv, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{0, w.Fd(), 2},
		Sys:   attr,
	})
	w.Close()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	out, err := io.ReadAll(io.LimitReader(r, maxLoot))
	if err != nil {
		return nil, err
	}
	var ws unix.WaitStatus
	if _, err := unix.Wait4(pid, &ws, 0, nil); err == nil && len(out) == 0 && ws.Signaled() {
		if ws.Signal() == unix.SIGSYS {
			return nil, errors.New("the step was killed for a system call")
		}
		return nil, need(fmt.Errorf("the step was ended by a signal: %v", ws.Signal()))
	}
	return parseStep(out)
}

func parseStep(out []byte) ([]byte, error) {
	if len(out) > 0 && out[0] == '+' {
		return out[1:], nil
	}
	if len(out) > 0 && out[0] == '!' {
		return nil, &unmadeError{errors.New(string(out[1:]))}
	}
	number, text, ok := strings.Cut(string(out), " ")
	n, err := strconv.Atoi(number)
	if err != nil || !ok {
		return nil, errors.New("the step ended without a report")
	}
	if n == 0 {
		return nil, errors.New(text)
	}
	return nil, stepError{text: text, errno: syscall.Errno(n)}
}

// A stepError is the error of a step, with its number.
type stepError struct {
	text  string
	errno syscall.Errno
}

func (e stepError) Error() string { return e.text }
func (e stepError) Unwrap() error { return e.errno }
