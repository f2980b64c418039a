package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/agent-lock/agent-lock/kernels"
)

// A shard is one of several machines' part of a run; the zero value is all of it.
type shard struct{ number, of int }

// parseShard reads "2/3".
func parseShard(text string) (shard, error) {
	var s shard
	var rest string
	n, _ := fmt.Sscanf(text, "%d/%d%s", &s.number, &s.of, &rest)
	if n != 2 || strings.ContainsAny(text, " +") || s.number < 1 || s.number > s.of {
		return s, fmt.Errorf("%q is not I/N, from 1/N to N/N", text)
	}
	return s, nil
}

// part returns every N-th kernel. They are dealt out in turn, since neighbours take as long
// as each other.
func (s shard) part(list []string) ([]string, error) {
	if s.of == 0 {
		return list, nil
	}
	var part []string
	for i, k := range list {
		if i%s.of == s.number-1 {
			part = append(part, k)
		}
	}
	if len(part) == 0 {
		return nil, fmt.Errorf("--shard %d/%d of %d kernels is empty; take fewer shards",
			s.number, s.of, len(list))
	}
	return part, nil
}

const vmtestMatrixUsage = `usage: agent-lock vmtest matrix --kernels LIST [--json]

Prints the kernels of a list, one a line, or with --json as GitHub's strategy.matrix
reads them: {"kernel":["6.1","6.12"]}.
`

// runVMTestMatrix is the verb.
func runVMTestMatrix(std stdio, args []string) int {
	var list string
	var asJSON bool
	set := flag.NewFlagSet("matrix", flag.ContinueOnError)
	set.SetOutput(io.Discard) // errors are printed below
	set.StringVar(&list, "kernels", "", "")
	set.BoolVar(&asJSON, "json", false, "")
	err := set.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(std.out, vmtestMatrixUsage)
		return 0
	}
	if err == nil && set.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	if err == nil && list == "" {
		err = errors.New("no kernels given; add --kernels 6.1,6.12")
	}
	var specs []string
	if err == nil {
		specs, err = kernels.ParseList(list)
	}
	if err != nil {
		return std.errorf("vmtest matrix: %v", err)
	}
	if asJSON {
		text, err := json.Marshal(map[string][]string{"kernel": specs})
		if err != nil {
			return std.errorf("vmtest matrix: %v", err)
		}
		fmt.Fprintf(std.out, "%s\n", text)
		return 0
	}
	for _, spec := range specs {
		fmt.Fprintln(std.out, spec)
	}
	return 0
}
