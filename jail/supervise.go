package jail

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// startFirst starts pid 1 of the jail, which mounts its /proc.
func (p *started) startFirst(files [4]*os.File) error {
	var copies [4]int
	for i, f := range files {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, firstCopy)
		if err != nil {
			return fmt.Errorf("copy %s: %w", f.Name(), err)
		}
		defer unix.Close(fd)
		copies[i] = fd
	}
	p.first.layFirst(copies, p.command)
	pid, err := p.first.start()
	p.pid = pid
	// Only pid 1 has it now: its death is the end of what the control socket reads.
	files[3].Close()
	return err
}

// expect reads the report of a script.
func (p *started) expect(s *script) error {
	r, _, err := p.control.read(0)
	if err != nil {
		return fmt.Errorf("wait for pid 1: %w", err)
	}
	return s.explain(r, "start the command's process")
}

// awaitCommand waits until the command's process has dropped its privileges.
func (p *started) awaitCommand() error {
	r, pid, err := p.control.read(0)
	switch {
	case err != nil:
		return fmt.Errorf("wait for the command's process: %w", err)
	case pid == p.pid:
		return p.first.explain(r, "start the command's process")
	case r.step != reached:
		return p.command.explain(r, "")
	}
	if p.commandFD, err = unix.PidfdOpen(pid, 0); err != nil {
		return fmt.Errorf("find the command's process: %w", err)
	}
	return nil
}

// forwarded are the signals that are for the command. The terminal's own
// (Ctrl-C, Ctrl-\, Ctrl-Z) reach it directly, since it shares our process group;
// the first two must not end the supervisor.
var forwarded = []os.Signal{
	unix.SIGTERM, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2, unix.SIGINT, unix.SIGQUIT,
}

// notify leaves out what the caller has ignored, so that the command ignores it too.
func (p *started) notify() {
	for _, sig := range forwarded {
		if !signal.Ignored(sig) {
			signal.Notify(p.signals, sig)
		}
	}
}

// kill ends the jail. Its error is that which led here.
func (p *started) kill() {
	signal.Stop(p.signals)
	if p.pid > 0 {
		unix.Kill(p.pid, unix.SIGKILL)
		p.wait()
	}
	p.close()
}

func (p *started) close() {
	close(p.end)
	p.control.Close()
	if p.commandFD >= 0 {
		unix.Close(p.commandFD)
	}
}

// ended is how pid 1 did.
type ended struct {
	status syscall.WaitStatus
	err    error
}

func (p *started) wait() (e ended) {
	for {
		_, e.err = syscall.Wait4(p.pid, &e.status, 0, nil)
		if !errors.Is(e.err, unix.EINTR) {
			return e
		}
	}
}

// run lets the command go and waits for its end, passing signals on.
func (p *started) run() (int, error) {
	if err := p.control.letGo(nil); err != nil {
		p.kill()
		return 0, fmt.Errorf("let the command go: %w", err)
	}
	defer p.close()
	done := make(chan ended, 1)
	go func() { done <- p.wait() }()
	for {
		select {
		case sig := <-p.signals:
			// The terminal has sent these to the command as well.
			if sig != unix.SIGINT && sig != unix.SIGQUIT {
				unix.PidfdSendSignal(p.commandFD, sig.(syscall.Signal), nil, 0)
			}
		case e := <-done:
			signal.Stop(p.signals)
			p.terminal.restore()
			// Nobody is left to say more.
			if r, _, err := p.control.read(unix.MSG_DONTWAIT); err == nil {
				return p.notExecuted(r)
			}
			if e.err != nil {
				return 0, fmt.Errorf("wait for pid 1: %w", e.err)
			}
			return exitStatus(e.status), nil
		}
	}
}

func exitStatus(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// Exit statuses of a command that could not be executed, as in a shell.
const (
	statusNotExecutable = 126
	statusNotFound      = 127
)

// notExecuted says why there was no command: the jail was not in force, which is an
// error, or there is no such program.
func (p *started) notExecuted(r report) (int, error) {
	if int(r.step) < len(p.command.calls) {
		return 0, p.command.explain(r, "")
	}
	var err error = syscall.Errno(r.errno)
	status := statusNotExecutable
	if errors.Is(err, unix.ENOENT) {
		status = statusNotFound
		if len(p.command.programs) != 1 {
			err = exec.ErrNotFound
		}
	}
	fmt.Fprintf(p.stderr, "agent-lock: execute %s: %v\n", p.name, err)
	return status, nil
}
