package jail

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Exit statuses of a command that could not be executed, as in a shell.
const (
	statusNotExecutable = 126
	statusNotFound      = 127
)

// Exec makes the jail's mounts, drops privileges, waits until the jail is armed and
// becomes the command.
// Everything is done in one thread, which is the one that execs: the kernel
// ends the others with it.
func Exec() int {
	runtime.LockOSThread()
	control := inherited()
	s, err := control.receive()
	if err == nil {
		err = furnish(s)
	}
	var second secondLayer
	if err == nil {
		fmt.Fprintln(control, "mounted")
		second, err = prepareSecond(s)
	}
	if err == nil {
		err = drop(s)
	}
	if err != nil {
		control.fail(err)
		return 1
	}
	fmt.Fprintln(control, "ready")
	if word, err := control.readLine(); err != nil || word != "armed" {
		return 1 // the supervisor is gone
	}
	if err := confine(s, second); err != nil {
		control.fail(err)
		return 1
	}
	return become(s)
}

// confine checks that the BPF layer holds, and then puts the other layers over this
// thread: they would refuse before it, and hide that it does not.
func confine(s setup, second secondLayer) error {
	if s.Layers.BPF {
		if err := inForce(); err != nil && !s.Mutant {
			return err
		}
	}
	// Made in the jail, so that it is the jail's own.
	if _, err := unix.KeyctlJoinSessionKeyring("agent-lock"); err != nil &&
		!errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("make a session keyring: %w", err)
	}
	if err := second.enforce(); err != nil {
		return err
	}
	if !s.Layers.BPF && !s.Mutant {
		return inForce()
	}
	return nil
}

// drop gives up everything that the command must not have.
func drop(s setup) error {
	if !s.User.Capable {
		if err := dropBounding(); err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	if err := setIDs(s.User); err != nil {
		return err
	}
	if err := os.Chdir(s.Dir); err != nil {
		return fmt.Errorf("enter %s as %s: %w", s.Dir, s.User.Name, err)
	}
	if !s.User.Capable {
		none := [2]unix.CapUserData{}
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		if err := unix.Capset(&header, &none[0]); err != nil {
			return fmt.Errorf("drop capabilities: %w", err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("drop ambient capabilities: %w", err)
	}
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close descriptors: %w", err)
	}
	return nil
}

// dropBounding leaves no capability that an exec could give.
func dropBounding() error {
	for capability := uintptr(0); ; capability++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			return nil // past the last that this kernel knows
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", capability, err)
		}
	}
}

// setIDs changes the ids of this thread alone: the raw system calls.
func setIDs(u User) error {
	groups := make([]uint32, len(u.Groups))
	for i, g := range u.Groups {
		groups[i] = uint32(g)
	}
	if err := setgroups(groups); err != nil {
		return fmt.Errorf("set groups: %w", err)
	}
	gid, uid := uintptr(u.GID), uintptr(u.UID)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid); errno != 0 {
		return fmt.Errorf("set group id %d: %w", gid, errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); errno != 0 {
		return fmt.Errorf("set user id %d: %w", uid, errno)
	}
	return nil
}

// execComm is the name of the thread that tries.
const execComm = "agent-lock"

// inForce tries what no policy allows: listing the root directory. A kernel that
// lets that pass does not run the programs that it said it attached.
func inForce() error {
	name := append([]byte(execComm), 0)
	if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0); err != nil {
		return fmt.Errorf("name the thread: %w", err)
	}
	fd, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
		return errors.New("the jail is armed but not in force: the root directory can be read; " +
			"is bpf or landlock among the LSMs? (agent-lock vmtest shows how it should behave)")
	}
	return nil
}

// become executes the command. It returns only when that is impossible.
func become(s setup) int {
	path, err := lookPath(s.Command[0], s.Env)
	if err == nil {
		err = syscall.Exec(path, s.Command, s.Env)
	}
	fmt.Fprintf(os.Stderr, "agent-lock: execute %s: %v\n", s.Command[0], err)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
		return statusNotFound
	}
	return statusNotExecutable
}

// lookPath finds a command in the jail's PATH.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	var refused error
	for _, dir := range filepath.SplitList(lookupEnv(env, "PATH")) {
		path := filepath.Join(dir, name)
		switch err := unix.Access(path, unix.X_OK); {
		case err == nil:
			if info, err := os.Stat(path); err == nil && !info.IsDir() {
				return path, nil
			}
		case errors.Is(err, unix.EACCES):
			refused = fmt.Errorf("%s: %w", path, err)
		}
	}
	if refused != nil {
		return "", refused
	}
	return "", exec.ErrNotFound
}

func lookupEnv(env []string, name string) string {
	for _, e := range env {
		if value, ok := strings.CutPrefix(e, name+"="); ok {
			return value
		}
	}
	return ""
}
