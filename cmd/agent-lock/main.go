// Agent-lock jails a command and everything it starts in one project
// directory, attacks that jail, and boots kernels to show that it holds.
//
// Usage:
//
//	sudo agent-lock [flags] DIR [-- COMMAND...]
//	sudo agent-lock adversary [flags]
//	agent-lock vmtest --kernels LIST [flags]
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/agent-lock/agent-lock/jail"
)

// exitUsage is the exit status when nothing was started: bad input, no jail,
// no suite. It is out of the way of the statuses of the commands we run.
const exitUsage = 125

// A verb is one subcommand. It lives in the file that carries its name.
type verb struct {
	name    string
	summary string // empty: hidden, for our own processes only
	run     func(std stdio, args []string) int
}

// verbs is filled by main so that a verb may refer to the table.
func verbs() []verb {
	return []verb{
		{name: jail.InitVerb, run: func(stdio, []string) int { return jail.Init() }},
		{name: jail.ExecVerb, run: func(stdio, []string) int { return jail.Exec() }},
		{name: "guest-load", run: guestLoad},
	}
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
	os.Exit(dispatch(stdio{os.Stdin, os.Stdout, os.Stderr}, os.Args[1:]))
}

func dispatch(std stdio, args []string) int {
	if len(args) > 0 {
		for _, v := range verbs() {
			if v.name == args[0] {
				return v.run(std, args[1:])
			}
		}
	}
	return runJail(std, args)
}
