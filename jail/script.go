package jail

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The jail's processes run no Go until the command does: each is a script, a list of
// system calls that the supervisor has laid out. They share the supervisor's memory as
// its threads do (CLONE_VM), so that nothing is copied and nothing of ours is executed a
// second time: a Go process that starts costs more than all the rest of a jail.
//
// The Go runtime does not know them, so they must not need it. The functions that run in
// them are marked nosplit, which makes the linker hold them to a few hundred bytes of
// stack, and call nothing but each other and RawSyscall6: no allocation, no write of a
// pointer, no bounds check, no panic. Signals stay blocked, and the supervisor's handlers
// are not taken over. A script is not collected while its process runs: [started] holds it.
//
// Whoever may trace such a process could write the supervisor's memory. Nobody may: until
// it executes, it is not dumpable while it is the user's.

// call is one system call of a script.
type call struct {
	number uintptr
	args   [6]uintptr
	want   outcome
	value  uintptr       // that returns wants
	but    syscall.Errno // an error that is no failure
	what   string        // it does, for people
}

// outcome is what a call has to come to.
type outcome uint8

const (
	succeeds outcome = iota
	fails            // with whatever error
	returns          // call.value
	hears            // returns 1; otherwise the supervisor is gone, and nobody is to be told
)

// script is what a process does.
type script struct {
	calls []call
	// Then it executes the first of these that it can, or starts the other script and
	// waits for its end.
	programs   []*byte
	argv, envp []*byte
	then       *script

	held    []unsafe.Pointer // what the calls point to
	control uintptr          // descriptor to report to
	said    report
	status  int32
	args    cloneArgs
	mask    uint64 // the signal mask of who started it
	stack   [4096]byte
}

// report is what a process says on the control socket: step done, or why it ends.
type report struct {
	step  int32 // of the script; len(calls) is what comes after them
	errno int32
}

// reached is the step of a report that all is well.
const reached = -1

// cloneArgs is struct clone_args.
type cloneArgs struct {
	flags                        uint64
	_                            [3]uint64 // pidfd, child_tid, parent_tid
	exitSignal, stack, stackSize uint64
	_                            uint64 // tls
}

// start starts the process as a child of this thread.
func (s *script) start() (pid int, err error) {
	const all = ^uint64(0)
	s.setMask(all, &s.mask)
	child, errno := spawn(&s.args, s)
	s.setMask(s.mask, nil)
	if errno != 0 {
		return 0, syscall.Errno(errno)
	}
	return int(child), nil
}

// setMask sets this thread's signal mask.
//
//go:norace
//go:nosplit
func (s *script) setMask(mask uint64, before *uint64) {
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&mask)),
		uintptr(unsafe.Pointer(before)), unsafe.Sizeof(mask), 0, 0)
}

// spawn is clone3(2). In the child it calls runScript, on the stack that args name.
//
//go:noescape
func spawn(args *cloneArgs, s *script) (pid, errno uintptr)

// runScript is the process. It does not return.
//
//lint:ignore U1000 spawn calls it
//go:norace
//go:nosplit
func runScript(s *script) {
	step, errno := perform(s.calls)
	if errno == gone {
		exit(statusNoCommand)
	}
	if step == len(s.calls) {
		if s.then != nil {
			errno = s.wait()
		} else {
			errno = s.execute()
		}
	}
	s.said = report{int32(step), int32(errno)}
	syscall.RawSyscall6(unix.SYS_WRITE, s.control, uintptr(unsafe.Pointer(&s.said)),
		unsafe.Sizeof(s.said), 0, 0, 0)
	exit(statusNoCommand)
}

// statusNoCommand is that of a process that did not come to its end.
const statusNoCommand = 1

// gone says that the supervisor is.
const gone = ^syscall.Errno(0)

// perform makes the calls up to one that does not come to what it should.
//
//go:norace
//go:nosplit
func perform(calls []call) (step int, errno syscall.Errno) {
	for i := range calls {
		c := &calls[i]
		value, _, errno := syscall.RawSyscall6(c.number, c.args[0], c.args[1], c.args[2],
			c.args[3], c.args[4], c.args[5])
		switch {
		case c.want == hears && (errno != 0 || value != 1):
			return i, gone
		case c.want == fails && errno == 0, c.want == returns && value != c.value:
			return i, errno
		case c.want == succeeds && errno != 0 && errno != c.but:
			return i, errno
		}
	}
	return len(calls), 0
}

// execute tries the programs as execvp(3) does, and returns when there is none.
//
//go:norace
//go:nosplit
func (s *script) execute() syscall.Errno {
	failed := unix.ENOENT
	for _, program := range s.programs {
		_, _, errno := syscall.RawSyscall6(unix.SYS_EXECVE,
			uintptr(unsafe.Pointer(program)), uintptr(unsafe.Pointer(unsafe.SliceData(s.argv))),
			uintptr(unsafe.Pointer(unsafe.SliceData(s.envp))), 0, 0, 0)
		switch errno {
		case unix.ENOENT, unix.ENOTDIR:
		case unix.EACCES:
			failed = errno // unless there is another
		default:
			return errno
		}
	}
	return failed
}

// wait starts the other process and ends as it does, or returns why not. What else ends
// meanwhile are the jail's orphans. All that is left in the jail is then killed by the
// kernel.
//
//go:norace
//go:nosplit
func (s *script) wait() syscall.Errno {
	child, errno := spawn(&s.then.args, s.then)
	if errno != 0 {
		return syscall.Errno(errno)
	}
	const everything = uintptr(^uint32(0))
	syscall.RawSyscall6(unix.SYS_CLOSE_RANGE, s.control, everything, 0, 0, 0, 0)
	for {
		pid, _, errno := syscall.RawSyscall6(unix.SYS_WAIT4, ^uintptr(0),
			uintptr(unsafe.Pointer(&s.status)), 0, 0, 0, 0)
		if errno != 0 && errno != unix.EINTR {
			exit(statusNoCommand)
		}
		if errno == 0 && pid == child {
			break
		}
	}
	if s.status&0x7f != 0 {
		exit(uintptr(128 + s.status&0x7f))
	}
	exit(uintptr(s.status>>8) & 0xff)
	return 0
}

//go:norace
//go:nosplit
func exit(status uintptr) {
	for {
		syscall.RawSyscall6(unix.SYS_EXIT_GROUP, status, 0, 0, 0, 0, 0)
	}
}
