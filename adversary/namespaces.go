package adversary

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	namespaceSource = "D35 landlock-lsm/linux#14"
	needsUserns     = "unprivileged user namespaces"
)

// namespaces: a new user namespace gives every capability in it, and with those
// the names of files can be changed.
var namespaces = []Case{
	{
		Name: "ns_user", Family: "namespaces", Source: namespaceSource,
		What: "makes a user namespace", Hooks: []string{"userns_create"},
		Calls: "clone(CLONE_NEWUSER)", Needs: needsUserns,
		Attack: inUserns("userns"), Meanwhile: compareUserns,
		Judge: seen("a process of the jail is in another user namespace than its first one"),
	},
	{
		Name: "ns_pid", Family: "namespaces", Source: "D44 " + namespaceSource,
		What:  "reads the file in a pid namespace of its own, in a user namespace",
		Calls: "clone(CLONE_NEWPID), execve, openat", Needs: needsUserns,
		Hooks: []string{"userns_create", "file_open"}, Judge: tokenRead,
		Attack: func(t *Target) ([]byte, error) {
			return start(os.Args[0], ownUserns(unix.CLONE_NEWPID), "read", t.Secret)
		},
	},
	namespace("ns_bind_mount", "bind", namespaceSource, "sb_mount",
		"mounts the outside directory into the project", "mount, openat"),
	namespace("ns_chroot", "chroot", "D36", "path_chroot",
		"changes root to the outside directory", "chroot, openat"),
	namespace("ns_pivot_root", "pivot", "D36", "sb_pivotroot",
		"makes the outside directory the root", "mount, pivot_root, umount2, openat"),
	namespace("ns_move_mount", "clone", "D37", "move_mount",
		"attaches a copy of the outside mount by open_tree and move_mount",
		"open_tree, move_mount, openat"),
	namespace("ns_overlay", "lower", "D38", "sb_mount",
		"mounts an overlay of the outside directory into the project", "mount, openat").
		needing("CONFIG_OVERLAY_FS").since("5.11"),
}

func namespace(name, step, source, hook, what, calls string) Case {
	return Case{
		Name: name, Family: "namespaces", Source: source,
		What:   what + ", in a user namespace, and reads",
		Calls:  "clone(CLONE_NEWUSER), " + calls,
		Needs:  needsUserns,
		Hooks:  []string{"userns_create", hook, "file_open"},
		Attack: inUserns(step), Judge: tokenRead,
	}
}

// ownUserns makes a process in a new user namespace, in which the user is root: another
// id would lose its capabilities at exec; and in further new ones.
func ownUserns(further uintptr) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | further,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
}

// inUserns is an attack that runs a step in new user and mount namespaces.
func inUserns(step string) func(*Target) ([]byte, error) {
	return func(t *Target) ([]byte, error) {
		if step == "userns" && !controlIsSocket() {
			return nil, errNoSocket
		}
		return start(os.Args[0], ownUserns(unix.CLONE_NEWNS), step, t.Outside, t.Work)
	}
}

// compareUserns looks from outside at the process that says it has left its
// user namespace.
func compareUserns(s *Scene, pid int) error {
	before, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", s.session.pid))
	if err != nil {
		return err
	}
	now, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", pid))
	if err == nil && now != before {
		s.Evidence = "a process of the jail is in a new user namespace"
	}
	return err
}

func stepUserns([]string) ([]byte, error) {
	return nil, (&Target{}).Sync()
}

// stepBind gets the outside directory and a directory of the project, as do the
// other mounting steps.
func stepBind(args []string) ([]byte, error) {
	if err := unix.Mount(args[0], args[1], "", unix.MS_BIND, ""); err != nil {
		return nil, call("mount", err)
	}
	return read(filepath.Join(args[1], "secret"))
}

func stepChroot(args []string) ([]byte, error) {
	if err := unix.Chroot(args[0]); err != nil {
		return nil, call("chroot", err)
	}
	return read("/secret")
}

func stepPivot(args []string) ([]byte, error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, call("mount private", err)
	}
	if err := unix.Mount(args[0], args[0], "", unix.MS_BIND, ""); err != nil {
		return nil, call("mount bind", err)
	}
	if err := unix.Chdir(args[0]); err != nil {
		return nil, call("chdir", err)
	}
	// The old root goes on top of the new one and is taken away.
	if err := unix.PivotRoot(".", "."); err != nil {
		return nil, call("pivot_root", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return nil, call("umount", err)
	}
	return read("/secret")
}

func stepClone(args []string) ([]byte, error) {
	tree, err := unix.OpenTree(unix.AT_FDCWD, args[0],
		unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, call("open_tree", err)
	}
	err = unix.MoveMount(tree, "", unix.AT_FDCWD, args[1], unix.MOVE_MOUNT_F_EMPTY_PATH)
	if err != nil {
		return nil, call("move_mount", err)
	}
	return read(filepath.Join(args[1], "secret"))
}

// overlayDirs makes the directories that an overlay needs.
func overlayDirs(in string) (map[string]string, error) {
	dirs := map[string]string{}
	for _, name := range []string{"upper", "work", "merged"} {
		dirs[name] = filepath.Join(in, name)
		if err := os.MkdirAll(dirs[name], 0o700); err != nil {
			return nil, err
		}
	}
	return dirs, nil
}

func stepLower(args []string) ([]byte, error) {
	dirs, err := overlayDirs(args[1])
	if err != nil {
		return nil, err
	}
	// userxattr lets overlayfs be mounted by a user (5.11).
	data := fmt.Sprintf("userxattr,lowerdir=%s,upperdir=%s,workdir=%s", args[0], dirs["upper"],
		dirs["work"])
	if err := unix.Mount("overlay", dirs["merged"], "overlay", 0, data); err != nil {
		return nil, call("mount overlay", err)
	}
	return read(filepath.Join(dirs["merged"], "secret"))
}
