package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/agent-lock/agent-lock/event"
	"github.com/agent-lock/agent-lock/jail"
	"github.com/agent-lock/agent-lock/policy"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// denialPrinter shows each distinct denial once and logs every one.
type denialPrinter struct {
	w     io.Writer
	when  string
	seen  map[string]bool
	later []event.Event
	more  int // that there was no room for
	log   *os.File
}

// The jail must not fill the memory of a process that is root.
const (
	maxSeen  = 10_000 // distinct denials that are told apart
	maxLater = 50     // shown at the end
)

func newDenialPrinter(
	w io.Writer, f runFlags, pol *policy.Policy, user jail.User,
) (*denialPrinter, error) {
	p := &denialPrinter{w: w, when: f.denials, seen: map[string]bool{}}
	switch p.when {
	case "live", "end", "off":
	case "":
		// A full-screen program in the jail must not be written over.
		p.when = "live"
		if term.IsTerminal(int(os.Stderr.Fd())) {
			p.when = "end"
		}
	default:
		return nil, fmt.Errorf("--denials %s: it is live, end or off", f.denials)
	}
	if f.log != "" {
		log, err := openLog(f.log, pol, user)
		if err != nil {
			return nil, fmt.Errorf("open denial log: %w", err)
		}
		p.log = log
	}
	return p, nil
}

func (p *denialPrinter) denied(e event.Event) {
	if p.log != nil {
		if err := json.NewEncoder(p.log).Encode(e); err != nil {
			fmt.Fprintf(p.w, "agent-lock: write denial log: %v\n", err)
			p.log = nil
		}
	}
	if p.when == "off" || p.seen[e.Key()] {
		return
	}
	if len(p.seen) == maxSeen {
		p.more++
		return
	}
	p.seen[e.Key()] = true
	if p.when == "live" {
		fmt.Fprintf(p.w, "agent-lock: %v\n", e)
		return
	}
	if len(p.later) == maxLater {
		p.more++
		return
	}
	p.later = append(p.later, e)
}

func (p *denialPrinter) lost(n uint64) {
	if p.when == "off" && p.log == nil {
		return
	}
	fmt.Fprintf(p.w, "agent-lock: %d more denials came too fast to be recorded\n", n)
}

func (p *denialPrinter) close() {
	for _, e := range p.later {
		fmt.Fprintf(p.w, "agent-lock: %v\n", e)
	}
	if p.more > 0 {
		fmt.Fprintf(p.w, "agent-lock: and %d more; --log FILE has them all\n", p.more)
	}
	if p.log != nil {
		p.log.Close()
	}
}

// openLog opens the denial log as the user, and only where no jail could have put
// a link or can reach it: it is written to with what a jail chooses.
func openLog(name string, p *policy.Policy, user jail.User) (*os.File, error) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return nil, err
	}
	rule, ok := p.Nearest(abs)
	own := slices.Contains(policy.Private, rule.Path) // the jail has another one there
	if ok && rule.Rights&policy.Write != 0 && !own {
		return nil, fmt.Errorf("%s: the jail could change it; name a file outside %s",
			abs, rule.Path)
	}
	f, err := openAs(user, abs, unix.O_CREAT|unix.O_APPEND|unix.O_WRONLY|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, fmt.Errorf("%s is not a regular file", abs)
	}
	return f, nil
}
