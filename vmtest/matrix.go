package vmtest

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/agent-lock/agent-lock/report"
)

// Results returns every result of a run: for each cell its boot, then what its
// steps reported, then what is missing from it. A check that one kernel reported
// and another, whose stream is complete, did not is broken there: silence is
// never a pass.
func Results(cells []Cell) []report.Result {
	m := newMatrix(cells)
	var all []report.Result
	for i, c := range cells {
		all = append(all, c.Boot())
		all = append(all, c.Results...)
		if c.Fault != "" {
			continue
		}
		for _, row := range m.rows {
			if len(row.cells[i]) == 0 {
				all = append(all, row.absent(c.Label))
			}
		}
	}
	return all
}

// Status is what a run came to.
type Status int

// The statuses, in the order in which they matter more.
const (
	Passed Status = iota // everything loads and nothing leaks
	Failed               // a program or a case failed
	Broken               // a cell proves nothing, or none was run
)

// Judge returns the status of a run.
func Judge(cells []Cell) Status {
	status, ran := Passed, false
	for _, c := range cells {
		if c.Fault != "" && !c.Skipped {
			return Broken
		}
		ran = ran || c.Fault == ""
	}
	if !ran {
		return Broken
	}
	for _, r := range Results(cells) {
		if r.Bad() {
			status = Failed
		}
	}
	return status
}

// matrix is the results by check and kernel.
type matrix struct {
	cells []Cell
	rows  []*row
}

// rowKey tells checks apart.
type rowKey struct {
	kind                    report.Kind
	name, layer, jail, user string
}

// row is one check on all kernels.
type row struct {
	key    rowKey
	family string
	cells  [][]report.Result // by kernel; usually one each
}

func newMatrix(cells []Cell) matrix {
	m := matrix{cells: cells}
	rows := make(map[rowKey]*row)
	for i, c := range cells {
		for _, r := range c.Results {
			key := rowKey{r.Kind, r.Name, r.Layer, r.Jail, r.User}
			if rows[key] == nil {
				rows[key] = &row{key: key, family: r.Family}
				rows[key].cells = make([][]report.Result, len(cells))
				m.rows = append(m.rows, rows[key])
			}
			rows[key].cells[i] = append(rows[key].cells[i], r)
		}
	}
	return m
}

// absent is the result of a check that a complete cell did not report.
func (r *row) absent(kernel string) report.Result {
	return report.Result{
		Kernel: kernel, Kind: r.key.kind, Name: r.key.name, Family: r.family,
		Layer: r.key.layer, Jail: r.key.jail, User: r.key.user, Outcome: report.Broken,
		Detail: "no result from this kernel, though another kernel gave one",
	}
}

// outcomes are the row's words, one a kernel.
func (r *row) outcomes(cells []Cell) []string {
	words := make([]string, len(cells))
	for i, results := range r.cells {
		switch {
		case len(results) > 0:
			worst := results[0]
			for _, res := range results[1:] {
				if res.Bad() {
					worst = res
				}
			}
			words[i] = shout(worst)
			if worst.Kind == report.Bench && worst.Outcome == report.OK {
				words[i] = fmt.Sprintf("%.0f %s", worst.Value, worst.Unit)
			}
		case cells[i].Fault == "":
			words[i] = "ABSENT"
		default:
			words[i] = "-"
		}
	}
	return words
}

// shout returns the outcome, in capitals when it is bad.
func shout(r report.Result) string {
	if r.Bad() {
		return strings.ToUpper(string(r.Outcome))
	}
	return string(r.Outcome)
}

// plain reports whether a row says what one hopes to read, on every kernel that
// could say anything.
func plain(words []string) bool {
	for _, w := range words {
		if w != string(report.OK) && w != string(report.Denied) && w != "-" {
			return false
		}
	}
	return true
}

// WriteMatrix writes the run for people: a line a kernel, the rows in which
// something is to be seen (all of them when verbose), then what is wrong.
func WriteMatrix(w io.Writer, cells []Cell, verbose bool) error {
	var b strings.Builder
	m := newMatrix(cells)
	m.writeKernels(&b)
	m.writeRows(&b, report.Program, "program", verbose)
	m.writeRows(&b, report.Case, "case", verbose)
	m.writeRows(&b, report.FileSystem, "file system", verbose)
	m.writeRows(&b, report.Bench, "benchmark", verbose)
	m.writeNotes(&b)
	m.writeFaults(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

func (m matrix) writeKernels(b *strings.Builder) {
	tw := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "kernel\tboot\tprograms\tcases\tseconds\twith")
	for _, c := range m.cells {
		boot := c.Boot()
		state := shout(boot)
		if c.Fault != "" {
			state += " (" + string(c.Fault) + ")"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%.1f\t%s\n", c.Label, state,
			tally(c.Results, report.Program), tally(c.Results, report.Case),
			c.Wall.Seconds(), orDash(strings.Trim(c.Accel+" "+c.Kernel.Source, " ")))
	}
	tw.Flush()
}

// tally counts a kind's results by outcome.
func tally(results []report.Result, kind report.Kind) string {
	var of []report.Result
	for _, r := range results {
		if r.Kind == kind {
			of = append(of, r)
		}
	}
	var parts []string
	for _, o := range []report.Outcome{
		report.OK, report.Denied, report.Leaked, report.Failed, report.Broken,
		report.Known, report.Skipped, report.Unsupported,
	} {
		if n := report.Count(of, o); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, shout(report.Result{Outcome: o})))
		}
	}
	return orDash(strings.Join(parts, ", "))
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (m matrix) writeRows(b *strings.Builder, kind report.Kind, title string, verbose bool) {
	tw := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	shown, folded := 0, 0
	for _, r := range m.rows {
		if r.key.kind != kind {
			continue
		}
		words := r.outcomes(m.cells)
		if !verbose && plain(words) {
			folded++
			continue
		}
		if shown == 0 {
			fmt.Fprintf(tw, "\n%s", title)
			for _, c := range m.cells {
				fmt.Fprintf(tw, "\t%s", c.Label)
			}
			fmt.Fprintln(tw)
		}
		shown++
		name := r.key.name
		if r.key.layer != "" {
			name += " [" + r.key.layer + "]"
		}
		if r.key.user == "root" {
			name += " (root)"
		}
		fmt.Fprintf(tw, "%s\t%s\n", name, strings.Join(words, "\t"))
	}
	tw.Flush()
	if folded > 0 && shown > 0 {
		fmt.Fprintf(b, "(%d more: ok or denied everywhere)\n", folded)
	}
}

// writeNotes writes a line for each result that is neither ok nor denied.
func (m matrix) writeNotes(b *strings.Builder) {
	tw := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	first := true
	for _, r := range Results(m.cells) {
		if r.Kind == report.Boot || r.Outcome == report.OK || r.Outcome == report.Denied {
			continue
		}
		if first {
			fmt.Fprintln(tw)
			first = false
		}
		detail, rest, _ := strings.Cut(strings.TrimSpace(r.Detail), "\n")
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", shout(r), r.Kernel, r.Name,
			strings.TrimSpace(r.Errno+" "+detail))
		if r.Bad() && rest != "" {
			tw.Flush()
			fmt.Fprintln(b, indent(rest))
		}
	}
	tw.Flush()
}

// writeFaults writes why cells are broken, each with the end of its console.
func (m matrix) writeFaults(b *strings.Builder) {
	for _, c := range m.cells {
		if c.Fault == "" {
			continue
		}
		fmt.Fprintf(b, "\n%s: %s: %s\n", c.Label, c.Fault, c.Detail)
		if len(c.Output) > 0 && c.Fault != FaultMissing {
			fmt.Fprintf(b, "  last output of the steps:\n%s\n",
				indent(strings.Join(c.Output, "\n")))
		}
		if len(c.Console) > 0 {
			fmt.Fprintf(b, "  last %d lines of the console:\n%s\n", len(c.Console),
				indent(strings.Join(c.Console, "\n")))
		}
	}
}

func indent(s string) string {
	return "    " + strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n    ")
}

// LeaksAreStatus is a Step's Check for the adversary suite, whose exit status is
// the number of leaks, capped at 100.
func LeaksAreStatus(status int, results []report.Result) error {
	leaks := report.Count(results, report.Leaked)
	if status != min(leaks, 100) {
		return fmt.Errorf("exit status %d with %d leaks among its results", status, leaks)
	}
	return nil
}

// BadIsStatus is a Step's Check for a command that exits with 0 when none of its results
// is bad, and else with 1. With another status it has come to no end.
func BadIsStatus(status int, results []report.Result) error {
	bad := 0
	for _, r := range results {
		if r.Bad() {
			bad++
		}
	}
	switch {
	case status != 0 && bad == 0:
		return fmt.Errorf("exit status %d without a bad result", status)
	case status == 0 && bad > 0:
		return errors.New("exit status 0 in spite of bad results")
	case status > 1:
		return fmt.Errorf("exit status %d, want 1 for bad results", status)
	}
	return nil
}
