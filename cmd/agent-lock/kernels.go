package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/agent-lock/agent-lock/kernels"
)

const kernelsUsage = `Usage: agent-lock kernels list [--known] [--json]
       agent-lock kernels fetch [--lock FILE] [--timeout D] [--json] LIST...
       agent-lock kernels build [--config NAME] [--tree DIR] [--jobs N] [--json] SOURCE
       agent-lock kernels prune [--unused DAYS | --all] [--dry-run] [--json]

list shows the kernels in the cache; with --known, the series that are known and
where each is looked for after the package manager. fetch gets kernels into the
cache, for a run without a network. build makes one of a kernel's source tree, to
be used as built:NAME. prune removes those that nothing used lately.

LIST is a comma-separated list of
  6.1                        the newest of a series: of the package manager, of
                             other Debian suites, of Ubuntu's mainline builds
  6.12.117, 6.1.0-57         a version, or a distribution's name for one
  debian:6.1                 the same, from Debian's archive only
  ubuntu-mainline:6.6        the same, from Ubuntu's mainline builds only
  oci:REGISTRY/NAME:TAG      an image with boot/vmlinuz, public; or NAME@DIGEST
  deb:FILE                   a kernel package
  dir:DIR                    a folder with boot/vmlinuz*, or a build tree
  built:NAME                 what build made of the configuration NAME
  host                       the running kernel
  file:PATH, ./X             a bzImage or a vmlinux

Flags:
  --known        list the catalogue, not the cache
  --lock FILE    refuse an image with another sum than FILE has; add new ones to it
  --timeout D    of all downloads together (default 10m)
  --config NAME  a configuration on top of allnoconfig, of ours (default
                 no-security-path) or a file; each line of it must take effect
  --tree DIR     build there and keep it, to build faster the next time
  --jobs N       compile so many files at a time (default 2)
  --unused DAYS  remove what was not used for so long (default 30)
  --all          remove everything
  --dry-run      only say what would be removed
  --json         print one JSON object a line

The cache is $AGENT_LOCK_CACHE, else agent-lock below $XDG_CACHE_HOME or ~/.cache.
AGENT_LOCK_MAINLINE is the address of a mirror of Ubuntu's mainline builds.

Exit status: 0 done; 2 a kernel could not be had; 125 usage.

Example:
  agent-lock kernels fetch 6.1,6.6,6.12
`

// kernelsFlags are the parsed flags of the verb.
type kernelsFlags struct {
	known, all, dryRun, json bool
	lock                     string
	timeout                  time.Duration
	unused                   int
	specs                    []string
	building                 kernels.Building
}

// runKernels is the verb.
func runKernels(std stdio, args []string) int {
	commands := map[string]func(kernelsFlags, context.Context, stdio) int{
		"list": kernelsFlags.list, "fetch": kernelsFlags.fetch, "build": kernelsFlags.build,
		"prune": kernelsFlags.prune,
	}
	if len(args) == 0 {
		return std.errorf("kernels: say list, fetch, build or prune (agent-lock kernels --help)")
	}
	run, ok := commands[args[0]]
	if strings.TrimLeft(args[0], "-") == "help" || args[0] == "-h" {
		fmt.Fprint(std.out, kernelsUsage)
		return 0
	}
	if !ok {
		return std.errorf("kernels: %q is not list, fetch, build or prune", args[0])
	}
	f, err := parseKernels(args[0], args[1:])
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(std.out, kernelsUsage)
		return 0
	}
	if err != nil {
		return std.errorf("kernels %s: %v", args[0], err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return run(f, ctx, std)
}

func parseKernels(command string, args []string) (kernelsFlags, error) {
	var f kernelsFlags
	fs := flag.NewFlagSet(command, flag.ContinueOnError)
	fs.SetOutput(io.Discard) // errors are printed by the caller
	fs.BoolVar(&f.json, "json", false, "")
	switch command {
	case "list":
		fs.BoolVar(&f.known, "known", false, "")
	case "fetch":
		fs.StringVar(&f.lock, "lock", "", "")
		fs.DurationVar(&f.timeout, "timeout", 10*time.Minute, "")
	case "build":
		fs.StringVar(&f.building.Config, "config", "no-security-path", "")
		fs.StringVar(&f.building.Tree, "tree", "", "")
		fs.IntVar(&f.building.Jobs, "jobs", 2, "")
	case "prune":
		fs.IntVar(&f.unused, "unused", 30, "")
		fs.BoolVar(&f.all, "all", false, "")
		fs.BoolVar(&f.dryRun, "dry-run", false, "")
	}
	if err := fs.Parse(args); err != nil {
		return f, err
	}
	if command == "build" {
		if fs.NArg() != 1 {
			return f, errors.New("give one folder, with a kernel's source")
		}
		f.building.Source = fs.Arg(0)
		return f, nil
	}
	if command != "fetch" && fs.NArg() > 0 {
		return f, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if command == "fetch" && fs.NArg() == 0 {
		return f, errors.New("no kernels given; name them: agent-lock kernels fetch 6.1,6.12")
	}
	if f.unused < 0 || f.timeout < 0 {
		return f, errors.New("--unused and --timeout must not be negative")
	}
	if fs.NArg() == 0 {
		return f, nil
	}
	var err error
	f.specs, err = kernels.ParseList(strings.Join(fs.Args(), ","))
	return f, err
}

// kernelLine is a kernel as a JSON object.
type kernelLine struct {
	Name    string     `json:"name,omitempty"` // as it was asked for
	Version string     `json:"version,omitempty"`
	Release string     `json:"release,omitempty"`
	Source  string     `json:"source,omitempty"`
	SHA256  string     `json:"sha256,omitempty"`
	Pin     string     `json:"pin,omitempty"`
	Boot    string     `json:"boot,omitempty"`
	Config  string     `json:"config,omitempty"`
	Lacks   []string   `json:"lacks,omitempty"`
	Entry   string     `json:"entry,omitempty"`
	Bytes   int64      `json:"bytes,omitempty"`
	Used    *time.Time `json:"used,omitempty"`
	Error   string     `json:"error,omitempty"`
	Tried   []string   `json:"tried,omitempty"`
}

func lineOf(k kernels.Kernel) kernelLine {
	return kernelLine{Name: k.Name, Version: k.Version, Release: k.Release, Source: k.Source,
		SHA256: k.SHA256, Pin: k.Pin, Boot: k.Boot(), Config: k.Config, Lacks: k.Lacks()}
}

// printJSON prints an object on a line of its own.
func printJSON(std stdio, value any) {
	encoder := json.NewEncoder(std.out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		std.errorf("kernels: %v", err)
	}
}

func (f kernelsFlags) list(_ context.Context, std stdio) int {
	if f.known {
		return f.listKnown(std)
	}
	all, err := kernels.List(kernels.Options{})
	if err != nil {
		std.errorf("kernels: %v", err)
		return exitInfra
	}
	f.show(std, all)
	return 0
}

// show prints kernels of the cache.
func (f kernelsFlags) show(std stdio, all []kernels.Stored) {
	w := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	if !f.json && len(all) > 0 {
		fmt.Fprintln(w, "version\tsize\tused\tsha256\tsource")
	}
	for _, s := range all {
		if f.json {
			line := lineOf(s.Kernel)
			line.Entry, line.Bytes, line.Used = s.Entry, s.Bytes, &s.Used
			printJSON(std, line)
			continue
		}
		source, sum := s.Source, s.SHA256
		if source == "" {
			source = s.Entry
		}
		fmt.Fprintf(w, "%s\t%d MiB\t%s\t%.12s\t%s\n", s.Version, s.Bytes>>20,
			s.Used.Format(time.DateOnly), sum, source)
	}
	w.Flush()
}

func (f kernelsFlags) listKnown(std stdio) int {
	w := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	if !f.json {
		fmt.Fprintln(w, "series\tsource\tnote")
	}
	for _, s := range kernels.Catalogue() {
		if f.json {
			printJSON(std, s)
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, s.Prefer, s.Note)
	}
	w.Flush()
	return 0
}

func (f kernelsFlags) fetch(ctx context.Context, std stdio) int {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	opts := kernels.Options{Lock: f.lock, Logf: func(format string, args ...any) {
		fmt.Fprintf(std.err, "agent-lock: "+format+"\n", args...)
	}}
	status := 0
	var got []kernels.Kernel
	for _, spec := range f.specs {
		k, err := kernels.Resolve(ctx, spec, opts)
		if err != nil {
			f.showError(std, spec, err)
			status = exitInfra
			continue
		}
		got = append(got, k)
		if f.json {
			printJSON(std, lineOf(k))
			continue
		}
		fmt.Fprintf(std.out, "%s: %s, %s, sha256 %s\n", spec, k.Version, k.Source, k.SHA256)
		if lacks := k.Lacks(); len(lacks) > 0 {
			fmt.Fprintf(std.out, "%s: lacks %s: no jail can be built\n", spec,
				strings.Join(lacks, ", "))
		}
	}
	if f.lock != "" {
		if err := kernels.UpdateLock(f.lock, got...); err != nil {
			std.errorf("kernels: %v", err)
			return exitInfra
		}
	}
	return status
}

// showError tells why a kernel could not be had, with a line for each place.
func (f kernelsFlags) showError(std stdio, spec string, err error) {
	line := kernelLine{Name: spec, Error: err.Error()}
	var missing *kernels.MissingError
	if errors.As(err, &missing) {
		line.Error, _, _ = strings.Cut(line.Error, ":")
		for _, tried := range missing.Tried.Errors {
			line.Tried = append(line.Tried, tried.Error())
		}
	}
	if f.json {
		printJSON(std, line)
		return
	}
	std.errorf("kernels: %s: %s", spec, line.Error)
	for _, tried := range line.Tried {
		std.errorf("kernels: %s: tried %s", spec, tried)
	}
	if missing != nil {
		std.errorf("kernels: %s: a kernel image can be given as file:PATH", spec)
	}
}

func (f kernelsFlags) prune(ctx context.Context, std stdio) int {
	p := kernels.Pruning{Unused: time.Duration(f.unused) * 24 * time.Hour, DryRun: f.dryRun}
	if f.all {
		p.Unused = 0
	}
	gone, err := kernels.Prune(ctx, kernels.Options{}, p)
	f.show(std, gone)
	if err != nil {
		std.errorf("kernels: %v", err)
		return exitInfra
	}
	return 0
}
