package adversary

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A Scene is the outside of one attempt at a case: fresh directories, a fresh
// canary, and whatever Setup adds. Its methods run as the user.
type Scene struct {
	// Target is what the attacker will be told.
	Target Target
	// Token is the canary. It must not get into Target.
	Token string
	// Loot is what the attacker sent out. It is set before Judge is called.
	Loot []byte
	// Evidence is for what Meanwhile saw.
	Evidence string

	attempt  string   // name of this scene's directories
	session  *session // in which the attack runs
	arena    *arena
	roots    []string          // outside trees whose change is a leak
	before   map[string]string // their state before the attack
	pass     []int             // descriptors to pass to the attacker
	victim   *victim
	terminal *terminalPair // of this scene alone
	cleanup  []func()

	listeners []listener
	conn      int               // for the judge arrived
	refused   bool              // the attacker says that an error stopped it
	secrets   map[string]string // for secretRead
}

// newScene makes the directories of an attempt. It runs as the user.
func newScene(a *arena, s *session, c Case) (*Scene, error) {
	// Short names: the address of a Unix socket holds 107 bytes.
	attempt := s.label + strconv.Itoa(s.attempts)
	s.attempts++
	sc := &Scene{Token: canary(), session: s, victim: s.victim, arena: a, attempt: attempt,
		secrets: map[string]string{}}
	sc.Target = Target{
		Case:    c.Name,
		Fresh:   c.Fresh,
		Project: a.project,
		Work:    filepath.Join(a.project, attempt),
		Outside: filepath.Join(a.outside, attempt),
		Args:    map[string]string{},
		Limit:   s.limit,
	}
	sc.Target.Secret = filepath.Join(sc.Target.Outside, "secret")
	sc.roots = []string{sc.Target.Outside}
	for _, dir := range []string{sc.Target.Work, sc.Target.Outside} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return sc, err
		}
	}
	return sc, sc.Plant("secret")
}

// Plant writes a file in the outside directory that holds the canary.
func (s *Scene) Plant(name string) error { return s.PlantAt(s.Out(name)) }

// PlantAt writes a file that holds the canary, making its directory if needed.
func (s *Scene) PlantAt(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(s.Token+"\n"), 0o600)
}

// Out returns a path in the outside directory.
func (s *Scene) Out(name string) string { return filepath.Join(s.Target.Outside, name) }

// In returns a path in the attempt's directory in the project.
func (s *Scene) In(name string) string { return filepath.Join(s.Target.Work, name) }

// Arg tells the attacker something.
func (s *Scene) Arg(name, value string) { s.Target.Args[name] = value }

// Sibling makes a directory next to the project, whose name begins like the
// project's, plants a secret in it and tells the attacker as "sibling".
func (s *Scene) Sibling(name string) error {
	dir := filepath.Join(s.arena.root, name, filepath.Base(s.Target.Work))
	s.Arg("sibling", dir)
	s.roots = append(s.roots, dir)
	return s.PlantAt(filepath.Join(dir, "secret"))
}

// Pass opens a path and passes the descriptor to the attacker over the control
// socket.
func (s *Scene) Pass(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	s.pass = append(s.pass, fd)
	s.onClose(func() { unix.Close(fd) })
	return nil
}

// Listen binds a Unix socket of a type (unix.SOCK_STREAM or unix.SOCK_DGRAM)
// and tells the attacker its address as name. An address that begins with "@" is
// abstract. The judge [heard] looks whether anything arrived.
func (s *Scene) Listen(name string, kind int, address string) error {
	fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	s.onClose(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: address}); err != nil {
		return fmt.Errorf("bind %s: %w", address, err)
	}
	if kind != unix.SOCK_DGRAM {
		if err := unix.Listen(fd, 1); err != nil {
			return fmt.Errorf("listen: %w", err)
		}
	}
	s.Arg(name, address)
	s.listeners = append(s.listeners, listener{fd, kind})
	return nil
}

// A listener is a socket outside. What reached it, reached it before the
// attacker's reply reached us, so nobody needs to wait.
type listener struct{ fd, kind int }

// heard says what arrived at the socket.
func (l listener) heard() string {
	if l.kind == unix.SOCK_DGRAM {
		var buf [64]byte
		if n, _, err := unix.Recvfrom(l.fd, buf[:], unix.MSG_DONTWAIT); err == nil && n > 0 {
			return "a datagram arrived at the socket outside"
		}
		return ""
	}
	fd, _, err := unix.Accept4(l.fd, unix.SOCK_CLOEXEC)
	if err != nil {
		return ""
	}
	unix.Close(fd)
	return "a connection arrived at the socket outside"
}

func (s *Scene) onClose(f func()) { s.cleanup = append(s.cleanup, f) }

// close ends what Setup started, newest first, and removes the directories.
func (s *Scene) close() {
	for i := len(s.cleanup) - 1; i >= 0; i-- {
		s.cleanup[i]()
	}
	_ = s.arena.user.do(func() error {
		for _, dir := range append(s.roots, s.Target.Work) {
			_ = os.RemoveAll(dir)
		}
		return nil
	})
}

// leaked reports whether the loot holds s.
func (s *Scene) leaked(token string) bool { return strings.Contains(string(s.Loot), token) }
