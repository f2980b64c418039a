package adversary

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// startTimeout bounds the start of a jail, replyTimeout an answer of the process
// inside. Both are generous since an emulated machine may be 20 times slower.
const (
	startTimeout = 3 * time.Minute
	replyTimeout = 10 * time.Second // more than the attack itself may take
)

// A session is one start of a jail (or of none, for the controls) and the
// conversation with the attacker in it.
type session struct {
	label  string            // controlLabel or jailLabel
	tokens map[string]string // canaries planted at the start, by place
	early  string            // file that the attacker reads before anything else
	booty  []byte            // what it read
	pid    int               // of the attacker inside, as seen from here
	tty    *terminalPair     // its controlling terminal; nil: none could be made
	ttyErr error             // why
	dead   error             // why no more cases can run in it

	limit    time.Duration // for one attack
	log      *denialLog    // of the jail; nil: it has none
	fences   []string      // files, one of which the attacker tries to read after each case
	attempts int           // scenes set so far
	starts   int           // this one and those before it that died
	mark     string        // in the environment of all that it started

	cmd  *exec.Cmd
	conn *net.UnixConn
	rest []byte        // received and not yet used
	said []byte        // what the jail wrote to its standard output itself
	gone chan struct{} // closed when the jail has ended

	victim *victim // process outside, for the attacks of this session
}

// strippedVariables are set, each to a canary or what holds one, in the environment that
// the jail is started in.
var strippedVariables = []string{
	"AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "SSH_AUTH_SOCK", "LD_LIBRARY_PATH",
	"GIT_SSH_COMMAND", busVariable,
}

// Where descriptors of the runner are left open for the jail: a file, a
// directory and an O_PATH directory low, the file again high. The standard
// streams end at 2.
var inheritedAt = map[int]string{3: "file", 4: "dir", 9: "path", 1023: "file"}

// startSession starts the jail, or with the jail {env} the control.
func startSession(ctx context.Context, a *arena, j Jail, label string, limit time.Duration) (
	*session, error) {
	s := &session{label: label, limit: limit, tokens: map[string]string{},
		gone: make(chan struct{})}
	if err := s.plantEarly(a); err != nil {
		return nil, fmt.Errorf("plant a file: %w", err)
	}
	log := newDenialLog(a, label)
	if j.records() {
		s.log = log
	}
	argv := j.argv(a.project, log.path, a.attacker, attackerVerb, "serve", s.early)
	s.cmd = exec.CommandContext(ctx, argv[0], argv[1:]...)
	s.cmd.Dir = a.project
	s.mark = "AGENT_LOCK_ADVERSARY=" + canary()
	s.cmd.Env = append(s.environment(a.user, j), s.mark)
	s.cmd.WaitDelay = time.Second
	ours, theirs, err := controlSocket()
	if err != nil {
		return nil, err
	}
	s.conn = ours
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = theirs, theirs, os.Stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if j.AsUser {
		s.cmd.SysProcAttr.Credential = a.user.credential()
	}
	if s.tty, s.ttyErr = newTerminalPair(a.user); s.ttyErr == nil {
		s.cmd.Stderr = s.tty.slave
		s.cmd.SysProcAttr.Setctty = true
		s.cmd.SysProcAttr.Ctty = 2
		s.tty.watch()
	}
	if err = s.inherit(a); err != nil {
		err = fmt.Errorf("plant descriptors: %w", err)
	} else {
		err = s.start()
	}
	theirs.Close() // or we would not see that all others have
	for _, f := range s.cmd.ExtraFiles {
		f.Close() // nil receivers are fine
	}
	if err != nil {
		ours.Close()
		s.tty.close()
		return nil, err
	}
	return s, s.hello()
}

// start starts the jail on a thread that stays until the jail has ended. A jail may ask
// to be killed with its parent (PR_SET_PDEATHSIG), and that is the thread, which else
// could be one that ends before that.
func (s *session) start() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := s.cmd.Start()
		started <- err
		if err == nil {
			_ = s.cmd.Wait()
			close(s.gone)
		}
	}()
	return <-started
}

// lastWords is what a jail that did not come up said, on its standard output or on
// the terminal. The terminal is read by another goroutine, in pieces, so it may take a
// moment until all is there.
func (s *session) lastWords() string {
	said := string(s.said)
	for range 40 {
		more := s.tty.output()
		if said += more; more == "" && strings.TrimSpace(said) != "" {
			break
		}
		time.Sleep(25 * time.Millisecond)
	}
	return strings.TrimSpace(said)
}

// hello waits for the attacker's first message.
func (s *session) hello() error {
	m, pid, err := s.receive(startTimeout)
	if err == nil && m.Kind != "hello" {
		err = fmt.Errorf("got message %q, want hello", m.Kind)
	}
	if err != nil {
		said := s.lastWords()
		s.close()
		if said != "" {
			return fmt.Errorf("no attacker came up inside; it said: %s", said)
		}
		return fmt.Errorf("no attacker came up inside: %w", err)
	}
	s.pid = pid
	if m.Reply != nil {
		s.booty = m.Reply.Loot
	}
	return nil
}

// plantEarly writes the file that the attacker reads first of all, and the fences, which
// no rule gives it.
func (s *session) plantEarly(a *arena) error {
	s.tokens["early"] = canary()
	s.early = filepath.Join(a.outside, "early-"+s.label)
	for i := range fenceCount {
		name := fmt.Sprintf("%s%s-%d", fencePrefix, s.label, i)
		s.fences = append(s.fences, filepath.Join(a.root, name))
	}
	return a.user.do(func() error {
		err := os.WriteFile(s.early, []byte(s.tokens["early"]), 0o600)
		for _, fence := range s.fences {
			err = errors.Join(err, os.WriteFile(fence, nil, 0o600))
		}
		return err
	})
}

// environment is the environment that the jail is started in.
func (s *session) environment(u User, j Jail) []string {
	env := u.environment()
	if u.foreign() && !j.AsUser {
		env = append(env, "SUDO_UID="+strconv.Itoa(u.UID), "SUDO_GID="+strconv.Itoa(u.GID),
			"SUDO_USER="+u.Name)
	}
	for _, name := range strippedVariables {
		value := canary()
		s.tokens[name] = value
		if name == busVariable {
			value = busAddress(value)
		}
		env = append(env, name+"="+value)
	}
	return env
}

// inherit plants a file and leaves descriptors to it open in the jail's start.
func (s *session) inherit(a *arena) error {
	dir := filepath.Join(a.outside, "inherited-"+s.label)
	token := canary()
	s.tokens["inherited descriptor"] = token
	return a.user.do(func() error {
		err := os.MkdirAll(dir, 0o700)
		if err != nil {
			return err
		}
		file := filepath.Join(dir, "secret")
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			return err
		}
		for fd, what := range inheritedAt {
			path, flags := dir, unix.O_DIRECTORY
			switch what {
			case "file":
				path, flags = file, unix.O_RDONLY
			case "path":
				flags = unix.O_PATH
			}
			n, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			for len(s.cmd.ExtraFiles) <= fd-3 {
				s.cmd.ExtraFiles = append(s.cmd.ExtraFiles, nil)
			}
			s.cmd.ExtraFiles[fd-3] = os.NewFile(uintptr(n), path)
		}
		return nil
	})
}

// controlSocket makes the pair that carries requests and replies. It keeps
// packets apart, carries descriptors and tells the sender's process id.
func controlSocket() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make control socket: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control")
	defer ours.Close() // FileConn duplicates it
	if err := unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("make control socket: %w", err)
	}
	conn, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("make control socket: %w", err)
	}
	return conn.(*net.UnixConn), theirs, nil
}

// call lets the attacker inside run one case and returns its reply. onSync is
// called, with the process id of the caller, each time the attack asks for it.
func (s *session) call(t *Target, pass []int, onSync func(pid int) error) (*reply, error) {
	if err := s.send(message{Kind: "case", Target: t}); err != nil {
		return nil, s.end(fmt.Errorf("ask the attacker inside: %w", err))
	}
	if len(pass) > 0 {
		_, _, err := s.conn.WriteMsgUnix([]byte("{}\n"), unix.UnixRights(pass...), nil)
		if err != nil {
			return nil, s.end(fmt.Errorf("pass descriptors: %w", err))
		}
	}
	for {
		m, pid, err := s.receive(t.Limit + replyTimeout)
		if err != nil {
			return nil, s.end(fmt.Errorf("the attacker inside does not answer: %w", err))
		}
		switch {
		case m.Kind == "reply" && m.Reply != nil:
			return m.Reply, nil
		case m.Kind == "sync":
			err := onSync(pid)
			if err == nil {
				err = s.send(message{Kind: "go"})
			}
			if err != nil { // the attack waits, and would take the next case for its answer
				return nil, s.end(err)
			}
		}
	}
}

// end closes a session in which no more cases can run, and says why.
func (s *session) end(why error) error {
	s.dead = why
	s.close()
	return why
}

func (s *session) send(m message) error {
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = s.conn.Write(append(line, '\n'))
	return err
}

// receive reads one message and the process id of its sender. What is not ours
// is what the jail has to say; it is kept for error messages.
func (s *session) receive(limit time.Duration) (message, int, error) {
	if err := s.conn.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return message{}, 0, err
	}
	pid := 0
	for {
		// A jail that copies its command's output may join or cut our packets.
		if line, rest, ok := bytes.Cut(s.rest, []byte("\n")); ok {
			s.rest = rest
			var m message
			if json.Unmarshal(line, &m) == nil && m.Kind != "" {
				return m, pid, nil
			}
			s.said = append(append(s.said, line...), '\n')
			continue
		}
		buf := make([]byte, 4*maxLoot)
		oob := make([]byte, unix.CmsgSpace(unix.SizeofUcred))
		n, oobn, _, _, err := s.conn.ReadMsgUnix(buf, oob)
		if err != nil {
			return message{}, 0, err
		}
		if n == 0 {
			return message{}, 0, errors.New("it ended")
		}
		s.rest = append(s.rest, buf[:n]...)
		pid = senderOf(oob[:oobn])
	}
}

// senderOf returns the process id in the control part of a packet, or 0.
func senderOf(oob []byte) int {
	controls, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(controls) != 1 {
		return 0
	}
	cred, err := unix.ParseUnixCredentials(&controls[0])
	if err != nil {
		return 0
	}
	return int(cred.Pid)
}

// close ends the jail and all that it started, and waits for it.
func (s *session) close() {
	defer s.sweep()
	_ = s.send(message{Kind: "quit"})
	s.conn.Close()
	if s.victim != nil {
		s.victim.close()
	}
	defer s.tty.close()
	select {
	case <-s.gone:
	case <-time.After(2 * time.Second):
		_ = unix.Kill(-s.cmd.Process.Pid, unix.SIGKILL)
		<-s.gone
	}
}

// sweep kills what the attacker has left behind: a jail without a pid namespace does not,
// and the control has none.
func (s *session) sweep() {
	killAll(func(dir string) bool {
		env, err := os.ReadFile(dir + "/environ")
		return err == nil && bytes.Contains(env, []byte(s.mark))
	})
}

// killAll kills the processes that match, by their directory in /proc. Whatever multiplies
// meanwhile is looked for again.
func killAll(match func(dir string) bool) {
	for range 50 {
		found := 0
		dirs, _ := filepath.Glob("/proc/[0-9]*")
		for _, dir := range dirs {
			pid, err := strconv.Atoi(filepath.Base(dir))
			if err == nil && match(dir) && unix.Kill(pid, unix.SIGKILL) == nil {
				found++
			}
		}
		if found == 0 {
			return
		}
	}
}
