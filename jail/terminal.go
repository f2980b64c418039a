package jail

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// terminalState is how the controlling terminal was before the jail: what the
// jail leaves behind would otherwise act on the shell outside.
type terminalState struct {
	tty     *os.File // nil: no controlling terminal
	termios *unix.Termios
}

func saveTerminal() terminalState {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return terminalState{}
	}
	termios, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		tty.Close()
		return terminalState{}
	}
	return terminalState{tty, termios}
}

// restore gives the terminal back: to our process group, which a shell in the
// jail may have changed, in its old mode, for everybody to open.
func (s terminalState) restore() {
	if s.tty == nil {
		return
	}
	defer s.tty.Close()
	fd := int(s.tty.Fd())
	signal.Ignore(unix.SIGTTOU)
	defer signal.Reset(unix.SIGTTOU)
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	if err == nil && group != unix.Getpgrp() && unix.Kill(-group, 0) == nil {
		return // a shell outside has put us into the background
	}
	unix.IoctlSetPointerInt(fd, unix.TIOCSPGRP, unix.Getpgrp())
	unix.IoctlSetTermios(fd, unix.TCSETSW, s.termios)
	unix.IoctlSetInt(fd, unix.TIOCNXCL, 0)
}
