//go:build guest

package jail_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is a pseudo-terminal of the test's: what a person would type into
// and read from.
type terminal struct {
	master, slave *os.File
}

func newTerminal(t *testing.T) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err == nil {
		err = slave.Chown(uid, gid)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close(); slave.Close() })
	return &terminal{master, slave}
}

// start runs a command on the terminal, as a login shell would.
func (tt *terminal) start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tt.slave, tt.slave, tt.slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
}

// expect reads until text arrives and returns all that was read.
func (tt *terminal) expect(t *testing.T, text string) string {
	t.Helper()
	var seen bytes.Buffer
	tt.master.SetReadDeadline(time.Now().Add(30 * time.Second))
	buf := make([]byte, 1024)
	for !strings.Contains(seen.String(), text) {
		n, err := tt.master.Read(buf)
		seen.Write(buf[:n])
		if err != nil {
			t.Fatalf("wait for %q: %v; the terminal shows %q", text, err, &seen)
		}
	}
	return seen.String()
}

// Ctrl-C is for the command; agent-lock lives on to report its status.
func TestInterruptKey(t *testing.T) {
	tt, cmd := newTerminal(t), jailed(project(t), nil, "interrupted")
	tt.start(t, cmd)
	tt.expect(t, "up")
	if _, err := tt.master.Write([]byte{3}); err != nil {
		t.Fatal(err)
	}
	tt.expect(t, "interrupted")
	cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 42 {
		t.Errorf("status %d, want 42, that of the command's handler", got)
	}
}

// The command has the terminal that agent-lock was started on, and no other.
func TestTerminals(t *testing.T) {
	other := newTerminal(t)
	tt, dir := newTerminal(t), project(t)
	cmd := jailed(dir, []string{"--denials", "off"}, "terminals", other.slave.Name())
	tt.start(t, cmd)
	shown := tt.expect(t, "done")
	for _, want := range []string{"/dev/tty ok", "foreground true", other.slave.Name() + " no"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the terminal shows %q, want %q in it", shown, want)
		}
	}
}

// Denials are held back while the terminal is the jail's own.
func TestDenialsWaitForTheTerminal(t *testing.T) {
	tt, dir, outside := newTerminal(t), project(t), secret(t)
	cmd := jailed(dir, nil, "open-and-say", outside)
	tt.start(t, cmd)
	shown := tt.expect(t, "denied: open for reading "+outside)
	said, denied := strings.Index(shown, "said"), strings.Index(shown, "denied:")
	if said < 0 || denied < said {
		t.Errorf("the terminal shows %q, want the denial after all that the command said", shown)
	}
}

// The window's size reaches the command's terminal by itself.
func TestWindowSize(t *testing.T) {
	tt, cmd := newTerminal(t), jailed(project(t), nil, "resized")
	tt.start(t, cmd)
	tt.expect(t, "up")
	size := &unix.Winsize{Row: 33, Col: 77}
	if err := unix.IoctlSetWinsize(int(tt.master.Fd()), unix.TIOCSWINSZ, size); err != nil {
		t.Fatal(err)
	}
	tt.expect(t, "33x77")
}

// What the jail does to the terminal ends with it.
func TestTerminalIsGivenBack(t *testing.T) {
	tt, cmd := newTerminal(t), jailed(project(t), nil, "spoil-terminal")
	before, err := unix.IoctlGetTermios(int(tt.slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	tt.start(t, cmd)
	tt.expect(t, "spoilt")
	cmd.Wait()
	after, err := unix.IoctlGetTermios(int(tt.slave.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("terminal mode is %+v (%v), was %+v", after, err, before)
	}
	opened, err := os.OpenFile(tt.slave.Name(), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Errorf("open the terminal: %v, want it no longer exclusive", err)
	} else {
		opened.Close()
	}
}

func init() {
	probes["spoil-terminal"] = func([]string) int {
		termios, err := unix.IoctlGetTermios(0, unix.TCGETS)
		if err == nil {
			termios.Lflag &^= unix.ECHO | unix.ISIG | unix.ICANON
			err = unix.IoctlSetTermios(0, unix.TCSETS, termios)
		}
		if err == nil {
			err = unix.IoctlSetInt(0, unix.TIOCEXCL, 0)
		}
		fmt.Println("spoilt", err)
		return 0
	}
	probes["interrupted"] = func([]string) int {
		c := notify(unix.SIGINT)
		fmt.Println("up")
		<-c
		fmt.Println("interrupted")
		return 42
	}
	probes["resized"] = func([]string) int {
		c := notify(unix.SIGWINCH)
		fmt.Println("up")
		<-c
		size, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Printf("%dx%d\n", size.Row, size.Col)
		return 0
	}
	probes["open-and-say"] = func(args []string) int {
		tryOpen(args[0], os.O_RDONLY)
		fmt.Println("said")
		return 0
	}
	probes["terminals"] = func(args []string) int {
		for _, path := range append(args, "/dev/tty") {
			state := "ok"
			f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
			if err != nil {
				state = "no"
			} else {
				defer f.Close()
			}
			fmt.Println(path, state)
		}
		group, err := unix.IoctlGetInt(0, unix.TIOCGPGRP)
		fmt.Println("foreground", err == nil && group == unix.Getpgrp())
		fmt.Println("done")
		return 0
	}
}
