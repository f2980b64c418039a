//go:build vm

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/agent-lock/agent-lock/report"
	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// These tests boot real kernels: go test -tags vm -run Guest ./cmd/agent-lock

func vmKernel() string { return cmp.Or(os.Getenv("VMTEST_KERNEL"), "6.12") }

// buildAgentLock builds the command, which is also what is in the guest.
func buildAgentLock(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "agent-lock")
	build(t, "go", "build", "-o", bin, ".")
	return bin
}

// Objects that have nothing to do with a jail get the verdict of a real kernel's verifier.
func TestGuestObjects(t *testing.T) {
	dir, bin := t.TempDir(), buildAgentLock(t)
	args := []string{"vmtest", "--kernels", vmKernel(), "--json", "-"}
	for _, name := range []string{"odd", "lsm", "trace", "bad"} {
		object := filepath.Join(dir, name+".bpf.o")
		build(t, cmp.Or(os.Getenv("BPF2GO_CC"), "clang-19"), "-g", "-O2", "-target", "bpf",
			"-D__TARGET_ARCH_x86", "-I/usr/include/x86_64-linux-gnu",
			"-c", "testdata/objects/"+name+".bpf.c", "-o", object)
		args = append(args, "--object", object)
	}
	cmd := exec.Command(bin, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitFailed {
		t.Fatalf("vmtest = %v, want exit status %d\n%s", err, exitFailed, &stderr)
	}
	got := map[string]report.Outcome{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var r report.Result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("%v in %s", err, lines.Text())
		}
		got[r.Name] = r.Outcome
		switch {
		case r.Name == "bad:unchecked":
			for _, part := range []string{"invalid mem access", "*count = 3"} {
				if !strings.Contains(r.Detail, part) {
					t.Errorf("%s: detail %q, want %q in it", r.Name, r.Detail, part)
				}
			}
		case r.Kind == report.Program && r.Outcome == report.OK && (r.Insns == 0 || r.States == 0):
			t.Errorf("%s: the verifier's costs are missing: %+v", r.Name, r)
		}
	}
	want := map[string]report.Outcome{
		"odd:map_of_maps": report.OK, "odd:pinned_map": report.OK,
		"odd:no_type": report.Failed, "odd:replacement": report.Unsupported,
		"boot": report.OK, "lsm:watch_open": report.OK, "lsm:no_hook": report.Unsupported,
		"trace:unlink_entry": report.OK, "trace:exec": report.OK,
		"bad:unchecked": report.Failed, "bad:unread": report.Failed,
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
}

// A command in a guest is as one here: streams, status, directory, input, signals.
func TestGuestExec(t *testing.T) {
	bin, dir := buildAgentLock(t), filepath.Join(t.TempDir(), "private")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	err := os.WriteFile(filepath.Join(dir, "file"), []byte("in the directory\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	run := func(start func(*exec.Cmd), args ...string) (stdout, stderr string, status int) {
		t.Helper()
		cmd := exec.Command(bin, append([]string{"vmtest", "exec", "--kernel", vmKernel()},
			args...)...)
		var out, errs bytes.Buffer
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &errs
		cmd.Stdin = strings.NewReader("the input\n")
		if start == nil {
			start = func(cmd *exec.Cmd) { _ = cmd.Run() }
		}
		start(cmd)
		return out.String(), errs.String(), cmd.ProcessState.ExitCode()
	}
	type result struct {
		Stdout, Stderr string
		Status         int
	}
	check := func(what string, want result, start func(*exec.Cmd), args ...string) {
		t.Helper()
		var got result
		got.Stdout, got.Stderr, got.Status = run(start, args...)
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	check("streams and status", result{"in the directory\nx\n", "not an error\n", 7}, nil,
		"--env", "NAME=x", "--", "bash", "-c",
		`echo "$(<file)"; echo $NAME; echo not an error >&2; exit 7`)
	if err := os.WriteFile(filepath.Join(dir, "script"),
		[]byte("#!/bin/bash -e\necho $0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	check("a script", result{"/run/exec/script\n", "", 0}, nil, "--", "./script")
	// Not by a shell: of two settings of a variable it takes the other one.
	check("HOME", result{"/elsewhere\n", "", 0}, nil, "--env", "HOME=/elsewhere", "--",
		"printenv", "HOME")
	check("a user", result{"in the directory\n", "", 0}, nil, "--user", "--", "cat", "file")
	check("input", result{"the input\n", "", 0}, nil, "-i", "--", "cat")
	check("time", result{"", "agent-lock: vmtest exec: sleep did not end within --timeout 30s\n",
		exitTimedOut}, nil, "--timeout", "30s", "--", "sleep", "100")
	check("a signal", result{"up\ntold\n", "", 9}, signalWhenUp(t), "--", "bash", "-c",
		`trap "echo told; exit 9" TERM; echo up; while :; do read -t 0.1 < <(:); done`)
}

// signalWhenUp starts a command and terminates it when it has said something.
func signalWhenUp(t *testing.T) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		into := cmd.Stdout
		cmd.Stdout = nil
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 64)
		n, err := out.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = into.Write(buf[:n])
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_, _ = io.Copy(into, out)
		_ = cmd.Wait()
	}
}

// A shell in a guest has our terminal: what is typed reaches it, and Ctrl-C its command.
func TestGuestShell(t *testing.T) {
	master, slave := openPTY(t, unix.Winsize{Row: 33, Col: 99})
	cmd := exec.Command(buildAgentLock(t), "vmtest", "shell", "--kernel", vmKernel(), "--dir", "")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	script := []struct{ wait, typed string }{
		{"# ", "stty size; echo $((6*7)) is it\n"}, {"33 99", ""}, {"42 is it", ""},
		{"# ", "sh -c 'echo $((6*8)) goes on; exec sleep 1000'\n"}, {"48 goes on", "\x03"},
		{"# ", "exit 5\n"},
	}
	var said []byte
	buf := make([]byte, 4096)
	for _, step := range script {
		for !bytes.Contains(said, []byte(step.wait)) {
			n, err := master.Read(buf)
			if err != nil {
				t.Fatalf("the shell ended before it said %q: %v", step.wait, err)
			}
			said = append(said, buf[:n]...)
		}
		_, said, _ = bytes.Cut(said, []byte(step.wait))
		if _, err := io.WriteString(master, step.typed); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = io.Copy(io.Discard, master)
	_ = cmd.Wait()
	if status := cmd.ProcessState.ExitCode(); status != 5 {
		t.Errorf("status %d, want 5", status)
	}
}

func openPTY(t *testing.T, size unix.Winsize) (master, slave *os.File) {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	must(err)
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	must(err)
	must(unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	must(unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &size))
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	must(err)
	return master, slave
}

func build(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s = %v\n%s", name, err, out)
	}
}
