// Package jail builds a jail around a command: namespaces, labels, enforcement,
// dropped privileges, exec. The supervisor (Run) stays outside as root; pid 1 of
// the jail (startFirst) only waits for the process that makes the jail's mounts,
// drops its privileges before the jail is armed, and becomes the command (Exec).
//
// Order is everything. The command's first instruction runs after the labels
// are in force, and nothing of ours runs in the jail with what it inherited
// from the host but the standard streams.
package jail

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/agent-lock/agent-lock/bpf"
	"github.com/agent-lock/agent-lock/event"
	"github.com/agent-lock/agent-lock/policy"
	"golang.org/x/sys/unix"
)

// ExecVerb is the hidden verb under which the program starts itself again.
const ExecVerb = "jail-exec"

// Config describes one jail.
type Config struct {
	Policy *policy.Policy
	User   User
	// Command is the command and its arguments; empty: the user's shell.
	Command []string
	// Stdin, Stdout and Stderr are the command's standard streams.
	Stdin, Stdout, Stderr *os.File
	// Denied is called for each denial, in order, from one goroutine.
	Denied func(event.Event)
	// Lost is called at the end with the number of denials that were not
	// reported because they came too fast.
	Lost func(uint64)
	// Layers say by what means the jail is held; the zero value is DefaultLayers.
	Layers Layers
	// Held is called before the start with how far the layers go on this kernel.
	Held func(layers string)
	// Weaker is called before the start of a jail without the BPF layer, with what
	// is lost.
	Weaker func(losses []string)
	// Drop leaves parts of the second layers, or forms of rules, out, to test that
	// they matter.
	Drop []string
	// Attach changes which programs are attached, to test that they matter.
	Attach bpf.SetOptions
}

// setup is what the supervisor tells the process that becomes the command.
type setup struct {
	Dir     string // where the command starts
	Command []string
	Env     []string
	User    User
	Keep    []kept
	Apart   bool // in a network namespace of its own
	Layers  Layers
	Rules   []policy.Rule // for Landlock and mounts; none where BPF holds without
	Network policy.Network
	Drop    []string
	Mutant  bool // something is left out: the command need not find the jail in force
}

// Run builds the jail, runs the command in it and returns its exit status:
// 128+n for signal n, 126 or 127 when it could not be executed. An error means
// that no jail was built and no command was started.
//
// The caller's process must be root and should do nothing else.
func Run(cfg Config) (status int, err error) {
	if cfg, err = settle(cfg); err != nil {
		return 0, err
	}
	// The kernel ties PDEATHSIG to the thread that forks.
	runtime.LockOSThread()
	if !cfg.Layers.BPF {
		return runWithoutBPF(cfg)
	}
	slot, err := bpf.Take(cfg.Attach)
	if errors.Is(err, bpf.ErrRefused) {
		kernel, _ := askKernel()
		return 0, fmt.Errorf("%w%s", err, kernel.hint())
	}
	if err != nil {
		return 0, err
	}
	b := begun{slot: slot, cfg: cfg}
	defer b.end()
	if err := b.begin(); err != nil {
		return 0, err
	}
	denials := watch(slot, cfg, b.rules)
	status, err = b.pid1.run()
	denials.finish()
	return status, err
}

// runWithoutBPF has nothing to arm: pid 1 and the command's process hold the jail.
func runWithoutBPF(cfg Config) (int, error) {
	pid1, err := startInit(cfg)
	if err != nil {
		return 0, err
	}
	if err := pid1.expect("ready"); err != nil {
		pid1.kill()
		return 0, err
	}
	return pid1.run()
}

// pid1 is the supervisor's end of the jail's first process.
type pid1 struct {
	process *os.Process
	command *os.Process // which pid 1 has started
	control *control
	signals chan os.Signal
	// terminal is restored after the command.
	terminal terminalState
}

// startInit starts pid 1 and waits until its mounts are there to be labelled. The
// command's process is still starting then.
func startInit(cfg Config) (*pid1, error) {
	namespaces, err := namespaceFlags(cfg.Policy.Network)
	if err != nil {
		return nil, err
	}
	ours, theirs, err := controlPair()
	if err != nil {
		return nil, err
	}
	p := &pid1{
		control: ours, signals: make(chan os.Signal, 8), terminal: saveTerminal(),
	}
	signal.Notify(p.signals, forwarded...)
	p.process, err = startFirst(namespaces, ExecVerb,
		[4]*os.File{cfg.Stdin, cfg.Stdout, cfg.Stderr, theirs.File})
	theirs.Close() // so that pid 1's death is the end of what ours reads
	if err != nil {
		ours.Close()
		return nil, fmt.Errorf("start pid 1 of the jail: %w", err)
	}
	s := setup{
		Dir: startDir(cfg.Policy.Project), Command: cfg.Command, User: cfg.User,
		Env: environment(os.Environ(), cfg.User, cfg.Policy.Env), Keep: keep(cfg.Policy),
		Apart:  namespaces&unix.CLONE_NEWNET != 0,
		Layers: cfg.Layers, Drop: cfg.Drop,
		Network: cfg.Policy.Network,
		Mutant:  len(cfg.Attach.Drop)+len(cfg.Drop) > 0,
	}
	if cfg.Layers.Landlock || !cfg.Layers.BPF {
		s.Rules = cfg.Policy.Rules
	}
	if len(s.Command) == 0 {
		s.Command = []string{cfg.User.Shell}
	}
	if err := ours.send(s); err != nil {
		p.kill()
		return nil, fmt.Errorf("tell pid 1 its task: %w", err)
	}
	growTable()
	sender, err := ours.awaitSender()
	if err == nil {
		p.command, err = os.FindProcess(sender)
	}
	if err != nil {
		p.kill()
		return nil, fmt.Errorf("wait for the command's process: %w", err)
	}
	if err := p.expect("mounted"); err != nil {
		p.kill()
		return nil, err
	}
	return p, nil
}

// expect reads pid 1's answer: one line, the word or what went wrong.
func (p *pid1) expect(word string) error {
	line, err := p.control.readLine()
	switch {
	case err != nil:
		return fmt.Errorf("wait for pid 1: %w", err)
	case line == word:
		return nil
	}
	return errors.New(line)
}

func (p *pid1) kill() {
	signal.Stop(p.signals)
	p.process.Kill()
	p.process.Wait()
	p.control.Close()
}

// run lets the command go and waits for it, passing signals on.
func (p *pid1) run() (int, error) {
	defer p.control.Close()
	if _, err := io.WriteString(p.control, "armed\n"); err != nil {
		p.kill()
		return 0, fmt.Errorf("let the command go: %w", err)
	}
	// The command may say that it found the jail not in force.
	failure := make(chan string, 1)
	go func() {
		line, _ := p.control.readLine()
		failure <- line
	}()
	done := make(chan ended, 1)
	go func() {
		state, err := p.process.Wait()
		done <- ended{state, err}
	}()
	for {
		select {
		case sig := <-p.signals:
			// The terminal has sent these to the command as well.
			if sig != unix.SIGINT && sig != unix.SIGQUIT {
				p.command.Signal(sig)
			}
		case e := <-done:
			signal.Stop(p.signals)
			p.terminal.restore()
			if line := <-failure; line != "" {
				return 0, errors.New(line)
			}
			if e.err != nil {
				return 0, fmt.Errorf("wait for pid 1: %w", e.err)
			}
			return exitStatus(e.state), nil
		}
	}
}

// ended is how a process did.
type ended struct {
	state *os.ProcessState
	err   error
}

func exitStatus(state *os.ProcessState) int {
	ws := state.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

// forwarded are the signals that are for the command. The terminal's own
// (Ctrl-C, Ctrl-\, Ctrl-Z) reach it directly, since it shares our process group;
// the first two must not end the supervisor.
var forwarded = []os.Signal{
	unix.SIGTERM, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2, unix.SIGINT, unix.SIGQUIT,
}

// arm labels the policy's paths as the jail's mounts show them and puts the
// labels in force, once the command's process has dropped its privileges.
func arm(slot *bpf.Slot, cfg Config, pid1 *pid1) (*rules, error) {
	r, err := resolve(cfg.Policy, fmt.Sprintf("/proc/%d", pid1.process.Pid))
	if err != nil {
		return nil, err
	}
	if err := r.expectOverlays(slot); err != nil {
		r.Close()
		return nil, err
	}
	if err := pid1.expect("ready"); err != nil {
		r.Close()
		return nil, err
	}
	fds, self, children, err := slot.Look()
	if err != nil {
		r.Close()
		return nil, err
	}
	opts := slotOptions(cfg.Policy, cfg.User)
	opts.Overlays = r.overlays(fds)
	labels, names, err := r.addresses(fds)
	if err == nil {
		names = leaveOut(cfg.Drop, labels, names, &opts)
		var init bpf.Process
		if init, err = theInit(self, children); err == nil {
			err = slot.Arm(labels, names, opts, self, init)
		}
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// theInit is our only child in another pid namespace.
func theInit(self bpf.Process, children []bpf.Process) (bpf.Process, error) {
	var found []bpf.Process
	for _, c := range children {
		if c.PIDNS != self.PIDNS {
			found = append(found, c)
		}
	}
	if len(found) != 1 {
		return bpf.Process{}, fmt.Errorf("find pid 1: %d children are in a pid namespace of "+
			"their own, want 1", len(found))
	}
	return found[0], nil
}

func slotOptions(p *policy.Policy, u User) bpf.SlotOptions {
	opts := bpf.SlotOptions{ShowOutside: p.Outside == policy.OutsideDeny, Links: bpf.LinksDeny,
		Root: u.UID == 0}
	switch p.Hardlinks {
	case policy.HardlinksAllow:
		opts.Links = bpf.LinksAllow
	case policy.HardlinksReadonly:
		opts.Links = bpf.LinksReadonly
	case policy.HardlinksDeny:
	}
	return opts
}

// startDir is the caller's directory when it is in the project, else the project.
func startDir(project string) string {
	dir, err := os.Getwd()
	if err == nil && (dir == project || strings.HasPrefix(dir, project+"/")) {
		return dir
	}
	return project
}
