package vmtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/agent-lock/agent-lock/report"
)

// limits are the deadlines of one guest.
type limits struct {
	banner time.Duration // QEMU start to the kernel's first line; zero: none
	hello  time.Duration // QEMU start to hello
	idle   time.Duration // between two frames
	exit   time.Duration // end frame to QEMU's end
}

func limitsFor(t machineType, idle time.Duration) limits {
	hello := 60 * time.Second
	switch {
	case t.icount: // boots ten times as slowly
		hello = 5 * time.Minute
	case t.accel == accelKVM:
		// The probe cannot prove everything: a guest may hang under a broken KVM
		// without a word.
		return limits{banner: 10 * time.Second, hello: 15 * time.Second, idle: idle,
			exit: 10 * time.Second}
	}
	return limits{hello: hello, idle: idle, exit: 10 * time.Second}
}

// guest follows one machine from its start to its end.
type guest struct {
	cell     *Cell
	plan     plan
	limits   limits
	onText   func(textPayload)
	onStep   func(Step) // as it begins
	onResult func(Step, []report.Result)
	messages <-chan Message // nil: none come
	machine  *machine
	record   *record

	console    console
	stream     stream
	began      time.Time
	fault      Fault // why we ended the machine
	detail     string
	guestError string
	taint      uint64
	results    map[int][]report.Result // by step
	exitStatus int
	started    bool     // a step runs
	early      []string // lines for it that wait
	signalled  int      // how often

	deadline *time.Timer
	expired  func() // what it means that the deadline passed
}

// run boots spec and follows it. The cell is judged when it returns.
func (g *guest) run(ctx context.Context, spec machineSpec) error {
	m, err := spec.start()
	if err != nil {
		return err
	}
	defer m.close()
	g.machine = m
	g.began = time.Now()
	con := readLines(io.TeeReader(m.console, g.record.console), consoleLineMax*8)
	res := readLines(io.TeeReader(m.results, g.record.frames), maxFrame)
	g.deadline = time.NewTimer(g.limits.hello)
	defer g.deadline.Stop()
	if g.limits.banner > 0 {
		g.setDeadline(g.limits.banner, FaultBoot, "no line of the kernel")
	} else {
		g.setDeadline(g.limits.hello, FaultBoot, "no hello of pid 1")
	}
	exited, done := m.exited, ctx.Done()
	for exited != nil || con != nil || res != nil {
		select {
		case l, ok := <-con:
			if !ok {
				con = nil
				continue
			}
			g.consoleLine(l)
		case l, ok := <-res:
			if !ok {
				res = nil
				continue
			}
			g.frameLine(l)
		case <-exited:
			exited = nil
			g.exitStatus = m.status()
		case <-g.deadline.C:
			g.expired()
		case m := <-g.messages:
			g.message(m)
		case <-done:
			done = nil
			g.stop(contextFault(ctx))
		}
	}
	g.cell.Wall = time.Since(g.began)
	g.judge()
	return nil
}

// setDeadline replaces the current deadline.
func (g *guest) setDeadline(d time.Duration, fault Fault, what string) {
	g.deadline.Reset(d)
	g.expired = func() { g.stop(fault, fmt.Sprintf("%s within %v", what, d)) }
}

// stop ends the machine for a reason. The first reason counts.
func (g *guest) stop(fault Fault, detail string) {
	if g.fault == "" {
		g.fault, g.detail = fault, detail
	}
	g.machine.kill()
}

func contextFault(ctx context.Context) (Fault, string) {
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return FaultTimeout, "the run's time is up"
	}
	return FaultInterrupted, "the run was stopped"
}

func (g *guest) consoleLine(l line) {
	started := g.console.kernel
	g.console.add(l.text)
	if !started && g.console.kernel && !g.stream.hello {
		left := max(time.Millisecond, g.limits.hello-time.Since(g.began))
		g.setDeadline(left, FaultBoot, "no hello of pid 1")
	}
}

func (g *guest) frameLine(l line) {
	if g.fault == FaultStream {
		return
	}
	if l.partial {
		if g.fault == "" {
			g.fault = FaultTruncated
			g.detail = fmt.Sprintf("the stream stops in the middle of frame %d", g.stream.next)
		}
		return
	}
	f, err := g.stream.accept([]byte(l.text))
	if err == nil {
		err = g.frame(f)
	}
	if err != nil {
		g.stop(FaultStream, err.Error())
		return
	}
	if g.stream.ended {
		g.setDeadline(g.limits.exit, FaultHang, "the machine did not end after its end frame")
	} else {
		g.setDeadline(g.limits.idle, FaultHang, "no frame")
	}
}

// frame takes what one frame says.
func (g *guest) frame(f frame) error {
	c := g.cell
	switch f.kind {
	case frameHello:
		var h helloPayload
		if err := f.decode(&h); err != nil {
			return err
		}
		c.Hello = time.Since(g.began)
		c.Release, c.LSM = h.Release, h.LSM
	case frameText:
		var t textPayload
		if err := f.decode(&t); err != nil {
			return err
		}
		g.onText(t)
	case frameResult:
		var r report.Result
		if err := f.decode(&r); err != nil {
			return err
		}
		r.Kernel = c.Label
		c.Results = append(c.Results, r)
		step := len(c.Steps) // steps run one after the other
		g.results[step] = append(g.results[step], r)
		if step < len(g.plan.Steps) {
			g.onResult(g.plan.Steps[step], g.results[step])
		}
	case frameExit:
		var s StepStatus
		if err := f.decode(&s); err != nil {
			return err
		}
		if s.Step != len(c.Steps) {
			return fmt.Errorf("status of step %d, want step %d", s.Step, len(c.Steps))
		}
		c.Steps = append(c.Steps, s)
	case frameError:
		var e errorPayload
		if err := f.decode(&e); err != nil {
			return err
		}
		g.guestError = e.Message
	case frameStart:
		return g.begin(f)
	case frameEnd:
		var e endPayload
		if err := f.decode(&e); err != nil {
			return err
		}
		g.taint = e.Taint
	case frameBeat:
	default:
		return fmt.Errorf("frame %d has unknown kind %q", f.seq, f.kind)
	}
	return nil
}

// begin takes the frame with which a step begins.
func (g *guest) begin(f frame) error {
	var s stepPayload
	if err := f.decode(&s); err != nil {
		return err
	}
	if s.Step != len(g.cell.Steps) || s.Step >= len(g.plan.Steps) {
		return fmt.Errorf("step %d of %d begins, want step %d", s.Step, len(g.plan.Steps),
			len(g.cell.Steps))
	}
	g.onStep(g.plan.Steps[s.Step])
	g.started = true
	g.say()
	return nil
}

// line is one line of a port, without its line feed.
type line struct {
	text    string
	partial bool // the port was closed, or limit reached, before the line feed
}

// readLines reads a port to its end. Lines longer than limit are cut up.
func readLines(r io.Reader, limit int) <-chan line {
	lines := make(chan line, 64)
	go func() {
		defer close(lines)
		br := bufio.NewReaderSize(r, 64<<10)
		var buf []byte
		for {
			part, err := br.ReadSlice('\n')
			buf = append(buf, part...)
			switch {
			case err == nil:
				lines <- line{text: strings.TrimSuffix(string(buf), "\n")}
				buf = buf[:0]
			case errors.Is(err, bufio.ErrBufferFull):
				if len(buf) >= limit {
					lines <- line{text: string(buf), partial: true}
					buf = buf[:0]
				}
			default:
				if len(buf) > 0 {
					lines <- line{text: string(buf), partial: true}
				}
				return
			}
		}
	}()
	return lines
}
