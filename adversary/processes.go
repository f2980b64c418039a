package adversary

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	signalSource = "D26 AutoProver#73"
	memorySource = "D25"
)

var (
	signalled = []string{"task_kill", "pid_namespace"}
	traced    = []string{"ptrace_access_check"}
)

// processes: doing something to a process outside.
var processes = []Case{
	{
		Name: "process_kill", Family: "processes", Source: signalSource,
		What: "kills a process outside", Hooks: signalled, Setup: (*Scene).Victim,
		Calls: "kill",
		Attack: onVictim(func(t *Target) ([]byte, error) {
			return nil, call("kill", unix.Kill(t.PID, unix.SIGKILL))
		}),
		Judge: victimDead,
	},
	{
		Name: "process_tgkill", Family: "processes", Source: signalSource,
		What: "kills its main thread (tgkill)", Hooks: signalled, Setup: (*Scene).Victim,
		Calls: "tgkill",
		Attack: onVictim(func(t *Target) ([]byte, error) {
			return nil, call("tgkill", unix.Tgkill(t.PID, t.PID, unix.SIGKILL))
		}),
		Judge: victimDead,
	},
	{
		Name: "process_kill_group", Family: "processes", Source: signalSource,
		What: "kills its process group", Hooks: signalled, Setup: (*Scene).Victim,
		Calls: "kill",
		Attack: onVictim(func(t *Target) ([]byte, error) {
			return nil, call("kill", unix.Kill(-t.PID, unix.SIGKILL))
		}),
		Judge: victimDead,
	},
	{
		Name: "process_pidfd_kill", Family: "processes", Source: signalSource,
		What: "kills it through a pidfd", Hooks: signalled, Setup: (*Scene).Victim,
		Calls: "pidfd_open, pidfd_send_signal",
		Attack: onVictim(func(t *Target) ([]byte, error) {
			fd, err := unix.PidfdOpen(t.PID, 0)
			if err != nil {
				return nil, call("pidfd_open", err)
			}
			return nil, call("pidfd_send_signal",
				unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0))
		}),
		Judge: victimDead,
	},
	{
		Name: "process_kill_scan", Family: "processes", Source: signalSource,
		What: "looks for it in /proc and kills it", Hooks: signalled, Setup: (*Scene).Victim,
		Calls:  "getdents64, openat, kill",
		Attack: attackKillScan, Judge: victimDead,
	},
	{
		Name: "process_ptrace_attach", Fresh: true, Family: "processes", Source: "D24",
		What: "attaches with ptrace and kills it", Hooks: traced, Setup: (*Scene).Victim,
		Calls: "ptrace(PTRACE_ATTACH), wait4, ptrace(PTRACE_CONT)", Needs: needsScope,
		Attack: onVictim(attackTrace), Judge: victimDead,
	},
	{
		Name: "process_ptrace_seize", Fresh: true, Family: "processes", Source: "D24",
		What: "seizes it with PTRACE_O_EXITKILL and exits", Hooks: traced, Setup: (*Scene).Victim,
		Calls: "ptrace(PTRACE_SEIZE), exit_group", Needs: needsScope,
		Attack: onVictim(attackSeize), Judge: victimDead,
	},
	{
		Name: "process_vm_readv", Family: "processes", Source: memorySource,
		What: "reads its memory by process_vm_readv", Hooks: traced, Setup: (*Scene).Victim,
		Calls: "process_vm_readv", Needs: "CONFIG_CROSS_MEMORY_ATTACH, " + needsScope,
		Attack: attackVMRead, Judge: victimRead,
	},
	{
		Name: "process_pidfd_getfd", Family: "processes", Source: memorySource,
		What: "takes an open file from it (pidfd_getfd)", Hooks: traced,
		Calls: "pidfd_open, pidfd_getfd, pread64", Needs: needsScope,
		Setup: (*Scene).Victim, Attack: attackGetfd, Judge: victimRead,
	},
	{
		Name: "process_pidfd_passed", Family: "processes", Source: passedSource,
		What:  "is passed a pidfd of it and takes an open memory file (pidfd_getfd)",
		Calls: "recvmsg, pidfd_getfd, pread64", Needs: needsScope,
		Hooks: traced, Setup: (*Scene).PassVictim,
		Attack: func(t *Target) ([]byte, error) {
			pidfd, err := receiveFD(0)
			if err != nil {
				return nil, err
			}
			return takeFile(pidfd, t.Args["memfd"])
		},
		Judge: victimRead,
	},
	{
		Name: "process_pidfd_passed_kill", Family: "processes", Source: passedSource,
		What:  "is passed a pidfd of it and kills it",
		Calls: "recvmsg, pidfd_send_signal",
		Hooks: signalled, Setup: (*Scene).PassVictim,
		Attack: func(*Target) ([]byte, error) {
			pidfd, err := receiveFD(0)
			if err != nil {
				return nil, err
			}
			err = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
			return nil, call("pidfd_send_signal", err)
		},
		Judge: victimDead,
	},
	{
		Name: "process_prlimit", Family: "processes", Source: signalSource,
		What:  "lowers a limit of it",
		Calls: "prlimit64",
		Hooks: []string{"pid_namespace"}, Setup: (*Scene).Victim,
		Attack: onVictim(func(t *Target) ([]byte, error) {
			limit := unix.Rlimit{Cur: 0, Max: 0}
			return nil, call("prlimit", unix.Prlimit(t.PID, unix.RLIMIT_CORE, &limit, nil))
		}),
		Judge: victimLimited,
	},
	{
		Name: "process_setpriority", Family: "processes", Source: signalSource,
		What:  "lowers its priority",
		Calls: "setpriority",
		Hooks: []string{"task_setnice", "pid_namespace"}, Setup: (*Scene).Victim,
		Attack: onVictim(func(t *Target) ([]byte, error) {
			return nil, call("setpriority", unix.Setpriority(unix.PRIO_PROCESS, t.PID, 19))
		}),
		Judge: victimReniced,
	},
	{
		Name: "process_init_oom_score", Family: "processes", Source: signalSource, Root: true,
		Guest: true,
		What:  "has the kernel end, when memory is short, who shares pid 1's memory",
		Calls: "openat, write",
		Hooks: []string{"file_open"},
		Setup: func(s *Scene) error {
			s.onClose(func() {
				for _, pid := range s.starters() {
					_ = os.WriteFile(oomScoreOf(pid), []byte("0"), 0)
				}
			})
			return nil
		},
		Attack: func(*Target) ([]byte, error) {
			return nil, call("write", os.WriteFile(oomScoreOf(1), []byte(attackedScore), 0))
		},
		Judge: Judge{
			"pid 1 of the machine, or what was started as the jail, has the score",
			func(s *Scene) string {
				for _, pid := range s.starters() {
					score, _ := os.ReadFile(oomScoreOf(pid))
					if strings.TrimSpace(string(score)) == attackedScore {
						return fmt.Sprintf("process %d outside has the score", pid)
					}
				}
				return ""
			},
		},
	},
}

const attackedScore = "777"

func oomScoreOf(pid int) string { return fmt.Sprintf("/proc/%d/oom_score_adj", pid) }

// starters are the processes outside to which a jail's pid 1 may be tied: the machine's own
// pid 1, and that which was started as the jail.
func (s *Scene) starters() []int { return []int{1, s.session.cmd.Process.Pid} }

// onVictim guards an attack that does harm by process id: in a pid namespace the
// number may name a process of the attacker's own.
func onVictim(attack func(*Target) ([]byte, error)) func(*Target) ([]byte, error) {
	return func(t *Target) ([]byte, error) {
		own, err := ownProcess(t.PID)
		if err == nil && own {
			return nil, fmt.Errorf("pid %d is a process of the jail's own", t.PID)
		}
		return attack(t)
	}
}

// ownProcess reports whether the pid is this process, an ancestor of it that is also an
// attacker, or the jail's first process; or a thread of one: fcntl(2) takes its number.
func ownProcess(pid int) (bool, error) {
	for up := os.Getpid(); up > 0; {
		if up == pid || unix.Tgkill(up, pid, 0) == nil {
			return true, nil
		}
		var err error
		if up, err = parentOf(up); err != nil {
			return false, err
		}
	}
	return false, nil
}

// attackKillScan finds the victim by its command line, which names a file in
// the outside directory.
func attackKillScan(t *Target) ([]byte, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, need(err)
	}
	last := errors.New("no victim is in /proc")
	for _, file := range files {
		data, err := read(file)
		if err != nil || !strings.Contains(string(data), "\x00victim\x00"+t.Args["home"]+"/") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, need(err)
		}
		last = call("kill", unix.Kill(pid, unix.SIGKILL))
	}
	return nil, last
}

func attackTrace(t *Target) ([]byte, error) {
	runtime.LockOSThread() // ptrace belongs to the thread
	if err := unix.PtraceAttach(t.PID); err != nil {
		return nil, call("ptrace ATTACH", err)
	}
	if _, err := unix.Wait4(t.PID, nil, unix.WALL, nil); err != nil {
		return nil, call("wait4", err)
	}
	return nil, call("ptrace CONT", unix.PtraceCont(t.PID, int(unix.SIGKILL)))
}

func attackSeize(t *Target) ([]byte, error) {
	runtime.LockOSThread()
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(t.PID), 0,
		unix.PTRACE_O_EXITKILL, 0, 0)
	if errno != 0 {
		return nil, call("ptrace SEIZE", errno)
	}
	return nil, nil // it dies with us
}

func attackVMRead(t *Target) ([]byte, error) {
	addr, err := strconv.ParseUint(t.Args["addr"], 10, 64)
	if err != nil {
		return nil, need(err)
	}
	buf := make([]byte, 64)
	local := []unix.Iovec{{Base: &buf[0], Len: uint64(len(buf))}}
	remote := []unix.RemoteIovec{{Base: uintptr(addr), Len: len(buf)}}
	n, err := unix.ProcessVMReadv(t.PID, local, remote, 0)
	return buf[:max(n, 0)], call("process_vm_readv", err)
}

func attackGetfd(t *Target) ([]byte, error) {
	pidfd, err := unix.PidfdOpen(t.PID, 0)
	if err != nil {
		return nil, call("pidfd_open", err)
	}
	return takeFile(pidfd, t.Args["fd"])
}

// takeFile duplicates a process's descriptor and reads it from its start.
func takeFile(pidfd int, theirs string) ([]byte, error) {
	n, err := strconv.Atoi(theirs)
	if err != nil {
		return nil, need(err)
	}
	fd, err := unix.PidfdGetfd(pidfd, n, 0)
	if err != nil {
		return nil, call("pidfd_getfd", err)
	}
	buf := make([]byte, 64)
	got, err := unix.Pread(fd, buf, 0) // the offset is shared
	return buf[:max(got, 0)], call("pread", err)
}
