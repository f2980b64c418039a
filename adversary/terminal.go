package adversary

import (
	"strings"

	"golang.org/x/sys/unix"
)

// terminal: putting words into the mouth of whoever sits at the terminal.
var terminal = []Case{
	{
		Name: "terminal_tiocsti", Family: "terminal", Source: "D53 bwrap#142",
		What:  "pushes input into the terminal that the jail was started on",
		Calls: "ioctl(TIOCSTI)", Needs: needsInjection,
		Hooks: []string{"file_ioctl"}, Setup: ownTerminal,
		Attack: func(*Target) ([]byte, error) { return nil, inject(2) },
		Judge:  pushed(injected),
	},
	{
		Name: "terminal_tiocsti_reopened", Family: "terminal", Source: "D53 bwrap#142",
		What:  "the same through /dev/tty",
		Calls: "openat, ioctl(TIOCSTI)", Needs: needsInjection,
		Hooks: []string{"file_ioctl", "file_open"}, Setup: ownTerminal,
		Attack: func(*Target) ([]byte, error) {
			fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC, 0)
			if err != nil {
				return nil, call("open /dev/tty", err)
			}
			return nil, inject(fd)
		},
		Judge: pushed(injected),
	},
	{
		Name: "terminal_other_write", Family: "terminal", Source: "D55",
		What:  "writes to another terminal of the user",
		Calls: "openat, write", Needs: needsTerminal,
		Hooks: opens, Setup: otherTerminal,
		Attack: func(t *Target) ([]byte, error) {
			return nil, scribble(t.Args["tty"], unix.O_NOCTTY)
		},
		Judge: Judge{
			"what the attacker wrote came out of another terminal",
			func(s *Scene) string {
				if strings.Contains(s.terminal.output(), mark) {
					return "text arrived at another terminal"
				}
				return ""
			},
		},
	},
	{
		Name: "terminal_other_read", Family: "terminal", Source: "D55",
		What:  "reads what is typed at another terminal of the user",
		Calls: "openat, read", Needs: needsTerminal,
		Hooks: opens,
		Setup: func(s *Scene) error {
			if err := otherTerminal(s); err != nil {
				return err
			}
			_, err := s.terminal.master.WriteString(s.Token)
			return err
		},
		Attack: func(t *Target) ([]byte, error) {
			fd, err := unix.Open(t.Args["tty"], unix.O_RDONLY|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
			if err != nil {
				return nil, call("open", err)
			}
			return slurp(fd) // it ends at once: the terminal does not wait
		},
		Judge: tokenRead,
	},
}

// injected is what the attacker pushes into the terminal's input.
const injected = "id\n"

const needsInjection = needsTerminal + ", from 6.2 dev.tty.legacy_tiocsti 1"

// pushed finds a text in the input of the terminal that the jail was started on.
func pushed(text string) Judge {
	return Judge{"what the attacker pushed is input of the terminal", func(s *Scene) string {
		if strings.Contains(s.session.tty.input(), text) {
			return "input arrived at the terminal outside"
		}
		return ""
	}}
}

func inject(tty int) error {
	for _, c := range []byte(injected) {
		// The kernel reads one byte at the address.
		if err := unix.IoctlSetPointerInt(tty, unix.TIOCSTI, int(c)); err != nil {
			return call("ioctl TIOCSTI", err)
		}
	}
	return nil
}

// ownTerminal makes sure that there is a terminal and nothing waits in it.
func ownTerminal(s *Scene) error {
	if s.session.ttyErr != nil {
		return s.session.ttyErr
	}
	s.session.tty.input()
	return nil
}

// otherTerminal makes a terminal that has nothing to do with the jail.
func otherTerminal(s *Scene) error {
	t, err := newTerminalPair(s.arena.user)
	if err != nil {
		return err
	}
	s.terminal = t
	s.onClose(t.close)
	s.Arg("tty", t.name)
	return nil
}
