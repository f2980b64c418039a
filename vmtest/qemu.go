package vmtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/agent-lock/agent-lock/kernels"
)

// The isa-debug-exit device turns a byte written to its port into QEMU's exit
// status (byte<<1 | 1). A panic and a power-off both exit QEMU with 0, so an
// ending of our own is the only one that can be told from them.
const (
	debugExitPort = 0xf4
	exitDone      = 0x10 // pid 1 did all its work
	exitBroken    = 0x11 // pid 1 could not work
)

func debugExitStatus(b byte) int { return int(b)<<1 | 1 }

// accel is how QEMU runs guest code.
type accel string

const (
	accelKVM accel = "kvm"
	accelTCG accel = "tcg"
)

// machineType is what a guest runs on.
type machineType struct {
	arch     string
	accel    accel
	cpus     int
	memoryMB int
	// icount makes the guest's clock count instructions: one is a nanosecond.
	// Measurements then repeat on a busy machine. For TCG.
	icount bool
}

// args are the options that choose the machine. The probe uses the same ones:
// KVM that works for one machine or CPU may not for another.
//
// TCG runs all processors of a guest on one thread. With a thread each, one boot
// in some dozens died of an int3 that the kernel, patching its own code, had
// already taken back (QEMU 7.2, kernel 6.12): a guest's processor met it late.
// One thread also suits a matrix, which has a guest for every core.
func (t machineType) args() []string {
	b := boards[t.arch]
	accel, cpu := "tcg,thread=single", b.cpu
	if t.accel == accelKVM {
		accel, cpu = "kvm", "host"
	}
	args := []string{
		"-machine", b.machine, "-accel", accel, "-cpu", cpu,
		"-smp", strconv.Itoa(t.cpus), "-m", strconv.Itoa(t.memoryMB),
		"-display", "none", "-nodefaults", "-no-user-config",
		"-no-reboot", // with panic=-1, a panic ends QEMU at once
	}
	args = append(args, b.devices...)
	if t.icount {
		args = append(args, "-icount", "shift=0,sleep=off")
	}
	return args
}

// guestLSM is CONFIG_LSM where it is unknown. The kernel ignores names it lacks.
const guestLSM = "landlock,lockdown,yama,loadpin,safesetid,integrity,selinux,apparmor,tomoyo"

// commandLine is the kernel's command line.
func commandLine(k kernels.Kernel, t machineType) string {
	words := append(slices.Clone(boards[t.arch].console),
		"loglevel=6",        // up to notices: the banner is one
		"panic=-1",          // reboot at once, which -no-reboot makes an exit
		"oops=panic",        // a kernel that oopsed proves nothing any more
		"cryptomgr.notests", // saves 0.3 s of self-tests of ciphers
	)
	if t.accel == accelTCG && t.arch == kernels.AMD64 {
		words = append(words, "tsc=reliable")
	}
	if t.accel == accelTCG && !t.icount { // which measures a kernel as people run it
		words = append(words, "mitigations=off") // an emulated processor does not speculate
	}
	lsm, err := k.ConfigValue("CONFIG_LSM")
	if err != nil {
		lsm = guestLSM
	}
	if !slices.Contains(strings.Split(lsm, ","), "bpf") {
		words = append(words, "lsm="+strings.Trim(lsm+",bpf", ","))
	}
	// What follows "--" are the arguments of /init.
	return strings.Join(append(words, "--", "guest-init"), " ")
}

// machine is one running QEMU.
type machine struct {
	console io.ReadCloser      // the guest's first serial port
	results io.ReadWriteCloser // its second
	ending  *ending            // what its monitor said; nil: it has none
	ports   []*os.File         // all of them
	stderr  *limitedBuffer
	exited  chan struct{} // closed when QEMU is gone; then err is set
	err     error
	pid     int
}

// machineSpec says what to boot.
type machineSpec struct {
	machineType
	qemu      string
	kernel    kernels.Kernel
	initramfs string
	shares    []Share
}

func (s machineSpec) args() []string {
	args := append(append(s.machineType.args(), shareArgs(s.shares)...),
		"-chardev", "socket,id=con,fd=3", "-serial", "chardev:con",
		"-chardev", "socket,id=res,fd=4")
	b := boards[s.arch]
	args = append(args, b.results...)
	if b.monitored {
		args = append(args, "-chardev", "socket,id=mon,fd=5", "-mon", "chardev=mon,mode=control")
	}
	return append(args, "-kernel", s.kernel.Boot(), "-initrd", s.initramfs,
		"-append", commandLine(s.kernel, s.machineType))
}

// start starts QEMU. Its ports are socket pairs, which need no names and no cleaning up.
func (s machineSpec) start() (*machine, error) {
	names := []string{"console", "results"}
	if boards[s.arch].monitored {
		names = append(names, "monitor")
	}
	var host, guest []*os.File
	var err error
	for _, name := range names {
		h, g, e := socketPair(name)
		if err = e; err != nil {
			break
		}
		host, guest = append(host, h), append(guest, g)
	}
	m := &machine{stderr: &limitedBuffer{max: 64 << 10}, ports: host}
	if err == nil {
		cmd := exec.Command(s.qemu, s.args()...)
		cmd.ExtraFiles = guest
		cmd.Stdout, cmd.Stderr = m.stderr, m.stderr
		m.pid, m.exited, err = startBound(cmd, &m.err)
	}
	for _, g := range guest {
		err = errors.Join(err, g.Close())
	}
	if err != nil {
		m.close()
		return nil, fmt.Errorf("start QEMU: %w", err)
	}
	m.console, m.results = host[0], host[1]
	if len(host) > 2 {
		m.ending = watchEnd(host[2])
	}
	return m, nil
}

// kill ends QEMU and everything in its process group.
func (m *machine) kill() {
	if m.pid > 0 {
		unix.Kill(-m.pid, unix.SIGKILL)
	}
}

func (m *machine) close() {
	for _, p := range m.ports {
		p.Close()
	}
}

// startBound starts cmd in a process group of its own, to be killed by the
// kernel when we die. The kernel means the thread that forked, so that thread
// waits with the command until it is gone. *result is set when exited is closed.
func startBound(cmd *exec.Cmd, result *error) (pid int, exited chan struct{}, err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	exited = make(chan struct{})
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		*result = cmd.Wait()
		close(exited)
	}()
	if err := <-started; err != nil {
		return 0, nil, err
	}
	return cmd.Process.Pid, exited, nil
}

func socketPair(name string) (host, guest *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make %s port: %w", name, err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil { // so that Close ends a Read
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), name), os.NewFile(uintptr(fds[1]), name), nil
}

// limitedBuffer keeps the first max bytes written to it.
type limitedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
	max int
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buf.Write(p[:min(len(p), b.max-b.buf.Len())])
	return len(p), nil
}

func (b *limitedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
