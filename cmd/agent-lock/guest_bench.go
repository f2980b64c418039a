package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/agent-lock/agent-lock/report"
	"github.com/landlock-lsm/go-landlock/landlock"
	"golang.org/x/sys/unix"
)

// The benchmark measures the same operations without a jail, beside one, in
// one, and under Landlock with as many rules. In a guest with QEMU's -icount one
// nanosecond is one guest instruction, so the figures repeat.

// benchUser owns the files; the ids of the guest's ordinary user.
const benchUser = 1000

// guestBench runs the worker in each setting and prints one result an operation
// and setting.
func guestBench(std stdio, args []string) int {
	wanted, err := benchPattern(args)
	if err != nil {
		return std.errorf("usage: agent-lock guest-bench [PATTERN]: %v", err)
	}
	dir, err := benchProject()
	if err != nil {
		return std.errorf("prepare benchmark: %v", err)
	}
	self, err := os.Executable()
	if err != nil {
		return std.errorf("find the program: %v", err)
	}
	asUser := &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: benchUser, Gid: benchUser},
	}
	worker := func(setting string) *exec.Cmd {
		args := []string{self, "bench-worker", setting, dir, wanted.String()}
		return &exec.Cmd{Path: self, Args: args, SysProcAttr: asUser}
	}
	jailed := func(setting, layers string) *exec.Cmd {
		return exec.Command(self, "--denials", "off", "--layers", layers, dir, "--",
			self, "bench-worker", setting, dir, wanted.String())
	}
	status := 0
	run := func(cmd *exec.Cmd) {
		cmd.Stderr = std.err
		cmd.Stdout = std.out
		if err := cmd.Run(); err != nil {
			status = std.errorf("%s: %v", strings.Join(cmd.Args, " "), err)
		}
	}
	// Before the first jail: what it attaches stays for a while, and everybody is asked.
	run(worker("none"))
	run(worker("landlock"))
	if wanted.MatchString("start") {
		if err := benchStarts(std, self, dir); err != nil {
			status = std.errorf("measure starts: %v", err)
		}
	}
	if !worksOn(wanted) {
		return status // what follows would attach again, for nothing
	}
	run(jailed("jail", "bpf"))
	run(jailed("layers", "bpf,landlock,seccomp"))
	for setting, jails := range map[string]int{"beside": 1, "beside 50": 50} {
		waiter := func() *exec.Cmd { return jailed("wait", "bpf") }
		if err := besideJails(jails, waiter, func() { run(worker(setting)) }); err != nil {
			status = std.errorf("measure beside %d jails: %v", jails, err)
		}
	}
	return status
}

// benchPattern selects measurements by their names.
func benchPattern(args []string) (*regexp.Regexp, error) {
	switch len(args) {
	case 0:
		return regexp.MustCompile(""), nil
	case 1:
		return regexp.Compile(args[0])
	}
	return nil, errors.New("more than one argument")
}

// worksOn reports whether anything but starts is to be measured.
func worksOn(wanted *regexp.Regexp) bool {
	return slices.ContainsFunc(benchOps(""), func(op benchOp) bool {
		return wanted.MatchString(op.name)
	}) || slices.ContainsFunc(workloads, func(w workload) bool {
		return wanted.MatchString(w.name)
	})
}

// besideJails runs f while n jails are running.
func besideJails(n int, waiter func() *exec.Cmd, f func()) error {
	if n == 0 {
		f()
		return nil
	}
	var inner error
	err := besideJail(waiter(), func() { inner = besideJails(n-1, waiter, f) })
	return errors.Join(err, inner)
}

// besideJail runs f while a jail is running.
func besideJail(waiter *exec.Cmd, f func()) error {
	in, err := waiter.StdinPipe()
	if err != nil {
		return err
	}
	out, err := waiter.StdoutPipe()
	if err != nil {
		return err
	}
	if err := waiter.Start(); err != nil {
		return err
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return fmt.Errorf("wait for the jail: %w", err)
	}
	f()
	in.Close()
	return waiter.Wait()
}

// benchDepth is how far below the project the files lie.
const benchDepth = 8

func benchProject() (string, error) {
	dir := "/home/dev/bench"
	deep := filepath.Join(dir, strings.Repeat("d/", benchDepth-1))
	if err := os.MkdirAll(deep, 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(deep, "file"), []byte("x"), 0o644); err != nil {
		return "", err
	}
	return dir, makeTree(dir)
}

// benchWorker measures in the setting that it finds itself in.
func benchWorker(std stdio, args []string) int {
	if len(args) < 2 {
		return std.errorf("usage: agent-lock bench-worker SETTING DIR [PATTERN]")
	}
	setting, dir := args[0], args[1]
	wanted, err := benchPattern(args[2:])
	if err != nil {
		return std.errorf("bench-worker: %v", err)
	}
	switch setting {
	case "wait":
		fmt.Fprintln(std.out, "running")
		io.Copy(io.Discard, std.in)
		return 0
	case "landlock":
		err := landlock.V1.RestrictPaths(
			landlock.RWDirs(dir), landlock.RWDirs("/tmp"), landlock.RODirs("/bin", "/usr", "/lib",
				"/lib64", "/etc", "/proc"), landlock.RWFiles("/dev/null"))
		if err != nil {
			return std.errorf("apply Landlock: %v", err)
		}
	}
	deep := filepath.Join(dir, strings.Repeat("d/", benchDepth-1))
	enc := json.NewEncoder(std.out)
	for _, op := range benchOps(deep) {
		if !wanted.MatchString(op.name) {
			continue
		}
		ns, err := measure(op.run)
		if err != nil {
			return std.errorf("%s, %s: %v", setting, op.name, err)
		}
		enc.Encode(report.Result{Kind: report.Bench, Name: op.name, Layer: setting,
			Outcome: report.OK, Value: ns, Unit: "ns/op"})
	}
	if err := benchWork(std.out, setting, dir, wanted); err != nil {
		return std.errorf("%s, %v", setting, err)
	}
	return 0
}

type benchOp struct {
	name string
	run  func() error
}

// cpath is a path as the system calls take it: measured loops allocate nothing.
func cpath(path string) unsafe.Pointer {
	b := append([]byte(path), 0)
	return unsafe.Pointer(&b[0])
}

func benchOps(deep string) []benchOp {
	file, other := cpath(filepath.Join(deep, "file")), cpath(filepath.Join(deep, "other"))
	fresh := cpath(filepath.Join(deep, "fresh"))
	var st unix.Stat_t
	at := ^uintptr(99) // AT_FDCWD
	return []benchOp{
		{"open_close", func() error {
			fd, err := call(unix.SYS_OPENAT, at, uintptr(file), unix.O_RDONLY, 0)
			if err != nil {
				return err
			}
			_, err = call(unix.SYS_CLOSE, fd, 0, 0, 0)
			return err
		}},
		{"stat", func() error {
			to := uintptr(unsafe.Pointer(&st))
			_, err := call(unix.SYS_NEWFSTATAT, at, uintptr(file), to, 0)
			return err
		}},
		{"create_unlink", func() error {
			const flags = unix.O_CREAT | unix.O_WRONLY
			fd, err := call(unix.SYS_OPENAT, at, uintptr(fresh), flags, 0o644)
			if err != nil {
				return err
			}
			if _, err = call(unix.SYS_CLOSE, fd, 0, 0, 0); err != nil {
				return err
			}
			_, err = call(unix.SYS_UNLINKAT, at, uintptr(fresh), 0, 0)
			return err
		}},
		{"rename", func() error {
			_, err := call(unix.SYS_RENAMEAT2, at, uintptr(file), at, uintptr(other))
			if err != nil {
				return err
			}
			_, err = call(unix.SYS_RENAMEAT2, at, uintptr(other), at, uintptr(file))
			return err
		}},
	}
}

func call(nr, a, b, c, d uintptr) (uintptr, error) {
	r, _, errno := unix.RawSyscall6(nr, a, b, c, d, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return r, nil
}

// benchRuns is how often an operation is timed.
const benchRuns = 10_000

// measure returns the median time of one run of f, in ns, less that of reading
// the clock. The median leaves out what interrupts and RCU add to a few runs.
func measure(f func() error) (float64, error) {
	clock, err := median(func() error { return nil })
	if err != nil {
		return 0, err
	}
	total, err := median(f)
	return float64(total - clock), err
}

func median(f func() error) (time.Duration, error) {
	times := make([]time.Duration, benchRuns)
	for i := range times {
		start := time.Now()
		if err := f(); err != nil {
			return 0, err
		}
		times[i] = time.Since(start)
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}
