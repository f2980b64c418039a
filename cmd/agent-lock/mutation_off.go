//go:build !mutation

package main

import "flag"

// mutationFlags adds nothing: hooks cannot be left out of a real binary.
func mutationFlags(*flag.FlagSet, *runFlags) {}

func mutationVerbs() []verb { return nil }
