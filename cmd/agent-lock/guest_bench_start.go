package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/agent-lock/agent-lock/report"
)

// How long a start takes: from fork to the command's first instruction, and to the
// moment at which everything is gone. The command is a program of nine
// instructions, so that what is measured is the way to it.

// firstWord is that program for x86-64: it writes a byte and exits.
var firstWord = []byte{
	0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, // 64 bits, little endian
	2, 0, 62, 0, 1, 0, 0, 0, 0x78, 0, 0x40, 0, 0, 0, 0, 0, // starts at 0x400078
	64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // program headers at 64
	0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 0, 0, 0, 0, 0, 0,
	1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // one segment to load
	0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, // at 0x400000
	0x91, 0, 0, 0, 0, 0, 0, 0, 0x91, 0, 0, 0, 0, 0, 0, 0, // of this size
	0, 0x10, 0, 0, 0, 0, 0, 0,
	0xb8, 1, 0, 0, 0, // mov eax, SYS_write
	0x89, 0xc7, // mov edi, eax
	0xbe, 0, 0, 0x40, 0, // mov esi, 0x400000
	0x89, 0xc2, // mov edx, eax
	0x0f, 0x05, // syscall
	0xb8, 60, 0, 0, 0, // mov eax, SYS_exit
	0x31, 0xff, // xor edi, edi
	0x0f, 0x05, // syscall
}

// startRuns is how often a start is timed where a jail need not attach first.
const startRuns = 5

// benchStarts reports a result a way of starting. bwrap is measured where the
// guest has it.
func benchStarts(std stdio, self, dir string) error {
	program := filepath.Join(dir, "first-word")
	if err := os.WriteFile(program, firstWord, 0o755); err != nil {
		return err
	}
	jailed := func() *exec.Cmd {
		return exec.Command(self, "--denials", "off", dir, "--", program)
	}
	bare := func() *exec.Cmd { return exec.Command(program) }
	if err := reportStarts(std, "none", startRuns, bare); err != nil {
		return err
	}
	if bwrap, err := exec.LookPath("bwrap"); err == nil {
		err := reportStarts(std, "bwrap", startRuns, func() *exec.Cmd {
			cmd := exec.Command(bwrap, "--ro-bind", "/", "/", program)
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Credential: &syscall.Credential{Uid: benchUser, Gid: benchUser},
			}
			return cmd
		})
		if err != nil {
			return err
		}
	}
	if err := reportStarts(std, "first jail", 1, jailed); err != nil {
		return err
	}
	waiter := exec.Command(self, "--denials", "off", dir, "--", self, "bench-worker", "wait", dir)
	var failed error
	err := besideJail(waiter, func() { failed = reportStarts(std, "jail", startRuns, jailed) })
	return errors.Join(failed, err)
}

// reportStarts prints the medians of a way of starting.
func reportStarts(std stdio, setting string, runs int, command func() *exec.Cmd) error {
	var first, all []time.Duration
	for range runs {
		cmd := command()
		f, a, err := timeStart(cmd)
		if err != nil {
			return fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
		}
		first, all = append(first, f), append(all, a)
	}
	slices.Sort(first)
	slices.Sort(all)
	enc := json.NewEncoder(std.out)
	for name, times := range map[string][]time.Duration{"start": first, "start_to_end": all} {
		err := enc.Encode(report.Result{Kind: report.Bench, Name: name, Layer: setting,
			Outcome: report.OK, Value: float64(times[len(times)/2]), Unit: "ns/op"})
		if err != nil {
			return err
		}
	}
	return nil
}

// timeStart returns the time to the command's first word and to its end.
func timeStart(cmd *exec.Cmd) (first, all time.Duration, err error) {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, 0, err
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	_, readErr := io.ReadFull(out, make([]byte, 1))
	first = time.Since(began)
	err = cmd.Wait()
	all = time.Since(began)
	if err = errors.Join(readErr, err); err != nil {
		err = fmt.Errorf("%w: %s", err, stderr.String())
	}
	return first, all, err
}
