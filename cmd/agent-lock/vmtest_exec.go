package main

import (
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
	var kernel, accel string
	set := flag.NewFlagSet("exec", flag.ContinueOnError)
	set.SetOutput(io.Discard) // errors are printed by the caller
	set.StringVar(&kernel, "kernel", "", "")
	set.StringVar(&accel, "accel", string(vmtest.AccelAuto), "")
	set.DurationVar(&f.timeout, "timeout", vmtest.DefaultTimeout, "")
	set.BoolVar(&f.user, "user", false, "")
	set.BoolVar(&f.interactive, "i", false, "")
	set.BoolVar(&f.terminal, "t", false, "")
	set.StringVar(&f.dir, "dir", ".", "")
	set.Func("env", "", func(s string) error {
		name, _, given := strings.Cut(s, "=")
		if !given {
			s = name + "=" + os.Getenv(name)
		}
		f.env = append(f.env, s)
		return nil
	})
	set.Func("file", "", func(s string) error { f.files = append(f.files, s); return nil })
	f.equipment.flags(set)
	set.StringVar(&f.keep, "keep", "", "")
	set.IntVar(&f.memory, "memory", 0, "")
	set.BoolVar(&f.verbose, "v", false, "")
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
	f.accel, err = vmtest.ParseAccel(accel)
	return f, err
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
	stage, err := os.MkdirTemp("", "agent-lock-exec-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(stage)
	step, err := f.step(std, stage, &cfg)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), f.timeout)
	defer cancel()
	if err := f.equipment.add(ctx, &cfg); err != nil {
		return 0, err
	}
	cfg.Trees = append(cfg.Trees, stage)
	cfg.Plan, cfg.Errors = []vmtest.Step{step}, std.err
	messages := make(chan vmtest.Message)
	cfg.Messages = messages
	defer passSignals(messages)()
	if f.terminal {
		restore, err := passTerminal(messages)
		if err != nil {
			return 0, err
		}
		defer restore()
	}
	cells := f.boot(ctx, cfg)
	switch c := cells[0]; {
	case c.Fault == vmtest.FaultTimeout || len(c.Steps) == 1 && c.Steps[0].TimedOut:
		std.errorf("vmtest exec: %s did not end within --timeout %v", f.argv[0], f.timeout)
		return exitTimedOut, nil
	case c.Fault != "":
		return 0, vmtest.Errors(cells)
	}
	return cells[0].Steps[0].Status, nil
}

// Where the guest finds what it gets from exec.
const (
	execProgram = "/run/exec"
	execInput   = "/run/stdin"
)

// step is the command in the guest; what it needs of this machine goes into the stage and
// the run's files.
func (f execFlags) step(std stdio, stage string, cfg *vmtest.Config) (vmtest.Step, error) {
	s := vmtest.Step{Name: f.argv[0], Argv: slices.Clone(f.argv), Env: f.env, User: f.user,
		Timeout: f.timeout, Terminal: f.terminal}
	if f.terminal {
		s.Env = append(s.Env, "TERM="+os.Getenv("TERM"))
	}
	cfg.Files = append(cfg.Files, hostPrograms(f.tools)...)
	// What is not here may come with a package.
	if program, err := exec.LookPath(f.argv[0]); err == nil {
		if program, err = filepath.Abs(program); err != nil {
			return s, err
		}
		files := hostPrograms([]string{program})
		s.Argv[0] = path.Join(execProgram, filepath.Base(program))
		files[0].Guest = s.Argv[0]
		cfg.Files = append(files, cfg.Files...)
	} else if strings.Contains(f.argv[0], "/") && len(f.equipment.packages) == 0 {
		return s, fmt.Errorf("find the command: %w", err)
	}
	if f.dir != "" {
		dir, err := filepath.Abs(f.dir)
		if err != nil {
			return s, err
		}
		if err := copyDir(dir, stage+dir); err != nil {
			return s, fmt.Errorf("copy %s for the guest: %w", dir, err)
		}
		s.Dir = dir
	}
	if f.interactive {
		input := filepath.Join(stage, "stdin")
		data, err := io.ReadAll(std.in)
		if err == nil {
			err = os.WriteFile(input, data, 0o600)
		}
		if err != nil {
			return s, fmt.Errorf("read standard input: %w", err)
		}
		cfg.Files = append(cfg.Files, vmtest.File{Host: input, Guest: execInput, Mode: 0o600})
		s.Stdin = execInput
	}
	return s, nil
}

// maxDir bounds what is copied of a directory: a guest has it all in memory.
const maxDir = 256 << 20

// copyDir copies the regular files, links and directories of a directory.
func copyDir(from, to string) error {
	size := int64(0)
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			return os.MkdirAll(target, info.Mode().Perm()|0o700)
		case d.Type() == fs.ModeSymlink:
			link, err := os.Readlink(name)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		case !d.Type().IsRegular():
			return nil
		}
		if size += info.Size(); size > maxDir {
			return fmt.Errorf("it holds more than %d MB; name a smaller one with --dir, or none: "+
				"--dir ''", maxDir>>20)
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, info.Mode().Perm())
	})
}
