package adversary

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const ownerSource = "D26 fcntl(2)"

var owned = []string{"file_send_sigiotask", "pid_namespace"}

// signals: having the kernel signal somebody when a descriptor is ready (SIGIO, or
// any other by F_SETSIG), which no kill(2) shows.
var signals = []Case{
	owner("owner_process", "makes a process outside the owner of a pipe, and fills it",
		"pipe2, fcntl(F_SETOWN), fcntl(F_SETSIG), fcntl(F_SETFL), write",
		func(t *Target) error {
			return onPipe(func(fd int) error {
				_, err := unix.FcntlInt(uintptr(fd), unix.F_SETOWN, t.PID)
				return call("fcntl F_SETOWN", err)
			})
		}),
	owner("owner_group", "makes a process group outside the owner of a pipe, and fills it",
		"pipe2, fcntl(F_SETOWN), fcntl(F_SETSIG), fcntl(F_SETFL), write",
		func(t *Target) error {
			return onPipe(func(fd int) error {
				_, err := unix.FcntlInt(uintptr(fd), unix.F_SETOWN, -t.PID)
				return call("fcntl F_SETOWN", err)
			})
		}),
	owner("owner_thread", "makes its main thread the owner (F_SETOWN_EX)",
		"pipe2, fcntl(F_SETOWN_EX), fcntl(F_SETSIG), fcntl(F_SETFL), write",
		func(t *Target) error {
			return onPipe(func(fd int) error {
				return call("fcntl F_SETOWN_EX", setOwnerThread(fd, t.PID))
			})
		}),
	owner("owner_socket", "makes it the owner of a socket (SIOCSPGRP), and sends",
		"socketpair, ioctl(SIOCSPGRP), fcntl(F_SETSIG), fcntl(F_SETFL), write",
		func(t *Target) error {
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return call("socketpair", err)
			}
			const siocspgrp = 0x8902
			err = unix.IoctlSetPointerInt(pair[0], siocspgrp, t.PID)
			if err != nil {
				return call("ioctl SIOCSPGRP", err)
			}
			return killWhenReady(pair[0], pair[1])
		}),
	terminalOwner("async", "fcntl F_SETFL", "fcntl(F_SETFL)", []string{"file_fcntl"},
		func(fd, flags int) error {
			_, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags|unix.O_ASYNC)
			return err
		}),
	terminalOwner("async_ioctl", "ioctl FIOASYNC", "ioctl(FIOASYNC)", []string{"file_ioctl"},
		func(fd, _ int) error { return unix.IoctlSetPointerInt(fd, fioasync, 1) }),
}

const fioasync = 0x5452

func owner(name, what, calls string, attack func(*Target) error) Case {
	return Case{
		Name: name, Family: "signals", Source: ownerSource, What: what, Calls: calls,
		Hooks: owned, Fresh: true, Setup: (*Scene).Victim, Judge: victimDead,
		Attack: onVictim(func(t *Target) ([]byte, error) { return nil, attack(t) }),
	}
}

// onPipe gives a pipe an owner, who is killed when something is in it.
func onPipe(own func(fd int) error) error {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return call("pipe", err)
	}
	if err := own(p[0]); err != nil {
		return err
	}
	return killWhenReady(p[0], p[1])
}

func killWhenReady(from, to int) error {
	if err := signalWhenReady(from, unix.SIGKILL); err != nil {
		return err
	}
	if _, err := unix.FcntlInt(uintptr(from), unix.F_SETFL, unix.O_ASYNC); err != nil {
		return call("fcntl F_SETFL", err)
	}
	_, err := unix.Write(to, []byte(mark))
	return call("write", err)
}

// signalWhenReady asks for another signal than SIGIO.
func signalWhenReady(fd int, sig unix.Signal) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETSIG, int(sig))
	return call("fcntl F_SETSIG", err)
}

// setOwnerThread makes one thread the owner of a file.
func setOwnerThread(fd, tid int) error {
	const ownerTID = 0
	arg := [2]int32{ownerTID, int32(tid)}
	_, _, errno := unix.Syscall(unix.SYS_FCNTL, uintptr(fd), unix.F_SETOWN_EX,
		uintptr(unsafe.Pointer(&arg)))
	if errno != 0 {
		return errno
	}
	return nil
}

// terminalOwner stops the processes in the foreground of the terminal: they own a
// terminal whose owner nobody names, in whatever pid namespace. The runner types.
func terminalOwner(verb, name, last string, hooks []string,
	async func(fd, flags int) error) Case {
	return Case{
		Name: "terminal_" + verb, Family: "signals", Source: "D26 D53", Fresh: true, Hooks: hooks,
		What:  "has a key press stop what runs in the terminal's foreground (" + name + ")",
		Calls: "fcntl(F_SETSIG), " + last, Needs: needsTerminal,
		Setup: ownTerminal,
		Attack: func(t *Target) ([]byte, error) {
			const terminal = 2
			flags, err := unix.FcntlInt(terminal, unix.F_GETFL, 0)
			if err != nil {
				return nil, call("fcntl F_GETFL", err)
			}
			if err := signalWhenReady(terminal, unix.SIGSTOP); err != nil {
				return nil, err
			}
			if err := async(terminal, flags); err != nil {
				return nil, call(name, err)
			}
			return nil, t.Sync()
		},
		Meanwhile: typeKey,
		Judge:     seen("the process that was started on the terminal was stopped"),
	}
}

// typeKey presses a key, looks whether the first process of the session stops, and
// lets everything go on.
func typeKey(s *Scene, _ int) error {
	t, pid := s.session.tty, s.session.cmd.Process.Pid
	if _, err := t.master.WriteString("k"); err != nil {
		return err
	}
	for range 200 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return err
		}
		if strings.Contains(string(stat), ") T ") {
			s.Evidence = "the process that started on the terminal was stopped"
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	flags, err := unix.FcntlInt(t.slave.Fd(), unix.F_GETFL, 0)
	if err == nil {
		_, err = unix.FcntlInt(t.slave.Fd(), unix.F_SETFL, flags&^unix.O_ASYNC)
	}
	_, sigErr := unix.FcntlInt(t.slave.Fd(), unix.F_SETSIG, 0)
	t.input()
	return errors.Join(err, sigErr, unix.Kill(-pid, unix.SIGCONT))
}

// countSignals lets the runner act and counts what a directory's watch (dnotify)
// sends meanwhile.
func countSignals(t *Target, dir int) ([]byte, error) {
	runtime.LockOSThread()
	const realTime = 40 // such signals are queued
	set := unix.Sigset_t{}
	set.Val[0] = 1 << (realTime - 1)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil); err != nil {
		return nil, need(err)
	}
	sigs, err := unix.Signalfd(-1, &set, unix.SFD_NONBLOCK|unix.SFD_CLOEXEC)
	if err != nil {
		return nil, need(call("signalfd", err))
	}
	if err := setOwnerThread(dir, unix.Gettid()); err != nil {
		return nil, call("fcntl F_SETOWN_EX", err)
	}
	if err := signalWhenReady(dir, realTime); err != nil {
		return nil, err
	}
	const created, multishot = 4, 1 << 31
	_, err = unix.FcntlInt(uintptr(dir), unix.F_NOTIFY, created|multishot)
	if err != nil {
		return nil, call("fcntl F_NOTIFY", err)
	}
	if err := t.Sync(); err != nil {
		return nil, err
	}
	n := 0
	var info unix.SignalfdSiginfo
	buf := make([]byte, unsafe.Sizeof(info))
	for {
		if got, err := unix.Read(sigs, buf); err != nil || got != len(buf) {
			return fmt.Appendf(nil, "%d events", n), nil
		}
		n++
	}
}

// hideCount chooses how many files the runner makes while it is watched.
func hideCount(s *Scene) error {
	s.secrets["count"] = fmt.Sprintf("%d events", 100+randomInt(400))
	return nil
}

// makeFiles makes that many, outside.
func makeFiles(s *Scene, _ int) error {
	var n int
	if _, err := fmt.Sscan(s.secrets["count"], &n); err != nil {
		return err
	}
	for i := range n {
		if err := os.WriteFile(s.Out(fmt.Sprint("file", i)), nil, 0o600); err != nil {
			return err
		}
	}
	return nil
}
