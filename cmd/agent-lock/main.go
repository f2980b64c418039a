// Agent-lock jails a command and everything it starts in one project
// directory, attacks that jail, and boots kernels to show that it holds.
//
// Usage:
//
//	sudo agent-lock [flags] DIR [-- COMMAND...]
//	sudo agent-lock adversary [flags]
//	agent-lock vmtest --kernels LIST [flags]
//	agent-lock kernels list|fetch|prune [flags]
package main

import (
	"fmt"
	"io"
	"os"
)

// version is set by the linker (make build).
var version = "unknown"

// exitUsage is the exit status when nothing was started: bad input, no jail,
// no suite. It is out of the way of the statuses of the commands we run.
const exitUsage = 125

// A verb is one subcommand. It lives in the file that carries its name.
type verb struct {
	name    string
	summary string // empty: hidden, for processes of our own only
	run     func(std stdio, args []string) int
}

// verbs is a function so that a verb may refer to the table.
func verbs() []verb {
	return append([]verb{
		{"version", "print the version", func(std stdio, _ []string) int {
			return printVersion(std)
		}},
		{"help", "print this text", func(std stdio, _ []string) int { return help(std.out) }},
		{"adversary", "attack the jail, or any other", runAdversary},
		{"vmtest", "boot kernels, load every program, attack the jail", runVMTest},
		{"kernels", "list, fetch and prune the kernels of vmtest", runKernels},
		{"guest-init", "", runGuestInit},
		{"guest-provoke", "", runGuestProvoke},
		{"guest-load", "", guestLoad},
		{"guest-demo", "", guestDemo},
		{"guest-bench", "", guestBench},
		{"guest-filesystems", "", guestFileSystems},
		{"filesystem-check", "", checkFileSystem},
		{rootVerb, "", inRoot},
		{"bench-worker", "", benchWorker},
		{"bench-doc", "", benchDoc},
		{"compare-doc", "", compareDoc},
	}, mutationVerbs()...)
}

func printVersion(std stdio) int {
	fmt.Fprintln(std.out, "agent-lock", version)
	return 0
}

func help(w io.Writer) int {
	fmt.Fprint(w, runUsage, "\nOther verbs (agent-lock VERB --help tells more):\n\n")
	for _, v := range verbs() {
		if v.summary != "" {
			fmt.Fprintf(w, "  %-10s %s\n", v.name, v.summary)
		}
	}
	return 0
}

// stdio is where a verb reads and writes, so that tests can look.
type stdio struct {
	in  io.Reader
	out io.Writer
	err io.Writer
}

// errorf prints one error line and returns exitUsage.
func (s stdio) errorf(format string, args ...any) int {
	fmt.Fprintf(s.err, "agent-lock: "+format+"\n", args...)
	return exitUsage
}

func main() {
	std := stdio{os.Stdin, os.Stdout, os.Stderr}
	if status, ok := applet(std, os.Args); ok {
		os.Exit(status)
	}
	os.Exit(dispatch(std, os.Args[1:]))
}

// dispatch runs the verb that args start with, else the jail. A directory with
// a verb's name is written ./NAME.
func dispatch(std stdio, args []string) int {
	if len(args) == 0 {
		help(std.err)
		return exitUsage
	}
	for _, v := range verbs() {
		if v.name == args[0] {
			return v.run(std, args[1:])
		}
	}
	return runJail(std, args)
}
