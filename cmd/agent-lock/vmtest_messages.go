package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/agent-lock/agent-lock/vmtest"
	"golang.org/x/term"
)

// unheard is how long a signal waits for a guest that takes messages.
const unheard = time.Second

// passSignals makes messages of the signals that somebody sends who wants to stop the
// command, or to tell it something. While there is no guest to take them, one ends the run.
func passSignals(to chan<- vmtest.Message, end func()) (stop func()) {
	got := make(chan os.Signal, 8)
	signal.Notify(got, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2)
	signal.Ignore(syscall.SIGPIPE) // a write tells
	go func() {
		for s := range got {
			select {
			case to <- vmtest.Signal(s.(syscall.Signal)):
			case <-time.After(unheard):
				end()
			}
		}
	}()
	return func() { signal.Stop(got) }
}

// passTerminal connects our terminal with the command's; restore gives it back.
func passTerminal(to chan<- vmtest.Message) (restore func(), err error) {
	in, out := int(os.Stdin.Fd()), int(os.Stdout.Fd())
	if !term.IsTerminal(in) || !term.IsTerminal(out) {
		return nil, errors.New("standard input and output are no terminal; " +
			"leave out -t, and take exec instead of shell")
	}
	state, err := term.MakeRaw(in)
	if err != nil {
		return nil, err
	}
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	resized <- syscall.SIGWINCH // how large it is now
	go func() {
		for range resized {
			if columns, rows, err := term.GetSize(out); err == nil {
				to <- vmtest.Size(rows, columns)
			}
		}
	}()
	go func() {
		for buf := make([]byte, 4096); ; {
			n, err := os.Stdin.Read(buf)
			if n > 0 {
				to <- vmtest.Input(buf[:n:n])
			}
			if err != nil {
				return
			}
		}
	}()
	return func() {
		signal.Stop(resized)
		term.Restore(in, state)
	}, nil
}

const vmtestShellUsage = `usage: agent-lock vmtest shell --kernel K [flags]

Boots a kernel and opens this machine's shell there, as root, with some of its tools
(ls, ps, dmesg, bpftool, strace and others, as far as they are here) and the current
directory. The flags are those of agent-lock vmtest exec. The machine is gone when the
shell ends.
`

// shellTools are what somebody wants in a guest's shell.
var shellTools = []string{
	"bash", "sh", "awk", "bpftool", "cat", "chmod", "chown", "cp", "cut", "df", "dmesg", "du",
	"env", "find", "free", "git", "grep", "head", "hexdump", "id", "ip", "kill", "less", "ln",
	"ls", "lsmod", "mkdir", "mount", "mv", "nsenter", "ps", "pwd", "readlink", "rm", "rmdir",
	"sed", "setpriv", "sleep", "sort", "ss", "stat", "strace", "stty", "su", "tail", "tee",
	"test", "top", "touch", "tr", "tty", "umount", "uname", "unshare", "uniq", "vi", "wc",
	"xargs",
}

// runVMTestShell is exec with a terminal, a shell and tools.
func runVMTestShell(std stdio, args []string) int {
	for _, arg := range args {
		if arg == "-h" || arg == "--help" || arg == "-help" {
			_, _ = io.WriteString(std.out, vmtestShellUsage)
			return 0
		}
	}
	shell := "bash"
	if _, err := exec.LookPath(shell); err != nil {
		shell = "sh"
	}
	f, err := parseVMTestExec(append(append([]string{"-t"}, args...), "--", shell))
	if err != nil {
		return std.errorf("vmtest shell: %v", err)
	}
	if len(f.argv) != 1 {
		return std.errorf("vmtest shell: unexpected argument %q; a command is for vmtest exec",
			f.argv[0])
	}
	f.tools = shellTools
	status, err := f.exec(std)
	if err != nil {
		return std.errorf("vmtest shell: %v", err)
	}
	return status
}
