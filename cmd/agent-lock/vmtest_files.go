package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
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
		if name == "-" {
			return fmt.Errorf("--%s -: standard output has the table; name a file", form)
		}
		file, err := openResults(name, os.O_CREATE|os.O_WRONLY)
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
		file, err := openResults(name, flags)
		if err == nil {
			err = errors.Join(vmtestForms[form](file, results), file.Close())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("write --%s: %w", form, err))
		}
	}
	if f.baseline != "" {
		before, after := bySeries(f.before, results)
		fmt.Fprintln(table, "\nSince the baseline:")
		errs = append(errs, report.Compare(before, after).Write(table),
			report.WriteCosts(table, before, after))
	}
	return errors.Join(errs...)
}

// pointRelease is what a baseline need not agree in: 6.12.117 and 6.12.118 are one kernel.
var pointRelease = regexp.MustCompile(`^(\d+\.\d+)\.\d+$`)

// bySeries names the kernels of two runs by their series where that tells those of each
// apart.
func bySeries(before, after []report.Result) (_, _ []report.Result) {
	name := func(kernel string) string { return pointRelease.ReplaceAllString(kernel, "$1") }
	several := map[string]bool{}
	for _, results := range [][]report.Result{before, after} {
		one := map[string]string{} // by series
		for _, r := range results {
			series := name(r.Kernel)
			if other, seen := one[series]; seen && other != r.Kernel {
				several[series] = true
			}
			one[series] = r.Kernel
		}
	}
	named := func(results []report.Result) []report.Result {
		all := slices.Clone(results)
		for i := range all {
			if series := name(all[i].Kernel); !several[series] {
				all[i].Kernel = series
			}
		}
		return all
	}
	return named(before), named(after)
}

// stepSummary is where a GitHub workflow wants the summary of a step; "": it is none.
func stepSummary() string { return strings.TrimSpace(os.Getenv("GITHUB_STEP_SUMMARY")) }
