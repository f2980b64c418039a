package policy

import (
	"fmt"
	"path/filepath"
)

// Private directories are mounted fresh for each jail: what is in the host's is
// not there.
var Private = []string{"/tmp", "/var/tmp", "/dev/shm", "/run/user"}

// PassedEnv are the variables that a command may see, besides those that begin with
// LC_ and those that describe it (HOME, USER, PATH …). Everything else may be a
// secret, or tell a program to load something.
var PassedEnv = []string{
	"TERM", "COLORTERM", "LANG", "LANGUAGE", "TZ", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CI",
	"COLUMNS", "LINES", "DEBIAN_FRONTEND",
}

const (
	origin = "default"
	ro     = Read
	rx     = Read | Execute
	rwx    = Read | Write | Execute
)

// Default returns the policy of a jail for a project without any flags. home is
// the home directory of the user that the command runs as.
func Default(project, home string) *Policy {
	p := &Policy{Project: project, Hardlinks: HardlinksReadonly, Outside: OutsideHide,
		Names: DefaultNames(), Network: NetworkWeb}
	p.Rules = append(p.Rules, Rule{
		Path: project, Direct: true, Rights: rwx, Origin: "project", Mounts: true, Linked: true,
		Keep: true, Guarded: true,
	})
	for _, dir := range Private {
		p.add(rwx, dir)
	}
	p.system()
	p.devices()
	// What git needs to know its user. Nothing else of the home directory.
	// Not all of .config/git: it may hold stored passwords.
	git := len(p.Rules)
	for _, name := range []string{
		".gitconfig", ".config/git/config", ".config/git/ignore", ".config/git/attributes",
	} {
		p.keep(ro, filepath.Join(home, name))
	}
	// They may be links to elsewhere, where a jail may have made others.
	real, err := filepath.EvalSymlinks(home)
	if err != nil {
		real = home
	}
	for i := range p.Rules[git:] {
		p.Rules[git+i].Links = []string{real, filepath.Join(real, ".config")}
	}
	return p
}

// keep adds rules that hold when the files are replaced, as editors do.
func (p *Policy) keep(rights Rights, paths ...string) {
	before := len(p.Rules)
	p.add(rights, paths...)
	for i := before; i < len(p.Rules); i++ {
		p.Rules[i].Keep = true
	}
}

// system opens programs and their configuration, and hides the secrets that
// lie among it.
func (p *Policy) system() {
	first := len(p.Rules)
	for _, dir := range []string{
		"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store",
		"/gnu/store", "/snap",
	} {
		p.Rules = append(p.Rules, Rule{
			Path: dir, Rights: rx, Origin: origin, Optional: true, Mounts: true,
		})
	}
	p.add(ro, "/etc", "/sys", "/sys/fs/cgroup", "/run/systemd/resolve", "/run/resolvconf",
		"/var/lib/ca-certificates", "/var/cache/fontconfig", "/var/lib/dpkg/status")
	p.add(rx, "/etc/alternatives")
	p.keep(0, "/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers",
		"/etc/sudoers.d", "/etc/security/opasswd", "/etc/ssl/private", "/etc/ssh",
		"/etc/wireguard", "/etc/openvpn", "/etc/NetworkManager/system-connections",
		"/etc/wpa_supplicant", "/etc/kubernetes", "/etc/rancher", "/etc/docker", "/etc/letsencrypt",
		"/etc/krb5.keytab", "/etc/ppp", "/etc/ipsec.secrets")
	p.add(0, "/sys/kernel/debug", "/sys/kernel/tracing", "/sys/kernel/security", "/sys/fs/bpf")
	p.add(ro, "/etc/ssh/ssh_config", "/etc/ssh/ssh_config.d", "/etc/ssh/ssh_known_hosts")
	p.add(ro|Write, "/proc")
	p.add(ro, "/proc/sys")
	p.add(0, "/proc/kcore", "/proc/kmsg", "/proc/sysrq-trigger", "/proc/kallsyms",
		"/proc/keys", "/proc/key-users")
	for i := range p.Rules[first:] {
		p.Rules[first+i].Public = true
	}
}

// devices opens the harmless device nodes, one by one.
func (p *Policy) devices() {
	p.add(ro|Write, "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom",
		"/dev/tty", "/dev/ptmx", "/dev/pts")
	p.add(ro, "/dev/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr")
}

func (p *Policy) add(rights Rights, paths ...string) {
	for _, path := range paths {
		p.Rules = append(p.Rules, Rule{Path: path, Rights: rights, Origin: origin, Optional: true})
	}
}

// Allow adds a rule of the user's: a flag that gives rights on a path, or with a *
// at its end on all names in its directory that begin so. home is the home directory
// of the user that the command runs as.
func (p *Policy) Allow(path string, rights Rights, flag, home string) error {
	plain, prefix, err := cutPrefix(path)
	if err != nil {
		return fmt.Errorf("%s %s: %w", flag, path, err)
	}
	abs, err := Physical(plain)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	if rights&Write != 0 && !prefix {
		if err := checkWritable(flag, abs, home); err != nil {
			return err
		}
	}
	if rights != 0 && abs == "/" {
		return fmt.Errorf("%s /: nothing would be hidden from the jail; name what it needs", flag)
	}
	p.Rules = append(p.Rules, Rule{
		Path: abs, Direct: true, Rights: rights, Origin: flag, Mounts: true,
		Linked: rights&Write != 0,
		Prefix: prefix, Keep: true, New: rights&Write != 0,
	})
	return nil
}
