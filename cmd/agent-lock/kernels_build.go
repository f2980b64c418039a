package main

import (
	"context"
	"fmt"

	"github.com/agent-lock/agent-lock/kernels"
)

// build makes a kernel of a source tree, for configurations that nobody ships.
func (f kernelsFlags) build(ctx context.Context, std stdio) int {
	f.building.Output = std.err
	opts := kernels.Options{Logf: func(format string, args ...any) {
		fmt.Fprintf(std.err, "agent-lock: "+format+"\n", args...)
	}}
	k, err := kernels.Build(ctx, opts, f.building)
	if err != nil {
		std.errorf("kernels: %v", err)
		return exitInfra
	}
	if f.json {
		printJSON(std, lineOf(k))
		return 0
	}
	fmt.Fprintf(std.out, "%s: %s, %s, sha256 %s\n", k.Name, k.Version, k.Source, k.SHA256)
	return 0
}
