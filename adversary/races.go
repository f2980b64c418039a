package adversary

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	parentSource  = "D14 CVE-2021-30465"
	rewriteSource = "D16 sandlock#111 nono"
)

// A race that nobody wins ends after raceTime, or on a slow machine after raceTries, or at
// last after raceLimit.
const (
	raceTime  = 100 * time.Millisecond
	raceTries = 200
	raceLimit = 5 * time.Second
)

// races: what a name, an address or a descriptor means changes while the kernel looks.
var races = []Case{
	raceParent("create", "creates files in a directory that another thread swaps for a link to "+
		"the outside", "openat(O_CREAT), renameat2",
		[]string{"path_mknod", "file_open"}, createIn),
	raceParent("unlink", "removes files in such a directory", "unlinkat, renameat2",
		[]string{"path_unlink"}, unlinkIn),
	raceParent("rename", "moves files into such a directory", "renameat, renameat2",
		[]string{"path_rename"}, renameInto),
	{
		Name: "race_path_open", Family: "races", Source: rewriteSource, Hooks: opens,
		What:   "opens a path that another thread rewrites in memory during the call",
		Calls:  "openat",
		Attack: attackRacePath, Judge: tokenRead,
	},
	{
		Name: "race_descriptor_open", Family: "races", Source: "D16 D19",
		What: "opens a name in a descriptor that another thread replaces by one of an outside " +
			"directory",
		Calls: "openat, dup3",
		Hooks: opens, Attack: attackRaceDescriptor, Judge: tokenRead,
	},
	{
		Name: "race_directory_open", Family: "races", Source: "D16 D07", Hooks: opens,
		What: "opens a relative name while another thread changes the process's directory to the " +
			"outside and back",
		Calls:  "openat, chdir",
		Attack: attackRaceDirectory, Judge: tokenRead,
	},
	{
		Name: "race_address_unix", Family: "races", Source: rewriteSource,
		What: "connects to an abstract address that another thread rewrites in memory during the " +
			"call",
		Calls: "connect",
		Hooks: streamHooks, Setup: listenAbstractTwin, Attack: attackRaceUnix, Judge: heard,
	},
	{
		Name: "race_address_tcp", Family: "races", Source: rewriteSource,
		What: "connects to an IPv4 address whose port another thread rewrites in memory during " +
			"the call",
		Calls: "connect",
		Hooks: connects, Setup: serving("tcp", "127.0.0.1"), Attack: attackRaceTCP, Judge: heard,
	},
}

// contend calls try again and again until it says that it has won or the time is over,
// while another thread disturbs. It returns the last error of a try that has not won; where
// there was none, no try has met what the other thread made.
func contend(disturb func(turn int), try func() (bool, error)) error {
	var stop atomic.Bool
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for turn := 0; !stop.Load(); turn++ {
			disturb(turn)
			runtime.Gosched() // there may be one processor only
		}
	}()
	defer func() { stop.Store(true); <-stopped }()
	var last error
	start := time.Now()
	for tries := 0; time.Since(start) < raceLimit; tries++ {
		if tries >= raceTries && time.Since(start) >= raceTime {
			break
		}
		won, err := try()
		if won {
			return nil
		}
		var unmade *unmadeError
		if errors.As(err, &unmade) {
			return err
		}
		if err != nil {
			last = err
		}
		runtime.Gosched()
	}
	if last == nil {
		return fmt.Errorf("no try met the other thread's work: %w", errTooSlow)
	}
	return last
}

// raceParent is a case on a directory of the project that at times is a link to the
// outside. try is told its name and, as a descriptor, the directory itself.
func raceParent(verb, what, calls string, hooks []string,
	try func(t *Target, name string, own int) (bool, error)) Case {
	return Case{
		Name: "race_parent_" + verb, Family: "races", Source: parentSource, What: what,
		Calls: calls,
		Hooks: hooks, Judge: changed,
		Attack: func(t *Target) ([]byte, error) {
			name, link := t.in("dir"), t.linkTo(t.Outside)
			if err := os.Mkdir(name, 0o700); err != nil {
				return nil, need(err)
			}
			own, err := openPath(name)
			if err != nil {
				return nil, need(err)
			}
			defer unix.Close(own)
			return nil, contend(func(int) {
				_ = unix.Renameat2(unix.AT_FDCWD, name, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
			}, func() (bool, error) { return try(t, name, own) })
		},
	}
}

// hasName reports whether a directory has a name, whatever is at the directory's own name.
func hasName(dir int, name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// createIn has won when the new file is not in our directory.
func createIn(_ *Target, name string, own int) (bool, error) {
	fd, err := unix.Open(name+"/new", unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return false, call("open", err)
	}
	unix.Close(fd)
	if !hasName(own, "new") {
		return true, nil
	}
	return false, need(call("unlinkat", unix.Unlinkat(own, "new", 0)))
}

// unlinkIn has won when a file is gone and it is not ours of the same name.
func unlinkIn(_ *Target, name string, own int) (bool, error) {
	if !hasName(own, "secret") {
		if err := unix.Mknodat(own, "secret", unix.S_IFREG|0o600, 0); err != nil {
			return false, need(call("mknodat", err))
		}
	}
	if err := unix.Unlink(name + "/secret"); err != nil {
		return false, call("unlink", err)
	}
	return hasName(own, "secret"), nil
}

// renameInto has won when our file is neither where it was nor in our directory.
func renameInto(t *Target, name string, own int) (bool, error) {
	_ = unix.Unlinkat(own, "moving", 0) // where the last try may have moved it
	from := t.in("moving")
	if _, err := os.Lstat(from); err != nil {
		if _, err := t.own("moving"); err != nil {
			return false, err
		}
	}
	if err := unix.Rename(from, name+"/moving"); err != nil {
		return false, call("rename", err)
	}
	return !hasName(own, "moving"), nil
}

// attackRacePath has one byte of a path change between NUL, where the path ends in the
// project, and a slash, after which it goes on to the outside.
func attackRacePath(t *Target) ([]byte, error) {
	rest, err := filepath.Rel(t.Work, t.Secret)
	if err != nil {
		return nil, need(err)
	}
	path := append([]byte(t.Work+"/"+rest), 0)
	at := uintptr(address(&path[0]))
	var loot []byte
	err = contend(func(int) { path[len(t.Work)] ^= '/' }, func() (bool, error) {
		fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, atFDCWD, at,
			unix.O_RDONLY|unix.O_CLOEXEC, 0, 0, 0)
		if errno != 0 {
			return false, call("openat", errno)
		}
		loot, _ = slurp(int(fd)) // our directory cannot be read so
		return len(loot) > 0, nil
	})
	return loot, err
}

// ownSecret makes a directory with a file of the outside one's name.
func (t *Target) ownSecret() (string, error) {
	dir := t.in("dir")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", need(err)
	}
	return dir, need(os.WriteFile(filepath.Join(dir, "secret"), []byte(mark), 0o600))
}

// readOther reads a name until what is there is not our own file.
func readOther(loot *[]byte, dirfd int) func() (bool, error) {
	return func() (bool, error) {
		data, err := readAt(dirfd, "secret")
		if err != nil || string(data) == mark {
			return false, err
		}
		*loot = data
		return true, nil
	}
}

func attackRaceDescriptor(t *Target) ([]byte, error) {
	dir, err := t.ownSecret()
	if err != nil {
		return nil, err
	}
	var dirs [2]int
	for i, path := range []string{dir, t.Outside} {
		if dirs[i], err = openPath(path); err != nil {
			return nil, err
		}
	}
	// Not one that the runtime might be given for its own.
	at, err := unix.FcntlInt(uintptr(dirs[0]), unix.F_DUPFD_CLOEXEC, 100)
	if err != nil {
		return nil, need(err)
	}
	var loot []byte
	err = contend(func(turn int) { _ = unix.Dup3(dirs[turn%2], at, unix.O_CLOEXEC) },
		readOther(&loot, at))
	return loot, err
}

func attackRaceDirectory(t *Target) ([]byte, error) {
	dir, err := t.ownSecret()
	if err != nil {
		return nil, err
	}
	if err := unix.Chdir(dir); err != nil {
		return nil, need(err)
	}
	dirs := []string{dir, t.Outside}
	var loot []byte
	err = contend(func(turn int) { _ = unix.Chdir(dirs[turn%2]) },
		readOther(&loot, unix.AT_FDCWD))
	if errors.Is(err, errTooSlow) { // unless something kept the other thread from it
		err = cmp.Or(call("chdir", unix.Chdir(t.Outside)), err)
	}
	return loot, err
}

// listenAbstractTwin listens at an abstract address that ends in 1; the attacker's own
// ends in 0.
func listenAbstractTwin(s *Scene) error {
	return s.Listen("socket", unix.SOCK_STREAM, fmt.Sprintf("@agent-lock-%s-1", canary()[:16]))
}
