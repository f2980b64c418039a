package jail

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// NamedUser is the user that --user names, by name or number. Root keeps its
// capabilities, and the jail decides what they are good for.
func NamedUser(name string) (User, error) {
	account, err := user.Lookup(name)
	if _, numeric := strconv.Atoi(name); err != nil && numeric == nil {
		account, err = user.LookupId(name)
	}
	if err != nil {
		return User{}, fmt.Errorf("find the user to run as: %w", err)
	}
	u, err := userOf(account)
	u.Capable = u.UID == 0
	return u, err
}

// spared are root's capabilities that the hook "capable" lets pass (is_harmless in
// bpf/root.bpf.h has the reasons).
var spared = []uintptr{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_KILL, unix.CAP_SETGID,
	unix.CAP_SETUID, unix.CAP_SETPCAP, unix.CAP_NET_BIND_SERVICE, unix.CAP_IPC_LOCK,
	unix.CAP_IPC_OWNER, unix.CAP_SYS_PTRACE,
}

// keeps reports whether the user's command has a capability. Where a hook decides on them
// root has them all; without it the others are gone: they reach what no
// other layer keeps (CAP_PERFMON reads the memory of any process, seen on 7.3).
func (u User) keeps(capability uintptr, with setup) bool {
	switch {
	case !u.Capable:
		return false
	case with.Hooked:
		return true
	case capability == unix.CAP_SYS_PTRACE && !with.Layers.Landlock:
		return false // pid 1 shares the supervisor's memory
	}
	return slices.Contains(spared, capability)
}

// coverCgroups mounts the control groups anew where they are mounted: in the jail's
// cgroup namespace there are only those below its own. Root owns the others, a user
// those of its sessions, and clone3(2) enters one that it can name. What cannot be
// mounted anew is covered.
func coverCgroups(spaces uintptr) error {
	mountinfo, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return fmt.Errorf("read the jail's mounts: %w", err)
	}
	const nothing = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	for line := range strings.Lines(string(mountinfo)) {
		m, err := parseMount(line)
		if err != nil {
			return err
		}
		if _, kind, _ := strings.Cut(line, " - "); !strings.HasPrefix(kind, "cgroup2 ") {
			continue
		}
		err = unix.Mount("cgroup2", m.point, "cgroup2", nothing, "")
		if err != nil || spaces&unix.CLONE_NEWCGROUP == 0 {
			err = unix.Mount("tmpfs", m.point, "tmpfs", nothing|unix.MS_RDONLY, "mode=0755")
		}
		if errors.Is(err, unix.ENOENT) {
			continue // hidden by a later mount
		}
		if err != nil {
			return fmt.Errorf("cover %s: %w", m.point, err)
		}
	}
	return nil
}
