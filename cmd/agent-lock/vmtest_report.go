package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/agent-lock/agent-lock/report"
	"github.com/agent-lock/agent-lock/vmtest"
)

// resultLines is where results go as JSON lines.
type resultLines struct {
	w      io.Writer // nil: nowhere
	close  func() error
	stdout bool // the table has to make way
}

// openResultLines opens the file of --json before anything is started.
func openResultLines(std stdio, name string) (resultLines, error) {
	none := func() error { return nil }
	switch name {
	case "":
		return resultLines{close: none}, nil
	case "-":
		return resultLines{w: std.out, close: none, stdout: true}, nil
	}
	f, err := openResults(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return resultLines{}, fmt.Errorf("write results: %w", err)
	}
	return resultLines{w: f, close: f.Close}, nil
}

// report writes the results and the matrix, and returns the exit status.
func (f vmtestFlags) report(std stdio, out resultLines, cells []vmtest.Cell) int {
	var err error
	if out.w != nil {
		err = report.WriteJSON(out.w, vmtest.Results(cells)...)
	}
	table := std.out
	if out.stdout || len(f.steps) > 0 {
		table = std.err
	}
	status := vmtest.Judge(cells)
	if len(f.steps) == 0 || status != vmtest.Passed {
		err = errors.Join(err, vmtest.WriteMatrix(table, cells, f.verbose))
		fmt.Fprintf(table, "\n%s\n", verdict(status, cells))
	}
	err = errors.Join(err, f.filed.write(table, vmtest.Results(cells)))
	if err = errors.Join(err, out.close()); err != nil {
		std.errorf("vmtest: write results: %v", err)
		return exitInfra
	}
	if err := vmtest.Errors(cells); err != nil {
		for _, line := range strings.Split(err.Error(), "\n") {
			std.errorf("vmtest: %s", line)
		}
	}
	switch status {
	case vmtest.Passed:
		return 0
	case vmtest.Failed:
		return exitFailed
	}
	return exitInfra
}

// verdict says in one line how the run went.
func verdict(status vmtest.Status, cells []vmtest.Cell) string {
	results := vmtest.Results(cells)
	count := func(outcomes ...report.Outcome) int {
		return report.Count(results, outcomes...)
	}
	said := fmt.Sprintf("%d programs loaded, %d attacks denied, %d leaked, %d known, %d not tried",
		loadedPrograms(results), count(report.Denied), count(report.Leaked), count(report.Known),
		count(report.Skipped))
	switch status {
	case vmtest.Passed:
		return "OK: " + said
	case vmtest.Failed:
		return fmt.Sprintf("FAILED: %s, %d failed", said, count(report.Failed))
	}
	return fmt.Sprintf("BROKEN: %s, %d broken; nothing is shown by this run",
		said, count(report.Broken))
}

func loadedPrograms(results []report.Result) int {
	n := 0
	for _, r := range results {
		if r.Kind == report.Program && r.Outcome == report.OK {
			n++
		}
	}
	return n
}

// stepsStatus is the exit status of a run of --step: that of the first step
// that failed, but exitInfra where a guest broke by itself.
func stepsStatus(cells []vmtest.Cell) int {
	first := 0
	for _, c := range cells {
		if c.Fault != "" && c.Fault != vmtest.FaultStep && !c.Skipped {
			return exitInfra
		}
		for _, s := range c.Steps {
			if first == 0 {
				first = s.Status
			}
		}
	}
	if first == 0 && vmtest.Judge(cells) == vmtest.Broken {
		return exitInfra
	}
	return first
}

// watch has the run say what happens, and on a terminal how far each guest is.
func (f vmtestFlags) watch(std stdio, cfg *vmtest.Config) {
	// What the steps print would come between.
	live := report.NewLive(std.err, len(f.steps) > 0 || f.verbose || f.demo || f.bench)
	cfg.Logf = func(format string, args ...any) {
		live.Printf("agent-lock: vmtest: "+format, args...)
	}
	cfg.Progress = func(label, step string, results []report.Result) {
		if step == "" {
			live.Remove(label)
			return
		}
		bad := 0
		for _, r := range results {
			if r.Bad() {
				bad++
			}
		}
		live.Set(label, fmt.Sprintf("%s: %d done, %d bad", step, len(results), bad))
	}
}
