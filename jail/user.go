package jail

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/agent-lock/agent-lock/policy"
)

// User is whom the command runs as.
type User struct {
	Name     string
	UID, GID int
	Groups   []int // supplementary
	Home     string
	Shell    string
	Capable  bool // root keeps its capabilities
}

// InvokingUser is the user who called sudo, by SUDO_UID and SUDO_GID, or root
// itself when nobody did. Of the user's groups only harmless ones are kept.
func InvokingUser(getenv func(string) string) (User, error) {
	uid := getenv("SUDO_UID")
	if uid == "" {
		uid = strconv.Itoa(os.Getuid())
	}
	account, err := user.LookupId(uid)
	if err != nil {
		return User{}, fmt.Errorf("find the user who called: %w", err)
	}
	return userOf(account)
}

func userOf(account *user.User) (u User, err error) {
	u = User{Name: account.Username, Home: account.HomeDir, Shell: shellOf(account.Username)}
	if u.UID, err = strconv.Atoi(account.Uid); err != nil {
		return User{}, fmt.Errorf("find user %s: uid %q: %w", account.Username, account.Uid, err)
	}
	if u.GID, err = strconv.Atoi(account.Gid); err != nil {
		return User{}, fmt.Errorf("find user %s: gid %q: %w", account.Username, account.Gid, err)
	}
	u.Groups = harmlessGroups(account)
	return u, nil
}

// dangerousGroups give root, disks or other machines to their members.
var dangerousGroups = []string{
	"adm", "admin", "disk", "docker", "incus", "incus-admin", "kvm", "libvirt", "lxd", "microk8s",
	"nixbld", "podman", "root", "shadow", "sudo", "systemd-journal", "vboxusers", "wheel",
	"wireshark",
}

// firstUserGID is where Debian, Fedora and Arch start to number ordinary groups.
const firstUserGID = 1000

// harmlessGroups keeps ordinary groups, since a project may be shared through
// one. System groups stand for a power over the machine each.
func harmlessGroups(account *user.User) []int {
	ids, err := account.GroupIds()
	if err != nil {
		return nil
	}
	var keep []int
	for _, id := range ids {
		gid, err := strconv.Atoi(id)
		if err != nil || gid < firstUserGID {
			continue
		}
		g, err := user.LookupGroupId(id)
		if err != nil || slices.Contains(dangerousGroups, g.Name) {
			continue
		}
		keep = append(keep, gid)
	}
	return keep
}

// shellOf reads the user's shell, which os/user does not tell.
func shellOf(name string) string {
	const fallback = "/bin/sh"
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return fallback
	}
	for line := range strings.Lines(string(passwd)) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) == 7 && fields[0] == name && fields[6] != "" {
			return fields[6]
		}
	}
	return fallback
}

func (u User) runtimeDir() string { return filepath.Join("/run/user", strconv.Itoa(u.UID)) }

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment is what the command gets: an allow-list of what came in, its own
// user and directories, and what the policy adds.
func environment(from []string, u User, extra []string) []string {
	path := lookupEnv(from, "PATH")
	if path == "" {
		path = defaultPath
	}
	env := map[string]string{
		"HOME": u.Home, "USER": u.Name, "LOGNAME": u.Name, "SHELL": u.Shell, "PATH": path,
		"TMPDIR": "/tmp", "TMPPREFIX": "/tmp/zsh", "XDG_RUNTIME_DIR": u.runtimeDir(),
		"AGENT_LOCK": "1",
	}
	for _, e := range from {
		name, value, _ := strings.Cut(e, "=")
		if slices.Contains(policy.PassedEnv, name) || strings.HasPrefix(name, "LC_") {
			env[name] = value
		}
	}
	for _, e := range extra {
		name, value, given := strings.Cut(e, "=")
		if !given {
			value = lookupEnv(from, name)
		}
		env[name] = value
	}
	list := make([]string, 0, len(env))
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}
