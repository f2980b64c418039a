package jail

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"

	"github.com/agent-lock/agent-lock/policy"
	"golang.org/x/sys/unix"
)

// started is the supervisor's end of a jail's processes.
type started struct {
	first, command *script
	pid            int // pid 1's
	commandFD      int // pidfd of the command's process
	name           string
	stderr         *os.File
	control        control
	signals        chan os.Signal
	// terminal is restored after the command.
	terminal terminalState
	end      chan struct{} // closed when the thread in the namespaces may go
}

// setup is what makes a jail's namespaces and the command's process.
type setup struct {
	Dir     string // where the command starts
	Command []string
	Env     []string
	User    User
	Keep    []policy.Rule // of paths that a private directory would cover
	Spaces  uintptr       // the namespaces, for clone(2)
	Layers  Layers
	Rules   []policy.Rule // for Landlock and mounts; none where neither is used
	Devices []policy.Rule // those for paths in /dev
	Network policy.Network
	Drop    []string
	Hooked  bool    // a hook decides on capabilities
	Mutant  bool    // something is left out: the command need not find the jail in force
	FDs     int     // /proc/thread-self/fd of the host's /proc
	Mask    *uint64 // the caller's signal mask
}

func newSetup(cfg Config) (setup, error) {
	s := setup{
		Dir: startDir(cfg.Policy.Project), Command: cfg.Command, User: cfg.User,
		Env: environment(os.Environ(), cfg.User, cfg.Policy.Env), Keep: keep(cfg.Policy),
		Layers: cfg.Layers, Drop: cfg.Drop,
		Network: cfg.Policy.Network,
		Hooked:  cfg.Layers.BPF || slices.Contains(cfg.Drop, DropCapabilities),
		Mutant:  len(cfg.Attach.Drop)+len(cfg.Drop) > 0,
	}
	if cfg.Layers.Landlock || cfg.Layers.View || !cfg.Layers.BPF {
		s.Rules = lastRules(cfg.Policy.Rules)
	}
	for _, rule := range cfg.Policy.Rules {
		if below(rule.Path, "/dev") && rule.Rights != 0 {
			s.Devices = append(s.Devices, rule)
		}
	}
	if len(s.Command) == 0 {
		s.Command = []string{cfg.User.Shell}
	}
	var err error
	s.Spaces, err = namespaceFlags(cfg.Policy.Network)
	return s, err
}

// start makes the jail's namespaces and starts its processes. The command's is still
// dropping its privileges then.
func start(cfg Config) (*started, error) {
	s, err := newSetup(cfg)
	if err != nil {
		return nil, err
	}
	ours, theirs, err := controlPair()
	if err != nil {
		return nil, err
	}
	p := &started{
		control: ours, signals: make(chan os.Signal, 8), terminal: saveTerminal(),
		first: new(script), command: new(script), commandFD: -1, end: make(chan struct{}),
		name: s.Command[0], stderr: cfg.Stderr,
	}
	p.notify()
	built := make(chan error)
	files := [4]*os.File{cfg.Stdin, cfg.Stdout, cfg.Stderr, theirs.File}
	go p.inNamespaces(func() { built <- p.build(s, files) })
	err = <-built
	if err != nil {
		p.kill()
		return nil, err
	}
	return p, nil
}

// inNamespaces gives a thread to the jail. It stays until the end, since the kernel
// ties PDEATHSIG to the thread that forks, and then ends as what it has become. The
// main thread is not taken: /proc/self shows its namespaces.
func (p *started) inNamespaces(build func()) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		go p.inNamespaces(build)
	} else {
		build()
	}
	<-p.end
}

// build does all of that thread's work.
func (p *started) build(s setup, files [4]*os.File) error {
	if err := unix.Unshare(int(s.Spaces)); err != nil {
		hint := ""
		if errors.Is(err, unix.EPERM) {
			hint = "; root lacks CAP_SYS_ADMIN, as in a container: start the jail on the host"
		}
		return fmt.Errorf("make the jail's namespaces: %w%s", err, hint)
	}
	var err error
	if s.FDs, err = unix.Open("/proc/thread-self/fd",
		unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open this thread's descriptors: %w", err)
	}
	defer unix.Close(s.FDs)
	w, err := furnish(s)
	if err != nil {
		return err
	}
	if err := p.startFirst(files); err != nil {
		return fmt.Errorf("start pid 1 of the jail: %w", err)
	}
	if err := p.expect(p.first); err != nil {
		return err
	}
	if err := furnishRest(s, w); err != nil {
		return err
	}
	second, err := prepareSecond(s)
	if err != nil {
		return err
	}
	s.Mask = &p.first.mask
	if err := p.command.layCommand(s, second); err != nil {
		return err
	}
	if err = p.control.letGo(second.ruleset); err != nil {
		err = fmt.Errorf("start the command's process: %w", err)
	}
	return errors.Join(err, second.close())
}
