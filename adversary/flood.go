package adversary

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	floodSource = "D43"
	floodSize   = 10_000
	floodTime   = 20 * time.Second // of an emulated machine
)

// floods: more processes than a table of them may have room for.
var floods = []Case{
	{
		Name: "life_flood", Family: "lifecycle", Source: floodSource, Fresh: true, Hooks: opens,
		What:  "makes 10,000 processes that live at once, the next of which opens the file",
		Calls: "clone, open",
		Needs: "room for 10,000 processes",
		Setup: floodRoom, Attack: attackFlood, Judge: tokenRead,
	},
}

const threadsMax = "/proc/sys/kernel/threads-max"

// raiseLimits makes room for a flood in a guest, before the sessions start: both count
// for the limits of the user. On other machines the limits are what they are. The function
// that it returns takes it back.
func raiseLimits(cases []Case) (func(), error) {
	name, err := os.Hostname()
	if err != nil || name != "guest" || os.Geteuid() != 0 ||
		!slices.ContainsFunc(cases, func(c Case) bool { return c.Source == floodSource }) {
		return func() {}, err
	}
	all, err := os.ReadFile(threadsMax)
	if err != nil {
		return nil, err
	}
	var own unix.Rlimit
	room := unix.Rlimit{Cur: 4 * floodSize, Max: 4 * floodSize}
	if err := unix.Prlimit(0, unix.RLIMIT_NPROC, &room, &own); err != nil {
		return nil, call("prlimit", err)
	}
	return func() {
		_ = unix.Prlimit(0, unix.RLIMIT_NPROC, &own, nil)
		_ = os.WriteFile(threadsMax, all, 0)
	}, os.WriteFile(threadsMax, fmt.Append(nil, room.Max), 0)
}

// floodRoom wants room for twice as many processes: the jailed attacks that are made at
// the same time must not fail for the lack of it. Each takes some 25 KB of the kernel's.
func floodRoom(s *Scene) error {
	s.alone()
	s.Target.Limit = 50 * time.Second
	all, err := numberIn(threadsMax, "")
	if err != nil {
		return err
	}
	var own unix.Rlimit
	if err := unix.Prlimit(s.session.pid, unix.RLIMIT_NPROC, nil, &own); err != nil {
		return call("prlimit", err)
	}
	if limit := min(all, own.Max); limit < 2*floodSize {
		return fmt.Errorf("the limit is %d processes, want %d to be on the safe side", limit,
			2*floodSize)
	}
	const want = floodSize * 50
	memory, err := numberIn("/proc/meminfo", "MemAvailable:")
	if err == nil && memory < want {
		err = fmt.Errorf("%d KB of memory are available, want %d", memory, want)
	}
	return err
}

// numberIn reads the first number after a word in a file.
func numberIn(path, word string) (uint64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), word)
	var n uint64
	if _, err := fmt.Sscan(rest, &n); err != nil {
		return 0, fmt.Errorf("read %s: %w", path, err)
	}
	return n, nil
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
	for start := time.Now(); len(pids) < floodSize; {
		if time.Since(start) > floodTime {
			return nil, fmt.Errorf("%d of %d processes in %v: %w", len(pids), floodSize, floodTime,
				errTooSlow)
		}
		pid := cloneIdle(unix.CLONE_VM | unix.CLONE_FILES | unix.CLONE_FS | unix.CLONE_SIGHAND)
		if pid < 0 {
			return nil, fmt.Errorf("%d of %d processes, then no more: clone: %w", len(pids),
				floodSize, syscall.Errno(-pid))
		}
		pids = append(pids, int(pid))
	}
	return openInClone(unix.SYS_CLONE, unix.CLONE_VM|unix.CLONE_VFORK|unix.CLONE_FILES, 0, t.Secret)
}
