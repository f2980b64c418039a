package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/agent-lock/agent-lock/adversary"
	"github.com/agent-lock/agent-lock/jail"
	"github.com/agent-lock/agent-lock/report"
)

// maxLeaks caps the exit status: 256 leaks must not read as success, and the
// statuses above are taken.
const maxLeaks = 100

const adversaryUsage = `usage: agent-lock adversary [flags]

Attacks a jail and decides from outside whether it leaked. Each attack is first
made without the jail, where it has to succeed, or it proves nothing and is skipped.

  --list          print the name, family and source of each case and stop
  --run REGEXP    only the cases whose name matches
  --user NAME     attack as NAME, unjailed and jailed; root has cases of its own
  --against CMD   attack CMD, or NAME=CMD, instead of our own jail, as the invoking
                  user; {} in CMD stands for the project directory, {log} for a file
                  to which it appends a line for each denial. CMD env is no jail at
                  all, agent-lock our own with its defaults. Repeatable
  --layers LIST   attack our own jail with these layers alone, such as
                  landlock,seccomp; docs/layers.md lists what is then known to leak.
                  Repeatable
  --arena DIR     attack in a directory of the user's other than the home directory, to
                  see what the file system there makes of it
  --json FILE     write one JSON object a case to FILE; - is standard output, and the
                  table then goes to standard error
  --strict        count known leaks as leaks

The exit status is the number of leaks, at most 100, of several jails that of the
first; 125 when the suite could not run or a case is broken.

  sudo agent-lock adversary --run '^hardlink'
  agent-lock adversary --against 'bwrap --ro-bind / / --bind {} {} --dev /dev --'
`

// adversaryFlags are the flags of the verb.
type adversaryFlags struct {
	list, strict bool
	run, json    string
	user         string
	against      []string
	layers       layerSets
	arena        string
	jail         []string // hidden: flags for our own jail
}

func parseAdversaryFlags(args []string) (adversaryFlags, error) {
	var f adversaryFlags
	fs := flag.NewFlagSet("adversary", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.BoolVar(&f.list, "list", false, "")
	fs.BoolVar(&f.strict, "strict", false, "")
	fs.StringVar(&f.run, "run", "", "")
	fs.Func("against", "", func(v string) error {
		f.against = append(f.against, v)
		return nil
	})
	fs.StringVar(&f.json, "json", "", "")
	fs.StringVar(&f.user, "user", "", "")
	fs.Var(&f.layers, "layers", "")
	fs.StringVar(&f.arena, "arena", "", "")
	fs.Func("jail-flag", "", func(v string) error {
		f.jail = append(f.jail, v)
		return nil
	})
	if err := fs.Parse(args); err != nil {
		return f, err
	}
	if fs.NArg() > 0 {
		return f, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if len(f.layers) > 0 && len(f.against) > 0 {
		return f, errors.New("--layers are our own jail's; leave --against out")
	}
	return f, nil
}

// selectCases returns the cases that --run names, at least one.
func selectCases(run string) ([]adversary.Case, error) {
	re, err := regexp.Compile(run)
	if err != nil {
		return nil, fmt.Errorf("read --run: %w", err)
	}
	cases := adversary.Select(re)
	if len(cases) == 0 {
		return nil, fmt.Errorf("no case matches %q; agent-lock adversary --list shows them", run)
	}
	return cases, nil
}

// runAdversary is the verb adversary.
func runAdversary(std stdio, args []string) int {
	f, err := parseAdversaryFlags(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(std.out, adversaryUsage)
		return 0
	}
	if err != nil {
		return std.errorf("adversary: %v; see agent-lock adversary --help", err)
	}
	cases, err := selectCases(f.run)
	if err != nil {
		return std.errorf("adversary: %v", err)
	}
	if f.list {
		return listCases(std, cases)
	}
	jails, err := f.jails()
	if err != nil {
		return std.errorf("adversary: %v", err)
	}
	user, err := f.attacker()
	if err != nil {
		return std.errorf("adversary: %v", err)
	}
	if cases = adversary.For(user.UID, cases); len(cases) == 0 {
		return std.errorf("adversary: only root can make these attacks; add --user root")
	}
	if f.arena != "" {
		if user.Home, err = filepath.Abs(f.arena); err != nil {
			return std.errorf("adversary: %v", err)
		}
	}
	return attack(std, f, jails, adversary.Options{User: user, Cases: cases})
}

// attacker is whom the attacks are made as.
func (f adversaryFlags) attacker() (adversary.User, error) {
	if f.user == "" {
		return adversary.InvokingUser()
	}
	if os.Geteuid() != 0 {
		return adversary.User{}, errors.New("--user needs root; run it with sudo")
	}
	u, err := adversary.Named(f.user)
	if err != nil {
		return u, fmt.Errorf("find the user of --user: %w", err)
	}
	return u, nil
}

// jails returns the jails that --against and --layers name, or our own.
func (f adversaryFlags) jails() ([]adversary.Jail, error) {
	if len(f.against) == 0 && len(f.layers) == 0 {
		f.against = []string{ownName}
	}
	var jails []adversary.Jail
	add := func(j adversary.Jail, err error) error {
		if slices.ContainsFunc(jails, func(k adversary.Jail) bool { return k.Name == j.Name }) {
			err = fmt.Errorf("the name %s is taken; give it another: NAME=CMD", j.Name)
		}
		jails = append(jails, j)
		return err
	}
	for _, command := range f.against {
		var err error
		if command == ownName {
			err = add(f.ownJail(""))
		} else {
			err = add(adversary.ParseJail(command))
		}
		if err != nil {
			return nil, fmt.Errorf("--against %q: %w", command, err)
		}
	}
	for _, list := range f.layers {
		if err := add(f.ownJail(list)); err != nil {
			return nil, fmt.Errorf("--layers %s: %w", list, err)
		}
	}
	return jails, nil
}

// ownName is what --against calls our own jail.
const ownName = "agent-lock"

// ownJail is our own jail with some layers; "": those that it has by default.
func (f adversaryFlags) ownJail(list string) (adversary.Jail, error) {
	if os.Geteuid() != 0 {
		return adversary.Jail{}, errors.New("our own jail needs root; " +
			"run it with sudo, or name another jail with --against")
	}
	layers, err := jail.ParseLayers(list)
	if err != nil {
		return adversary.Jail{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return adversary.Jail{}, fmt.Errorf("find our own program: %w", err)
	}
	j := adversary.Jail{Name: ownName, Layer: list, Known: knownLeaks(layers, jail.LandlockABI())}
	j.Argv = append([]string{self, "--denials", "off"}, f.jail...)
	if layers.BPF {
		j.Argv = append(j.Argv, "--log", "{log}")
	}
	if f.user != "" {
		j.Argv = append(j.Argv, "--user", f.user)
	}
	if list != "" {
		j.Name += " --layers " + list
		j.Argv = append(j.Argv, "--layers", list)
	}
	j.Argv = append(j.Argv, "{}", "--")
	return j, nil
}

// noteTight names the cases that are listed as known leaks and did not leak: then the
// list is wrong, or the machine is not as it thinks.
func noteTight(std stdio, known map[string]string, results []report.Result) {
	for _, r := range results {
		if _, listed := known[r.Name]; listed && r.Outcome == report.Denied {
			fmt.Fprintf(std.err, "agent-lock: adversary: note: %s is listed as a known leak and "+
				"was denied (docs/layers.md)\n", r.Name)
		}
	}
}

// attack runs the suite against each jail and reports; it returns the exit status.
func attack(std stdio, f adversaryFlags, jails []adversary.Jail, opt adversary.Options) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM,
		syscall.SIGHUP)
	defer stop()
	table := std.out
	if f.json == "-" {
		table = std.err
	}
	lines, closeLines, err := jsonOutput(std, f.json)
	if err != nil {
		return std.errorf("adversary: %v", err)
	}
	// Each result is written when it is there: whoever reads along has them even
	// if the machine dies under the next case.
	var written int
	opt.Progress = func(r report.Result) {
		written++
		err = errors.Join(err, report.WriteJSON(lines, r))
	}
	status, failed := 0, false
	for i, j := range jails {
		opt.Jail, written = j, 0
		results, runErr := adversary.Run(ctx, opt)
		err = errors.Join(err, report.WriteJSON(lines, results[written:]...))
		if len(results) > 0 {
			err = errors.Join(err, showJail(table, j, len(jails) > 1, results))
		}
		s := 0
		if runErr != nil {
			s = std.errorf("adversary: %v", runErr)
		} else {
			noteTight(std, j.Known, results)
			s = adversaryStatus(std, results, f.strict)
		}
		failed = failed || s == exitUsage
		if i == 0 {
			status = s
		}
	}
	if err = errors.Join(err, closeLines()); err != nil {
		return std.errorf("adversary: write results: %v", err)
	}
	if failed {
		return exitUsage
	}
	return status
}

// showJail prints the results of a jail, under its name if it is one of several.
func showJail(w io.Writer, j adversary.Jail, several bool, results []report.Result) error {
	if several {
		if _, err := fmt.Fprintf(w, "\n== %s\n", j.Name); err != nil {
			return err
		}
	}
	return adversary.WriteTable(w, results)
}

// adversaryStatus is the exit status that the results deserve.
func adversaryStatus(std stdio, results []report.Result, strict bool) int {
	if n := report.Count(results, report.Broken); n > 0 {
		return std.errorf("adversary: broken cases: %d of %d; the run proves nothing",
			n, len(results))
	}
	leaks := report.Count(results, report.Leaked)
	if strict {
		leaks += report.Count(results, report.Known)
	}
	return min(leaks, maxLeaks)
}

// jsonOutput opens where the JSON lines go; no name: nowhere.
func jsonOutput(std stdio, name string) (io.Writer, func() error, error) {
	nothing := func() error { return nil }
	switch name {
	case "":
		return io.Discard, nothing, nil
	case "-":
		return std.out, nothing, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, nil, err
	}
	return f, f.Close, nil
}

func listCases(std stdio, cases []adversary.Case) int {
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	for _, c := range cases {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", c.Name, c.Family, c.Source)
	}
	tw.Flush()
	fmt.Fprint(std.out, b.String())
	return 0
}

// runAttacker is the hidden verb attacker: the process inside the jail.
func runAttacker(_ stdio, args []string) int { return adversary.AttackerMain(args) }
