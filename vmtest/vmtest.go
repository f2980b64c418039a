// Package vmtest boots kernels in QEMU, runs a plan of steps in each, and brings
// the results home.
//
// The host half finds out whether KVM works, builds an initramfs around a static
// binary, starts one machine a kernel, and follows its console and its frames.
// The guest half (guest*.go) is that binary as pid 1. What the steps are is the
// caller's business: the package knows commands, not jails.
package vmtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/hashicorp/go-multierror"

	"github.com/agent-lock/agent-lock/kernels"
	"github.com/agent-lock/agent-lock/report"
)

// Config is what to boot and what to run there.
type Config struct {
	Kernels []kernels.Kernel
	Plan    []Step
	Files   []File
	// Trees are put into the guest. With one, /bin, /sbin and /lib are links into /usr.
	Trees []Tree
	// Modules are kernel modules to load, with what they need, before the first
	// step. One that a kernel lacks is left out.
	Modules []string
	Shares  []Share
	// Binary is the static executable that becomes pid 1 (as "guest-init") and
	// /bin/agent-lock. Empty: the running program.
	Binary string
	// Binaries are the same for guests of other architectures than this program's, such
	// as kernels.ARM64.
	Binaries map[string]string
	// Cache is agent-lock's cache directory. Empty: kernels.CacheDir().
	Cache string
	Accel Accel // empty: AccelAuto
	// Timeout bounds the whole run; zero: DefaultTimeout.
	Timeout time.Duration
	// Idle is how long pid 1 may be silent before a guest is called hung; it
	// sends a sign of life a second. Zero: DefaultIdle.
	Idle     time.Duration
	Jobs     int // machines at a time; zero: as many as there are cores
	CPUs     int // of each machine; zero: 2
	MemoryMB int // of each machine; zero: 1024
	// ICount makes a nanosecond of the guest's clock mean one instruction, so that
	// what is measured there repeats. It needs TCG, and one processor.
	ICount bool
	// Text gets what the steps print, as it comes; nil drops it. With more than
	// one kernel each line starts with the kernel's name.
	Text io.Writer
	// Errors gets what they print to standard error; nil: Text does.
	Errors io.Writer
	// Messages are for the step that runs, with one kernel only. A signal ends the run
	// before the guest is up, and so does the third one.
	Messages <-chan Message
	// Keep is a folder for the raw record of each cell: LABEL.console, LABEL.frames
	// and LABEL.qemu, the command line. Empty: nothing is kept.
	Keep string
	// Progress is told how far a cell's step is, by its results so far, and with no step that
	// the cell is done; nil: nobody. It may be called for several cells at a time.
	Progress func(label, step string, results []report.Result)
	// Logf is told what happens; nil: nobody.
	Logf func(format string, args ...any)
}

// Defaults of Config.
const (
	DefaultTimeout = 30 * time.Minute
	DefaultIdle    = 30 * time.Second
)

func (c *Config) setDefaults() error {
	if c.Binary == "" {
		path, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find own binary: %w", err)
		}
		c.Binary = path
	}
	if c.Cache == "" {
		dir, err := kernels.CacheDir()
		if err != nil {
			return err
		}
		c.Cache = dir
	}
	if c.Logf == nil {
		c.Logf = func(string, ...any) {}
	}
	if c.Progress == nil {
		c.Progress = func(string, string, []report.Result) {}
	}
	if c.Text == nil {
		c.Text = io.Discard
	}
	if c.Errors == nil {
		c.Errors = c.Text
	}
	if len(c.Kernels) > 1 {
		c.Messages = nil
	}
	for _, d := range []struct {
		value *time.Duration
		def   time.Duration
	}{{&c.Timeout, DefaultTimeout}, {&c.Idle, DefaultIdle}} {
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	if c.ICount {
		if c.Accel == AccelKVM {
			return errors.New("instructions can only be counted under tcg, not under kvm")
		}
		c.Accel, c.CPUs = AccelTCG, 1
		if c.Idle == 0 {
			c.Idle = 10 * DefaultIdle // the guest's seconds are as much longer
		}
	}
	for _, d := range []struct {
		value *int
		def   int
	}{
		{&c.Jobs, runtime.NumCPU()}, {&c.CPUs, 2}, {&c.MemoryMB, 1024},
	} {
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	return nil
}

// machine is the type of the run's machines.
func (c Config) machine(arch string, a accel) machineType {
	return machineType{arch: arch, accel: a, cpus: c.CPUs, memoryMB: c.MemoryMB, icount: c.ICount}
}

// Run boots every kernel of cfg and returns a cell for each, in their order. The
// error says why nothing could be booted at all; what went wrong with a single
// kernel is in its cell, and Errors collects it.
func Run(ctx context.Context, cfg Config) ([]Cell, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	outfits, err := cfg.outfits()
	if err != nil {
		return nil, err
	}
	if cfg.Keep != "" {
		if err := os.MkdirAll(cfg.Keep, 0o755); err != nil {
			return nil, fmt.Errorf("make folder for records: %w", err)
		}
	}
	dir, err := os.MkdirTemp("", "agent-lock-vmtest-")
	if err != nil {
		return nil, fmt.Errorf("make temporary folder: %w", err)
	}
	defer os.RemoveAll(dir)
	acc, err := chooseAccel(cfg, outfits)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	r := &runner{cfg: cfg, outfits: outfits, dir: dir, accel: acc}
	return r.all(ctx), nil
}

// Errors collects the faults of all cells that are not tolerated; nil when there
// is none.
func Errors(cells []Cell) error {
	all := &multierror.Error{ErrorFormat: func(errs []error) string {
		lines := make([]string, len(errs))
		for i, err := range errs {
			lines[i] = err.Error()
		}
		return strings.Join(lines, "\n")
	}}
	for _, c := range cells {
		if c.Fault != "" && !c.Skipped {
			all = multierror.Append(all, fmt.Errorf("%s: %s: %s", c.Label, c.Fault, c.Detail))
		}
	}
	return all.ErrorOrNil()
}
