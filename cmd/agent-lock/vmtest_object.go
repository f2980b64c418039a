package main

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/agent-lock/agent-lock/report"
	"github.com/agent-lock/agent-lock/vmtest"
)

// A guestObject is somebody's compiled BPF object, and where the guest finds it.
type guestObject struct {
	vmtest.File
	name string // goes before those of its programs; "": there is no other object
}

// guestObjects are those of --object.
func (f vmtestFlags) guestObjects() []guestObject {
	var objects []guestObject
	for i, file := range f.objects {
		base := filepath.Base(file)
		o := guestObject{File: vmtest.File{Host: file,
			Guest: path.Join("/run/objects", strconv.Itoa(i), base), Mode: 0o644}}
		if len(f.objects) > 1 {
			o.name, _, _ = strings.Cut(base, ".")
			taken := func(p guestObject) bool { return p.name == o.name }
			if o.name == "" || slices.ContainsFunc(objects, taken) {
				o.name = base + "-" + strconv.Itoa(i+1)
			}
			o.name = strings.ReplaceAll(o.name, "=", "-") // which ends it in guest-load's argument
		}
		objects = append(objects, o)
	}
	return objects
}

// overBudget makes those programs failures on which the verifier spent more than max
// instructions; 0 is no limit.
func overBudget(results []report.Result, limit uint64) {
	for i := range results {
		r := &results[i]
		if r.Kind == report.Program && r.Outcome == report.OK && limit > 0 &&
			uint64(r.Insns) > limit {
			r.Outcome = report.Failed
			r.Detail = fmt.Sprintf("the verifier processed %d instructions, --max-insns is %d",
				r.Insns, limit)
		}
	}
}
