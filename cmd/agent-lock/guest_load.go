package main

import (
	"path/filepath"
	"strings"
	"time"

	"github.com/agent-lock/agent-lock/bpf"
	"github.com/agent-lock/agent-lock/report"
)

// guestLoad loads every BPF program on its own and then attaches the set, which
// the suite's jail finds there. It prints one result a program, and one named
// attach_set. With arguments it loads the programs of those objects instead; each is
// NAME=FILE, and NAME, if not empty, goes before those of its programs.
func guestLoad(std stdio, args []string) int {
	l := loader{std: std, last: time.Now()}
	for _, arg := range args {
		name, file, _ := strings.Cut(arg, "=")
		l.name = name
		if err := bpf.LoadFile(file, l.show); err != nil {
			l.result(report.Result{Name: filepath.Base(file), Outcome: report.Failed,
				Detail: err.Error()})
		}
	}
	if len(args) > 0 {
		return l.status
	}
	set := report.Result{Name: "attach_set", Outcome: report.OK}
	err := bpf.LoadEach(l.show)
	if err == nil {
		err = bpf.Attach(bpf.SetOptions{})
	}
	if err != nil {
		set.Outcome, set.Detail = report.Failed, bpf.Explain(err)
	}
	l.result(set)
	return l.status
}

// A loader prints results as they come.
type loader struct {
	std    stdio
	name   string // of the object, if there is more than one
	last   time.Time
	status int
}

func (l *loader) show(p bpf.Loaded) {
	r := report.Result{Name: p.Name, Family: p.Hook, Outcome: report.OK,
		Insns: p.Cost.Insns, States: p.Cost.States}
	if l.name != "" {
		r.Name = l.name + ":" + p.Name
	}
	if p.Program != p.Name {
		r.Detail = "as " + p.Program
	}
	switch {
	case p.Err != nil:
		r.Outcome, r.Detail = report.Failed, bpf.Explain(p.Err)
	case p.Unsupported != "":
		r.Outcome, r.Detail = report.Unsupported, p.Unsupported
	}
	l.result(r)
}

func (l *loader) result(r report.Result) {
	now := time.Now()
	r.Kind, r.Millis = report.Program, float64(now.Sub(l.last).Microseconds())/1000
	l.last = now
	if r.Bad() {
		l.status = 1
	}
	report.WriteJSON(l.std.out, r)
}
