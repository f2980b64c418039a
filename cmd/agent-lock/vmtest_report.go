package main

import (
	"fmt"

	"github.com/agent-lock/agent-lock/vmtest"
)

// report prints the matrix and returns the exit status.
func (f vmtestFlags) report(std stdio, cells []vmtest.Cell) int {
	for _, c := range cells {
		fmt.Fprintf(std.out, "%+v\n", c)
	}
	return 0
}
