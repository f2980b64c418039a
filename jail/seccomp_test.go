//go:build !guest

package jail

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// verdict interprets a filter on one system call: nil is allowed.
func verdict(t *testing.T, filter []bpf.Instruction, arch uint32, nr uint32, args ...uint64) error {
	t.Helper()
	vm, err := bpf.NewVM(filter)
	if err != nil {
		t.Fatal(err)
	}
	// The interpreter reads packets, so words are big-endian here.
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[offsetNumber:], nr)
	binary.BigEndian.PutUint32(data[offsetArch:], arch)
	for i, arg := range args {
		binary.BigEndian.PutUint32(data[offsetArgs+8*i:], uint32(arg))
		binary.BigEndian.PutUint32(data[offsetArgs+8*i+4:], uint32(arg>>32))
	}
	got, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	switch uint32(got) & unix.SECCOMP_RET_ACTION_FULL {
	case unix.SECCOMP_RET_ALLOW:
		return nil
	case unix.SECCOMP_RET_ERRNO:
		return syscall.Errno(uint32(got) & unix.SECCOMP_RET_DATA)
	}
	t.Fatalf("verdict %#x is neither allow nor an errno", got)
	return nil
}

// high is set in the half of an argument that the kernel ignores.
const high = 0xdead << 32

// filterCalls are calls and what the filter says to them, by name of the call.
var filterCalls = []struct {
	call string
	args []uint64
	want error // with the BPF layer
	// alone is the verdict without that layer, if it is another one.
	alone error
}{
	{"read", nil, nil, nil},
	{"openat", nil, nil, nil},
	{"execve", nil, nil, nil},
	{"seccomp", nil, nil, nil},
	{"landlock_restrict_self", nil, nil, nil},
	{"unshare", []uint64{unix.CLONE_NEWUSER}, nil, unix.EPERM},
	{"unshare", []uint64{unix.CLONE_NEWTIME}, nil, unix.EPERM},
	{"unshare", []uint64{unix.CLONE_FS | unix.CLONE_NEWNS}, nil, unix.EPERM},
	{"unshare", []uint64{unix.CLONE_FS | unix.CLONE_FILES}, nil, nil},
	{"clone", []uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, nil, unix.EPERM},
	{"clone", []uint64{high | unix.CLONE_NEWPID}, nil, unix.EPERM},
	{"clone", []uint64{uint64(unix.SIGCHLD)}, nil, nil},
	{"clone", []uint64{unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND}, nil, nil},
	{"clone", []uint64{0x80}, nil, nil}, // part of the signal's number
	{"clone3", nil, nil, unix.ENOSYS},
	{"setns", nil, unix.EPERM, nil},
	{"mount", nil, nil, unix.EPERM},
	{"umount2", nil, nil, unix.EPERM},
	{"move_mount", nil, nil, unix.EPERM},
	{"open_tree_attr", nil, unix.EPERM, nil},
	{"pivot_root", nil, nil, unix.EPERM},
	{"chroot", nil, nil, unix.EPERM},
	{"bpf", nil, nil, unix.EPERM},
	{"perf_event_open", nil, nil, unix.EPERM},
	{"open_by_handle_at", nil, unix.EPERM, nil},
	{"fanotify_init", nil, unix.EPERM, nil},
	{"ioctl", []uint64{0, unix.TIOCSTI}, nil, unix.EPERM},
	{"ioctl", []uint64{0, high | unix.TIOCSTI}, nil, unix.EPERM},
	{"ioctl", []uint64{0, unix.TIOCLINUX}, nil, unix.EPERM},
	{"ioctl", []uint64{0, unix.TIOCGWINSZ}, nil, nil},
	{"ioctl", []uint64{unix.TIOCSTI, unix.TCGETS}, nil, nil},
	{"socket", []uint64{unix.AF_UNIX, unix.SOCK_STREAM}, nil, nil},
	{"socket", []uint64{unix.AF_UNIX, unix.SOCK_SEQPACKET}, nil, nil},
	{"socket", []uint64{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_CLOEXEC, 0}, nil, nil},
	{"socket", []uint64{unix.AF_INET6, unix.SOCK_DGRAM | unix.SOCK_NONBLOCK, 17}, nil, nil},
	{"socket", []uint64{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP},
		nil, unix.EPROTONOSUPPORT},
	{"socket", []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}, nil, nil},
	{"socket", []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER},
		nil, unix.EPROTONOSUPPORT},
	{"socket", []uint64{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}, nil, unix.EPERM},
	{"socket", []uint64{unix.AF_INET, unix.SOCK_RAW | unix.SOCK_CLOEXEC, 6}, nil, unix.EPERM},
	{"socket", []uint64{unix.AF_INET, unix.SOCK_SEQPACKET, unix.IPPROTO_SCTP}, nil, unix.EPERM},
	{"socket", []uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP},
		nil, unix.EPROTONOSUPPORT},
	{"socket", []uint64{high | unix.AF_INET6, unix.SOCK_STREAM, high | unix.IPPROTO_MPTCP},
		nil, unix.EPROTONOSUPPORT},
	{"socket", []uint64{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE},
		nil, unix.EPROTONOSUPPORT},
	{"socket", []uint64{unix.AF_PACKET, unix.SOCK_RAW, 0}, nil, unix.EAFNOSUPPORT},
	{"socket", []uint64{high | unix.AF_VSOCK, unix.SOCK_STREAM, 0}, nil, unix.EAFNOSUPPORT},
	{"socket", []uint64{unix.AF_ALG, unix.SOCK_SEQPACKET, 0}, nil, unix.EAFNOSUPPORT},
	{"socket", []uint64{unix.AF_XDP, unix.SOCK_RAW, 0}, nil, unix.EAFNOSUPPORT},
	{"keyctl", nil, nil, unix.ENOSYS},
	{"io_uring_setup", nil, nil, unix.ENOSYS},
	{"syslog", nil, nil, unix.EPERM},
}

// machines are the interfaces with the suffix of the file in x/sys that has their
// numbers.
var machines = []struct {
	abi            abi
	goarch, suffix string
	compat         bool
}{
	{abiAMD64, "amd64", "amd64", false}, {abiI386, "amd64", "386", true},
	{abiARM64, "arm64", "arm64", false}, {abiARM, "arm64", "arm", true},
}

func TestFilterVerdicts(t *testing.T) {
	for _, m := range machines {
		numbers := syscallNumbers(t, m.suffix)
		for _, withBPF := range []bool{true, false} {
			filter, err := seccompFilter(m.goarch, withBPF)
			if err != nil {
				t.Fatal(err)
			}
			for _, tt := range filterCalls {
				nr, ok := numbers[tt.call]
				if !ok {
					t.Fatalf("%s has no call %s", m.suffix, tt.call)
				}
				want := tt.want
				if !withBPF && tt.alone != nil {
					want = tt.alone
				}
				if !withBPF && m.compat {
					want = unix.ENOSYS
				}
				got := verdict(t, filter, auditArch[m.abi], nr, tt.args...)
				if !errors.Is(got, want) || (got == nil) != (want == nil) {
					t.Errorf("%s, BPF %v: %s(%#x) = %v, want %v", m.suffix, withBPF, tt.call,
						tt.args, got, want)
				}
			}
		}
	}
}

func TestFilterOtherInterfaces(t *testing.T) {
	for _, goarch := range []string{"amd64", "arm64"} {
		filter, err := seccompFilter(goarch, true)
		if err != nil {
			t.Fatal(err)
		}
		if got := verdict(t, filter, unix.AUDIT_ARCH_S390X, 3); !errors.Is(got, unix.ENOSYS) {
			t.Errorf("%s: a call of s390x = %v, want ENOSYS", goarch, got)
		}
	}
	filter, err := seccompFilter("amd64", true)
	if err != nil {
		t.Fatal(err)
	}
	for _, nr := range []uint32{x32, x32 | 41, x32 | 520} {
		got := verdict(t, filter, unix.AUDIT_ARCH_X86_64, nr, unix.AF_INET, unix.SOCK_STREAM)
		if !errors.Is(got, unix.ENOSYS) {
			t.Errorf("x32 call %#x = %v, want ENOSYS", nr, got)
		}
	}
	// i386 opens sockets through a call whose arguments are in memory.
	for call, want := range map[uint64]error{1: unix.ENOSYS, 3: nil} {
		got := verdict(t, filter, unix.AUDIT_ARCH_I386, 102, call)
		if (got == nil) != (want == nil) {
			t.Errorf("socketcall(%d) = %v, want %v", call, got, want)
		}
	}
	if _, err := seccompFilter("s390x", true); err == nil {
		t.Error("a filter was made for s390x, whose words are big-endian")
	}
}

func TestRefusalNumbers(t *testing.T) {
	for _, m := range machines {
		numbers := syscallNumbers(t, m.suffix)
		for _, r := range refusals() {
			want, ok := numbers[r.name]
			if got := r.numbers[m.abi]; ok && got != int(want) || !ok && got != no {
				t.Errorf("%s on %s has number %d, want %d (exists: %v)", r.name, m.suffix, got,
					want, ok)
			}
		}
	}
}

// syscallNumbers reads the numbers that golang.org/x/sys took from the kernel.
func syscallNumbers(t *testing.T, suffix string) map[string]uint32 {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil {
		t.Fatalf("find golang.org/x/sys: %v", err)
	}
	source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "unix",
		"zsysnum_linux_"+suffix+".go"))
	if err != nil {
		t.Fatal(err)
	}
	numbers := map[string]uint32{}
	for _, m := range regexp.MustCompile(`(?m)^\tSYS_(\w+) += (\d+)$`).
		FindAllStringSubmatch(string(source), -1) {
		n, err := strconv.ParseUint(m[2], 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		numbers[strings.ToLower(m[1])] = uint32(n)
	}
	return numbers
}

// nativeCalls are made for real, in a child, without the filter and then with it.
var nativeCalls = map[string]struct {
	call func() error
	want error
}{
	"getpid": {func() error { return raw(unix.SYS_GETPID) }, nil},
	"userns": {func() error { return raw(unix.SYS_UNSHARE, unix.CLONE_NEWUSER) }, unix.EPERM},
	"clone3": {func() error { return raw(unix.SYS_CLONE3, 0, 0) }, unix.ENOSYS},
	"tiocsti": {func() error {
		return raw(unix.SYS_IOCTL, 99, unix.TIOCSTI)
	}, unix.EPERM},
	"tiocsti_high": {func() error {
		return raw(unix.SYS_IOCTL, 99, high|unix.TIOCSTI)
	}, unix.EPERM},
	"tcgets":   {func() error { return raw(unix.SYS_IOCTL, 99, unix.TCGETS) }, unix.EBADF},
	"swapoff":  {func() error { return raw(unix.SYS_SWAPOFF, 1) }, unix.EPERM},
	"tcp":      {func() error { return socket(unix.AF_INET, unix.SOCK_STREAM, 0) }, nil},
	"udp":      {func() error { return socket(unix.AF_INET6, unix.SOCK_DGRAM, 0) }, nil},
	"udplite":  {func() error { return socket(unix.AF_INET, 2, 136) }, unix.EPROTONOSUPPORT},
	"alg":      {func() error { return socket(unix.AF_ALG, 5, 0) }, unix.EAFNOSUPPORT},
	"uring":    {func() error { return raw(unix.SYS_IO_URING_SETUP, 1, 0) }, unix.ENOSYS},
	"fanotify": {func() error { return raw(unix.SYS_FANOTIFY_INIT, 0xffff) }, unix.EPERM},
}

func raw(nr uintptr, args ...uintptr) error {
	args = append(args, 0, 0, 0)
	if _, _, errno := unix.Syscall(nr, args[0], args[1], args[2]); errno != 0 {
		return errno
	}
	return nil
}

func socket(family, kind, protocol int) error {
	fd, err := unix.Socket(family, kind, protocol)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// childVariable turns the test binary into a child that makes the calls.
const childVariable = "AGENT_LOCK_SECCOMP_CHILD"

// seccompChild prints the error number of every call, by name.
func seccompChild(mode string) int {
	runtime.LockOSThread()
	if mode == "filter" {
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			err = enforce(secondLayer{seccomp: true})
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	got := map[string]int{}
	for name, c := range nativeCalls {
		var errno syscall.Errno
		errors.As(c.call(), &errno)
		got[name] = int(errno)
	}
	if err := json.NewEncoder(os.Stdout).Encode(got); err != nil {
		return 1
	}
	return 0
}

func TestFilterInAChild(t *testing.T) {
	if mode := os.Getenv(childVariable); mode != "" {
		os.Exit(seccompChild(mode))
	}
	if !hasSeccomp() {
		t.Skip("the kernel has no seccomp filters")
	}
	run := func(mode string) map[string]int {
		cmd := exec.Command(os.Args[0], "-test.run=^TestFilterInAChild$")
		cmd.Env = append(os.Environ(), childVariable+"="+mode)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		var got map[string]int
		if err == nil {
			err = json.Unmarshal(out, &got)
		}
		if err != nil {
			t.Fatalf("%s: %v", mode, err)
		}
		return got
	}
	control, filtered := run("control"), run("filter")
	changed := 0
	for _, name := range slices.Sorted(maps.Keys(nativeCalls)) {
		want := errnoOf(nativeCalls[name].want)
		if filtered[name] != want {
			t.Errorf("%s in the filter: errno %d, want %d", name, filtered[name], want)
		}
		if control[name] != filtered[name] {
			changed++
		} else if want != 0 && name != "tcgets" {
			t.Logf("%s proves nothing here: errno %d without the filter too", name, want)
		}
	}
	if changed < 4 {
		t.Errorf("the filter changed %d answers, want at least 4: is it there at all?", changed)
	}
}

func errnoOf(err error) int {
	var errno syscall.Errno
	errors.As(err, &errno)
	return int(errno)
}
