package jail

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The jail's pid 1 is a copy of the supervisor that executes nothing. It lets go of
// everything but the standard streams, starts the process that prepares the command,
// and waits. After the fork a Go process may only make raw system calls: its other
// threads, on which memory management and scheduling depend, are not copied. So pid 1 is
// one function that calls nothing else, on memory that is laid out before; a failure
// ends it, which the supervisor sees at the control socket.
//
// Nobody in the jail may trace it, so what the supervisor's memory held is out of reach.
// To execute a program of ours instead would cost a third of a start.

// firstCopy is the least number of the descriptors that pid 1 is given, out of the way
// of those that they get.
const firstCopy = 10

// firstProcess is all that pid 1 uses.
type firstProcess struct {
	args   cloneArgs
	fds    [4]uintptr // become 0 to 3: the standard streams and the control socket
	path   *byte
	argv   [3]*byte
	envp   [1]*byte
	signal uint64 // mask
	status int32
}

// cloneArgs is struct clone_args.
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls uint64
}

// startFirst starts pid 1 in new namespaces. Its child is this program under the
// verb, with nothing of the environment.
func startFirst(namespaces uintptr, verb string, files [4]*os.File) (*os.Process, error) {
	p := &firstProcess{args: cloneArgs{
		// Without our handlers, which are Go code. Pid 1 of a namespace then ignores
		// every signal but SIGKILL from outside.
		flags:      uint64(namespaces) | unix.CLONE_CLEAR_SIGHAND,
		exitSignal: uint64(unix.SIGCHLD),
	}}
	for i, f := range files {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, firstCopy)
		if err != nil {
			return nil, fmt.Errorf("copy %s: %w", f.Name(), err)
		}
		defer unix.Close(fd)
		p.fds[i] = uintptr(fd)
	}
	for text, to := range map[string]**byte{
		"/proc/self/exe": &p.path, "agent-lock": &p.argv[0], verb: &p.argv[1],
	} {
		var err error
		if *to, err = unix.BytePtrFromString(text); err != nil {
			return nil, err
		}
	}
	pid, errno := p.fork()
	runtime.KeepAlive(p)
	if errno != 0 {
		return nil, errno
	}
	return os.FindProcess(int(pid))
}

// fork returns in the supervisor only.
//
//go:norace
//go:nosplit
func (p *firstProcess) fork() (pid uintptr, errno syscall.Errno) {
	const setMask, maskSize = 2, 8
	all := ^uint64(0)
	mask := uintptr(unsafe.Pointer(&p.signal))
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, setMask, uintptr(unsafe.Pointer(&all)), mask,
		maskSize, 0, 0)
	pid, _, errno = syscall.RawSyscall6(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&p.args)),
		unsafe.Sizeof(p.args), 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		p.run()
	}
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, setMask, mask, 0, maskSize, 0, 0)
	return pid, errno
}

// run is pid 1. It does not return.
//
//go:norace
//go:nosplit
func (p *firstProcess) run() {
	const setMask, maskSize = 2, 8
	_, _, failed := syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG,
		uintptr(unix.SIGKILL), 0, 0, 0, 0)
	for i := uintptr(0); i < 4 && failed == 0; i++ {
		_, _, failed = syscall.RawSyscall6(unix.SYS_DUP3, p.fds[i], i, 0, 0, 0, 0)
	}
	if failed == 0 {
		_, _, failed = syscall.RawSyscall6(unix.SYS_CLOSE_RANGE, 4, uintptr(^uint32(0)), 0, 0, 0, 0)
	}
	child := uintptr(0)
	if failed == 0 {
		syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, setMask, uintptr(unsafe.Pointer(&p.signal)),
			0, maskSize, 0, 0)
		child, _, failed = syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	}
	if failed == 0 && child == 0 {
		syscall.RawSyscall6(unix.SYS_EXECVE, uintptr(unsafe.Pointer(p.path)),
			uintptr(unsafe.Pointer(&p.argv)), uintptr(unsafe.Pointer(&p.envp)), 0, 0, 0)
		failed = unix.ENOEXEC
	}
	if failed == 0 {
		_, _, failed = syscall.RawSyscall6(unix.SYS_CLOSE, 3, 0, 0, 0, 0, 0)
	}
	status := uintptr(statusNoCommand)
	for failed == 0 || failed == unix.EINTR {
		var pid uintptr
		pid, _, failed = syscall.RawSyscall6(unix.SYS_WAIT4, ^uintptr(0),
			uintptr(unsafe.Pointer(&p.status)), 0, 0, 0, 0)
		if failed != 0 || pid != child {
			continue // an orphan, as pid 1 must
		}
		if status = uintptr(p.status>>8) & 0xff; p.status&0x7f != 0 {
			status = uintptr(128 + p.status&0x7f)
		}
		break
	}
	for {
		// All that is left in the jail is killed by the kernel with pid 1.
		syscall.RawSyscall6(unix.SYS_EXIT_GROUP, status, 0, 0, 0, 0, 0)
	}
}

// statusNoCommand is pid 1's when it could not start or wait for the command.
const statusNoCommand = 1
