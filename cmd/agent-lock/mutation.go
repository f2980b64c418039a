//go:build mutation

package main

import "flag"

// mutationFlags adds --drop-hook, with which a test shows that each hook
// matters: without it, something leaks.
func mutationFlags(set *flag.FlagSet, f *runFlags) {
	set.Func("drop-hook", "", func(name string) error {
		f.drop = append(f.drop, name)
		return nil
	})
}
