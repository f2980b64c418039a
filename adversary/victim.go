package adversary

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A victim is a process of the user outside the jail. Its canary is in its
// environment, its command line, its memory, the name of a file it has mapped
// and a file it has open.
type victim struct {
	pid    int
	token  string
	addr   uint64 // of the canary in memory
	fd     int    // that the canary can be read from
	memfd  int    // the same, of a file that no path leads to
	noKey  string // why its canary is not in the user's keyring, or ""
	nice   int
	limits string

	noRing, noPersistent string // the same of two other keyrings
	cmd                  *exec.Cmd
	stdin                io.Closer
	gone                 chan struct{} // closed when it has ended
}

// victimReport is what a victim tells the runner.
type victimReport struct {
	Addr  uint64 `json:"addr"`
	FD    int    `json:"fd"`
	Memfd int    `json:"memfd"`
	Key   string `json:"key"` // why there is none, or ""

	Ring       string `json:"ring"`       // the same of the named keyring
	Persistent string `json:"persistent"` // and of the persistent one
}

// newVictim starts a victim whose working directory is the outside directory. It
// keeps its file in a directory of the given name there.
func newVictim(a *arena, name string) (*victim, error) {
	v := &victim{token: canary(), gone: make(chan struct{})}
	dir := filepath.Join(a.outside, name)
	mapped := filepath.Join(dir, v.token)
	err := a.user.do(func() error {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		return os.WriteFile(mapped, []byte(v.token), 0o600)
	})
	if err != nil {
		return nil, err
	}
	v.cmd = exec.Command(a.attacker, attackerVerb, "victim", mapped, "--password="+v.token)
	v.cmd.Env = append(a.user.environment(), "PASSWORD="+v.token)
	v.cmd.Dir = a.outside
	v.cmd.Stderr = os.Stderr
	v.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.user.credential(), Setpgid: true}
	if v.stdin, err = v.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := v.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start victim: %w", err)
	}
	v.pid = v.cmd.Process.Pid
	line, readErr := bufio.NewReader(out).ReadBytes('\n')
	go func() {
		_ = v.cmd.Wait()
		close(v.gone)
	}()
	var r victimReport
	if readErr != nil || json.Unmarshal(line, &r) != nil {
		v.close()
		return nil, fmt.Errorf("start victim: no report: %w", readErr)
	}
	v.addr, v.fd, v.memfd, v.noKey = r.Addr, r.FD, r.Memfd, r.Key
	v.noRing, v.noPersistent = r.Ring, r.Persistent
	v.nice, _ = unix.Getpriority(unix.PRIO_PROCESS, v.pid)
	limits, _ := os.ReadFile(fmt.Sprintf("/proc/%d/limits", v.pid))
	v.limits = string(limits)
	return v, nil
}

// dead reports whether the victim has ended, waiting for it up to the grace time.
func (v *victim) dead(grace time.Duration) bool {
	select {
	case <-v.gone:
		return true
	default:
	}
	select {
	case <-v.gone:
		return true
	case <-time.After(grace):
		return false
	}
}

func (v *victim) close() {
	v.stdin.Close()
	_ = v.cmd.Process.Kill()
	<-v.gone
}

// beVictim is the victim's side. It keeps the canary in memory, reports where,
// and lives until its standard input ends.
func beVictim(mapped string) error {
	f, err := os.Open(mapped)
	if err != nil {
		return err
	}
	defer f.Close()
	page, err := unix.Mmap(int(f.Fd()), 0, 64, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("mmap %s: %w", mapped, err)
	}
	// Private anonymous memory, which no read of the file can stand for.
	secret, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	copy(secret, page)
	addr := uint64(uintptr(unsafe.Pointer(&secret[0])))
	memfd, err := unix.MemfdCreate("victim", 0)
	if err != nil {
		return fmt.Errorf("memfd_create: %w", err)
	}
	if _, err := unix.Write(memfd, page); err != nil {
		return fmt.Errorf("write memfd: %w", err)
	}
	r := victimReport{Addr: addr, FD: int(f.Fd()), Memfd: memfd}
	_, err = unix.AddKey("user", keyName(os.Getpid()), page, unix.KEY_SPEC_USER_KEYRING)
	if err != nil {
		r.Key = err.Error()
	}
	if err == nil {
		r.Ring, r.Persistent = plantKeyrings(page)
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

// keyName is the name of a victim's key in the keyring of its user.
func keyName(pid int) string { return fmt.Sprint("agent-lock-victim-", pid) }

// renewVictim gives the session a victim, or another one if a case has done it harm.
func (s *session) renewVictim(a *arena) error {
	if s.victim != nil {
		if s.victim.intact() {
			return nil
		}
		s.victim.close()
	}
	v, err := newVictim(a, "victim-"+s.label)
	if err == nil {
		s.victim = v
	}
	return err
}

// intact reports whether the victim is as it was when it started.
func (v *victim) intact() bool { return !v.dead(0) && v.limited() == "" && v.reniced() == "" }

// limited says whether the victim's limits are not what they were.
func (v *victim) limited() string {
	now, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", v.pid))
	if err != nil || string(now) == v.limits {
		return ""
	}
	return "a limit of the process outside changed"
}

// reniced says whether the victim's priority is not what it was.
func (v *victim) reniced() string {
	now, err := unix.Getpriority(unix.PRIO_PROCESS, v.pid)
	if err != nil || now == v.nice {
		return ""
	}
	return "the priority of the process outside changed"
}

// Victim tells the attacker of the process outside that there is. The runner
// replaces it when a case has done it harm.
func (s *Scene) Victim() error {
	s.Target.PID = s.victim.pid
	s.Arg("addr", fmt.Sprint(s.victim.addr))
	s.Arg("fd", fmt.Sprint(s.victim.fd))
	s.Arg("memfd", fmt.Sprint(s.victim.memfd))
	s.Arg("home", filepath.Join(s.arena.outside, "victim-"+s.session.label))
	return nil
}

// PassVictim passes the attacker a pidfd of the process outside.
func (s *Scene) PassVictim() error {
	if err := s.Victim(); err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(s.Target.PID, 0)
	if err != nil {
		return fmt.Errorf("pidfd_open: %w", err)
	}
	s.pass = append(s.pass, fd)
	s.onClose(func() { unix.Close(fd) })
	return nil
}
