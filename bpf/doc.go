// Package bpf is the kernel half of agent-lock: the BPF LSM programs, the table
// of what each closes, and the attach set that serves all jails of a machine.
//
// The programs are in jail.bpf.c and the headers it includes; their bindings
// are generated and committed.
package bpf
