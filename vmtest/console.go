package vmtest

import (
	"regexp"
	"strings"
	"sync"
)

// Splat is a kind of trouble that a kernel reports on its console.
type Splat string

// The kinds. The first two end the machine; all fail the cell.
const (
	SplatPanic      Splat = "panic"
	SplatInitDied   Splat = "init died"
	SplatKASAN      Splat = "KASAN"
	SplatUBSAN      Splat = "UBSAN"
	SplatSoftLockup Splat = "soft lockup"
	SplatHardLockup Splat = "hard lockup"
	SplatRCUStall   Splat = "RCU stall"
	SplatHungTask   Splat = "hung task"
	SplatLockdep    Splat = "lockdep"
	SplatOOM        Splat = "OOM kill"
	SplatOops       Splat = "oops"
	SplatBug        Splat = "BUG"
	SplatWarning    Splat = "WARNING"
)

// splatRules are tried in this order; the first that matches names the line.
// Lines are matched without their time stamp, from their start, so that text
// which only mentions such a message does not count.
var splatRules = []struct {
	splat Splat
	re    func() *regexp.Regexp
}{
	{SplatInitDied, lazily(`^Kernel panic - not syncing: Attempted to kill init`)},
	{SplatPanic, lazily(`^Kernel panic - not syncing`)},
	{SplatKASAN, lazily(`^BUG: (KASAN|KFENCE|KMSAN|KCSAN): `)},
	{SplatUBSAN, lazily(`^UBSAN: `)},
	{SplatSoftLockup, lazily(`^(NMI )?watchdog: BUG: soft lockup`)},
	{SplatHardLockup, lazily(`^(NMI )?[Ww]atchdog:? .*hard LOCKUP`)},
	{SplatRCUStall, lazily(`^(rcu: )?INFO: rcu\S* (self-)?detected .*stall`)},
	{SplatHungTask, lazily(`^INFO: task \S+ blocked (in I/O wait )?for more than`)},
	{SplatLockdep, lazily(`^(WARNING: )?(possible (circular|recursive) locking|` +
		`inconsistent lock state|suspicious RCU usage|possible irq lock inversion|` +
		`bad unlock balance|.*-unsafe lock order detected|Nested lock was not taken|` +
		`lock held when returning to user space)`)},
	{SplatLockdep, lazily(`^INFO: (trying to register non-static key|possible )`)},
	{SplatOOM, lazily(`^(Out of memory|Memory cgroup out of memory)[^:]*: Killed`)},
	{SplatOops, lazily(`^(Oops(: |$)|general protection fault|double fault|` +
		`invalid opcode|stack segment|divide error|kernel stack overflow|` +
		`BUG: unable to handle|BUG: kernel NULL pointer|unable to handle kernel)`)},
	{SplatBug, lazily(`^(BUG: |BUG\S* \S+ \(|kernel BUG at )`)},
	{SplatWarning, lazily(`^WARNING: `)},
}

// lazily compiles a pattern when it is first used: every process of a jail is this
// program too, and would pay for it.
func lazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// prefixRE is what printk puts before a message: [  time] and perhaps [ task].
var prefixRE = lazily(`^(<\d+>)?\[ *\d+\.\d+\](\[ *[TC]\d+\])? ?`)

// classify names the trouble in one console line.
func classify(line string) (Splat, bool) {
	m := prefixRE().FindString(line)
	if m == "" {
		return "", false // a process wrote it, not the kernel
	}
	text := line[len(m):]
	for _, r := range splatRules {
		if r.re().MatchString(text) {
			return r.splat, true
		}
	}
	return "", false
}

// Finding is one kind of trouble on a console, with its first line.
type Finding struct {
	Splat Splat
	Text  string // without the time stamp
	Count int    // lines of that kind
}

const (
	consoleLines   = 1000 // kept of a console: the last ones
	consoleLineMax = 1 << 10
	// ConsoleTail is how many console lines go with a cell that is not fine.
	ConsoleTail = 20
)

// console collects a guest's console within bounds, however much it prints.
type console struct {
	lines    []string
	total    int
	kernel   bool // a line "Linux version" was seen: the kernel runs
	findings []Finding
}

// add takes one line, with or without its line end.
func (c *console) add(line string) {
	line = strings.TrimRight(line, "\r\n")
	if len(line) > consoleLineMax {
		line = line[:consoleLineMax]
	}
	c.total++
	if len(c.lines) == 2*consoleLines {
		c.lines = append(c.lines[:0], c.lines[consoleLines:]...)
	}
	c.lines = append(c.lines, line)
	if strings.Contains(line, "Linux version ") {
		c.kernel = true
	}
	splat, ok := classify(line)
	if !ok {
		return
	}
	for i := range c.findings {
		if c.findings[i].Splat == splat {
			c.findings[i].Count++
			return
		}
	}
	text := line[len(prefixRE().FindString(line)):]
	c.findings = append(c.findings, Finding{Splat: splat, Text: text, Count: 1})
}

// tail returns the last n lines that are not empty.
func (c *console) tail(n int) []string {
	var out []string
	for i := len(c.lines) - 1; i >= 0 && len(out) < n; i-- {
		if c.lines[i] != "" {
			out = append(out, c.lines[i])
		}
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}

// finding returns the first finding of one of the given kinds.
func (c *console) finding(splats ...Splat) (Finding, bool) {
	for _, f := range c.findings {
		for _, s := range splats {
			if f.Splat == s {
				return f, true
			}
		}
	}
	return Finding{}, false
}
