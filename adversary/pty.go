package adversary

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// A terminalPair is a pseudo terminal of the user's. It stands for the terminal
// that the jail is started on.
type terminalPair struct {
	master *os.File
	slave  *os.File
	name   string // of the slave, in /dev/pts

	mu      sync.Mutex
	written []byte // what watch has read from the master, the newest part
	watched bool
}

// newTerminalPair makes a pseudo terminal in raw mode that belongs to the user.
func newTerminalPair(u User) (*terminalPair, error) {
	t := &terminalPair{}
	err := u.do(func() error {
		fd, err := unix.Open("/dev/ptmx",
			unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return fmt.Errorf("open /dev/ptmx: %w", err)
		}
		t.master = os.NewFile(uintptr(fd), "ptmx")
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return fmt.Errorf("unlock terminal: %w", err)
		}
		n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
		if err != nil {
			return fmt.Errorf("number terminal: %w", err)
		}
		t.name = filepath.Join("/dev/pts", strconv.Itoa(n))
		slave, err := unix.Open(t.name, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", t.name, err)
		}
		t.slave = os.NewFile(uintptr(slave), t.name)
		return rawMode(slave)
	})
	if err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// rawMode turns off echo and line editing: what is put into the input can then
// be read at once, and does not show up in the output.
func rawMode(fd int) error {
	tio, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	tio.Lflag &^= unix.ECHO | unix.ICANON | unix.ISIG | unix.IEXTEN
	tio.Oflag &^= unix.OPOST
	tio.Cc[unix.VMIN], tio.Cc[unix.VTIME] = 0, 0
	return unix.IoctlSetTermios(fd, unix.TCSETS, tio)
}

// input returns what waits in the terminal's input, as a shell outside would
// read it after the jail has ended.
func (t *terminalPair) input() string { return pending(t.slave) }

// watch reads the terminal's output all the time, so that a talkative jail does
// not block on it.
func (t *terminalPair) watch() {
	t.watched = true
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := t.master.Read(buf)
			if err != nil {
				return // closed
			}
			t.mu.Lock()
			t.written = append(t.written, buf[:n]...)
			t.written = t.written[max(0, len(t.written)-maxLoot):]
			t.mu.Unlock()
		}
	}()
}

// output returns what was written to the terminal since it was last asked.
func (t *terminalPair) output() string {
	if t == nil {
		return ""
	}
	if !t.watched {
		return pending(t.master)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	all := string(t.written)
	t.written = nil
	return all
}

// pending reads what can be read without waiting.
func pending(f *os.File) string {
	var all []byte
	for len(all) < maxLoot {
		fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, 0); err != nil || n == 0 || fds[0].Revents&unix.POLLIN == 0 {
			break
		}
		var buf [4096]byte
		n, err := unix.Read(int(f.Fd()), buf[:])
		if err != nil || n == 0 {
			break
		}
		all = append(all, buf[:n]...)
	}
	return string(all)
}

func (t *terminalPair) close() {
	if t == nil {
		return
	}
	if t.master != nil {
		t.master.Close()
	}
	if t.slave != nil {
		t.slave.Close()
	}
}
