// Package jail builds a jail around a command: namespaces, labels, enforcement,
// dropped privileges, exec. The supervisor (Run) stays outside as root; one of its
// threads makes the jail's namespaces and mounts and starts pid 1, which only waits for
// the process that drops its privileges before the jail is armed and becomes the command.
//
// Order is everything. The command's first instruction runs after the labels
// are in force, and nothing of ours runs in the jail with what it inherited
// from the host but the standard streams.
package jail

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/agent-lock/agent-lock/bpf"
	"github.com/agent-lock/agent-lock/event"
	"github.com/agent-lock/agent-lock/policy"
)

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

// Run builds the jail, runs the command in it and returns its exit status:
// 128+n for signal n, 126 or 127 when it could not be executed. An error means
// that no jail was built and no command was started.
//
// The caller's process must be root and should do nothing else.
func Run(cfg Config) (status int, err error) {
	if cfg, err = settle(cfg); err != nil {
		return 0, err
	}
	if !cfg.Layers.BPF {
		return runWithoutBPF(cfg)
	}
	slot, err := bpf.Take(cfg.Attach)
	if errors.Is(err, bpf.ErrRefused) || errors.Is(err, bpf.ErrUnattached) {
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
	status, err = b.jail.run()
	denials.finish()
	return status, err
}

// runWithoutBPF has nothing to arm: mounts and the second layers hold the jail.
func runWithoutBPF(cfg Config) (int, error) {
	p, err := start(cfg)
	if err != nil {
		return 0, err
	}
	if err := p.awaitCommand(); err != nil {
		p.kill()
		return 0, err
	}
	return p.run()
}

// arm labels the policy's paths as the jail's mounts show them and puts the
// labels in force, once the command's process has dropped its privileges.
func arm(slot *bpf.Slot, cfg Config, p *started) (*rules, error) {
	r, err := resolve(cfg.Policy, fmt.Sprintf("/proc/%d", p.pid))
	if err != nil {
		if why := p.awaitCommand(); why != nil { // with pid 1 gone, so is its directory
			return nil, why
		}
		return nil, err
	}
	if err := r.expectOverlays(slot); err != nil {
		r.Close()
		return nil, err
	}
	if err := p.awaitCommand(); err != nil {
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
