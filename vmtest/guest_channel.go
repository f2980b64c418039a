package vmtest

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// beatEvery is the time between two signs of life. The host calls a guest hung
// after it missed many of them, whatever its step is doing.
const beatEvery = time.Second

// channel writes frames. It is pid 1's alone: close-on-exec, its node removed.
type channel struct {
	mu    sync.Mutex
	port  *os.File
	next  uint64
	ended bool // nothing follows the end frame, no sign of life either
	err   error
	step  listener
}

func openChannel(device string) (*channel, error) {
	f, err := os.OpenFile(device, os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open result port: %w", err)
	}
	fd := int(f.Fd())
	// Opening a port that is not there succeeds; asking it for its state does not.
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("use result port %s: %w", device, err)
	}
	// Raw: a line feed stays one byte, and nothing the host could send comes back.
	t.Iflag, t.Oflag, t.Lflag = 0, 0, 0
	t.Cflag = t.Cflag&^unix.CSIZE&^unix.PARENB | unix.CS8 | unix.CLOCAL
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, t); err != nil {
		return nil, fmt.Errorf("set result port raw: %w", err)
	}
	if err := os.Remove(device); err != nil {
		return nil, fmt.Errorf("hide result port: %w", err)
	}
	return &channel{port: f}, nil
}

// send writes one frame. An error stays, and is seen by drain: a frame that is
// lost makes the host distrust the whole stream anyway.
func (c *channel) send(kind frameKind, payload any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.ended = kind == frameEnd
	line, err := encodeFrame(c.next, kind, payload)
	if err == nil {
		c.next++
		_, err = c.port.Write(line)
	}
	if err != nil && c.err == nil {
		c.err = fmt.Errorf("send %s frame: %w", kind, err)
	}
}

// beat sends signs of life forever.
func (c *channel) beat() {
	for range time.Tick(beatEvery) {
		c.send(frameBeat, struct{}{})
	}
}

// drain waits until the last byte has left the port. No frame is sent after it.
func (c *channel) drain() error {
	c.mu.Lock() // for good
	if c.err != nil {
		return c.err
	}
	if err := unix.IoctlSetInt(int(c.port.Fd()), unix.TCSBRK, 1); err != nil {
		return fmt.Errorf("drain result port: %w", err)
	}
	return nil
}
