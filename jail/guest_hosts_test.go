//go:build guest

package jail_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// inContainer runs a command as root in new namespaces, depth of them one in the
// other, with a /proc and a /run of their own, as docker run --privileged does.
func inContainer(depth int, cmd *exec.Cmd) *exec.Cmd {
	args := append([]string{"container", strconv.Itoa(depth)}, cmd.Args...)
	return exec.Command("/proc/self/exe", args...)
}

// Where the host itself is a container: the processes that the programs know are
// those of the initial pid namespace, whatever numbers the container has for them.
func TestInAContainer(t *testing.T) {
	outside := secret(t)
	for _, depth := range []int{1, 2, 5} {
		before := leftovers(t)
		dir := project(t)
		out, stderr, status := run(t, inContainer(depth, jailed(dir, nil, "open", outside)))
		if out != "ENOENT\n" || status != 1 || !strings.Contains(stderr, outside) {
			t.Errorf("depth %d: open = %q, status %d; want ENOENT; stderr: %s", depth, out, status,
				stderr)
		}
		out, stderr, _ = run(t, inContainer(depth, jailed(dir, nil, "open", dir+"/probe")))
		if out != "ok\n" || stderr != "" {
			t.Errorf("depth %d: open in the project = %q, want ok; stderr: %s", depth, out, stderr)
		}
		// The supervisor killed, by its number outside.
		cmd := inContainer(depth, jailed(dir, []string{"--denials", "off"}, "forks", outside,
			filepath.Join(dir, "leak")))
		start(t, cmd)
		for _, pid := range family(cmd.Process.Pid) {
			if roleOf(pid) == "supervisor" {
				unix.Kill(pid, unix.SIGKILL)
			}
		}
		eventually(t, "the jail's processes are gone", func() bool {
			return len(alive(t, dir)) == 0
		})
		cmd.Wait()
		if data, err := os.ReadFile(filepath.Join(dir, "leak")); err == nil {
			t.Errorf("depth %d: the jail read %q", depth, data)
		}
		run(t, jailed(dir, nil, "exit", "0"))
		if after := leftovers(t); strings.Join(before, "\n") != strings.Join(after, "\n") {
			t.Errorf("depth %d: left behind: %q, was %q", depth, after, before)
		}
	}
}

// In a container without privileges nothing is started, and the message says why.
func TestInAContainerWithoutPrivileges(t *testing.T) {
	dir := "/srv/proj" // root without capabilities cannot look into others' home directories
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	install(t, dir)
	cmd := jailed(dir, nil, "exit", "0")
	_, stderr, status := run(t, exec.Command("/proc/self/exe",
		append([]string{"without-capabilities"}, cmd.Args...)...))
	if status != 125 || !strings.Contains(stderr, "container") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("status %d, stderr %q; want 125 and a line about containers", status, stderr)
	}
}

// Another version has an attach set of its own. Both hold; and when its supervisor
// is killed, whoever ends next takes its set away too.
func TestAnotherVersionBeside(t *testing.T) {
	data, err := os.ReadFile(agentLock)
	if err != nil {
		t.Fatal(err)
	}
	// Another licence of the same effect, for another object.
	other := bytes.ReplaceAll(data, []byte("Dual BSD/GPL\x00"), []byte("Dual MIT/GPL\x00"))
	if bytes.Equal(data, other) {
		t.Fatal("the binary has no licence to change")
	}
	// And the sum that go generate would have written, which is the name of the set.
	kept := attachSets(t)
	if len(kept) != 1 {
		t.Fatalf("attach sets of the keeper: %v, want one", kept)
	}
	sum := []byte(filepath.Base(kept[0]))
	if data = bytes.ReplaceAll(other, sum, []byte("0123456789abcdef")); bytes.Equal(data, other) {
		t.Fatalf("the binary has no sum %s to change", sum)
	}
	newer := filepath.Join(t.TempDir(), "agent-lock")
	if err := os.WriteFile(newer, data, 0o755); err != nil {
		t.Fatal(err)
	}
	dir, outside := project(t), secret(t)
	cmd := exec.Command(newer, "--denials", "off", dir, "--", filepath.Join(dir, "probe"), "sleep")
	start(t, cmd)
	sets := func() int { return len(attachSets(t)) }
	if n := sets(); n != 2 {
		t.Errorf("%d attach sets while two versions run, want 2", n)
	}
	for _, binary := range []string{agentLock, newer} {
		out, stderr, _ := run(t, exec.Command(binary, "--denials", "off", dir, "--",
			filepath.Join(dir, "probe"), "open", outside))
		if out != "ENOENT\n" {
			t.Errorf("%s: open = %q, want ENOENT; stderr: %s", binary, out, stderr)
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
	eventually(t, "the jail's processes are gone", func() bool { return len(alive(t, dir)) == 0 })
	eventually(t, "the other version's attach set is gone", func() bool {
		run(t, jailed(dir, nil, "exit", "0"))
		return sets() == 1
	})
}

// Where nobody has mounted bpffs, the first jail does. Of two that start at once one
// mounts it, or the other's programs would be out of sight.
func TestBPFFSIsNotMounted(t *testing.T) {
	withoutKeeping(t)
	const bpffs = "/sys/fs/bpf"
	for unix.Unmount(bpffs, 0) == nil {
		t.Log("unmounted")
	}
	outside := secret(t)
	var wg sync.WaitGroup
	for range 2 {
		dir := project(t)
		wg.Go(func() {
			out, err := jailed(dir, []string{"--denials", "off"}, "open", outside).Output()
			if string(out) != "ENOENT\n" {
				t.Errorf("open = %q, %v; want ENOENT", out, err)
			}
		})
	}
	wg.Wait()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(mounts), " "+bpffs+" "); n != 1 {
		t.Errorf("bpffs is mounted %d times, want once", n)
	}
}

// A host with the first version of cgroups only: agent-lock uses none.
func TestCgroupsOfVersion1(t *testing.T) {
	const where = "/sys/fs/cgroup"
	if err := unix.Unmount(where, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	defer unix.Mount("cgroup2", where, "cgroup2", 0, "")
	err := unix.Mount("cgroup", where, "cgroup", 0, "none,name=test")
	if errors.Is(err, unix.ENODEV) {
		t.Skip("the kernel lacks cgroups of version 1")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(where, unix.MNT_DETACH)
	out, stderr, _ := run(t, jailed(project(t), []string{"--denials", "off"}, "open", secret(t)))
	if out != "ENOENT\n" {
		t.Errorf("open = %q, want ENOENT; stderr: %s", out, stderr)
	}
}

func enterContainer(args []string) int {
	depth, err := strconv.Atoi(args[0])
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if os.Getpid() == 1 {
		err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		if err == nil {
			err = unix.Mount("proc", "/proc", "proc", 0, "")
		}
		if err == nil {
			err = unix.Mount("tmpfs", "/run", "tmpfs", 0, "")
		}
		if err == nil {
			err = os.MkdirAll("/run/user", 0o755)
		}
		if err != nil {
			fmt.Println(err)
			return 1
		}
	}
	cmd := exec.Command(args[1], args[2:]...)
	if depth > 0 {
		next := append([]string{"container", strconv.Itoa(depth - 1)}, args[1:]...)
		cmd = exec.Command("/proc/self/exe", next...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL,
			Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWUTS |
				unix.CLONE_NEWIPC}
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Run()
	return cmd.ProcessState.ExitCode()
}

func init() {
	probes["container"] = enterContainer
	probes["without-capabilities"] = func(args []string) int {
		runtime.LockOSThread() // the set is the thread's
		for capability := uintptr(0); ; capability++ {
			if unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0) != nil {
				break
			}
		}
		err := unix.Exec(args[0], args, os.Environ())
		fmt.Println(err)
		return 1
	}
}
