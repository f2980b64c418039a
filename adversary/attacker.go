package adversary

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// attackerVerb is the hidden first argument of every process of the suite that
// is not the runner.
const attackerVerb = "attacker"

// Attackers and victims give up after these times, so that nothing stays behind
// even if the runner and the jail's command die.
const (
	stepTimeout    = time.Minute
	sessionTimeout = time.Hour
)

// maxLoot bounds what an attacker sends out; a message must fit into a socket buffer.
const maxLoot = 64 << 10

// A message goes over the control socket, one a packet, one JSON line each.
type message struct {
	Kind   string  `json:"kind"` // from the runner: case, go, quit; to it: hello, sync, reply
	Target *Target `json:"target,omitempty"`
	Reply  *reply  `json:"reply,omitempty"`
}

// A reply is what an attack has to say for itself.
type reply struct {
	Loot   []byte  `json:"loot,omitempty"`
	Err    string  `json:"err,omitempty"`
	Errno  string  `json:"errno,omitempty"`
	Unmade string  `json:"unmade,omitempty"` // why the decisive call was not reached
	Lost   bool    `json:"lost,omitempty"`   // its process crashed or hung
	Skip   string  `json:"skip,omitempty"`   // why the attack cannot be made in this jail
	Millis float64 `json:"ms"`
}

// The attacker's side runs in init. Only there is the main goroutine sure to be on the
// thread group's leader, as some cases need; and what the packages for the other verbs
// initialize would be a quarter of what an attempt costs, nearly all of which is the start
// of a process.
func init() {
	if len(os.Args) > 1 && os.Args[1] == attackerVerb {
		runtime.LockOSThread()
		os.Exit(attackerMain(os.Args[2:]))
	}
}

// attackerMain runs the attacker's side: the process that the jail starts, the
// processes that this one starts for each case, and the victims outside. args
// is what follows the verb. It returns the exit status.
func attackerMain(args []string) int {
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "attacker: this verb is for the processes of the suite only")
		return 1
	}
	limit := stepTimeout
	if args[0] == "serve" || args[0] == "work" || args[0] == "victim" {
		limit = sessionTimeout
	}
	time.AfterFunc(limit, func() { os.Exit(124) })
	var err error
	switch {
	case args[0] == "serve" && len(args) == 2:
		err = serve(args[1])
	case args[0] == "case" && len(args) == 2:
		err = attackFresh(args[1])
	case args[0] == "work":
		err = work()
	case args[0] == "crash":
		return crash()
	case args[0] == "step" && len(args) >= 2:
		err = runStep(args[1], args[2:])
	case args[0] == "victim" && len(args) == 3:
		err = beVictim(args[1])
	case strings.HasSuffix(args[0], helperSuffix):
		err = beHelper(args[0])
	default:
		err = fmt.Errorf("unknown arguments %q", args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "attacker:", err)
		return 1
	}
	return 0
}

// serve reads a file, before anything else: a jail must be closed before its
// command's first instruction. Then it answers requests on standard input until
// that ends. No case runs in this process, so that none can do it harm.
func serve(secret string) error {
	early, _ := read(secret)
	var s server
	// A packet is one request, so the buffered reader never takes more than one
	// off the socket: passed descriptors stay queued for the case that wants them.
	in := bufio.NewReaderSize(os.Stdin, 1<<16)
	if err := send(message{Kind: "hello", Reply: &reply{Loot: early}}); err != nil {
		return err
	}
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return nil // the runner is gone, or done
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			return fmt.Errorf("read request: %w", err)
		}
		if m.Kind == "quit" {
			return nil
		}
		if m.Kind == "fence" && m.Target != nil {
			touch(m.Target.Secret)
			if err := send(message{Kind: "fenced"}); err != nil {
				return err
			}
			continue
		}
		if m.Kind != "case" || m.Target == nil {
			continue // what goes with descriptors, if the jail is between us and the runner
		}
		if err := send(message{Kind: "reply", Reply: s.runCase(m.Target)}); err != nil {
			return err
		}
	}
}

// send writes one message in one packet. The runner learns the sender's
// process id from the socket.
func send(m message) error {
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(append(line, '\n'))
	return err
}

// a server is the process that the jail starts.
type server struct{ worker *worker }

// runCase runs one case in a child process and returns what it reports.
func (s *server) runCase(t *Target) *reply {
	defer drain()
	if t.Fresh {
		return runFresh(t)
	}
	if s.worker == nil {
		var err error
		if s.worker, err = startWorker(); err != nil {
			return &reply{Unmade: fmt.Sprintf("start the worker: %v", err)}
		}
	}
	r, err := s.worker.run(t)
	if err != nil {
		s.worker.stop()
		r = noReport(s.worker.cmd.ProcessState, err)
		s.worker = nil
	}
	return r
}

// noReport is the reply for an attack whose process ended before its report. Some filters
// do not refuse a system call but kill whoever makes it.
func noReport(state *os.ProcessState, err error) *reply {
	if state != nil {
		ws, ok := state.Sys().(syscall.WaitStatus)
		if ok && ws.Signaled() && ws.Signal() == unix.SIGSYS {
			return &reply{Err: "killed for a system call", Errno: "SIGSYS"}
		}
	}
	return &reply{Unmade: fmt.Sprintf("the attack ended without a report: %v", err), Lost: true}
}

// runFresh runs a case in a process of its own, which inherits what the jail
// gave us and nothing else.
func runFresh(t *Target) *reply {
	arg, err := json.Marshal(t)
	if err != nil {
		return &reply{Unmade: err.Error()}
	}
	var out bytes.Buffer
	cmd := child("case", string(arg))
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		return &reply{Unmade: fmt.Sprintf("start the case: %v", err)}
	}
	kill := time.AfterFunc(t.Limit, func() { killGroup(cmd) })
	err = cmd.Wait()
	kill.Stop()
	killGroup(cmd) // what it left behind
	var r reply
	if jsonErr := json.Unmarshal(out.Bytes(), &r); jsonErr != nil {
		return noReport(cmd.ProcessState, err)
	}
	return &r
}

// child is a command that runs us again, with the control socket as its input
// for Sync and passed descriptors.
func child(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], append([]string{attackerVerb}, args...)...)
	cmd.Stdin = os.Stdin
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second
	return cmd
}

func killGroup(cmd *exec.Cmd) { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }

// A worker is a child that runs many cases, those that leave it as it was: the
// start of a process is most of the cost of a case on an emulated machine.
type worker struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startWorker() (*worker, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	wk := &worker{cmd: child("work"), in: w}
	wk.cmd.ExtraFiles = []*os.File{r} // descriptor workFD
	out, err := wk.cmd.StdoutPipe()
	if err != nil {
		w.Close()
		return nil, err
	}
	wk.out = bufio.NewReader(out)
	if err := wk.cmd.Start(); err != nil {
		w.Close()
		return nil, err
	}
	return wk, nil
}

// run hands a case to the worker. After an error the worker is of no more use.
func (w *worker) run(t *Target) (*reply, error) {
	kill := time.AfterFunc(t.Limit, func() { killGroup(w.cmd) })
	defer kill.Stop()
	if err := json.NewEncoder(w.in).Encode(t); err != nil {
		return nil, err
	}
	line, err := w.out.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	var r reply
	return &r, json.Unmarshal(line, &r)
}

func (w *worker) stop() {
	killGroup(w.cmd)
	w.in.Close()
	_ = w.cmd.Wait()
}

// workFD is where a worker reads which case to run.
const workFD = 3

// work is the worker's side.
func work() error {
	unix.CloseOnExec(workFD)
	in := json.NewDecoder(os.NewFile(workFD, "work"))
	home, err := os.Getwd()
	if err != nil {
		return err
	}
	for {
		var t Target
		if err := in.Decode(&t); err != nil {
			return nil // the server is gone, or done
		}
		if err := attackOnce(&t); err != nil {
			return err
		}
		if err := os.Chdir(home); err != nil {
			return err
		}
	}
}

// drain takes packets off the control socket that the case did not: passed
// descriptors, or an answer to Sync that nobody waits for any more.
func drain() {
	var buf [512]byte
	for {
		n, _, err := unix.Recvfrom(0, buf[:], unix.MSG_DONTWAIT)
		if err != nil || n == 0 {
			return
		}
	}
}

// attackFresh is the side of the process that runs one case.
func attackFresh(arg string) error {
	var t Target
	if err := json.Unmarshal([]byte(arg), &t); err != nil {
		return fmt.Errorf("read target: %w", err)
	}
	return attackOnce(&t)
}

// attackOnce runs the attack of one case and reports on standard output.
func attackOnce(t *Target) error {
	c, ok := findCase(t.Case)
	if t.Case == worksCase {
		c, ok = Case{Attack: works}, true
	}
	if !ok {
		return fmt.Errorf("unknown case %q", t.Case)
	}
	start := time.Now()
	loot, err := c.Attack(t)
	r := reply{Loot: loot, Millis: float64(time.Since(start).Microseconds()) / 1000}
	if len(r.Loot) > maxLoot {
		r.Loot = r.Loot[:maxLoot]
	}
	if err != nil {
		r.Err = err.Error()
		var errno syscall.Errno
		if errors.As(err, &errno) {
			r.Errno = unix.ErrnoName(errno)
		}
		var un *unmadeError
		if errors.As(err, &un) {
			r.Unmade = r.Err
		}
		if errors.Is(err, errNoSocket) || errors.Is(err, errTooSlow) {
			r.Skip = r.Err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// An unmadeError says that an attack did not get as far as its decisive call
// for a reason that is not the jail's doing.
type unmadeError struct{ err error }

func (e *unmadeError) Error() string { return e.err.Error() }
func (e *unmadeError) Unwrap() error { return e.err }

// need marks an error of a preparation inside the project, which every jail has
// to allow: the case is then broken, not denied.
func need(err error) error {
	if err == nil {
		return nil
	}
	return &unmadeError{fmt.Errorf("prepare the attack: %w", err)}
}

var (
	errNoSocket = errors.New("the jail does not pass the control socket on to its command")
	errTooSlow  = errors.New("this machine is too slow")
)

// Sync tells the runner that the attack is in place and waits until the runner
// has done its part (Case.Meanwhile).
func (t *Target) Sync() error {
	if !controlIsSocket() {
		return errNoSocket
	}
	line := []byte(`{"kind":"sync"}` + "\n")
	if err := unix.Send(0, line, unix.MSG_NOSIGNAL); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	var buf [512]byte
	if _, _, err := unix.Recvfrom(0, buf[:], 0); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	return nil
}

func controlIsSocket() bool {
	kind, err := unix.GetsockoptInt(0, unix.SOL_SOCKET, unix.SO_TYPE)
	return err == nil && kind == unix.SOCK_SEQPACKET
}

// touch tries to open a file for writing, or to make it where it is not seen.
func touch(path string) {
	if fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600); err == nil {
		unix.Close(fd)
	}
}
