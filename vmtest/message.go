package vmtest

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Message is something for the step that runs in the guest.
type Message struct {
	line   string
	signal bool
}

// Signal is a message that passes a signal on to the step and its process group.
func Signal(s syscall.Signal) Message {
	return Message{line: fmt.Sprintf("signal %d", int(s)), signal: true}
}

// Input is a message that types something into the step's terminal.
func Input(data []byte) Message {
	return Message{line: "input " + base64.StdEncoding.EncodeToString(data)}
}

// Size is a message that says how large the step's terminal is, in characters.
func Size(rows, columns int) Message {
	return Message{line: fmt.Sprintf("size %d %d", rows, columns)}
}

// patience is how many signals a guest gets before the run is stopped, and maxEarly how many
// messages wait for it to be up.
const (
	patience = 2
	maxEarly = 1000
)

// message sends one to the guest. Before it is up a signal ends the run; the others wait.
func (g *guest) message(m Message) {
	if m.signal {
		g.signalled++
		if !g.stream.hello || g.signalled > patience {
			g.stop(FaultInterrupted, "the run was stopped")
			return
		}
	}
	g.early = append(g.early, m.line)
	if g.started {
		g.say()
	} else if len(g.early) > maxEarly {
		g.stop(FaultInterrupted, "more was typed than can wait for the guest")
	}
}

// say sends what has waited.
func (g *guest) say() {
	for _, line := range g.early {
		if _, err := fmt.Fprintln(g.machine.results, line); err != nil {
			g.stop(FaultInterrupted, fmt.Sprintf("send a message to the guest: %v", err))
		}
	}
	g.early = nil
}

// A listener is the step that messages are for.
type listener struct {
	mu       sync.Mutex
	pid      int      // 0: none runs
	terminal *os.File // the master's side; nil: it has none
}

func (l *listener) is(pid int, terminal *os.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pid, l.terminal = pid, terminal
}

// listen takes the host's messages, forever.
func (c *channel) listen() {
	lines := bufio.NewScanner(c.port)
	lines.Buffer(nil, maxFrame)
	for lines.Scan() {
		c.step.take(lines.Text())
	}
}

// take does what a message says, if it can: the step may have ended.
func (l *listener) take(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pid <= 0 {
		return
	}
	var a, b int
	kind, text, _ := strings.Cut(line, " ")
	switch {
	case kind == "signal":
		if _, err := fmt.Sscan(text, &a); err == nil {
			_ = unix.Kill(-l.pid, unix.Signal(a))
		}
	case l.terminal == nil:
	case kind == "input":
		if data, err := base64.StdEncoding.DecodeString(text); err == nil {
			_, _ = l.terminal.Write(data)
		}
	case kind == "size":
		if _, err := fmt.Sscan(text, &a, &b); err == nil {
			_ = unix.IoctlSetWinsize(int(l.terminal.Fd()), unix.TIOCSWINSZ,
				&unix.Winsize{Row: uint16(a), Col: uint16(b)})
		}
	}
}

// openTerminal makes a pseudo-terminal for a step.
func openTerminal() (master, slave *os.File, err error) {
	if master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, nil, err
	}
	fd := int(master.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		master.Close()
		return nil, nil, fmt.Errorf("make a terminal: %w", err)
	}
	return master, slave, nil
}
