package adversary

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// rootSpaces: mounts and namespaces by root, who needs no user namespace for them.
// The controls mount in a mount namespace of their own.
var rootSpaces = []Case{
	rootMount("root_bind_mount", "rootbind", "D35", "sb_mount",
		"mounts the outside directory into the project", "mount, openat"),
	rootMount("root_overlay", "trusted", "D38 CVE-2023-0386", "sb_mount",
		"mounts an overlay of the outside directory into the project", "mount, openat").
		needing("CONFIG_OVERLAY_FS"),
	rootMount("root_new_mount", "fsmount", "D37", "file_open",
		"makes an overlay of the outside directory by fsopen and fsmount",
		"fsopen, fsconfig, fsmount, openat").needing("CONFIG_OVERLAY_FS"),
	{
		Name: "root_chroot", Family: "mounts", Source: "D36", Root: true,
		What: "changes root to the outside directory", Hooks: []string{"capable", "path_chroot"},
		Calls:  "chroot",
		Attack: inMountNamespace("chrooted"), Meanwhile: seesRoot, Judge: rootMoved,
	},
	{
		Name: "root_pivot_root", Family: "mounts", Source: "D36", Root: true,
		What:  "makes another mount the root",
		Calls: "chdir, pivot_root", Needs: needsHidden,
		Hooks:  []string{"capable", "sb_pivotroot"},
		Attack: inMountNamespace("pivoted"), Meanwhile: seesRoot, Judge: rootMoved,
	},
	{
		Name: "root_move_mount", Family: "mounts", Source: "D37 CVE-2021-41133", Root: true,
		What:   "attaches a copy of the outside mount by open_tree and move_mount",
		Calls:  "open_tree, move_mount",
		Hooks:  []string{"capable", "move_mount"},
		Attack: inMountNamespace("moved"), Meanwhile: seesMount, Judge: mounted,
	},
	{
		Name: "root_mount", Family: "mounts", Source: "D35", Root: true,
		What: "mounts a file system into the project", Hooks: []string{"capable", "sb_mount"},
		Calls:  "mount",
		Attack: inMountNamespace("tmpfs"), Meanwhile: seesMount, Judge: mounted,
	},
	{
		Name: "root_umount", Family: "mounts", Source: "D40 aigate", Root: true,
		What:  "takes away a mount that may hide something",
		Calls: "umount2", Needs: needsHidden,
		Hooks:  []string{"capable", "sb_umount"},
		Setup:  hasMount,
		Attack: inMountNamespace("umount"), Meanwhile: missesMount,
		Judge: seen("a process of the jail has fewer mounts on " + hidden + " than its first one"),
	},
	{
		Name: "root_remount", Family: "mounts", Source: "D40", Root: true, Guest: true,
		What:  "makes the file system of a private directory read-only (fsconfig)",
		Calls: "fspick, fsconfig", Needs: needsHidden,
		Hooks:  []string{"capable", "sb_remount"},
		Attack: inMountNamespace("remount"), Meanwhile: seesReadOnly,
		Judge: seen("the file system on " + hidden + " is read-only"),
	},
	{
		Name: "root_unshare", Fresh: true, Family: "mounts", Source: "D39", Root: true,
		What: "leaves its namespaces (unshare)", Hooks: capability,
		Calls: "unshare(CLONE_NEWUTS)",
		Attack: holding(func(*Target) (int, error) {
			return -1, call("unshare", unix.Unshare(unix.CLONE_NEWUTS))
		}),
		Meanwhile: func(s *Scene, pid int) error {
			return eachNamespace(pid, func(link string) {
				own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/uts", s.session.pid))
				if err == nil && link != own {
					s.Evidence = "a thread of the jail is in a new namespace"
				}
			})
		},
		Judge: seen("a thread of the jail is in another UTS namespace than its first process"),
	},
	{
		Name: "root_setns_passed", Fresh: true, Family: "mounts", Source: "D39 CDK", Root: true,
		What:  "enters a namespace outside by a descriptor that it is passed",
		Calls: "recvmsg, setns",
		Hooks: []string{"capable", "file_receive"}, Setup: passNamespace,
		Judge: seen("a thread of the jail is in the namespace that was passed"),
		Attack: holding(func(*Target) (int, error) {
			fd, err := receiveFD(0)
			if err != nil {
				return -1, err
			}
			return fd, call("setns", unix.Setns(fd, unix.CLONE_NEWUTS))
		}),
		Meanwhile: func(s *Scene, pid int) error {
			return eachNamespace(pid, func(link string) {
				if link == s.secrets["namespace"] {
					s.Evidence = "a thread of the jail is in a namespace outside"
				}
			})
		},
	},
}

func rootMount(name, step, source, hook, what, calls string) Case {
	return Case{
		Name: name, Family: "mounts", Source: source, Root: true, What: what + " and reads",
		Calls: calls,
		Hooks: []string{"capable", hook, "file_open"}, Attack: inMountNamespace(step),
		Judge: tokenRead,
	}
}

// inMountNamespace runs a step in a new mount namespace, so that a control changes
// nothing on the machine. Where none can be made there is a jail, or nothing else
// of the kind is permitted either.
func inMountNamespace(step string) func(*Target) ([]byte, error) {
	return func(t *Target) ([]byte, error) {
		if !controlIsSocket() {
			return nil, errNoSocket
		}
		attr := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
		loot, err := start(os.Args[0], attr, step, t.Outside, t.Work)
		if errors.Is(err, unix.EPERM) {
			return start(os.Args[0], nil, step, t.Outside, t.Work)
		}
		return loot, err
	}
}

// privately makes the mounts private before a step changes one. A jail may refuse
// that, and then what follows goes no further than the jail.
func privately(s step) step {
	return func(args []string) ([]byte, error) {
		err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		if err != nil && !errors.Is(err, unix.EPERM) {
			return nil, call("mount private", err)
		}
		return s(args)
	}
}

func stepChrooted(args []string) ([]byte, error) {
	if err := unix.Chroot(args[0]); err != nil {
		return nil, call("chroot", err)
	}
	return nil, (&Target{}).Sync()
}

func stepPivoted([]string) ([]byte, error) {
	if err := unix.Chdir(hidden); err != nil {
		return nil, call("chdir", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return nil, call("pivot_root", err)
	}
	return nil, (&Target{}).Sync()
}

func stepMoved(args []string) ([]byte, error) {
	tree, err := unix.OpenTree(unix.AT_FDCWD, args[0],
		unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, call("open_tree", err)
	}
	err = unix.MoveMount(tree, "", unix.AT_FDCWD, args[1], unix.MOVE_MOUNT_F_EMPTY_PATH)
	if err != nil {
		return nil, call("move_mount", err)
	}
	return nil, (&Target{}).Sync()
}

// stepTrusted is stepLower as root does it.
func stepTrusted(args []string) ([]byte, error) {
	dirs, err := overlayDirs(args[1])
	if err != nil {
		return nil, err
	}
	data := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", args[0], dirs["upper"], dirs["work"])
	if err := unix.Mount("overlay", dirs["merged"], "overlay", 0, data); err != nil {
		return nil, call("mount overlay", err)
	}
	return read(filepath.Join(dirs["merged"], "secret"))
}

// stepFsmount reads through a mount that is attached nowhere.
func stepFsmount(args []string) ([]byte, error) {
	dirs, err := overlayDirs(args[1])
	if err != nil {
		return nil, err
	}
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, call("fsopen", err)
	}
	for key, value := range map[string]string{
		"lowerdir": args[0], "upperdir": dirs["upper"], "workdir": dirs["work"],
	} {
		if err := unix.FsconfigSetString(fs, key, value); err != nil {
			return nil, call("fsconfig", err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, call("fsconfig", err)
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, call("fsmount", err)
	}
	return readAt(mount, "secret")
}

// stepTmpfs mounts on the work directory and waits for the runner to look.
func stepTmpfs(args []string) ([]byte, error) {
	if err := unix.Mount("tmpfs", args[1], "tmpfs", 0, ""); err != nil {
		return nil, call("mount", err)
	}
	return nil, (&Target{}).Sync()
}

func stepUmount([]string) ([]byte, error) {
	if err := unix.Unmount(hidden, unix.MNT_DETACH); err != nil {
		return nil, call("umount", err)
	}
	return nil, (&Target{}).Sync()
}

// stepRemount changes the file system and puts it back when the runner has looked.
func stepRemount([]string) ([]byte, error) {
	if err := reconfigure("ro"); err != nil {
		return nil, err
	}
	return nil, errors.Join((&Target{}).Sync(), reconfigure("rw"))
}

func reconfigure(flag string) error {
	fs, err := unix.Fspick(unix.AT_FDCWD, hidden, unix.FSPICK_CLOEXEC)
	if err != nil {
		return call("fspick", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigSetFlag(fs, flag); err != nil {
		return call("fsconfig", err)
	}
	return call("fsconfig", unix.FsconfigReconfigure(fs))
}

// hidden is where each machine, and a jail with private directories, has a mount.
const hidden = "/dev/shm"

const needsHidden = "a mount on " + hidden

// mountsOf returns the mount points of a process, with the options of the file systems
// that are mounted there.
func mountsOf(pid int) (map[string][]string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	mounts := map[string][]string{}
	for line := range strings.Lines(string(data)) {
		before, after, _ := strings.Cut(line, " - ")
		if fields := strings.Fields(before); len(fields) > 4 {
			if kind := strings.Fields(after); len(kind) > 0 {
				mounts[fields[4]] = append(mounts[fields[4]], kind[len(kind)-1])
			}
		}
	}
	return mounts, err
}

// hasMount is a Setup that wants something mounted there.
func hasMount(*Scene) error {
	mounts, err := mountsOf(os.Getpid())
	if err == nil && len(mounts[hidden]) == 0 {
		err = errors.New("nothing is mounted on " + hidden)
	}
	return err
}

var mounted = seen("a file system is mounted on the attempt's directory in the project")

func seesMount(s *Scene, pid int) error {
	mounts, err := mountsOf(pid)
	if _, ok := mounts[s.Target.Work]; ok {
		s.Evidence = "a file system is mounted in the project"
	}
	return err
}

func missesMount(s *Scene, pid int) error {
	before, err := mountsOf(s.session.pid)
	if err != nil {
		return err
	}
	now, err := mountsOf(pid)
	if err == nil && len(now[hidden]) < len(before[hidden]) {
		s.Evidence = "a mount on " + hidden + " is gone"
	}
	return err
}

func seesReadOnly(s *Scene, pid int) error {
	mounts, err := mountsOf(pid)
	for _, options := range mounts[hidden] {
		if options == "ro" || strings.HasPrefix(options, "ro,") {
			s.Evidence = "the file system of " + hidden + " is read-only"
		}
	}
	return err
}

var rootMoved = seen("a process of the jail has another root directory than its first one")

// seesRoot compares the root directory with that of the process that started it.
func seesRoot(s *Scene, pid int) error {
	var before, now unix.Stat_t
	err := errors.Join(unix.Stat(fmt.Sprintf("/proc/%d/root", s.session.pid), &before),
		unix.Stat(fmt.Sprintf("/proc/%d/root", pid), &now))
	if err == nil && (before.Dev != now.Dev || before.Ino != now.Ino) {
		s.Evidence = "a process of the jail has another root directory"
	}
	return err
}

// eachNamespace calls f with the UTS namespace of each thread.
func eachNamespace(pid int, f func(link string)) error {
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/ns/uts", pid))
	for _, path := range links {
		if link, err := os.Readlink(path); err == nil {
			f(link)
		}
	}
	return err
}

// passNamespace passes the attacker a namespace that was made for it.
func passNamespace(s *Scene) error {
	fds := make(chan int, 1)
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // not unlocked: the thread ends with its namespace
		err := unix.Unshare(unix.CLONE_NEWUTS)
		fd := -1
		if err == nil {
			fd, err = unix.Open("/proc/thread-self/ns/uts", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		if err == nil {
			s.secrets["namespace"], err = os.Readlink("/proc/thread-self/ns/uts")
		}
		fds <- fd
		failed <- err
	}()
	fd, err := <-fds, <-failed
	if err != nil {
		return call("make a namespace", err)
	}
	s.pass = append(s.pass, fd)
	s.onClose(func() { unix.Close(fd) })
	return nil
}
