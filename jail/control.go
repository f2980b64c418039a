package jail

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// control is one end of the socket pair between two of our processes: the task goes
// one way, as a line of JSON, and "armed"; "ready" and failures come back. Its end is
// the other side's death.
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
	return newControl(uintptr(fds[0])), newControl(uintptr(fds[1])), nil
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
