package vmtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/agent-lock/agent-lock/kernels"
	"github.com/agent-lock/agent-lock/report"
)

// runner is one run.
type runner struct {
	cfg     Config
	outfits map[string]outfit // by architecture
	dir     string
	accel   *accelerator
	text    sync.Mutex
}

// all runs the cells, cfg.Jobs at a time.
func (r *runner) all(ctx context.Context) []Cell {
	labels := labels(r.cfg.Kernels)
	cells := make([]Cell, len(r.cfg.Kernels))
	slots := make(chan struct{}, r.cfg.Jobs)
	var wg sync.WaitGroup
	for i, k := range r.cfg.Kernels {
		slots <- struct{}{} // here, so that the cells start in their order
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer func() { <-slots }()
			if err := ctx.Err(); err != nil {
				fault, detail := contextFault(ctx)
				cells[i] = broken(k, labels[i], fault, errors.New(detail))
				return
			}
			cells[i] = r.cell(ctx, k, labels[i])
			r.cfg.Progress(labels[i], "", nil)
		}()
	}
	wg.Wait()
	return cells
}

// labels names the kernels' columns: by version, where that tells them apart, after an
// architecture that is not this program's.
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
		if arch := archOf(k); arch != runtime.GOARCH && !strings.HasPrefix(out[i], arch) {
			out[i] = arch + ":" + out[i]
		}
	}
	return out
}

// cell boots one kernel, twice if KVM turns out not to work for it.
func (r *runner) cell(ctx context.Context, k kernels.Kernel, label string) Cell {
	for {
		a := r.accel.current(archOf(k))
		r.cfg.Logf("%s: booting (%s)", label, a)
		c, err := r.boot(ctx, k, label, a)
		if err != nil {
			c = broken(k, label, FaultQEMU, err)
		}
		if c.Hello == 0 && !c.kernelRan && ctx.Err() == nil && r.accel.fail(a, c.Detail) {
			continue
		}
		if c.Fault != "" {
			r.cfg.Logf("%s: broken after %.1f s (%s)", label, c.Wall.Seconds(), c.Fault)
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
	more, err := r.equip(ctx, k, label, &p)
	if err != nil {
		return cell, err
	}
	recs, err := runRecords(p, r.cfg.Files)
	if err != nil {
		return cell, err
	}
	initramfs := filepath.Join(r.dir, p.Nonce[:8]+".cpio")
	outfit, machine := r.outfits[archOf(k)], r.cfg.machine(archOf(k), a)
	if err := writeInitramfs(initramfs, outfit.base, append(more, recs...)); err != nil {
		return cell, err
	}
	defer os.Remove(initramfs)
	limits := limitsFor(machine, r.cfg.Idle)
	if p.Tree || len(p.Modules) > 0 { // to be unpacked, moved and loaded before hello
		limits.hello *= 3
	}
	out := r.newText(label)
	g := &guest{
		cell:     &cell,
		plan:     p,
		limits:   limits,
		stream:   stream{nonce: p.Nonce},
		results:  make(map[int][]report.Result),
		messages: r.cfg.Messages,
		onText:   func(t textPayload) { out.write(t.Data, r.writerFor(t)) },
		onStep:   func(s Step) { r.announce(label, s) },
		onResult: func(s Step, all []report.Result) { r.cfg.Progress(label, s.Name, all) },
	}
	spec := machineSpec{
		machineType: machine,
		qemu:        outfit.qemu,
		kernel:      k,
		initramfs:   initramfs,
		shares:      r.cfg.Shares,
	}
	rec, err := newRecord(r.cfg.Keep, label, spec)
	if err != nil {
		return cell, err
	}
	g.record = rec
	err = errors.Join(g.run(ctx, spec), rec.close())
	out.flush()
	cell.Output = out.last
	cell.kernelRan = g.console.kernel
	for i := range cell.Results {
		if res := &cell.Results[i]; r.cfg.ICount && res.Unit == "ns/op" {
			res.Unit = "insns/op"
		}
	}
	return cell, err
}

// announce says that a step begins which takes minutes and prints nothing meanwhile.
func (r *runner) announce(label string, s Step) {
	r.cfg.Progress(label, s.Name, nil)
	if s.Results {
		r.cfg.Logf("%s: %s", label, s.Name)
	}
}

// writerFor is where what a step printed goes; nil: nowhere.
func (r *runner) writerFor(t textPayload) io.Writer {
	switch {
	case t.Step < len(r.cfg.Plan) && r.cfg.Plan[t.Step].Quiet:
		return nil
	case t.Err:
		return r.cfg.Errors
	}
	return r.cfg.Text
}
