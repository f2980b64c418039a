package adversary

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lifecycle: becoming a process that the jail has lost track of, then reading.
var lifecycle = []Case{
	{
		Name: "life_first_instruction", Family: "lifecycle", Source: "D15", Hooks: opens,
		What:   "reads as the first act of the jail's first command",
		Calls:  "openat",
		Attack: func(*Target) ([]byte, error) { return nil, nil }, // made when the jail started
		Judge: Judge{
			"the canary is in what the command sent out before anything else",
			func(s *Scene) string {
				token := s.session.tokens["early"]
				if strings.Contains(string(s.session.booty), token) {
					return "the canary was sent out"
				}
				return ""
			},
		},
	},
	life("life_thread_fork", "D41", "starts a child from a thread that is not the leader",
		"clone, execve, openat",
		func(t *Target) ([]byte, error) {
			return onThread(func() ([]byte, error) {
				return start(os.Args[0], nil, "read", t.Secret)
			})
		}),
	life("life_thread_read", "D41", "opens the file in a thread that is not the leader",
		"clone, openat",
		func(t *Target) ([]byte, error) {
			return onThread(func() ([]byte, error) { return read(t.Secret) })
		}),
	life("life_threads_gone", "D42", "makes and ends 50 threads and opens the file",
		"clone, exit, openat",
		func(t *Target) ([]byte, error) {
			churn(50)
			return read(t.Secret)
		}),
	life("life_threads_child", "D42", "makes and ends 50 threads and starts a child",
		"clone, exit, execve, openat",
		func(t *Target) ([]byte, error) {
			churn(50)
			return start(os.Args[0], nil, "read", t.Secret)
		}),
	life("life_orphan", "D44 claude-code#35986", "reads in a daemon: new session, parent gone",
		"setsid, clone, exit_group, openat",
		func(t *Target) ([]byte, error) {
			return start(os.Args[0], &syscall.SysProcAttr{Setsid: true}, "orphan", t.Secret)
		}),
	life("life_clone_parent", "D44", "reads in a sibling made with CLONE_PARENT",
		"clone(CLONE_PARENT), execve, openat",
		func(t *Target) ([]byte, error) {
			attr := &syscall.SysProcAttr{Cloneflags: unix.CLONE_PARENT}
			return start(os.Args[0], attr, "read", t.Secret)
		}),
	life("life_renamed", "D46", "takes the name of a package manager (PR_SET_NAME)",
		"prctl(PR_SET_NAME), openat",
		func(t *Target) ([]byte, error) {
			return onThread(func() ([]byte, error) { // of which it is the name
				err := unix.Prctl(unix.PR_SET_NAME, cstring("apt-get"), 0, 0, 0)
				if err != nil {
					return nil, need(err)
				}
				return read(t.Secret)
			})
		}),
	life("life_exec_copy", "D74", "executes a copy of itself under another name", "execve, openat",
		func(t *Target) ([]byte, error) {
			if err := copyTo(t.in("dpkg")); err != nil {
				return nil, need(err)
			}
			return start(t.in("dpkg"), nil, "read", t.Secret)
		}),
	life("life_memfd", "D74", "executes a copy of itself that has no file (memfd)",
		"memfd_create, execve, openat",
		func(t *Target) ([]byte, error) {
			fd, err := unix.MemfdCreate("x", 0)
			if err != nil {
				return nil, call("memfd_create", err)
			}
			path := fmt.Sprintf("/proc/self/fd/%d", fd)
			if err := copyTo(path); err != nil {
				return nil, err
			}
			return start(path, nil, "read", t.Secret)
		}).needing("CONFIG_MEMFD_CREATE"),
}

func life(name, source, what, calls string, attack func(*Target) ([]byte, error)) Case {
	return Case{
		Name: name, Family: "lifecycle", Source: source, What: what, Calls: calls,
		Hooks: opens, Attack: attack, Judge: tokenRead,
	}
}

// onThread runs f on a new thread. The leader is kept busy by our own lock.
func onThread(f func() ([]byte, error)) ([]byte, error) {
	var loot []byte
	err := errors.New("the thread did not run")
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			err = need(errors.New("this is the leader"))
			return
		}
		loot, err = f()
	}()
	<-done
	return loot, err
}

// churn makes n threads, all alive at once, and waits for their end.
func churn(n int) {
	var ready, done sync.WaitGroup
	ready.Add(n)
	for range n {
		done.Go(func() {
			runtime.LockOSThread() // the thread ends with the goroutine
			ready.Done()
			ready.Wait()
		})
	}
	done.Wait()
}

// copyTo copies our program.
func copyTo(path string) error {
	src, err := os.Open(os.Args[0])
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o700)
	if err != nil {
		return err
	}
	if _, err := io.Copy(dst, src); err != nil {
		dst.Close()
		return err
	}
	return dst.Close()
}

// stepOrphan starts a process that outlives it.
func stepOrphan(args []string) ([]byte, error) {
	argv := []string{os.Args[0], attackerVerb, "step", "reread", args[0], fmt.Sprint(os.Getpid())}
	_, err := syscall.ForkExec(os.Args[0], argv, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2},
	})
	if err != nil {
		return nil, call("start", err)
	}
	os.Exit(0) // without a report: the orphan makes it
	return nil, nil
}

// stepReread reads once its parent is gone.
func stepReread(args []string) ([]byte, error) {
	for fmt.Sprint(os.Getppid()) == args[1] {
		time.Sleep(time.Millisecond)
	}
	return read(args[0])
}
