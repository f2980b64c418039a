//go:build guest

package jail_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A start and an end are system calls of the supervisor, of pid 1 and of the
// process that becomes the command. The tracer sees them all, in the binary that is
// shipped, and can make one fail or kill the process that is about to make it. What
// is traced is found by looking, so that a new step is covered by itself.

// step is one system call: the n-th of its name in the processes of a role.
type step struct {
	role, name string
	n          int
}

func (s step) String() string { return fmt.Sprintf("%s's %s[%d]", s.role, s.name, s.n) }

// fault is what the tracer does at a step.
type fault int

const (
	none fault = iota
	fail       // the call is not made and returns EIO
	kill       // the process dies before it
)

func (f fault) String() string { return [...]string{"nothing", "EIO", "SIGKILL"}[f] }

// tracer follows a jail's processes up to the command.
type tracer struct {
	at    step
	fault fault
	// Out: the steps that there were, and whether the wanted one was among them.
	steps []step
	met   bool
	said  string // what was printed

	count   map[step]int
	roles   map[int]string // by thread group
	threads map[int]int    // to its group
	live    map[int]bool   // threads that are or will be heard of again
	failing map[int]bool
}

// bpfCommands are those that a start and an end use; others are named by number.
var bpfCommands = map[uint64]string{
	0: "map_create", 1: "map_lookup", 2: "map_update", 3: "map_delete", 4: "map_next_key",
	5: "prog_load", 6: "pin", 7: "get", 14: "map_by_id", 15: "info", 18: "btf_load",
	24: "map_lookup_batch", 28: "link_create", 33: "iter_create",
}

// calls are the system calls that are steps. What the Go runtime does for itself
// (memory, threads, signals, clocks, polling) is not among them, nor is what cannot
// change anything.
var calls = map[uint64]string{
	unix.SYS_READ: "read", unix.SYS_WRITE: "write", unix.SYS_CLOSE: "close",
	unix.SYS_OPENAT: "openat", unix.SYS_OPENAT2: "openat2", unix.SYS_IOCTL: "ioctl",
	unix.SYS_FLOCK: "flock", unix.SYS_MKDIRAT: "mkdirat", unix.SYS_UNLINKAT: "unlinkat",
	unix.SYS_RENAMEAT: "renameat", unix.SYS_RENAMEAT2: "renameat2", unix.SYS_MOUNT: "mount",
	unix.SYS_STATFS: "statfs", unix.SYS_FSTAT: "fstat", unix.SYS_NEWFSTATAT: "newfstatat",
	unix.SYS_READLINKAT: "readlinkat", unix.SYS_GETDENTS64: "getdents64",
	unix.SYS_SOCKETPAIR: "socketpair", unix.SYS_CLONE: "clone", unix.SYS_CLONE3: "clone3",
	unix.SYS_DUP3: "dup3", unix.SYS_PIPE2: "pipe2", unix.SYS_EXECVE: "execve",
	unix.SYS_WAIT4: "wait4", unix.SYS_WAITID: "waitid", unix.SYS_PRCTL: "prctl",
	unix.SYS_SETGROUPS: "setgroups", unix.SYS_SETRESGID: "setresgid",
	unix.SYS_SETRESUID: "setresuid", unix.SYS_SETGID: "setgid", unix.SYS_SETUID: "setuid",
	unix.SYS_CAPSET: "capset", unix.SYS_CHDIR: "chdir", unix.SYS_FCHOWNAT: "fchownat",
	unix.SYS_CLOSE_RANGE: "close_range", unix.SYS_KEYCTL: "keyctl", unix.SYS_UNSHARE: "unshare",
	unix.SYS_SETHOSTNAME: "sethostname", unix.SYS_FACCESSAT: "faccessat",
	unix.SYS_FACCESSAT2: "faccessat2", unix.SYS_SETNS: "setns", unix.SYS_MKNODAT: "mknodat",
	unix.SYS_SECCOMP: "seccomp", unix.SYS_LANDLOCK_CREATE_RULESET: "landlock_create_ruleset",
	unix.SYS_LANDLOCK_ADD_RULE: "landlock_add_rule", unix.SYS_KILL: "kill",
	unix.SYS_LANDLOCK_RESTRICT_SELF: "landlock_restrict_self", unix.SYS_FCHOWN: "fchown",
	unix.SYS_PIVOT_ROOT: "pivot_root", unix.SYS_UMOUNT2: "umount2", unix.SYS_CHROOT: "chroot",
	unix.SYS_FSOPEN: "fsopen", unix.SYS_FSMOUNT: "fsmount", unix.SYS_MOVE_MOUNT: "move_mount",
	unix.SYS_OPEN_TREE: "open_tree", unix.SYS_SOCKET: "socket", unix.SYS_SETSID: "setsid",
	unix.SYS_PIDFD_OPEN: "pidfd_open", unix.SYS_PIDFD_SEND_SIGNAL: "pidfd_send_signal",
	unix.SYS_RECVMSG: "recvmsg", unix.SYS_SENDMSG: "sendmsg", unix.SYS_PRLIMIT64: "prlimit64",
	unix.SYS_UMASK: "umask", unix.SYS_SYMLINKAT: "symlinkat", unix.SYS_LINKAT: "linkat",
}

// syscallInfo is struct ptrace_syscall_info.
type syscallInfo struct {
	op     uint8
	_      [7]byte
	ip, sp uint64
	nr     uint64
	args   [6]uint64
	_      [2]uint64
}

const (
	ptraceGetSyscallInfo = 0x420e
	syscallEntry         = 1
	syscallExit          = 2
)

// run starts the command and follows it until the supervisor has ended, which is
// within ten minutes or a failure. What the command is executed as is followed no more.
func (tr *tracer) run(t *testing.T, argv []string, output *os.File) syscall.WaitStatus {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tr.count, tr.failing = map[step]int{}, map[int]bool{}
	tr.roles, tr.threads = map[int]string{}, map[int]int{}
	p, err := os.StartProcess(argv[0], argv, &os.ProcAttr{
		Files: []*os.File{nil, output, output}, Env: append(sudoEnv, "PATH=/bin"),
		Sys: &syscall.SysProcAttr{Ptrace: true, Setpgid: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	watchdog := time.AfterFunc(10*time.Minute, func() {
		t.Errorf("%v at %v: it hangs", tr.fault, tr.at)
		unix.Kill(p.Pid, unix.SIGKILL)
	})
	defer watchdog.Stop()
	const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE |
		unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACEEXEC |
		unix.PTRACE_O_EXITKILL
	var last syscall.WaitStatus
	for tr.live = map[int]bool{p.Pid: true}; len(tr.live) > 0; {
		var ws syscall.WaitStatus
		tid, err := syscall.Wait4(-1, &ws, unix.WALL|unix.WNOTHREAD, nil)
		if err != nil {
			break // nothing of it is left
		}
		if _, known := tr.threads[p.Pid]; !known {
			if err := syscall.PtraceSetOptions(tid, options); err != nil {
				t.Fatal(err)
			}
		}
		if ws.Stopped() {
			tr.stopped(tid, ws)
			continue
		}
		delete(tr.live, tid)
		if tid == p.Pid {
			last = ws
		}
	}
	return last
}

// stopped handles one stop of a thread and lets it go on. A thread may be gone by
// then, which the next wait tells.
func (tr *tracer) stopped(tid int, ws syscall.WaitStatus) {
	group, known := tr.threads[tid]
	tr.live[tid] = true
	if !known {
		if group = statusOf(tid, "Tgid:"); group == 0 {
			group = tid // it is gone
		}
		tr.threads[tid] = group
		if _, ok := tr.roles[group]; !ok {
			tr.roles[group] = roleOf(group)
		}
	}
	signal := 0
	switch sig := ws.StopSignal(); {
	case sig == unix.SIGTRAP|0x80:
		tr.syscall(tid, group)
	case sig == unix.SIGTRAP && ws.TrapCause() == unix.PTRACE_EVENT_EXEC:
		delete(tr.live, tid) // it is the command now
		syscall.PtraceDetach(tid)
		return
	case sig == unix.SIGTRAP: // a new thread or process, or the first stop of all
		child, err := syscall.PtraceGetEventMsg(tid)
		if err == nil && ws.TrapCause() > 0 {
			tr.live[int(child)] = true
		}
	case sig == unix.SIGSTOP && !known: // a new thread or process stops at first
	default:
		signal = int(sig)
	}
	syscall.PtraceSyscall(tid, signal)
}

func (tr *tracer) syscall(tid, group int) {
	var info syscallInfo
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, ptraceGetSyscallInfo, uintptr(tid),
		unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 {
		return
	}
	var regs syscall.PtraceRegs
	switch info.op {
	case syscallExit:
		if tr.failing[tid] {
			delete(tr.failing, tid)
			if syscall.PtraceGetRegs(tid, &regs) == nil {
				eio := -int64(unix.EIO)
				regs.Rax = uint64(eio)
				syscall.PtraceSetRegs(tid, &regs)
			}
		}
	case syscallEntry:
		s, ok := tr.name(group, info)
		if !ok {
			return
		}
		tr.steps = append(tr.steps, s)
		if s != tr.at || tr.met || tr.fault == none {
			return
		}
		tr.met = true
		if tr.fault == kill {
			unix.Kill(group, unix.SIGKILL)
		} else if s.name == "close" {
			tr.failing[tid] = true // the kernel closes, whatever it returns
		} else if syscall.PtraceGetRegs(tid, &regs) == nil {
			regs.Orig_rax = ^uint64(0)
			tr.failing[tid] = syscall.PtraceSetRegs(tid, &regs) == nil
		}
	}
}

// name counts a system call. ok is false when it is no step.
func (tr *tracer) name(group int, info syscallInfo) (s step, ok bool) {
	s.role = tr.roles[group]
	if info.nr == unix.SYS_BPF {
		command, known := bpfCommands[info.args[0]]
		if !known {
			command = fmt.Sprint(info.args[0])
		}
		s.name = "bpf " + command
	} else if s.name, ok = calls[info.nr]; !ok {
		return s, false
	}
	if info.nr == unix.SYS_CLONE && info.args[0]&unix.CLONE_THREAD != 0 {
		return s, false
	}
	tr.count[s]++
	s.n = tr.count[step{s.role, s.name, 0}]
	return s, true
}

// roleOf names a process by those that it descends from: none of ours executes, so that
// all of them look like the supervisor until one is the command.
func roleOf(pid int) string {
	ours := 0
	for ; ; ours++ {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		name, _, _ := strings.Cut(string(line), "\x00")
		if filepath.Base(name) != "agent-lock" {
			break
		}
		pid = statusOf(pid, "PPid:")
	}
	return []string{"command", "supervisor", "pid 1", "command's process"}[min(ours, 3)]
}

// statusOf reads a number from a process's status.
func statusOf(pid int, name string) (value int) {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			value, _ = strconv.Atoi(strings.TrimSpace(rest))
		}
	}
	return value
}
