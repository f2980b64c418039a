package jail

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// control is one end of the socket pair between the supervisor and the process that
// becomes the command: the task goes one way, as a line of JSON, and "armed"; "mounted",
// "ready" and failures come back. Its end is the other side's death.
type control struct {
	*os.File
	in *bufio.Reader
}

func newControl(fd uintptr) *control {
	f := os.NewFile(fd, "control")
	return &control{f, bufio.NewReader(f)}
}

// inherited is the end that a process of ours is started with.
func inherited() *control {
	unix.CloseOnExec(3)
	return newControl(3)
}

func controlPair() (ours, theirs *control, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make control socket: %w", err)
	}
	// The kernel then says who sends: awaitSender.
	if err := unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, fmt.Errorf("make control socket: %w", err)
	}
	return newControl(uintptr(fds[0])), newControl(uintptr(fds[1])), nil
}

// awaitSender waits for the first message and returns who has sent it. What it says is
// read as always.
func (c *control) awaitSender() (pid int, err error) {
	data, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	n, oobn, _, _, err := unix.Recvmsg(int(c.Fd()), data, oob, 0)
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	c.in = bufio.NewReader(io.MultiReader(bytes.NewReader(data[:n]), c.File))
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return 0, err
	}
	if len(messages) != 1 {
		return 0, fmt.Errorf("%d control messages, want one", len(messages))
	}
	sender, err := unix.ParseUnixCredentials(&messages[0])
	if err != nil {
		return 0, err
	}
	return int(sender.Pid), nil
}

// readLine returns a line without its end.
func (c *control) readLine() (string, error) {
	line, err := c.in.ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}

func (c *control) send(s setup) error { return json.NewEncoder(c).Encode(s) }

func (c *control) receive() (s setup, err error) {
	line, err := c.readLine()
	if err == nil {
		err = json.Unmarshal([]byte(line), &s)
	}
	return s, err
}

// fail tells the other side, in one line.
func (c *control) fail(err error) {
	fmt.Fprintln(c, strings.ReplaceAll(err.Error(), "\n", " "))
}
