package vmtest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/agent-lock/agent-lock/kernels"
	"github.com/agent-lock/agent-lock/report"
)

// Fault says why a cell proves nothing. The zero value means that it does.
type Fault string

// The faults, about in the order in which a boot can meet them.
const (
	FaultMissing     Fault = "missing"       // the kernel cannot be had
	FaultQEMU        Fault = "qemu"          // QEMU did not start, or gave up by itself
	FaultNoOutput    Fault = "no output"     // not one byte on the console
	FaultBoot        Fault = "boot"          // the kernel started, pid 1 never said hello
	FaultPanic       Fault = "panic"         // the kernel panicked, or pid 1 died
	FaultOOM         Fault = "out of memory" // the kernel killed for memory
	FaultHang        Fault = "hang"          // pid 1 fell silent
	FaultTimeout     Fault = "timeout"       // the run's time was up
	FaultInterrupted Fault = "interrupted"   // the run was stopped
	FaultStream      Fault = "stream"        // damaged, forged or disordered frames
	FaultTruncated   Fault = "truncated"     // the machine went off before the end frame
	FaultGuest       Fault = "guest"         // pid 1 could not set the guest up
	FaultSplat       Fault = "splat"         // the kernel reported trouble
	FaultStep        Fault = "step"          // a step did not do its work
)

// Cell is one kernel's part of a run. It starts as broken: only the guest's
// whole stream, this run's nonce at both ends of it, and QEMU's agreed exit
// status take its fault away.
type Cell struct {
	Kernel kernels.Kernel
	Label  string // the name of the cell's column
	Fault  Fault
	Detail string // of the fault, for people
	// Skipped says that the fault was asked to be tolerated.
	Skipped bool

	Accel   string        // "kvm" or "tcg"
	Release string        // uname -r in the guest
	LSM     string        // active security modules in the guest
	Hello   time.Duration // from QEMU's start to hello; zero: none came
	Wall    time.Duration // from QEMU's start to its end

	Steps    []StepStatus
	Results  []report.Result
	Findings []Finding
	// Output is the end of what the steps printed besides results.
	Output []string
	// Console is the console's last ConsoleTail lines, kept when there is a fault.
	Console []string

	kernelRan bool // the console showed the kernel's banner
}

// broken returns a cell that never got a guest.
func broken(k kernels.Kernel, label string, fault Fault, err error) Cell {
	return Cell{Kernel: k, Label: label, Fault: fault, Detail: err.Error()}
}

// MissingCell returns the cell of a kernel that could not be resolved, for the
// reason err. A kernel that cannot be had may be tolerated; one that is there and
// unusable may not.
func MissingCell(spec string, err error, tolerate bool) Cell {
	c := broken(kernels.Kernel{Name: spec}, spec, FaultMissing, err)
	c.Skipped = tolerate && errors.Is(err, kernels.ErrMissing)
	return c
}

// BrokenCell returns the cell of a kernel for which no machine could be started.
func BrokenCell(k kernels.Kernel, err error) Cell {
	return broken(k, labels([]kernels.Kernel{k})[0], FaultQEMU, err)
}

// Boot returns the cell's own result.
func (c Cell) Boot() report.Result {
	r := report.Result{
		Kernel:  c.Label,
		Kind:    report.Boot,
		Name:    "boot",
		Outcome: report.OK,
		Millis:  float64(c.Hello.Milliseconds()),
		Console: strings.Join(c.Console, "\n"),
	}
	var facts []string
	if c.Fault != "" {
		r.Outcome = report.Broken
		if c.Skipped {
			r.Outcome = report.Skipped
		}
		facts = append(facts, string(c.Fault)+": "+c.Detail)
	}
	if c.Accel != "" {
		facts = append(facts, c.Accel)
	}
	if c.Release != "" && c.Release != c.Label {
		facts = append(facts, c.Release)
	}
	if c.Kernel.Source != "" {
		facts = append(facts, c.Kernel.Source)
	}
	if c.Kernel.SHA256 != "" {
		facts = append(facts, "sha256 "+c.Kernel.SHA256[:12])
	}
	if c.Kernel.Note != "" {
		facts = append(facts, "booted from its bzImage: "+c.Kernel.Note)
	}
	if lacks := c.Kernel.Lacks(); len(lacks) > 0 {
		facts = append(facts, "unsupported kernel: lacks "+strings.Join(lacks, ", "))
	}
	r.Detail = strings.Join(facts, "; ")
	return r
}

// judge gives the cell its verdict after its machine is gone.
func (g *guest) judge() {
	c := g.cell
	c.Findings = g.console.findings
	c.Fault, c.Detail = g.verdict()
	if c.Fault == "" {
		return
	}
	c.Console = g.console.tail(ConsoleTail)
	for _, f := range c.Findings {
		if !strings.Contains(c.Detail, f.Text) {
			c.Detail += fmt.Sprintf("; console: %s: %s", f.Splat, f.Text)
		}
	}
}

// verdict names the first cause: a panic explains a truncated stream, and not
// the other way round.
func (g *guest) verdict() (Fault, string) {
	if f, ok := g.console.finding(SplatPanic, SplatInitDied); ok {
		return FaultPanic, f.Text
	}
	oom, isOOM := g.console.finding(SplatOOM)
	switch {
	case g.console.total == 0 && !g.stream.hello:
		return g.noOutput()
	case isOOM:
		return FaultOOM, oom.Text
	case g.fault != "":
		return g.fault, g.detail
	case !g.stream.hello:
		return FaultBoot, "the machine ended before pid 1 said hello" + g.stderr()
	case g.guestError != "":
		return FaultGuest, g.guestError
	case !g.stream.ended:
		return FaultTruncated, fmt.Sprintf("the stream stops after %d frames, without its end%s",
			g.stream.next, g.stderr())
	case g.exitStatus != debugExitStatus(exitDone):
		return FaultTruncated, fmt.Sprintf("QEMU's exit status is %d, want %d of a normal end%s",
			g.exitStatus, debugExitStatus(exitDone), g.stderr())
	case len(g.console.findings) > 0:
		f := g.console.findings[0]
		return FaultSplat, string(f.Splat) + ": " + f.Text
	}
	if bad := g.taint & troubled; bad != 0 {
		return FaultSplat, fmt.Sprintf("the kernel reported trouble (tainted %#x), but not on "+
			"the console", bad)
	}
	return g.stepFault()
}

// troubled are the taints of a kernel that found itself at fault: D (died), W (warned),
// L (locked up), B (a bad page).
const troubled = 1<<7 | 1<<9 | 1<<14 | 1<<5

func (g *guest) noOutput() (Fault, string) {
	switch {
	case g.fault == FaultTimeout || g.fault == FaultInterrupted:
		return g.fault, g.detail
	case g.fault != "":
		return FaultNoOutput, g.detail + g.stderr()
	}
	return FaultQEMU, fmt.Sprintf("QEMU ended with status %d before the guest printed anything%s",
		g.exitStatus, g.stderr())
}

// stepFault looks for steps that did not do their work. That a step failed is
// not among it: its exit status is for the caller to judge.
func (g *guest) stepFault() (Fault, string) {
	for i, s := range g.plan.Steps {
		if i >= len(g.cell.Steps) {
			if i > 0 && g.plan.Steps[i-1].StopOnFail {
				return "", ""
			}
			return FaultStep, "step " + s.Name + " never ran"
		}
		status := g.cell.Steps[i]
		switch {
		case status.TimedOut || status.Error != "":
			return FaultStep, "step " + s.Name + ": " + status.describe()
		case s.Results && status.Results == 0:
			return FaultStep, "step " + s.Name + ": no results; " + status.describe()
		}
		if s.Check == nil {
			continue
		}
		if err := s.Check(status.Status, g.results[i]); err != nil {
			return FaultStep, "step " + s.Name + ": " + err.Error()
		}
	}
	return "", ""
}

// stderr is what QEMU itself said, for the end of a message.
func (g *guest) stderr() string {
	text := strings.TrimSpace(g.machine.stderr.String())
	if text == "" {
		return ""
	}
	return "; QEMU: " + strings.ReplaceAll(text, "\n", " / ")
}
