//go:build guest

package jail_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

var asRoot = []string{"--user", "root", "--denials", "live"}

func TestRootPosture(t *testing.T) {
	dir := project(t)
	out, stderr, status := run(t, jailed(dir, asRoot, "posture"))
	var got posture
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("status %d: %v; stderr: %s", status, err, stderr)
	}
	var outside posture
	out, _, _ = run(t, exec.Command(filepath.Join(dir, "probe"), "posture"))
	if err := json.Unmarshal([]byte(out), &outside); err != nil {
		t.Fatal(err)
	}
	none := "0000000000000000"
	full := outside.Caps["CapBnd"]
	want := posture{
		NoNewPrivs: "1", Seccomp: "2", Fds: []string{"0", "1", "2"}, Dir: dir, Parent: 1,
		Host:    "jail",
		Session: "agent-lock",
		Caps: map[string]string{"CapInh": none, "CapPrm": full, "CapEff": full, "CapBnd": full,
			"CapAmb": none},
		Env: []string{"AGENT_LOCK", "HOME", "LANG", "LOGNAME", "PATH", "SHELL", "SUDO_GID",
			"SUDO_UID", "SUDO_USER", "TERM", "TMPDIR", "TMPPREFIX", "USER", "XDG_RUNTIME_DIR"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("posture (-want +got):\n%s", diff)
	}
	if full == none {
		t.Errorf("the bounding set outside is %s: nothing to keep", full)
	}
}

func TestNamedUser(t *testing.T) {
	dir, err := os.MkdirTemp("/srv", "proj")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	install(t, dir)
	for _, name := range []string{"nobody", "65534"} {
		out, stderr, _ := run(t, jailed(dir, []string{"--user", name}, "posture"))
		var got posture
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatalf("--user %s: %v; stderr: %s", name, err, stderr)
		}
		if got.UID != 65534 || got.GID != 65534 || got.Caps["CapEff"] != "0000000000000000" {
			t.Errorf("--user %s: uid %d, gid %d, capabilities %s, want 65534, 65534, none",
				name, got.UID, got.GID, got.Caps["CapEff"])
		}
	}
	_, stderr, status := run(t, jailed(dir, []string{"--user", "no-such-user"}, "posture"))
	if status != 125 || !strings.Contains(stderr, "find the user to run as") {
		t.Errorf("--user no-such-user: status %d, %q, want 125", status, stderr)
	}
}

// What a build or an installation does as root.
func TestRootCanWork(t *testing.T) {
	dir := project(t)
	write(t, filepath.Join(dir, "theirs"), []byte("x"), 0o600)
	out, stderr, _ := run(t, jailed(dir, asRoot, "root-work", dir))
	// Go asks for MPTCP before TCP.
	if out != "" || strings.Count(stderr, "denied") > strings.Count(stderr, "protocol 262") {
		t.Errorf("root's work in the jail: %s; stderr: %s", out, stderr)
	}
	for name, want := range map[string]string{
		"chowned": "1234:1235 644", "dropped": "1000:1000 644", "shared": "0:0 2755",
	} {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, name), &st); err != nil {
			t.Errorf("root's work left no %s: %v", name, err)
			continue
		}
		if got := fmt.Sprintf("%d:%d %o", st.Uid, st.Gid, st.Mode&0o7777); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// rootWork prints what does not work.
func rootWork(args []string) int {
	dir := args[0]
	check := func(what string, err error) {
		if err != nil {
			fmt.Printf("%s: %v\n", what, err)
		}
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	check("create", os.WriteFile(in("chowned"), nil, 0o600))
	check("chown", os.Chown(in("chowned"), 1234, 1235))
	check("chmod of another's", unix.Chmod(in("chowned"), 0o644))
	_, err := os.ReadFile(in("theirs"))
	check("read another's", err)
	check("mkdir", os.Mkdir(in("shared"), 0o755))
	check("chmod g+s of a directory", unix.Chmod(in("shared"), 0o2755))
	_, err = os.ReadFile("/etc/passwd")
	check("read /etc/passwd", err)
	check("write to /dev/null", os.WriteFile("/dev/null", []byte("x"), 0))
	l, err := net.Listen("tcp", "127.0.0.1:81")
	check("listen on port 81", err)
	if err == nil {
		l.Close()
	}
	child := exec.Command("/proc/self/exe", "write-new", in("dropped"))
	child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	check("make the project anybody's", os.Chmod(dir, 0o777))
	check("become another user", child.Run())
	sleeper := exec.Command("/proc/self/exe", "sleep")
	sleeper.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	if err := sleeper.Start(); err != nil {
		check("start a process of another user's", err)
		return 0
	}
	own := exec.Command("/proc/self/exe", "sleep")
	check("start a process", own.Start())
	check("setpriority", unix.Setpriority(unix.PRIO_PROCESS, own.Process.Pid, 5))
	check("kill", own.Process.Kill())
	own.Wait()
	check("read a child's environment", readable(sleeper.Process.Pid))
	check("kill another user's process", sleeper.Process.Kill())
	sleeper.Wait()
	return 0
}

func readable(pid int) error {
	_, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err
}

// Calls whose effect nothing outside shows: what root outside is told, and what
// root in the jail.
func TestRootIsRefused(t *testing.T) {
	dir := project(t)
	free, _, _ := run(t, exec.Command(filepath.Join(dir, "probe"), "root-calls"))
	locked, stderr, _ := run(t, jailed(dir, []string{"--user", "root", "--denials", "off"},
		"root-calls"))
	if len(rootCalls) != strings.Count(locked, "\n") {
		t.Fatalf("the jailed probe printed %q; stderr: %s", locked, stderr)
	}
	control := strings.Split(free, "\n")
	for i, line := range strings.Split(strings.TrimSpace(locked), "\n") {
		name, got, _ := strings.Cut(line, " ")
		if strings.HasSuffix(control[i], " EPERM") || strings.HasSuffix(control[i], " ENOSYS") {
			t.Logf("skip %s: root outside is told %s", name, control[i])
			continue
		}
		if got != "EPERM" && got != "EACCES" {
			t.Errorf("%s in the jail: %s, want EPERM or EACCES (outside: %s)", name, got,
				control[i])
		}
	}
}

// rootCalls are harmless where they are permitted.
var rootCalls = []struct {
	name string
	do   func() error
}{
	{"ioperm", func() error { return unix.Ioperm(0x80, 1, 1) }},
	{"iopl", func() error { return unix.Iopl(3) }},
	{"delete_module", func() error { return unix.DeleteModule("no-such-module", 0) }},
	{"swapoff", func() error { return raw(unix.SYS_SWAPOFF, "/no/such/file") }},
	{"quota_sync", func() error {
		const qSync = 0x800001 << 8 // QCMD(Q_SYNC, USRQUOTA)
		return errnoOf(unix.Syscall6(unix.SYS_QUOTACTL, qSync, 0, 0, 0, 0, 0))
	}},
	{"unshare_net", func() error { return unix.Unshare(unix.CLONE_NEWNET) }},
	{"unshare_pid", func() error { return unix.Unshare(unix.CLONE_NEWPID) }},
	{"unshare_ipc", func() error { return unix.Unshare(unix.CLONE_NEWIPC) }},
	{"setdomainname", func() error { return unix.Setdomainname([]byte("(none)")) }},
	{"raise_limit", raiseLimit},
	{"nice_down", func() error { return unix.Setpriority(unix.PRIO_PROCESS, 0, -1) }},
	{"realtime", func() error {
		return unix.SchedSetAttr(0, &unix.SchedAttr{
			Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1,
		}, 0)
	}},
	{"ioprio_realtime", func() error {
		return errnoOf(unix.Syscall(unix.SYS_IOPRIO_SET, 1, 0, 1<<13))
	}},
	{"raw_socket", func() error { return socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP) }},
	{"bring_lo_up", bringUp},
	{"alarm_timer", func() error {
		fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME_ALARM, unix.TFD_CLOEXEC)
		unix.Close(fd)
		return err
	}},
	{"random_entropy", func() error {
		f, err := os.Open("/dev/urandom")
		if err != nil {
			return err
		}
		defer f.Close()
		const rndClearPool = 0x5206
		return errnoOf(unix.Syscall(unix.SYS_IOCTL, f.Fd(), rndClearPool, 0))
	}},
	{"trusted_attribute", func() error {
		return unix.Setxattr("/proc/self/exe", "trusted.x", []byte("x"), 0)
	}},
}

func raw(number uintptr, path string) error {
	p, err := unix.BytePtrFromString(path)
	if err != nil {
		return err
	}
	return errnoOf(unix.Syscall(number, uintptr(unsafe.Pointer(p)), 0, 0))
}

func errnoOf(_, _ uintptr, errno syscall.Errno) error {
	if errno != 0 {
		return errno
	}
	return nil
}

func raiseLimit() error {
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &now); err != nil {
		return err
	}
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: now.Cur, Max: now.Max + 1})
}

func socket(family, kind, protocol int) error {
	fd, err := unix.Socket(family, kind, protocol)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func bringUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}

func TestRootDenialsAreExplained(t *testing.T) {
	dir := project(t)
	for _, tt := range []struct{ probe, path, want string }{
		{"open", "/proc/slabinfo", "not everyone may, and root in a jail is no exception"},
		{"mode", filepath.Join(dir, "probe"), "change the mode of"},
		{"root-calls", "", "use CAP_SYS_ADMIN"},
	} {
		_, stderr, _ := run(t, jailed(dir, asRoot, tt.probe, tt.path))
		if !strings.Contains(stderr, tt.want) {
			t.Errorf("%s %s: stderr %q, want it to say %q", tt.probe, tt.path, stderr, tt.want)
		}
	}
}

func init() {
	probes["root-work"] = rootWork
	probes["write-new"] = func(args []string) int {
		if err := os.WriteFile(args[0], nil, 0o644); err != nil {
			return 1
		}
		return 0
	}
	probes["mode"] = func(args []string) int {
		fmt.Println(unix.Chmod(args[0], 0o4755))
		return 0
	}
	probes["root-calls"] = func([]string) int {
		for _, c := range rootCalls {
			done := make(chan error)
			go func() {
				runtime.LockOSThread() // not unlocked: the next call gets another thread
				done <- c.do()
			}()
			name := "ok"
			var errno syscall.Errno
			if err := <-done; errors.As(err, &errno) {
				name = unix.ErrnoName(errno)
			} else if err != nil {
				name = err.Error()
			}
			fmt.Println(c.name, name)
		}
		return 0
	}
}
