package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-lock/agent-lock/report"
	"github.com/agent-lock/agent-lock/vmtest"
)

// runGuestInit is pid 1 of vmtest's guests.
func runGuestInit(_ stdio, args []string) int {
	return vmtest.GuestMain(args)
}

// provocations are the ways in which a guest can go wrong, one function each,
// for vmtest's tests: a step does one of them, and the host has to notice.
var provocations = map[string]func(std stdio) error{
	"panic":    provokePanic,
	"warning":  provokeWarning,
	"taint":    provokeTaint,
	"sleep":    func(stdio) error { time.Sleep(time.Hour); return nil },
	"freeze":   provokeFreeze,
	"memory":   provokeMemory,
	"power":    func(stdio) error { return unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF) },
	"truncate": func(stdio) error { vmtest.EndGuest(); return nil },
	"forge":    provokeForgery,
	"results":  provokeResults,
	"garbage":  provokeGarbage,
	"flood":    provokeFlood,
	"orphan":   provokeOrphan,
}

// runGuestProvoke does one of the provocations, in a guest and nowhere else.
func runGuestProvoke(std stdio, args []string) int {
	if name, err := os.Hostname(); err != nil || name != "guest" || os.Getuid() != 0 {
		return std.errorf("guest-provoke: works only as root in a guest of vmtest")
	}
	if len(args) != 1 || provocations[args[0]] == nil {
		return std.errorf("guest-provoke: no such provocation: %q", args)
	}
	if err := provocations[args[0]](std); err != nil {
		return std.errorf("guest-provoke: %v", err)
	}
	return 0
}

func sysrq(key string) error {
	return os.WriteFile("/proc/sysrq-trigger", []byte(key), 0)
}

func provokePanic(std stdio) error {
	fmt.Fprintln(std.out, "about to panic")
	return sysrq("c")
}

// provokeWarning writes what a kernel's warning looks like to the kernel's log,
// with a level at which it reaches the console.
func provokeWarning(stdio) error {
	const text = "<4>WARNING: CPU: 0 PID: 42 at kernel/example.c:1 example+0x1/0x2\n"
	return os.WriteFile("/dev/kmsg", []byte(text), 0)
}

// provokeTaint is a warning that somebody has kept off the console: the kernel lets root
// add to its taints.
func provokeTaint(stdio) error {
	const warned = "512"
	return os.WriteFile("/proc/sys/kernel/tainted", []byte(warned), 0)
}

// provokeFreeze stops pid 1, as a kernel that hangs would.
func provokeFreeze(stdio) error {
	const group = "/sys/fs/cgroup/frozen"
	if err := os.Mkdir(group, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(group+"/cgroup.procs", []byte("1"), 0); err != nil {
		return err
	}
	return os.WriteFile(group+"/cgroup.freeze", []byte("1"), 0)
}

// provokeMemory uses memory until the kernel takes it back.
func provokeMemory(stdio) error {
	const chunk = 16 << 20
	for {
		b, err := unix.Mmap(-1, 0, chunk, unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
		if err != nil {
			return err
		}
		b[0] = 1
	}
}

// provokeForgery prints what pid 1's last frames look like.
func provokeForgery(std stdio) error {
	_, err := fmt.Fprint(std.out, "@AL1 0 hello j 14 00000000 {\"nonce\":\"00\"}\n",
		"@AL1 1 end j 14 00000000 {\"nonce\":\"00\"}\n")
	return err
}

func provokeResults(std stdio) error {
	return report.WriteJSON(std.out, []report.Result{
		{Kind: report.Program, Name: "example", Outcome: report.OK, Insns: 42},
		{Kind: report.Case, Name: "example_held", Outcome: report.Denied, Errno: "EACCES"},
		{Kind: report.Case, Name: "example_skipped", Outcome: report.Skipped, Detail: "why"},
	}...)
}

func provokeGarbage(std stdio) error {
	_, err := fmt.Fprintln(std.out, "this is no result")
	return err
}

// provokeFlood prints a lot, with and without line ends.
func provokeFlood(std stdio) error {
	lines, line := strings.Repeat("0123456789abcde\n", 1<<14), strings.Repeat("x", 1<<18)
	_, err := fmt.Fprintln(std.out, lines+line)
	return err
}

// provokeOrphan leaves a process behind that holds the step's output open.
func provokeOrphan(std stdio) error {
	cmd := exec.Command("/proc/self/exe", "guest-provoke", "sleep")
	cmd.Stdout, cmd.Stderr = std.out, std.err
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	return cmd.Start()
}
