package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/agent-lock/agent-lock/kernels"
	"github.com/agent-lock/agent-lock/vmtest"
)

// exitTimedOut is the status of a command that --timeout ended, as timeout(1) has it.
const exitTimedOut = 124

const vmtestExecUsage = `usage: agent-lock vmtest exec --kernel K [flags] -- COMMAND [ARGS]

Boots a kernel and runs a command of this machine's there, with the libraries that it
is linked with, as root. What it prints and its exit status are those of the command.
The current directory is copied to the same place in the guest; nothing comes back.

  go test -exec 'agent-lock vmtest exec --kernel 6.6 --' ./...

Flags:
  --kernel K        what to boot, as for vmtest --kernels
  --user            run it as the guest's user dev
  -i                give it standard input, which is read to its end first
  -t                give it a terminal, this one
  --env NAME[=V]    set this variable (repeatable)
  --dir DIR         copy this directory instead of the current one and start there;
                    "": none
  --file, --package, --module, --share, --accel, --memory, --keep
                    as for vmtest
  --timeout D       of the whole run (default 30m)
  -v                say what is done on standard error

Signals are passed on; the third one ends the guest.

Exit status: the command's; 124 when --timeout was over; 125 when the command could not
be run in a guest, or the guest broke.
`

// execFlags are the parsed flags of vmtest exec.
type execFlags struct {
	vmtestFlags
	dir         string
	interactive bool
	terminal    bool
	tools       []string // of this machine's, as far as there are
	env         []string
	argv        []string
}

func parseVMTestExec(args []string) (execFlags, error) {
	var f execFlags
	var kernel string
	set := flag.NewFlagSet("exec", flag.ContinueOnError)
	set.SetOutput(io.Discard) // errors are printed by the caller
	set.StringVar(&kernel, "kernel", "", "")
	f.machineFlags(set)
	set.BoolVar(&f.interactive, "i", false, "")
	set.BoolVar(&f.terminal, "t", false, "")
	set.StringVar(&f.dir, "dir", ".", "")
	set.Func("env", "", func(s string) error {
		name, _, given := strings.Cut(s, "=")
		value, here := os.LookupEnv(name)
		switch {
		case name == "":
			return fmt.Errorf("%q names no variable", s)
		case given:
			f.env = append(f.env, s)
		case here:
			f.env = append(f.env, name+"="+value)
		}
		return nil
	})
	if err := set.Parse(args); err != nil {
		return f, err
	}
	f.argv = set.Args()
	if kernel == "" {
		return f, errors.New("no kernel given; add --kernel 6.12")
	}
	if len(f.argv) == 0 {
		return f, errors.New("no command given; add -- COMMAND")
	}
	if f.interactive && f.terminal {
		return f, errors.New("-i does not go with -t")
	}
	if f.timeout <= 0 || f.memory < 0 {
		return f, errors.New("--timeout and --memory must be positive")
	}
	var err error
	if f.kernels, err = kernels.ParseList(kernel); err != nil {
		return f, err
	}
	if len(f.kernels) > 1 {
		return f, fmt.Errorf("--kernel %s: it is one kernel", kernel)
	}
	return f, nil
}

// runVMTestExec is the verb.
func runVMTestExec(std stdio, args []string) int {
	f, err := parseVMTestExec(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(std.out, vmtestExecUsage)
		return 0
	}
	if err == nil {
		var status int
		if status, err = f.exec(std); err == nil {
			return status
		}
	}
	return std.errorf("vmtest exec: %v", err)
}

// exec runs the command and returns its status.
func (f execFlags) exec(std stdio) (int, error) {
	cfg, err := f.config(std)
	if err != nil {
		return 0, err
	}
	if !f.verbose {
		cfg.Logf = nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), f.timeout)
	defer cancel()
	messages := make(chan vmtest.Message)
	cfg.Messages = messages
	defer passSignals(messages, cancel)()
	step, err := f.step(ctx, &cfg)
	if err != nil {
		return 0, err
	}
	if f.interactive {
		input, err := readInput(ctx, std.in)
		if err != nil {
			return 0, fmt.Errorf("read standard input: %w", err)
		}
		defer os.Remove(input)
		cfg.Files = append(cfg.Files, vmtest.File{Host: input, Guest: execInput, Mode: 0o600})
		step.Stdin = execInput
	}
	if err := f.equipment.add(ctx, &cfg); err != nil {
		return 0, err
	}
	cfg.Plan = []vmtest.Step{step}
	out, errs := &lostOutput{w: std.out, lost: cancel}, &lostOutput{w: std.err, lost: cancel}
	cfg.Text, cfg.Errors = out, errs
	restore := func() {}
	if f.terminal {
		if restore, err = passTerminal(messages); err != nil {
			return 0, err
		}
	}
	cells := f.boot(ctx, cfg)
	restore()
	switch c := cells[0]; {
	case errors.Is(out.err, syscall.EPIPE), errors.Is(errs.err, syscall.EPIPE):
		return 128 + int(syscall.SIGPIPE), nil // as the command itself here
	case out.err != nil || errs.err != nil:
		return 0, fmt.Errorf("write what the command prints: %w", cmp.Or(out.err, errs.err))
	case errors.Is(ctx.Err(), context.DeadlineExceeded),
		len(c.Steps) == 1 && c.Steps[0].TimedOut:
		std.errorf("vmtest exec: %s did not end within --timeout %v", f.argv[0], f.timeout)
		return exitTimedOut, nil
	case c.Fault != "":
		return 0, vmtest.Errors(cells)
	default:
		return c.Steps[0].Status, nil
	}
}

// A lostOutput keeps the first error of its writer, after which nobody needs the guest.
type lostOutput struct {
	w    io.Writer
	lost func()
	err  error
}

func (o *lostOutput) Write(data []byte) (int, error) {
	if o.err == nil {
		if _, o.err = o.w.Write(data); o.err != nil {
			o.lost()
		}
	}
	return len(data), nil
}

// Where the guest finds what it gets from exec.
const (
	execProgram = "/run/exec"
	execInput   = "/run/stdin"
)

// step is the command in the guest; what it needs of this machine goes into the run.
func (f execFlags) step(ctx context.Context, cfg *vmtest.Config) (vmtest.Step, error) {
	s := vmtest.Step{Name: f.argv[0], Argv: slices.Clone(f.argv), Env: f.env, User: f.user,
		Timeout: f.timeout, Terminal: f.terminal}
	if f.terminal {
		s.Env = append([]string{"TERM=" + os.Getenv("TERM")}, s.Env...)
	}
	cfg.Files = append(cfg.Files, hostPrograms(f.tools)...)
	program, err := exec.LookPath(f.argv[0])
	switch {
	case err == nil:
		if program, err = filepath.Abs(program); err != nil {
			return s, err
		}
		files, err := programFiles(program)
		if err != nil {
			return s, err
		}
		s.Argv[0] = files[0].Guest
		cfg.Files = append(files, cfg.Files...)
	case len(f.equipment.packages)+len(f.equipment.trees)+len(f.files) == 0:
		return s, fmt.Errorf("find the command: %w; --package and --file bring what is not here",
			err)
	}
	if f.dir == "" {
		return s, nil
	}
	if s.Dir, err = filepath.Abs(f.dir); err != nil {
		return s, fmt.Errorf("find the current directory: %w; name one with --dir", err)
	}
	if err := checkDir(ctx, s.Dir); err != nil {
		return s, fmt.Errorf("copy %s for the guest: %w; name another with --dir, or none: "+
			"--dir ''", s.Dir, err)
	}
	cfg.Trees = append(cfg.Trees, vmtest.Tree{Host: s.Dir, Guest: s.Dir, Readable: f.user})
	return s, nil
}

// programFiles are a program, first, and what it needs: libraries, and of a script the
// interpreter.
func programFiles(program string) ([]vmtest.File, error) {
	files := hostPrograms([]string{program})
	files[0].Guest = path.Join(execProgram, filepath.Base(program))
	f, err := os.Open(program)
	if err != nil {
		return nil, fmt.Errorf("read the command: %w", err)
	}
	defer f.Close()
	line, _ := bufio.NewReader(io.LimitReader(f, 256)).ReadString('\n')
	words := strings.Fields(strings.TrimPrefix(line, "#!"))
	if !strings.HasPrefix(line, "#!") || len(words) == 0 {
		return files, nil
	}
	if filepath.Base(words[0]) != "env" {
		words = words[:1]
	}
	for _, word := range words {
		if strings.HasPrefix(word, "-") || strings.Contains(word, "=") {
			continue // what env takes before a command
		}
		found := hostPrograms([]string{word})
		if len(found) == 0 {
			return nil, fmt.Errorf("run the script %s: its interpreter %s is not here", program,
				word)
		}
		files = append(files, found...)
	}
	return files, nil
}

// readInput reads standard input into a file, to its end or until somebody has had enough.
func readInput(ctx context.Context, in io.Reader) (string, error) {
	f, err := os.CreateTemp("", "agent-lock-stdin-")
	if err != nil {
		return "", err
	}
	done := make(chan error, 1)
	go func() {
		n, err := io.Copy(f, io.LimitReader(in, maxCopied+1))
		if err == nil && n > maxCopied {
			err = fmt.Errorf("it is more than %d MB", maxCopied>>20)
		}
		done <- errors.Join(err, f.Close())
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return f.Name(), err
}

// maxCopied bounds what a guest is given of a directory, or as input: it has all of it in
// memory, and the kernel unpacks it there.
const maxCopied = 256 << 20

// checkDir finds out before a machine is booted whether a guest can have a directory.
func checkDir(ctx context.Context, dir string) error {
	for _, mounted := range []string{"/dev", "/proc", "/sys"} {
		if dir == mounted || strings.HasPrefix(dir, mounted+"/") {
			return fmt.Errorf("a guest has its own %s", mounted)
		}
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	if info, err := os.Stat(real); err == nil && !info.IsDir() {
		return errors.New("it is no directory")
	}
	size := int64(0)
	return filepath.WalkDir(real, func(_ string, d fs.DirEntry, err error) error {
		if err = cmp.Or(err, ctx.Err()); err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if size += info.Size(); size > maxCopied {
			return fmt.Errorf("it holds more than %d MB", maxCopied>>20)
		}
		return nil
	})
}
