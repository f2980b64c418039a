package adversary

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// attackerVerb is the hidden first argument of every process of the suite that
// is not the runner.
const attackerVerb = "attacker"

// The attacker and what it starts give up after these times, so that nothing
// stays behind even if the runner dies. Emulated machines are slow.
const (
	caseTimeout    = 20 * time.Second
	sessionTimeout = 10 * time.Minute
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
	Skip   string  `json:"skip,omitempty"`   // why the attack cannot be made in this jail
	Millis float64 `json:"ms"`
}

func init() {
	// Some cases depend on being the thread group leader. Only during init is
	// the main goroutine sure to run on it.
	if len(os.Args) > 1 && os.Args[1] == attackerVerb {
		runtime.LockOSThread()
	}
}

// AttackerMain runs the attacker's side: the process that the jail starts, the
// processes that this one starts for each case, and the victims outside. args
// is what follows the verb. It returns the exit status.
func AttackerMain(args []string) int {
	limit := caseTimeout
	if len(args) == 0 || args[0] == "victim" {
		limit = sessionTimeout
	}
	time.AfterFunc(limit, func() { os.Exit(124) })
	var err error
	switch {
	case len(args) == 0:
		err = serve()
	case args[0] == "case" && len(args) == 2:
		err = attackOnce(args[1])
	case args[0] == "step" && len(args) >= 2:
		err = runStep(args[1], args[2:])
	case args[0] == "victim" && len(args) == 3:
		err = beVictim(args[1])
	default:
		err = fmt.Errorf("unknown arguments %q", args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "attacker:", err)
		return 1
	}
	return 0
}

// serve answers requests on standard input until it ends. Each case runs in a
// process of its own so that what cannot be undone stays there.
func serve() error {
	// A packet is one request, so the buffered reader never takes more than one
	// off the socket: passed descriptors stay queued for the case that wants them.
	in := bufio.NewReaderSize(os.Stdin, 1<<16)
	if err := send(message{Kind: "hello"}); err != nil {
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
		if err := send(message{Kind: "reply", Reply: runCase(m.Target)}); err != nil {
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

// runCase runs one case in a child process and returns what it reports.
func runCase(t *Target) *reply {
	arg, err := json.Marshal(t)
	if err != nil {
		return &reply{Unmade: err.Error()}
	}
	var out bytes.Buffer
	cmd := exec.Command(os.Args[0], attackerVerb, "case", string(arg))
	cmd.Stdin = os.Stdin // the control socket, for Sync and passed descriptors
	cmd.Stdout = &out
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return &reply{Unmade: fmt.Sprintf("start the case: %v", err)}
	}
	kill := time.AfterFunc(caseTimeout, func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) })
	err = cmd.Wait()
	kill.Stop()
	_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // what it left behind
	drain()
	var r reply
	if jsonErr := json.Unmarshal(out.Bytes(), &r); jsonErr != nil {
		return &reply{Unmade: fmt.Sprintf("the attack ended without a report: %v", err)}
	}
	return &r
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

// attackOnce runs the attack of one case and reports on standard output.
func attackOnce(arg string) error {
	var t Target
	if err := json.Unmarshal([]byte(arg), &t); err != nil {
		return fmt.Errorf("read target: %w", err)
	}
	c, ok := findCase(t.Case)
	if t.Case == worksCase {
		c, ok = Case{Attack: works}, true
	}
	if !ok {
		return fmt.Errorf("unknown case %q", t.Case)
	}
	start := time.Now()
	loot, err := c.Attack(&t)
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
		if errors.Is(err, errNoSocket) {
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

var errNoSocket = errors.New("the jail does not pass the control socket on to its command")

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
