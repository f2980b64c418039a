package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/agent-lock/agent-lock/adversary"
	"github.com/agent-lock/agent-lock/bpf"
	"github.com/agent-lock/agent-lock/kernels"
	"github.com/agent-lock/agent-lock/report"
	"github.com/agent-lock/agent-lock/vmtest"
)

// Exit statuses of vmtest, besides 0 and exitUsage.
const (
	exitFailed = 1 // a program or a case failed
	exitInfra  = 2 // no QEMU, no kernel, a guest that broke
)

const vmtestUsage = `usage: agent-lock vmtest --kernels LIST [flags]
       agent-lock vmtest --kernels LIST --step 'COMMAND ARGS' [--step ...] [flags]
       agent-lock vmtest exec --kernel K [flags] -- COMMAND [ARGS]
       agent-lock vmtest shell --kernel K [flags]
       agent-lock vmtest matrix --kernels LIST [--json]

Boots each kernel of LIST in QEMU, loads every program, attacks the jail, and
prints a table. With --step it runs those commands in the guest instead and
prints what they print.

LIST is a comma-separated list of
  6.1               the newest of a series: of the package manager, else of
                    other Debian suites or Ubuntu's mainline builds
  6.12.117          a version, or a distribution's name for one (6.1.0-57)
  file:PATH, ./X    a bzImage or a vmlinux
and of oci:REF, deb:FILE, dir:DIR and others: see agent-lock kernels --help.

Flags:
  --kernels LIST    what to boot
  --json FILE       write results as JSON lines; "-": to stdout, the table to stderr
  --junit FILE, --html FILE
                    write them as JUnit XML, as a page
  --markdown FILE   append a summary in Markdown (default $GITHUB_STEP_SUMMARY)
  --annotations FILE
                    write what failed as commands to GitHub's runner
  --baseline FILE   also compare with an earlier run's --json
  --accel A         auto (default), kvm, tcg; auto uses KVM if a probe guest ran in it
  --timeout D       of the whole run (default 30m)
  --allow-missing   a kernel that cannot be had is shown as missing, not an error
  --run REGEXP      only these cases of the suite
  --users LIST      whom the suite attacks as: user, root or both (default user,root)
  --layers LIST     attack the jail with these layers alone, e.g. landlock,seccomp;
                    repeatable, the suite runs once for each (default bpf,seccomp)
  --demo            first show a jailed command, for people
  --object FILE     instead load the programs of this compiled BPF object, of anybody's
                    (repeatable)
  --max-insns N     a program on which the verifier spends more instructions failed
  --filesystems     instead use files in the jail and outside, on file systems of every
                    kind; --run REGEXP chooses among them
  --attack REGEXP   with --filesystems: also attack the jail on some of them, with these
                    cases of the suite; . is all
  --bench           measure instead, in guest instructions (under tcg)
  --step 'CMD'      run this in the guest instead (repeatable)
  --user            run the --step commands as the guest's user dev, not as root
  --file HOST:GUEST put a file into the guest (repeatable)
  --package LIST    put these packages of Debian or Ubuntu there, with their libraries
  --tree DIR        put what DIR holds into the guest's root directory (repeatable)
  --module LIST     load these kernel modules, and what they need
  --share DIR:GUEST show DIR in the guest through 9p; GUEST is a path, or the mount
                    tag for a step that mounts it (repeatable)
  --keep DIR        keep each guest's console, frames and QEMU command line there
  --shard I/N       only every N-th kernel of the list, from the I-th on
  --jobs N          machines at a time (default: one a core)
  --memory MB       of each machine (default 1024)
  -v                show every row of the table, and all that the steps print

Exit status: 0 everything loads and nothing leaks; 1 a program or case failed;
2 infrastructure (no QEMU, no kernel, boot failure, panic, truncated results);
125 usage. With --step: that of the first step that failed, or 2.

Example:
  agent-lock vmtest --kernels 6.1,6.12 --json -
`

// vmtestFlags are the parsed flags of the verb.
type vmtestFlags struct {
	kernels      []string
	json         string
	filed        vmtestFiles
	accel        vmtest.Accel
	timeout      time.Duration
	allowMissing bool
	run          string
	users        []string
	layers       layerSets
	demo, bench  bool
	objects      []string
	maxInsns     uint64
	filesystems  bool
	attack       string
	steps        []string
	user         bool
	files        []string
	equipment    equipment
	keep         string
	jobs, memory int
	verbose      bool
}

func parseVMTest(args []string) (vmtestFlags, error) {
	var f vmtestFlags
	var list, users string
	var part shard
	fs := flag.NewFlagSet("vmtest", flag.ContinueOnError)
	fs.SetOutput(new(strings.Builder)) // errors are printed by the caller
	fs.StringVar(&list, "kernels", "", "")
	fs.StringVar(&f.json, "json", "", "")
	f.filed.define(fs)
	fs.Func("shard", "", func(s string) (err error) { part, err = parseShard(s); return err })
	f.machineFlags(fs)
	fs.BoolVar(&f.allowMissing, "allow-missing", false, "")
	fs.StringVar(&f.run, "run", "", "")
	fs.StringVar(&users, "users", "user,root", "")
	fs.Var(&f.layers, "layers", "")
	fs.BoolVar(&f.demo, "demo", false, "")
	fs.BoolVar(&f.bench, "bench", false, "")
	fs.Func("object", "", func(s string) error { f.objects = append(f.objects, s); return nil })
	fs.Uint64Var(&f.maxInsns, "max-insns", 0, "")
	f.fileSystemFlags(fs)
	fs.Func("step", "", func(s string) error { f.steps = append(f.steps, s); return nil })
	fs.IntVar(&f.jobs, "jobs", 0, "")
	if err := fs.Parse(args); err != nil {
		return f, err
	}
	if fs.NArg() > 0 {
		return f, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if list == "" {
		return f, errors.New("no kernels given; add --kernels 6.1,6.12")
	}
	if f.bench && f.accel == vmtest.AccelKVM {
		return f, errors.New("--bench does not go with --accel kvm")
	}
	if err := f.check(); err != nil {
		return f, err
	}
	var err error
	if f.users, err = parseUsers(users); err != nil {
		return f, err
	}
	if f.kernels, err = parseKernelList(list, part); err != nil {
		return f, err
	}
	return f, f.checkFileSystemFlags()
}

// machineFlags are those about the guests, whatever runs there.
func (f *vmtestFlags) machineFlags(fs *flag.FlagSet) {
	f.accel = vmtest.AccelAuto
	fs.Func("accel", "", func(s string) (err error) {
		f.accel, err = vmtest.ParseAccel(s)
		return err
	})
	fs.DurationVar(&f.timeout, "timeout", vmtest.DefaultTimeout, "")
	fs.BoolVar(&f.user, "user", false, "")
	fs.Func("file", "", func(s string) error { f.files = append(f.files, s); return nil })
	f.equipment.flags(fs)
	fs.StringVar(&f.keep, "keep", "", "")
	fs.IntVar(&f.memory, "memory", 0, "")
	fs.BoolVar(&f.verbose, "v", false, "")
}

// parseKernelList reads a list and takes a shard of it.
func parseKernelList(list string, part shard) ([]string, error) {
	specs, err := kernels.ParseList(list)
	if err != nil {
		return nil, err
	}
	return part.part(specs)
}

// check finds flags that do not go together.
func (f vmtestFlags) check() error {
	if f.user && len(f.steps) == 0 {
		return errors.New("--user is for --step")
	}
	if f.bench && len(f.steps) > 0 {
		return errors.New("--bench does not go with --step")
	}
	if f.run != "" {
		if len(f.steps) > 0 {
			return errors.New("--run does not go with --step")
		}
		if _, err := selectCases(f.run); err != nil && !f.filesystems && !f.bench {
			return err
		}
	}
	if len(f.layers) > 0 && (len(f.steps) > 0 || f.bench) {
		return errors.New("--layers goes neither with --step nor with --bench")
	}
	if f.demo && len(f.steps) > 0 {
		return errors.New("--demo does not go with --step")
	}
	if len(f.objects) > 0 && (len(f.steps) > 0 || f.bench || f.filesystems || f.demo ||
		f.run != "" || len(f.layers) > 0) {
		return errors.New("--object goes with none of --step, --bench, --filesystems, --demo, " +
			"--run and --layers: no jail is involved")
	}
	if f.json != "" && f.json == f.filed.baseline {
		return errors.New("--json and --baseline name one file; it is to outlive a run that fails")
	}
	if f.maxInsns > 0 && (len(f.steps) > 0 || f.bench || f.filesystems) {
		return errors.New("--max-insns is for programs: it goes with none of --step, --bench " +
			"and --filesystems")
	}
	if f.timeout <= 0 || f.jobs < 0 || f.memory < 0 {
		return errors.New("--timeout, --jobs and --memory must be positive")
	}
	return nil
}

func parseUsers(list string) ([]string, error) {
	users := strings.Split(list, ",")
	for _, u := range users {
		if u != "user" && u != "root" {
			return nil, fmt.Errorf("--users %s: it is user, root or user,root", list)
		}
	}
	return users, nil
}

// runVMTest is the verb.
func runVMTest(std stdio, args []string) int {
	if len(args) > 0 {
		switch args[0] {
		case "exec":
			return runVMTestExec(std, args[1:])
		case "shell":
			return runVMTestShell(std, args[1:])
		case "matrix":
			return runVMTestMatrix(std, args[1:])
		}
	}
	f, err := parseVMTest(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(std.out, vmtestUsage)
		return 0
	}
	if err != nil {
		return std.errorf("vmtest: %v", err)
	}
	cfg, err := f.config(std)
	if err == nil {
		cfg.Plan, err = f.plan()
	}
	if err != nil {
		return std.errorf("vmtest: %v", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM,
		syscall.SIGHUP)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	remove, err := f.equip(&cfg)
	if err != nil {
		return std.errorf("vmtest: %v", err)
	}
	defer remove()
	if err := f.equipment.add(ctx, &cfg); err != nil {
		std.errorf("vmtest: %v", err)
		return exitInfra
	}
	if err := f.filed.check(stepSummary()); err != nil {
		return std.errorf("vmtest: %v", err)
	}
	out, err := openResultLines(std, f.json)
	if err != nil {
		return std.errorf("vmtest: %v", err)
	}
	cells := f.boot(ctx, cfg)
	for _, c := range cells {
		overBudget(c.Results, f.maxInsns)
	}
	status := f.report(std, out, cells)
	if len(f.steps) > 0 {
		return stepsStatus(cells)
	}
	return status
}

// equip enters what a special run needs in the guest; the function that it returns removes
// it.
func (f *vmtestFlags) equip(cfg *vmtest.Config) (func(), error) {
	switch {
	case f.filesystems:
		return f.equipment.forFileSystems(cfg)
	case f.bench:
		return forBench(cfg)
	}
	return func() {}, nil
}

// config turns the flags into a run, without its kernels.
func (f vmtestFlags) config(std stdio) (vmtest.Config, error) {
	cfg := vmtest.Config{
		Accel:    f.accel,
		Timeout:  f.timeout,
		Jobs:     f.jobs,
		MemoryMB: f.memory,
		Keep:     f.keep,
		Binaries: foreignBinaries(),
		ICount:   f.bench,
	}
	f.watch(std, &cfg)
	for _, s := range f.files {
		host, guest, ok := strings.Cut(s, ":")
		if !ok || host == "" || !strings.HasPrefix(guest, "/") {
			return cfg, fmt.Errorf("--file %q is not HOST:/GUEST", s)
		}
		if _, err := os.Stat(host); err != nil {
			return cfg, fmt.Errorf("--file: %w", err)
		}
		cfg.Files = append(cfg.Files, vmtest.File{Host: host, Guest: guest})
	}
	for _, o := range f.guestObjects() {
		if err := bpf.CheckFile(o.Host); err != nil {
			return cfg, fmt.Errorf("--object: %w", err)
		}
		cfg.Files = append(cfg.Files, o.File)
	}
	if f.bench {
		cfg.Files = append(cfg.Files, hostPrograms(benchPrograms)...)
		if cfg.MemoryMB == 0 {
			cfg.MemoryMB = benchMemoryMB
		}
	}
	cfg.Text = std.out
	if f.json == "-" {
		cfg.Text = std.err
	}
	return cfg, nil
}

// plan composes the guest's work.
func (f vmtestFlags) plan() ([]vmtest.Step, error) {
	var steps []vmtest.Step
	for _, s := range f.steps {
		argv, err := splitWords(s)
		if err != nil {
			return nil, fmt.Errorf("--step %q: %w", s, err)
		}
		steps = append(steps, vmtest.Step{
			Name: s, Argv: argv, User: f.user, StopOnFail: true, Timeout: f.timeout,
		})
	}
	if len(steps) > 0 {
		return steps, nil
	}
	if f.filesystems {
		return []vmtest.Step{f.fileSystemStep()}, nil
	}
	if f.bench {
		bench := []string{"agent-lock", "guest-bench"}
		if f.run != "" {
			bench = append(bench, f.run)
		}
		return []vmtest.Step{{Name: "guest-bench", Argv: bench, Results: true, Quiet: !f.verbose,
			Check: mustSucceed}}, nil
	}
	if f.demo {
		steps = append(steps, vmtest.Step{Name: "demo", Argv: []string{"agent-lock", "guest-demo"},
			Check: mustSucceed})
	}
	load := vmtest.Step{Name: "load every program", Argv: []string{"agent-lock", "guest-load"},
		Results: true, Quiet: !f.verbose, Check: vmtest.BadIsStatus, Timeout: suiteTimeout}
	if len(f.objects) > 0 {
		for _, o := range f.guestObjects() {
			load.Argv = append(load.Argv, o.name+"="+o.Guest)
		}
		return []vmtest.Step{load}, nil
	}
	steps = append(steps, load)
	suites, err := f.suites()
	return append(steps, suites...), err
}

// ordinary is the id of a user who is not root.
const ordinary = 1000

// suites are the runs of the suite, one for each set of layers and each user that has
// a case to make.
func (f vmtestFlags) suites() ([]vmtest.Step, error) {
	cases, err := selectCases(f.run)
	if err != nil {
		return nil, err
	}
	sets := []string(f.layers)
	if len(sets) == 0 {
		sets = []string{""}
	}
	var steps []vmtest.Step
	for _, layers := range sets {
		for _, user := range f.users {
			if user == "root" || len(adversary.For(ordinary, cases)) > 0 {
				steps = append(steps, f.suite(layers, user))
			}
		}
	}
	if len(steps) == 0 {
		return nil, errors.New("only root can make these attacks; add root to --users")
	}
	return steps, nil
}

// suiteTimeout is that of all programs, or of the whole suite, on a machine that has other
// work as well.
const suiteTimeout = 20 * time.Minute

func (f vmtestFlags) suite(layers, user string) vmtest.Step {
	s := vmtest.Step{
		Name:    "attack as " + user,
		Argv:    []string{"agent-lock", "adversary", "--json", "-"},
		Results: true,
		Quiet:   !f.verbose,
		Check:   vmtest.LeaksAreStatus,
		Timeout: suiteTimeout,
	}
	if layers != "" {
		s.Name += " --layers " + layers
		s.Argv = append(s.Argv, "--layers", layers)
	}
	if f.run != "" {
		s.Argv = append(s.Argv, "--run", f.run)
	}
	if user == "root" {
		s.Argv = append(s.Argv, "--user", "root")
	}
	return s
}

// mustSucceed is the check of a step that only shows something.
func mustSucceed(status int, _ []report.Result) error {
	if status != 0 {
		return fmt.Errorf("exit status %d", status)
	}
	return nil
}

// boot finds the kernels and runs those that there are. The cells are in the
// order of --kernels.
func (f vmtestFlags) boot(ctx context.Context, cfg vmtest.Config) []vmtest.Cell {
	cells := make(map[string]vmtest.Cell)
	for _, spec := range f.kernels {
		k, err := kernels.Resolve(ctx, spec, kernels.Options{Logf: cfg.Logf})
		if err != nil {
			cells[spec] = vmtest.MissingCell(spec, err, f.allowMissing)
			continue
		}
		if err := f.equipment.suits(k); err != nil {
			cells[spec] = vmtest.BrokenCell(k, err)
			continue
		}
		cfg.Kernels = append(cfg.Kernels, k)
	}
	if len(cfg.Kernels) > 0 {
		booted, err := vmtest.Run(ctx, cfg)
		for i, k := range cfg.Kernels {
			if err != nil {
				cells[k.Name] = vmtest.BrokenCell(k, err)
			} else {
				cells[k.Name] = booted[i]
			}
		}
	}
	ordered := make([]vmtest.Cell, len(f.kernels))
	for i, spec := range f.kernels {
		ordered[i] = cells[spec]
	}
	return ordered
}
