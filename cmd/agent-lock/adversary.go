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
	"github.com/agent-lock/agent-lock/report"
	"github.com/hashicorp/go-multierror"
)

// maxLeaks caps the exit status: 256 leaks must not read as success, and the
// statuses above are taken.
const maxLeaks = 100

const adversaryUsage = `usage: agent-lock adversary [flags]

Attacks a jail and decides from outside whether it leaked. Each attack is first
made without the jail, where it has to succeed, or it proves nothing and is skipped.

  --list          print the name, family and source of each case and stop
  --run REGEXP    only the cases whose name matches
  --skip REGEXP   not the cases whose name matches
  --family LIST   only the cases of these families, such as rings,keys
  --repeat N      run the suite N times; a case whose outcome differs between the rounds is
                  broken
  --user NAME     attack as NAME, unjailed and jailed; root has cases of its own
  --against CMD   attack CMD, or NAME=CMD, instead of our own jail, as the invoking
                  user; {} in CMD stands for the project directory, {log} for a file
                  to which it appends a line for each denial, with the path. CMD env
                  is no jail at all, agent-lock our own with its defaults. Repeatable
  --compare       attack all jails for which this suite has settings and that are
                  installed; besides, our own, or those that --against names
  --layers LIST   attack our own jail with these layers alone, such as
                  landlock,seccomp; docs/layers.md lists what is then known to leak.
                  Repeatable
  --arena DIR     attack in a directory of the user's other than the home directory, to
                  see what the file system there makes of it
  --json FILE     write one JSON object a case to FILE
  --junit FILE    write JUnit XML
  --markdown FILE write a summary of the run as GitHub Markdown
  --sarif FILE    write the leaks as a SARIF 2.1.0 log
  --html FILE     write the results as a page
                  For one of these five, - is standard output; the table then goes to
                  standard error
  --baseline FILE compare with the JSON objects of an earlier run, and count only leaks that
                  are new
  --strict        count known leaks as leaks

The exit status is the number of leaks, with --baseline of new ones, at most 100, of
several jails those of the first; 125 when the suite could not run or a case is broken.

  sudo agent-lock adversary --run '^hardlink'
  agent-lock adversary --against 'bwrap --ro-bind / / --bind {} {} --dev /dev --'
`

// adversaryFlags are the flags of the verb.
type adversaryFlags struct {
	reportFlags
	list, strict, compare bool

	run, user string
	against   []string
	layers    layerSets
	arena     string
	jail      []string // hidden: flags for our own jail
}

func parseAdversaryFlags(args []string) (f adversaryFlags, err error) {
	fs := flag.NewFlagSet("adversary", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.BoolVar(&f.list, "list", false, "")
	fs.BoolVar(&f.strict, "strict", false, "")
	fs.StringVar(&f.run, "run", "", "")
	fs.BoolVar(&f.compare, "compare", false, "")
	fs.Func("against", "", func(v string) error {
		f.against = append(f.against, v)
		return nil
	})
	f.reportFlags.define(fs)
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
	if f.list {
		fs.Visit(func(g *flag.Flag) {
			if !slices.Contains([]string{"list", "run", "skip", "family"}, g.Name) {
				err = fmt.Errorf("--list shows cases; leave --%s out", g.Name)
			}
		})
		return f, err
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
	if err == nil {
		cases, err = f.leave(cases)
	}
	if err != nil {
		return std.errorf("adversary: %v", err)
	}
	if f.list {
		return listCases(std, cases)
	}
	user, err := f.attacker()
	if err != nil {
		return std.errorf("adversary: %v", err)
	}
	if cases = adversary.For(user.UID, cases); len(cases) == 0 {
		return std.errorf("adversary: only root can make these attacks; add --user root")
	}
	if f.arena != "" {
		if f.arena, err = filepath.Abs(f.arena); err != nil {
			return std.errorf("adversary: %v", err)
		}
	}
	jails, done, err := f.jails(std, user)
	defer done()
	if err != nil {
		return std.errorf("adversary: %v", err)
	}
	return attack(std, f, jails, adversary.Options{User: user, Arena: f.arena, Cases: cases})
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

// noteTight names the cases that are listed as known leaks and did not leak: then the
// list is wrong, or the machine is not as it thinks.
func noteTight(std stdio, j adversary.Jail, results []report.Result) {
	for _, r := range results {
		_, listed := j.Known[r.Name]
		if listed && r.Jail == j.Name && r.Outcome == report.Denied {
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
	out, err := f.open(std, opt, jails)
	if err != nil {
		return std.errorf("adversary: %v", err)
	}
	results, runErr := out.collect(len(jails)*len(opt.Cases), func(tell func(report.Result)) (
		[]report.Result, error) {
		var all []report.Result
		var errs error
		for _, j := range jails {
			opt.Jail, opt.Progress = j, tell
			results, err := adversary.Run(ctx, opt)
			all = append(all, results...)
			if err != nil {
				errs = multierror.Append(errs, err)
			}
			if ctx.Err() != nil {
				break
			}
		}
		return all, errs
	})
	if err := out.finish(results, runErr, f.strict); err != nil {
		return std.errorf("adversary: %v", err)
	}
	if runErr != nil {
		return std.errorf("adversary: %s", oneLine(runErr))
	}
	for _, j := range jails {
		noteTight(std, j, results)
	}
	return out.status(jails[0].Name, results, f.strict)
}

// oneLine is the message of one error or of several.
func oneLine(err error) string {
	var several *multierror.Error
	if !errors.As(err, &several) {
		return err.Error()
	}
	var texts []string
	for _, e := range several.Errors {
		texts = append(texts, e.Error())
	}
	return strings.Join(texts, "; ")
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
