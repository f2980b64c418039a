package vmtest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/agent-lock/agent-lock/report"
	"golang.org/x/sys/unix"
)

// settleTime is how long killed processes have to disappear.
const settleTime = 5 * time.Second

// maxResult bounds one result, whose longest part is a verifier's log.
const maxResult = 4 << 20

// runStep runs one step to its end, and ends everything that it left running.
func runStep(ch *channel, index int, s Step) StepStatus {
	status := StepStatus{Step: index}
	began := time.Now()
	defer func() { status.Duration = time.Since(began) }()
	path, err := lookPath(s.Argv[0])
	if err != nil {
		status.Status, status.Error = 127, err.Error()
		return status
	}
	out, err := newOutput(ch, index, s)
	if err != nil {
		status.Status, status.Error = 126, err.Error()
		return status
	}
	pid, err := startStep(path, s, out)
	ch.step.is(pid, out.terminal)
	ch.send(frameStart, stepPayload{index}) // the host's messages reach it from now on
	defer ch.step.is(0, nil)
	out.started()
	if err != nil {
		status.Status, status.Error = 126, fmt.Sprintf("execute %s: %v", path, err)
		out.wait()
		return status
	}
	timeout := s.Timeout
	if timeout == 0 {
		timeout = StepTimeout
	}
	var timedOut atomic.Bool
	timer := time.AfterFunc(timeout, func() {
		timedOut.Store(true)
		unix.Kill(-1, unix.SIGKILL) // everything but pid 1, in whatever group or session
	})
	start := time.Now()
	ws := waitFor(pid)
	timer.Stop()
	status.Duration = time.Since(start)
	if err := killRest(); err != nil {
		status.Error = err.Error()
	}
	results, err := out.wait()
	if err != nil {
		status.Error = err.Error()
	}
	status.Results = results
	status.TimedOut = timedOut.Load()
	status.Status = ws.ExitStatus()
	if ws.Signaled() {
		status.Signal = int(ws.Signal())
		status.Status = 128 + status.Signal
	}
	return status
}

// startStep forks the step in its own session.
func startStep(path string, s Step, out *output) (int, error) {
	in, err := os.Open(cmp.Or(s.Stdin, os.DevNull))
	if err != nil {
		return 0, err
	}
	defer in.Close()
	env := []string{"PATH=" + guestPath, "TERM=dumb", "LANG=C.UTF-8"}
	attr := &syscall.ProcAttr{
		Files: []uintptr{in.Fd(), out.stdout.Fd(), out.stderr.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	}
	if s.Terminal {
		attr.Files[0] = out.stdout.Fd()
		attr.Sys.Setctty = true // its descriptor 0
	}
	if s.User {
		attr.Dir = guestHome
		attr.Sys.Credential = &syscall.Credential{Uid: guestUID, Gid: guestUID}
		env = append(env, "HOME="+guestHome, "USER="+guestUser, "LOGNAME="+guestUser,
			"SHELL=/bin/sh", "XDG_RUNTIME_DIR=/run/user/1000")
	} else {
		attr.Dir = "/root"
		env = append(env, "HOME=/root", "USER=root", "LOGNAME=root",
			"SUDO_UID=1000", "SUDO_GID=1000", "SUDO_USER="+guestUser)
	}
	attr.Dir = cmp.Or(s.Dir, attr.Dir)
	attr.Env = lastOf(append(env, s.Env...))
	return syscall.ForkExec(path, s.Argv, attr)
}

// lastOf leaves of several settings of a variable the last.
func lastOf(env []string) []string {
	var left []string
	for i, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if !slices.ContainsFunc(env[i+1:], func(later string) bool {
			return strings.HasPrefix(later, name+"=")
		}) {
			left = append(left, e)
		}
	}
	return left
}

// waitFor reaps, as pid 1 has to, until the process pid is gone.
func waitFor(pid int) syscall.WaitStatus {
	for {
		var ws syscall.WaitStatus
		got, err := syscall.Wait4(-1, &ws, 0, nil)
		if got == pid {
			return ws
		}
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return ws // ECHILD: cannot happen while pid is a child that was not reaped
		}
	}
}

// killRest ends what the step left behind, so that no step meets another's.
// Orphans become our children before their parents can be reaped, so that having
// no child means that nothing is left.
func killRest() error {
	for end := time.Now().Add(settleTime); ; {
		unix.Kill(-1, unix.SIGKILL) // succeeds always: there are kernel threads
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.ECHILD):
			return nil
		case pid > 0:
		case time.Now().After(end):
			return errors.New("the step left processes that cannot be killed")
		default:
			time.Sleep(time.Millisecond)
		}
	}
}

// output forwards what a step prints. The step only ever holds pipes: whatever
// it writes, pid 1 puts it into frames.
type output struct {
	ch             *channel
	step           int
	stdout, stderr *os.File // the step's ends
	terminal       *os.File // our end of a terminal; nil: there is none
	readers        []*os.File
	wg             sync.WaitGroup

	mu      sync.Mutex
	results int
	err     error
}

func newOutput(ch *channel, step int, s Step) (*output, error) {
	o := &output{ch: ch, step: step}
	if s.Terminal {
		var err error
		if o.terminal, o.stdout, err = openTerminal(); err != nil {
			return nil, err
		}
		o.stderr, o.readers = o.stdout, []*os.File{o.terminal}
		o.wg.Add(1)
		go o.forwardText(o.terminal, false)
		return o, nil
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, outR.Close(), outW.Close())
	}
	o.stdout, o.stderr = outW, errW
	o.readers = []*os.File{outR, errR}
	o.wg.Add(2)
	if s.Results {
		go o.forwardResults(outR)
	} else {
		go o.forwardText(outR, false)
	}
	go o.forwardText(errR, true)
	return o, nil
}

// started closes our copies of the step's ends.
func (o *output) started() {
	o.stdout.Close()
	o.stderr.Close() // of a terminal it is the same
}

// wait returns how many results came, and the first fault in them.
func (o *output) wait() (int, error) {
	o.wg.Wait()
	for _, r := range o.readers {
		r.Close()
	}
	return o.results, o.err
}

func (o *output) forwardText(r io.Reader, isErr bool) {
	defer o.wg.Done()
	buf := make([]byte, textChunk)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			o.ch.send(frameText, textPayload{o.step, isErr, buf[:n]})
		}
		if err != nil {
			return
		}
	}
}

// forwardResults reads lines of at most maxResult bytes; what is longer is cut
// up, and then no result.
func (o *output) forwardResults(r io.Reader) {
	defer o.wg.Done()
	n := 0
	for l := range readLines(r, maxResult) {
		n++
		if text := strings.TrimSpace(l.text); text != "" {
			o.forwardResult(n, []byte(text))
		}
	}
}

func (o *output) forwardResult(n int, line []byte) {
	var res report.Result
	err := json.Unmarshal(line, &res)
	if err == nil && (res.Kind == "" || res.Name == "" || res.Outcome == "") {
		err = errors.New("kind, name or outcome is missing")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		o.results++
		o.ch.send(frameResult, res)
		return
	}
	if o.err == nil {
		o.err = fmt.Errorf("line %d of its output is no result (%v): %.80q", n, err, line)
	}
	o.ch.send(frameText, textPayload{o.step, false, append(bytes.Clone(line), '\n')})
}
