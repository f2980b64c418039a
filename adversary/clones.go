package adversary

import (
	"errors"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// clones: processes and threads made in ways that programs seldom do.
var clones = []Case{
	life("life_vfork", "D44", "opens the file in a child that shares its memory (vfork)",
		"clone(CLONE_VFORK), open",
		func(t *Target) ([]byte, error) {
			const flags = unix.CLONE_VM | unix.CLONE_VFORK | unix.CLONE_FILES
			return openInClone(unix.SYS_CLONE, flags|uintptr(unix.SIGCHLD), 0, t.Secret)
		}),
	life("life_vfork_untraced", "D44", "the same in a child without a signal at its end",
		"clone(CLONE_UNTRACED), open",
		func(t *Target) ([]byte, error) {
			const flags = unix.CLONE_VM | unix.CLONE_VFORK | unix.CLONE_FILES | unix.CLONE_FS |
				unix.CLONE_UNTRACED | unix.CLONE_IO
			return openInClone(unix.SYS_CLONE, flags, 0, t.Secret)
		}),
	life("life_clone3", "D44", "the same in a child that clone3 makes", "clone3, open",
		func(t *Target) ([]byte, error) {
			return clone3Open(unix.CLONE_VM|unix.CLONE_VFORK|unix.CLONE_FILES, t.Secret)
		}),
	life("life_clone3_parent", "D44", "the same in a sibling that clone3 makes (CLONE_PARENT)",
		"clone3(CLONE_PARENT), open",
		func(t *Target) ([]byte, error) {
			return clone3Open(unix.CLONE_VM|unix.CLONE_VFORK|unix.CLONE_FILES|unix.CLONE_PARENT,
				t.Secret)
		}),
	life("life_leader_gone", "D41", "opens the file in a thread that outlives the leader",
		"clone, exit, openat",
		func(t *Target) ([]byte, error) { return start(os.Args[0], nil, "heir", t.Secret) }),
	life("life_leader_gone_child", "D41", "starts a child from such a thread",
		"clone, exit, execve, openat",
		func(t *Target) ([]byte, error) {
			return start(os.Args[0], nil, "heir", t.Secret, "child")
		}),
	life("life_thread_exec", "D41", "executes itself from a thread, which becomes the leader",
		"clone, execve, openat",
		func(t *Target) ([]byte, error) {
			return start(os.Args[0], nil, "threadexec", t.Secret)
		}),
}

// stepHeir ends the main thread alone. Another reports.
func stepHeir(args []string) ([]byte, error) {
	if unix.Gettid() != unix.Getpid() {
		return nil, need(errors.New("this is not the leader"))
	}
	ready := make(chan struct{})
	go func() {
		runtime.LockOSThread() // not the leader's, which is locked as well
		close(ready)
		if err := need(awaitState(os.Getpid(), "Z")); err != nil {
			say(nil, err)
		} else if len(args) > 1 {
			say(start(os.Args[0], nil, "read", args[0]))
		} else {
			say(read(args[0]))
		}
		os.Exit(0)
	}()
	<-ready
	_, _, errno := unix.Syscall(unix.SYS_EXIT, 0, 0, 0) // of this thread
	return nil, need(errno)
}

// stepThreadExec executes the next step from a thread that is not the leader.
func stepThreadExec(args []string) ([]byte, error) {
	return onThread(func() ([]byte, error) {
		argv := []string{os.Args[0], attackerVerb, "step", "read", args[0]}
		return nil, call("execve", syscall.Exec(os.Args[0], argv, os.Environ()))
	})
}
