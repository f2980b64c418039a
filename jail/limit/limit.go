// Package limit remembers how many descriptors the caller allowed. Package syscall raises
// that limit for this process and lowers it in its own children only; what we start
// ourselves is to have the caller's.
//
// It imports nothing, and its path sorts before "syscall": Go then initialises it first.
package limit

// Descriptors is the caller's RLIMIT_NOFILE; its Max is 0 if that is not known.
var Descriptors struct{ Cur, Max uint64 }

func init() { getDescriptors(&Descriptors.Cur) }

// getDescriptors is getrlimit(2). The two numbers of a limit lie one after the other.
//
//go:noescape
func getDescriptors(limit *uint64)
