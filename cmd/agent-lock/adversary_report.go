package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/agent-lock/agent-lock/adversary"
	"github.com/agent-lock/agent-lock/report"
)

// reportFlags are the flags of the verb adversary that say what is run and how its results
// are shown.
type reportFlags struct {
	files        map[string]string // by the name of the flag, which is that of the form
	baseline     string
	skip, family string
	repeat       int
}

// resultForms are the forms of results in files, but for the JSON lines, which are written
// while the suite runs.
var resultForms = map[string]func(io.Writer, []report.Result) error{
	"junit":    report.WriteJUnit,
	"markdown": report.WriteMarkdown,
	"html":     report.WriteHTML,
	"sarif": func(w io.Writer, results []report.Result) error {
		return report.WriteSARIF(w, version, caseRules(), results)
	},
}

// caseRules is what the cases say about themselves.
func caseRules() map[string]report.Rule {
	rules := map[string]report.Rule{}
	for _, c := range adversary.Cases() {
		rules[c.Name] = report.Rule{What: c.What, Family: c.Family, Source: c.Source,
			Hooks: c.Hooks}
	}
	return rules
}

func (f *reportFlags) define(fs *flag.FlagSet) {
	f.files = map[string]string{}
	for _, form := range []string{"json", "junit", "markdown", "sarif", "html"} {
		fs.Func(form, "", func(name string) error {
			f.files[form] = name
			return nil
		})
	}
	fs.StringVar(&f.baseline, "baseline", "", "")
	fs.StringVar(&f.skip, "skip", "", "")
	fs.StringVar(&f.family, "family", "", "")
	fs.IntVar(&f.repeat, "repeat", 1, "")
}

// leave returns the cases that --skip and --family leave, at least one.
func (f reportFlags) leave(cases []adversary.Case) ([]adversary.Case, error) {
	if f.skip != "" {
		skip, err := regexp.Compile(f.skip)
		if err != nil {
			return nil, fmt.Errorf("read --skip: %w", err)
		}
		cases = slices.DeleteFunc(cases, func(c adversary.Case) bool {
			return skip.MatchString(c.Name)
		})
	}
	if f.family != "" {
		families := strings.Split(strings.ReplaceAll(f.family, " ", ""), ",")
		for _, name := range families {
			if all := adversary.Families(); !slices.Contains(all, name) {
				return nil, fmt.Errorf("--family: there is no %q; the families are %s", name,
					strings.Join(all, ", "))
			}
		}
		cases = slices.DeleteFunc(cases, func(c adversary.Case) bool {
			return !slices.Contains(families, c.Family)
		})
	}
	if len(cases) == 0 {
		return nil, errors.New("--run, --skip and --family leave no case; " +
			"agent-lock adversary --list shows them")
	}
	return cases, nil
}

// A resultOutput is where the results of a run go.
type resultOutput struct {
	std      stdio
	table    io.Writer // for people
	before   []report.Result
	baseline bool // compare with before
	repeat   int
	lines    io.Writer // JSON
	files    map[string]*os.File
	stdout   string // the form that goes to standard output; empty: none does
	replaced string // the baseline, when the JSON lines are to take its place
	err      error  // of writing lines
}

// open reads the baseline and opens the files, before anything is attacked.
func (f reportFlags) open(std stdio, opt adversary.Options, jails []adversary.Jail) (
	*resultOutput, error) {
	if f.repeat < 1 {
		return nil, fmt.Errorf("--repeat %d: it is at least 1", f.repeat)
	}
	out := &resultOutput{std: std, table: std.out, repeat: f.repeat, lines: io.Discard,
		files: map[string]*os.File{}}
	if f.baseline != "" {
		before, err := readBaseline(f.baseline, opt, jails)
		if err != nil {
			return nil, err
		}
		out.before, out.baseline = before, true
	}
	forms := map[string]string{} // by file
	for form, name := range f.files {
		path, err := filepath.Abs(name)
		if err != nil {
			return nil, err
		}
		if other := forms[path]; other != "" {
			return nil, fmt.Errorf("--%s and --%s both write %s; name two files",
				min(form, other), max(form, other), name)
		}
		forms[path] = form
	}
	if f.baseline != "" && f.files["json"] == f.baseline { // it must outlive a run that fails
		out.replaced, f.files["json"] = f.baseline, f.baseline+".new"
	}
	for form, name := range f.files {
		if err := out.openFile(form, name); err != nil {
			out.close()
			return nil, err
		}
	}
	return out, nil
}

func (out *resultOutput) openFile(form, name string) error {
	var w io.Writer = out.std.out
	if name == "-" {
		out.stdout, out.table = form, out.std.err
	} else {
		file, err := openResults(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
		if err != nil {
			return fmt.Errorf("write --%s: %w", form, err)
		}
		out.files[form], w = file, file
	}
	if form == "json" {
		out.lines = w
	}
	return nil
}

// readBaseline reads the results of an earlier run. Of the cases that there still are, it
// leaves those that are run now, of the same user and jails: not to run one is no change.
func readBaseline(name string, opt adversary.Options, jails []adversary.Jail) (
	[]report.Result, error) {
	results, err := readResults(name)
	if err != nil {
		return nil, fmt.Errorf("read --baseline: %w; it is a file that --json wrote", err)
	}
	named := func(cases []adversary.Case, r report.Result) bool {
		return slices.ContainsFunc(cases, func(c adversary.Case) bool { return c.Name == r.Name })
	}
	all := adversary.Cases()
	ofCases, ofThese := 0, 0
	results = slices.DeleteFunc(results, func(r report.Result) bool {
		if r.Kind != report.Case || r.Name == "" || r.Outcome == "" {
			return true
		}
		ofCases++
		if r.Kernel != "" || r.User != opt.User.Name || !slices.ContainsFunc(jails,
			func(j adversary.Jail) bool { return j.Name == r.Jail && j.Layer == r.Layer }) {
			return true
		}
		ofThese++
		return named(all, r) && !named(opt.Cases, r)
	})
	switch {
	case ofCases == 0:
		return nil, fmt.Errorf("read --baseline %s: it has no result of a case; "+
			"it is a file that --json wrote", name)
	case ofThese == 0:
		return nil, fmt.Errorf("read --baseline %s: it has no result of what is attacked now: "+
			"%s as %s", name, jails[0].Name, opt.User.Name)
	}
	return results, nil
}

func readResults(name string) ([]report.Result, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	results, err := report.ReadJSON(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return results, nil
}

// collect runs the suite as often as it is wanted, shows how far it is, and makes one result
// of those of each case. Results are written as JSON lines as they are there, in the last
// round: whoever reads along has them even if the machine dies under the next case.
func (out *resultOutput) collect(total int,
	run func(tell func(report.Result)) ([]report.Result, error)) ([]report.Result, error) {
	line := report.NewProgress(out.std.err, total*out.repeat)
	if out.stdout == "json" && report.Terminal(out.std.out) {
		line = &report.Progress{} // the two would write over each other
	}
	defer line.Clear()
	earlier := map[report.Key][]report.Result{}
	merge := func(r report.Result) report.Result {
		return report.Agree(out.repeat, append(slices.Clone(earlier[r.Key()]), r)...)
	}
	for round := 1; ; round++ {
		written := map[report.Key]bool{}
		results, err := run(func(r report.Result) {
			line.Add(r)
			if round == out.repeat {
				written[r.Key()] = true
				out.err = errors.Join(out.err, report.WriteJSON(out.lines, merge(r)))
			}
		})
		if err == nil && round < out.repeat {
			for _, r := range results {
				earlier[r.Key()] = append(earlier[r.Key()], r)
			}
			continue
		}
		for i, r := range results {
			results[i] = merge(r)
			if !written[r.Key()] {
				out.err = errors.Join(out.err, report.WriteJSON(out.lines, results[i]))
			}
		}
		return results, err
	}
}

// finish writes the results in all their forms. RunErr is why the suite could not run, or
// not to its end: no file may look then as if all were well.
func (out *resultOutput) finish(results []report.Result, runErr error, strict bool) error {
	errs := []error{out.err}
	filed := results
	if runErr != nil {
		suite := report.Result{Kind: report.Case, Name: "suite", Family: "suite",
			Outcome: report.Broken, Detail: oneLine(runErr)}
		if len(results) > 0 {
			suite.Jail, suite.Layer, suite.User = results[0].Jail, results[0].Layer, results[0].User
		}
		filed = append(slices.Clone(results), suite)
	}
	for form, write := range resultForms {
		var w io.Writer = out.files[form]
		if out.stdout == form {
			w = out.std.out
		} else if out.files[form] == nil {
			continue
		}
		if err := write(w, filed); err != nil {
			errs = append(errs, fmt.Errorf("write --%s: %w", form, err))
		}
	}
	errs = append(errs, out.close(), out.replace(runErr == nil))
	switch {
	case len(results) == 0:
	case hasColumns(results):
		errs = append(errs, report.WriteMatrix(out.table, results, false))
	default:
		errs = append(errs, report.WriteTable(out.table, results))
	}
	if out.baseline && len(results) > 0 {
		fmt.Fprintln(out.table, "\nSince the baseline:")
		errs = append(errs, out.compare(results, strict).Write(out.table))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("write results: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

// replace puts the results in the place of the baseline, or leaves that as it was.
func (out *resultOutput) replace(ran bool) error {
	switch {
	case out.replaced == "":
		return nil
	case ran:
		return os.Rename(out.replaced+".new", out.replaced)
	}
	return os.Remove(out.replaced + ".new")
}

// close closes the files.
func (out *resultOutput) close() error {
	var errs []error
	for _, file := range out.files {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}

// hasColumns reports whether more than one jail was attacked.
func hasColumns(results []report.Result) bool {
	return slices.ContainsFunc(results, func(r report.Result) bool {
		first := results[0]
		return r.Jail != first.Jail || r.Layer != first.Layer || r.User != first.User
	})
}

// compare compares with the baseline. Where known leaks count they are leaks in both.
func (out *resultOutput) compare(results []report.Result, strict bool) report.Comparison {
	return report.Compare(counted(out.before, strict), counted(results, strict))
}

// counted is the results with every leak that counts as such.
func counted(results []report.Result, strict bool) []report.Result {
	results = slices.Clone(results)
	for i := range results {
		if strict && results[i].Outcome == report.Known {
			results[i].Outcome = report.Leaked
		}
	}
	return results
}

// status is the exit status that the results deserve; leaks are those of one jail.
func (out *resultOutput) status(jail string, results []report.Result, strict bool) int {
	if n := report.Count(results, report.Broken); n > 0 {
		return out.std.errorf("adversary: broken cases: %d of %d; the run proves nothing",
			n, len(results))
	}
	results = slices.DeleteFunc(slices.Clone(results), func(r report.Result) bool {
		return r.Jail != jail
	})
	leaks := report.Count(counted(results, strict), report.Leaked)
	if out.baseline {
		leaks = len(out.compare(results, strict).NewLeaks)
	}
	return min(leaks, maxLeaks)
}
