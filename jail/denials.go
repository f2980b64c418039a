package jail

import (
	"path/filepath"
	"time"

	"github.com/agent-lock/agent-lock/bpf"
	"github.com/agent-lock/agent-lock/event"
	"github.com/agent-lock/agent-lock/policy"
	"golang.org/x/sys/unix"
)

// denials reads a jail's denial records while it runs.
type denials struct {
	slot  *bpf.Slot
	cfg   Config
	rules *rules
	boot  time.Time
	done  chan struct{}
	// proven is set by the record of what inForce tried.
	proven bool
}

func watch(slot *bpf.Slot, cfg Config, r *rules) *denials {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	d := &denials{
		slot: slot, cfg: cfg, rules: r, boot: time.Now().Add(-time.Duration(ts.Nano())),
		done: make(chan struct{}),
	}
	go d.read()
	return d
}

// read passes records on until it is told to finish and the buffer is empty.
func (d *denials) read() {
	defer close(d.done)
	for {
		record, err := d.slot.ReadRecord()
		if err != nil {
			return
		}
		d.pass(record)
	}
}

// pass reports a denial, but not the one that proved the jail to be in force.
func (d *denials) pass(r bpf.Record) {
	if !d.proven && r.Comm == execComm && r.Path == "/" {
		d.proven = true
		return
	}
	if d.cfg.Denied != nil {
		d.cfg.Denied(d.event(r))
	}
}

// finish reads what is left and reports losses.
func (d *denials) finish() {
	if err := d.slot.Flush(); err == nil {
		<-d.done
	}
	if lost, err := d.slot.Lost(); err == nil && lost > 0 && d.cfg.Lost != nil {
		d.cfg.Lost(lost)
	}
}

func (d *denials) event(r bpf.Record) event.Event {
	e := event.Event{
		Time: d.boot.Add(r.Since),
		Hook: r.Hook,
		Tried: event.Tried(r.Hook, r.Want&bpf.Read != 0, r.Want&bpf.Write != 0,
			r.Want&bpf.Execute != 0),
		Errno: unix.ErrnoName(r.Errno),
		PID:   r.PID,
		Comm:  r.Comm,
		Rule:  "a jail never does this",
	}
	if r.Why >= bpf.WhyMode {
		d.explainSocket(&e, r)
		return e
	}
	if r.Hook == "capable" {
		e.Tried = event.TriedCapability(r.Capability)
	}
	if r.Path == "" {
		if r.Want&bpf.Connect != 0 {
			e.Rule = "the socket is not the jail's own"
		}
		return e
	}
	if r.Cut {
		e.Path = "…" + r.Path
		e.Rule = "no rule covers it"
		return e
	}
	e.Path = d.rules.visiblePath(r.Dev, r.Path)
	e.Rule, e.Remedy = d.explain(e.Path, r)
	return e
}

// explain says which rule decided and what would have to be allowed.
func (d *denials) explain(path string, r bpf.Record) (rule, remedy string) {
	want := policyRights(r.Want)
	if r.Given&r.Want == r.Want && r.Errno == unix.EPERM {
		return "it is a device, or would run as root outside", ""
	}
	switch r.Why {
	case bpf.WhyLinks:
		return "the file has several names, one may be outside (--hardlinks " +
			string(d.cfg.Policy.Hardlinks) + ")", "--hardlinks allow"
	case bpf.WhyProtected:
		return explainName("programs outside may act on what is in it later", path,
			d.cfg.Policy.Names.Ruled(d.cfg.Policy.Project, path), policy.Write)
	case bpf.WhyDenied:
		return explainName("it may hold secrets", path, path, want)
	}
	remedy = policy.Remedy(path, want)
	if r.Given&r.Want == r.Want && r.Given&bpf.Public != 0 {
		return "not everyone may, and root in a jail is no exception", remedy
	}
	nearest, ok := d.cfg.Policy.Nearest(path)
	if !ok {
		return "no rule covers it", remedy
	}
	return "the rule for " + nearest.Path + " (" + nearest.Origin + ") gives " +
		nearest.Rights.String(), remedy
}

// explainName says which name forbids a path, and how to open that.
func explainName(why, path, ruled string, want policy.Rights) (rule, remedy string) {
	if ruled == "" {
		ruled = path
	}
	return "the name " + filepath.Base(ruled) + " is kept from every jail, since " + why,
		policy.Remedy(ruled, want)
}

func policyRights(r bpf.Rights) policy.Rights {
	var p policy.Rights
	if r&bpf.Read != 0 {
		p |= policy.Read
	}
	if r&bpf.Write != 0 {
		p |= policy.Write
	}
	if r&bpf.Execute != 0 {
		p |= policy.Execute
	}
	if r&bpf.Connect != 0 {
		p |= policy.Connect
	}
	return p
}
