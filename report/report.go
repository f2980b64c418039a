// Package report holds the one Result type that every check of agent-lock
// produces, and the forms in which results are shown: a table for people and
// JSON lines for programs.
//
// A result is a statement about one thing that was tried: a program that was
// loaded, a case that attacked the jail, a kernel that was booted. Its outcome
// is never "passed" by default: the zero Result is not valid, and whoever
// collects results starts each expected one as Broken.
package report

// Kind says what a Result is about.
type Kind string

// The kinds of result.
const (
	Boot    Kind = "boot"    // a kernel was booted
	Program Kind = "program" // a BPF program was loaded on its own, or the set was attached
	Case    Kind = "case"    // an adversary case was run
	Bench   Kind = "bench"   // something was measured
	// A file system was used in the jail as outside it.
	FileSystem Kind = "filesystem"
)

// Outcome says how it went.
type Outcome string

// The outcomes. Program, Boot, Bench and FileSystem results are OK or Failed; Case results
// are Denied, Leaked or Known; all may be Skipped, Unsupported or Broken.
const (
	OK          Outcome = "ok"          // it loaded, booted, was measured
	Failed      Outcome = "failed"      // the kernel refused it
	Denied      Outcome = "denied"      // the jail stopped the attack
	Leaked      Outcome = "leaked"      // the attack succeeded
	Known       Outcome = "known"       // it succeeded as documented; not counted unless strict
	Skipped     Outcome = "skipped"     // not tried, or its control failed; Detail says why
	Unsupported Outcome = "unsupported" // the kernel lacks what it needs; Detail says what
	Broken      Outcome = "broken"      // the check itself did not work; never a pass
)

// Record says whether a jail recorded what it refused; empty: it has no log, or nothing
// was refused.
type Record string

// The scores of a denied case.
const (
	Recorded   Record = "recorded"
	Unrecorded Record = "unrecorded"
)

// Result is the outcome of one check. Its JSON form, one object a line, is
// documented in docs/vmtest.md.
type Result struct {
	Kernel  string  `json:"kernel,omitempty"` // release, as uname -r prints it
	Kind    Kind    `json:"kind"`
	Name    string  `json:"name"`
	Family  string  `json:"family,omitempty"` // case family
	Jail    string  `json:"jail,omitempty"`   // name of the attacked jail
	User    string  `json:"user,omitempty"`   // whom the attacker runs as
	Layer   string  `json:"layer,omitempty"`  // enforcement layer under attack
	Outcome Outcome `json:"outcome"`
	Errno   string  `json:"errno,omitempty"` // symbolic, as in "EACCES"; what the attacker was told
	Detail  string  `json:"detail,omitempty"`
	// Record says of a denied case whether the jail recorded the denial.
	Record Record `json:"record,omitempty"`
	// Millis is the wall time of the check, in milliseconds.
	Millis float64 `json:"ms,omitempty"`
	// Insns is the number of instructions the verifier processed. Zero: unknown.
	Insns uint32 `json:"insns,omitempty"`
	// States is the number of states that the verifier remembered. Zero: unknown.
	States uint32 `json:"states,omitempty"`
	// Value and Unit carry a measurement, e.g. 8600 "insns/op".
	Value float64 `json:"value,omitempty"`
	Unit  string  `json:"unit,omitempty"`
	// Console is the end of a guest's console, of a Boot result that is not OK.
	Console string `json:"console,omitempty"`
}

// Bad reports whether the result must fail a run: a leak, a refusal by the
// kernel or a check that did not work. Known leaks are not bad.
func (r Result) Bad() bool {
	switch r.Outcome {
	case Leaked, Failed, Broken:
		return true
	case OK, Denied, Known, Skipped, Unsupported:
		return false
	}
	return true // an outcome that this version does not know is not a pass
}

// Count returns how many results have one of the given outcomes.
func Count(results []Result, outcomes ...Outcome) int {
	n := 0
	for _, r := range results {
		for _, o := range outcomes {
			if r.Outcome == o {
				n++
			}
		}
	}
	return n
}
