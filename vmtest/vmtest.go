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
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/hashicorp/go-multierror"

	"github.com/agent-lock/agent-lock/kernels"
)

// Config is what to boot and what to run there.
type Config struct {
	Kernels []kernels.Kernel
	Plan    []Step
	Files   []File
	// Binary is the static executable that becomes pid 1 (as "guest-init") and
	// /bin/agent-lock. Empty: the running program.
	Binary string
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
	// Text gets what the steps print, as it comes; nil drops it. With more than
	// one kernel each line starts with the kernel's name.
	Text io.Writer
	// Logf is told what happens; nil: nobody.
	Logf func(format string, args ...any)
}

// Defaults of Config.
const (
	DefaultTimeout = 10 * time.Minute
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
	if c.Text == nil {
		c.Text = io.Discard
	}
	for _, d := range []struct {
		value *time.Duration
		def   time.Duration
	}{{&c.Timeout, DefaultTimeout}, {&c.Idle, DefaultIdle}} {
		if *d.value == 0 {
			*d.value = d.def
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

// Run boots every kernel of cfg and returns a cell for each, in their order. The
// error says why nothing could be booted at all; what went wrong with a single
// kernel is in its cell, and Errors collects it.
func Run(ctx context.Context, cfg Config) ([]Cell, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	qemu, err := qemuBinary()
	if err != nil {
		return nil, err
	}
	if err := checkStatic(cfg.Binary); err != nil {
		return nil, err
	}
	base, err := baseArchive(cfg.Cache, cfg.Binary)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "agent-lock-vmtest-")
	if err != nil {
		return nil, fmt.Errorf("make temporary folder: %w", err)
	}
	defer os.RemoveAll(dir)
	acc, err := chooseAccel(cfg.Accel, qemu, cfg.CPUs, cfg.MemoryMB, cfg.Logf)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	r := &runner{cfg: cfg, qemu: qemu, base: base, dir: dir, accel: acc}
	return r.all(ctx), nil
}

// Errors collects the faults of all cells; nil when there is none.
func Errors(cells []Cell) error {
	var all *multierror.Error
	for _, c := range cells {
		if c.Fault != "" {
			all = multierror.Append(all, fmt.Errorf("%s: %s: %s", c.Label, c.Fault, c.Detail))
		}
	}
	return all.ErrorOrNil()
}

// runner is one run.
type runner struct {
	cfg   Config
	qemu  string
	base  string
	dir   string
	accel *accelerator
	text  sync.Mutex
}

// all runs the cells, cfg.Jobs at a time.
func (r *runner) all(ctx context.Context) []Cell {
	labels := labels(r.cfg.Kernels)
	cells := make([]Cell, len(r.cfg.Kernels))
	slots := make(chan struct{}, r.cfg.Jobs)
	var wg sync.WaitGroup
	for i, k := range r.cfg.Kernels {
		wg.Add(1)
		go func() {
			defer wg.Done()
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := ctx.Err(); err != nil {
				fault, detail := contextFault(ctx)
				cells[i] = broken(k, labels[i], fault, errors.New(detail))
				return
			}
			cells[i] = r.cell(ctx, k, labels[i])
		}()
	}
	wg.Wait()
	return cells
}

// labels names the kernels' columns: by version, where that tells them apart.
func labels(ks []kernels.Kernel) []string {
	count := make(map[string]int)
	for _, k := range ks {
		count[k.Version]++
	}
	out := make([]string, len(ks))
	for i, k := range ks {
		out[i] = k.Version
		if k.Version == "" || count[k.Version] > 1 {
			out[i] = k.Name
		}
	}
	return out
}

// cell boots one kernel, twice if KVM turns out not to work for it.
func (r *runner) cell(ctx context.Context, k kernels.Kernel, label string) Cell {
	for {
		a := r.accel.current()
		r.cfg.Logf("%s: booting (%s)", label, a)
		c, err := r.boot(ctx, k, label, a)
		if err != nil {
			c = broken(k, label, FaultQEMU, err)
		}
		if c.Hello == 0 && !c.kernelRan && ctx.Err() == nil && r.accel.fail(a, c.Detail) {
			continue
		}
		if c.Fault != "" {
			r.cfg.Logf("%s: broken after %.1f s: %s: %s", label, c.Wall.Seconds(), c.Fault, c.Detail)
		} else {
			r.cfg.Logf("%s: hello after %.1f s, done after %.1f s, %d results", label,
				c.Hello.Seconds(), c.Wall.Seconds(), len(c.Results))
		}
		return c
	}
}

func (r *runner) boot(ctx context.Context, k kernels.Kernel, label string, a accel) (Cell, error) {
	cell := Cell{Kernel: k, Label: label, Accel: string(a), Fault: FaultQEMU}
	var nonce [16]byte
	rand.Read(nonce[:]) // never fails
	p := plan{Nonce: hex.EncodeToString(nonce[:]), Steps: r.cfg.Plan}
	recs, err := runRecords(p, r.cfg.Files)
	if err != nil {
		return cell, err
	}
	initramfs := filepath.Join(r.dir, p.Nonce[:8]+".cpio")
	if err := writeInitramfs(initramfs, r.base, recs); err != nil {
		return cell, err
	}
	defer os.Remove(initramfs)
	out := r.newText(label)
	g := &guest{
		cell:   &cell,
		plan:   p,
		limits: limitsFor(a, r.cfg.Idle),
		stream: stream{nonce: p.Nonce},
		onText: func(_ int, data []byte) { out.write(data) },
	}
	err = g.run(ctx, machineSpec{
		qemu:      r.qemu,
		accel:     a,
		cpus:      r.cfg.CPUs,
		memoryMB:  r.cfg.MemoryMB,
		kernel:    k,
		initramfs: initramfs,
	})
	out.flush()
	cell.Output = out.last
	cell.kernelRan = g.console.kernel
	return cell, err
}
