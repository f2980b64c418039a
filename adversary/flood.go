package adversary

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	floodSource = "D43"
	floodSize   = 10_000
)

// floods: more processes than a table of them may have room for.
var floods = []Case{
	{
		Name: "life_flood", Family: "lifecycle", Source: floodSource, Fresh: true, Hooks: opens,
		What: "makes 10,000 processes that live at once, the next of which opens the file " +
			"(clone, open)",
		Setup: floodRoom, Attack: attackFlood, Judge: tokenRead,
	},
}

// floodRoom raises a guest's limits; on other machines they are what they are.
func floodRoom(s *Scene) error {
	s.alone() // for the sake of memory: some 25 KB of the kernel's each
	name, err := os.Hostname()
	if err != nil || name != "guest" || os.Geteuid() != 0 {
		return err
	}
	const path, room = "/proc/sys/kernel/threads-max", 2 * floodSize
	before, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	s.onClose(func() { _ = os.WriteFile(path, before, 0) })
	return s.ourselves(func() error {
		if err := os.WriteFile(path, fmt.Append(nil, room), 0); err != nil {
			return err
		}
		limit := &unix.Rlimit{Cur: room, Max: room}
		return call("prlimit", unix.Prlimit(s.session.pid, unix.RLIMIT_NPROC, limit, nil))
	})
}

// attackFlood makes processes that share all that can be shared, and wait for a signal.
func attackFlood(t *Target) ([]byte, error) {
	runtime.LockOSThread()
	pids := make([]int, 0, floodSize)
	defer func() {
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		for _, pid := range pids {
			_, _ = unix.Wait4(pid, nil, unix.WALL, nil)
		}
	}()
	for len(pids) < floodSize {
		pid := cloneIdle(unix.CLONE_VM | unix.CLONE_FILES | unix.CLONE_FS | unix.CLONE_SIGHAND)
		if pid < 0 {
			return nil, fmt.Errorf("%d of %d processes, then no more: clone: %w", len(pids),
				floodSize, syscall.Errno(-pid))
		}
		pids = append(pids, int(pid))
	}
	return openInClone(unix.SYS_CLONE, unix.CLONE_VM|unix.CLONE_VFORK|unix.CLONE_FILES, 0, t.Secret)
}
