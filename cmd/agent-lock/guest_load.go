package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/agent-lock/agent-lock/bpf"
	"github.com/agent-lock/agent-lock/report"
	"github.com/cilium/ebpf"
)

// guestLoad loads every BPF program on its own and then attaches the set, which
// the suite's jail finds there. It prints one result a program, and one named
// attach_set.
func guestLoad(std stdio, args []string) int {
	if len(args) > 0 {
		return std.errorf("guest-load takes no arguments")
	}
	status := 0
	show := func(r report.Result) {
		if r.Bad() {
			status = 1
		}
		report.WriteJSON(std.out, r)
	}
	last := time.Now()
	since := func() float64 {
		now := time.Now()
		defer func() { last = now }()
		return float64(now.Sub(last).Microseconds()) / 1000
	}
	err := bpf.LoadEach(func(l bpf.Loaded) {
		r := report.Result{Kind: report.Program, Name: l.Name, Family: l.Hook,
			Outcome: report.OK, Insns: l.Insns, Millis: since()}
		if l.Program != l.Name {
			r.Detail = "as " + l.Program
		}
		switch {
		case l.Err != nil:
			r.Outcome, r.Detail = report.Failed, verifierText(l.Err)
		case l.Unsupported != "":
			r.Outcome, r.Detail = report.Unsupported, l.Unsupported
		}
		show(r)
	})
	if err == nil {
		err = bpf.Attach(bpf.SetOptions{})
	}
	set := report.Result{Kind: report.Program, Name: "attach_set",
		Outcome: report.OK, Millis: since()}
	if err != nil {
		set.Outcome, set.Detail = report.Failed, verifierText(err)
	}
	show(set)
	return status
}

// verifierText keeps the end of the verifier's log, where the reason is.
func verifierText(err error) string {
	var ve *ebpf.VerifierError
	if errors.As(err, &ve) {
		return fmt.Sprintf("%-12v", ve)
	}
	return err.Error()
}
