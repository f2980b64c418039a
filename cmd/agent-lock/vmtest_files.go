package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/agent-lock/agent-lock/report"
)

// vmtestFiles are the flags of vmtest that say in which forms its results are written.
type vmtestFiles struct {
	names    map[string]string // of files, by form
	baseline string
	before   []report.Result // what the baseline has
}

// vmtestForms are the forms besides the JSON lines and the table.
var vmtestForms = map[string]func(io.Writer, []report.Result) error{
	"junit":       report.WriteJUnit,
	"markdown":    report.WriteMarkdown,
	"html":        report.WriteHTML,
	"annotations": report.WriteAnnotations,
}

func (f *vmtestFiles) define(fs *flag.FlagSet) {
	f.names = map[string]string{}
	for form := range vmtestForms {
		fs.Func(form, "", func(name string) error {
			f.names[form] = name
			return nil
		})
	}
	fs.StringVar(&f.baseline, "baseline", "", "")
}

// check reads the baseline and finds out, before a machine is booted, whether the files can
// be written. A GitHub workflow has the summary of its step without asking.
func (f *vmtestFiles) check(summary string) error {
	if summary != "" && f.names["markdown"] == "" {
		f.names["markdown"] = summary
	}
	for form, name := range f.names {
		file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return fmt.Errorf("write --%s: %w", form, err)
		}
		if err := file.Close(); err != nil {
			return fmt.Errorf("write --%s: %w", form, err)
		}
	}
	if f.baseline == "" {
		return nil
	}
	before, err := readResults(f.baseline)
	if err == nil && len(before) == 0 {
		err = fmt.Errorf("%s has no results", f.baseline)
	}
	if err != nil {
		return fmt.Errorf("read --baseline: %w; it is a file that --json wrote", err)
	}
	f.before = before
	return nil
}

// write writes the results in all forms, and the comparison for people.
func (f vmtestFiles) write(table io.Writer, results []report.Result) error {
	var errs []error
	for form, name := range f.names {
		flags := os.O_CREATE | os.O_WRONLY | os.O_TRUNC
		if form == "markdown" {
			flags = os.O_CREATE | os.O_WRONLY | os.O_APPEND // a step may write several summaries
		}
		file, err := os.OpenFile(name, flags, 0o644)
		if err == nil {
			err = errors.Join(vmtestForms[form](file, results), file.Close())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("write --%s: %w", form, err))
		}
	}
	if f.baseline != "" {
		before, after := bySeries(f.before), bySeries(results)
		fmt.Fprintln(table, "\nSince the baseline:")
		errs = append(errs, report.Compare(before, after).Write(table),
			report.WriteCosts(table, before, after))
	}
	return errors.Join(errs...)
}

// pointRelease is what a baseline need not agree in: 6.12.117 and 6.12.118 are one kernel.
var pointRelease = regexp.MustCompile(`^(\d+\.\d+)\.\d+$`)

// bySeries names kernels by their series where that tells them apart.
func bySeries(results []report.Result) []report.Result {
	series := map[string]map[string]bool{}
	name := func(kernel string) string { return pointRelease.ReplaceAllString(kernel, "$1") }
	for _, r := range results {
		if series[name(r.Kernel)] == nil {
			series[name(r.Kernel)] = map[string]bool{}
		}
		series[name(r.Kernel)][r.Kernel] = true
	}
	named := make([]report.Result, len(results))
	for i, r := range results {
		if s := name(r.Kernel); len(series[s]) == 1 {
			r.Kernel = s
		}
		named[i] = r
	}
	return named
}

// stepSummary is where a GitHub workflow wants the summary of a step; "": it is none.
func stepSummary() string { return strings.TrimSpace(os.Getenv("GITHUB_STEP_SUMMARY")) }
