package adversary

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A Definition is another sandbox and its settings for the same task as ours: an
// agent may read and write one directory, sees the system's programs, and reaches
// the model that drives it. The settings are those that the sandbox's own
// documentation recommends; where it recommends none, the tightest that it offers
// and an agent can live with.
type Definition struct {
	// Name is the sandbox's. "-offline" at its end: the same without any network.
	Name string
	// Argv starts it, as [Jail.Argv]. Besides {} for the project directory, {home},
	// {uid} and {gid} stand for what is the user's, {config} for a file with Config.
	Argv []string
	// Config is the text of its configuration file, if it needs one.
	Config string
	// Needs are programs without which it does not start, besides Argv[0].
	Needs []string
	// Version is the command that prints its version, in the first line.
	Version []string
	// Install is the command that installs it.
	Install string
	// Source says where the settings are recommended: document and section.
	Source string
	// Network says whom its command may talk to.
	Network string
	// Note is what a reader of its results should know.
	Note string
	// Root says that only root can start it.
	Root bool
	// NoRoot says why it cannot jail root; empty: it can.
	NoRoot string
	// Open says that it hides no file, and does not claim to.
	Open bool

	ready func() error // what else of the machine it needs; nil: nothing
}

// versionTimeout bounds a command that prints a version.
const versionTimeout = 20 * time.Second

// Definitions returns all definitions, no sandbox at all first.
func Definitions() []Definition { return append([]Definition(nil), definitions...) }

// A Found is a definition whose sandbox is on this machine.
type Found struct {
	Definition Definition
	Version    string // what the sandbox says of itself; empty for no sandbox
}

// Installed returns the definitions that this machine can start. [Definition.Find]
// says why the others cannot be.
func Installed(ctx context.Context) []Found {
	var found []Found
	for _, d := range definitions {
		if f, err := d.Find(ctx); err == nil {
			found = append(found, f)
		}
	}
	return found
}

// Find looks for the sandbox and asks for its version. The error says what is
// missing and what to do about it.
func (d Definition) Find(ctx context.Context) (Found, error) {
	for _, program := range append([]string{d.Argv[0]}, d.Needs...) {
		if _, err := exec.LookPath(program); err != nil {
			return Found{}, fmt.Errorf("find what %s needs: %w; install it: %s", d.Name, err,
				d.Install)
		}
	}
	if d.Root && os.Geteuid() != 0 {
		return Found{}, fmt.Errorf("start %s: only root can; run it with sudo", d.Name)
	}
	if d.ready != nil {
		if err := d.ready(); err != nil {
			return Found{}, fmt.Errorf("start %s: %w", d.Name, err)
		}
	}
	f := Found{Definition: d}
	if d.Version == nil {
		return f, nil
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, d.Version[0], d.Version[1:]...).CombinedOutput()
	f.Version, _, _ = strings.Cut(strings.TrimSpace(string(out)), "\n")
	if err != nil {
		return Found{}, fmt.Errorf("ask %s for its version: %w: %s; install it again: %s",
			d.Name, err, f.Version, d.Install)
	}
	return f, nil
}

// Jail makes the jail for a user. It writes the configuration file, as the user, and
// done removes it: call it after the run.
func (d Definition) Jail(u User) (j Jail, done func(), err error) {
	done = func() {}
	config := ""
	if d.Config != "" {
		if config, done, err = d.writeConfig(u); err != nil {
			return Jail{}, nil, fmt.Errorf("write the configuration of %s: %w", d.Name, err)
		}
	}
	fill := strings.NewReplacer("{home}", u.Home, "{uid}", strconv.Itoa(u.UID),
		"{gid}", strconv.Itoa(u.GID), "{config}", config)
	j = Jail{Name: d.Name, AsUser: !d.Root}
	for _, arg := range d.Argv {
		j.Argv = append(j.Argv, fill.Replace(arg))
	}
	return j, done, nil
}

// writeConfig writes the configuration to a file of the user's in a fresh directory.
func (d Definition) writeConfig(u User) (file string, remove func(), err error) {
	var dir string
	err = u.do(func() error {
		var err error
		if dir, err = os.MkdirTemp("", "agent-lock-adversary-"); err != nil {
			return err
		}
		file = filepath.Join(dir, d.Name)
		return os.WriteFile(file, []byte(d.Config), 0o600)
	})
	remove = func() {
		if dir != "" {
			_ = u.do(func() error { return os.RemoveAll(dir) })
		}
	}
	if err != nil {
		remove()
		return "", nil, err
	}
	return file, remove, nil
}

// definitions are in the order in which they are shown.
var definitions = []Definition{
	{
		Name:    "env",
		Argv:    []string{"env"},
		Install: "apt-get install coreutils",
		Source:  "none: env(1) is no sandbox",
		Network: "all",
		Note:    "no sandbox at all: what leaks here and not elsewhere is what a sandbox is for",
		Open:    true,
	},
	{
		Name: "unshare",
		Argv: []string{"unshare", "--user", "--map-current-user", "--mount", "--ipc", "--uts",
			"--cgroup", "--pid", "--fork", "--kill-child", "--mount-proc", "--"},
		Version: []string{"unshare", "--version"},
		Install: "apt-get install util-linux",
		Source:  "unshare(1), DESCRIPTION and EXAMPLES",
		Network: "all",
		Note: "namespaces and nothing else: it hides no file, and its manual page does not " +
			"say that it does",
		Open: true,
	},
	{
		Name:    "bwrap",
		Argv:    bwrap("--share-net"),
		Version: []string{"bwrap", "--version"},
		Install: "apt-get install bubblewrap",
		Source:  bwrapSource,
		Network: "all",
		Note: "its network is all or none, and an agent needs one; has no policy of its own, " +
			"so all depends on the options",
		ready: limitsUserNamespaces,
	},
	{
		Name:    "bwrap-offline",
		Argv:    bwrap(),
		Version: []string{"bwrap", "--version"},
		Install: "apt-get install bubblewrap",
		Source:  bwrapSource,
		Network: "none",
		Note:    "an agent whose model is elsewhere does not run in it",
		ready:   limitsUserNamespaces,
	},
	{
		Name:    "firejail",
		Argv:    firejail(),
		Version: []string{"firejail", "--version"},
		NoRoot:  firejailNoRoot,
		Install: "apt-get install firejail",
		Source:  firejailSource,
		Network: "all",
		Note:    "setuid root; needs an entry in /etc/passwd for the user",
	},
	{
		Name:    "firejail-offline",
		Argv:    firejail("--net=none"),
		Version: []string{"firejail", "--version"},
		NoRoot:  firejailNoRoot,
		Install: "apt-get install firejail",
		Source:  firejailSource + "; --net=none",
		Network: "none",
		Note:    "an agent whose model is elsewhere does not run in it",
	},
	{
		// Not tried yet: written from its README and its source of 0.1.16. Landlock follows
		// links, so that /usr covers /bin and /lib where these are links.
		Name: "landrun",
		Argv: []string{"landrun", "--best-effort", "--rox", "/usr", "--ro", "/etc", "--rw",
			"/dev/null", "--rwx", "{}", "--connect-tcp", "443", "--env", "HOME", "--env", "PATH",
			"--"},
		Version: []string{"landrun", "--version"},
		Install: "go install github.com/zouuup/landrun/cmd/landrun@latest",
		Source:  "README.md, Important Notes and Examples 8 and 12",
		Network: "TCP to port 443 anywhere",
		Note:    "what it can refuse depends on the kernel's version of Landlock",
	},
	{
		Name:    "srt",
		Argv:    []string{"srt", "--settings", "{config}"},
		Config:  srtSettings,
		Needs:   []string{"bwrap", "socat", "rg"},
		Version: []string{"srt", "--version"},
		Install: "npm install -g @anthropic-ai/sandbox-runtime, and " +
			"apt-get install bubblewrap socat ripgrep",
		Source: "README.md, Common Configuration Recipes, Workspace-only filesystem access; " +
			"Network Configuration, allowedDomains",
		Network: "named hosts, through a proxy",
		Note: "passes the environment on, except variables named under credentials; protects " +
			"hooks and editor settings that exist when it starts, while our cases make them later",
	},
	{
		Name:    "systemd-run",
		Argv:    systemdRun(),
		Version: []string{"systemd-run", "--version"},
		Install: "apt-get install systemd",
		Source: "systemd.exec(5), SANDBOXING, ProtectHome= with tmpfs and BindPaths=, and the " +
			"settings that are recommended there; systemd-run(1), --pipe and --wait",
		Network: "all",
		Note: "a service of the machine's service manager, so root has to start it; shares the " +
			"processes of the machine (PrivatePIDs= is in systemd 257 and later)",
		Root:  true,
		ready: booted,
	},
}

const bwrapSource = "bwrap(1), --new-session, --disable-userns and --clearenv; README.md, " +
	"Usage, Sandboxing and Limitations; demos/bubblewrap-shell.sh"

// bwrap returns bubblewrap's arguments: the demo's view of the system, its own
// warnings heeded, the namespaces that the README lists.
func bwrap(network ...string) []string {
	argv := append([]string{"bwrap", "--unshare-all", "--unshare-user"}, network...)
	argv = append(argv, "--disable-userns", "--new-session", "--die-with-parent", "--clearenv",
		"--setenv", "HOME", "{home}", "--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin",
		"--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/sbin",
		"/sbin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64")
	for _, path := range []string{"resolv.conf", "hosts", "nsswitch.conf", "passwd", "group",
		"ssl", "alternatives", "ld.so.cache"} {
		argv = append(argv, "--ro-bind-try", "/etc/"+path, "/etc/"+path)
	}
	return append(argv, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--bind", "{}",
		"{}", "--chdir", "{}", "--")
}

const firejailNoRoot = "it does not show a project in root's home directory"

const firejailSource = "firejail(1), --whitelist; /etc/firejail/default.profile, which it adds, " +
	"and the lines that stand there, and in profile.template, to be enabled"

// firejail returns firejail's arguments. It adds its default profile: no capabilities,
// a filter of system calls, no new privileges and no new namespaces.
func firejail(network ...string) []string {
	argv := append([]string{"firejail", "--quiet"}, network...)
	return append(argv, "--whitelist={}", "--private-dev", "--private-tmp", "--private-cache",
		"--disable-mnt", "--dbus-user=none", "--dbus-system=none", "--ipc-namespace",
		"--machine-id", "--nogroups", "--")
}

// srtSettings is the recipe with a host for the agent's model. The recipe names /home;
// a home directory may be elsewhere. Relative paths are below the project.
const srtSettings = `{
  "network": {
    "allowedDomains": ["api.anthropic.com"],
    "deniedDomains": []
  },
  "filesystem": {
    "denyRead": ["/home", "~"],
    "allowRead": ["."],
    "allowWrite": ["."],
    "denyWrite": []
  }
}
`

// systemdRun returns the arguments that run a command as a service of the user's, with
// its standard streams.
func systemdRun() []string {
	argv := []string{"systemd-run", "--quiet", "--pipe", "--wait", "--collect", "--same-dir",
		"--service-type=exec", "--uid={uid}", "--gid={gid}"}
	for _, property := range []string{
		"ProtectSystem=strict", "ProtectHome=tmpfs", "BindPaths={}", "PrivateTmp=yes",
		"PrivateDevices=yes", "PrivateIPC=yes", "ProtectProc=invisible",
		"ProtectControlGroups=yes", "ProtectKernelTunables=yes", "ProtectKernelModules=yes",
		"ProtectKernelLogs=yes", "ProtectClock=yes", "ProtectHostname=yes",
		"NoNewPrivileges=yes", "CapabilityBoundingSet=", "RestrictNamespaces=yes",
		"RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6", "RestrictSUIDSGID=yes",
		"RestrictRealtime=yes", "LockPersonality=yes", "SystemCallArchitectures=native",
		"SystemCallFilter=@system-service", "SystemCallErrorNumber=EPERM",
		"KeyringMode=private",
	} {
		argv = append(argv, "--property="+property)
	}
	return append(argv, "--")
}

// limitsUserNamespaces looks whether bwrap can set the limit for --disable-userns. As
// an ordinary user it can, for a namespace of its own.
func limitsUserNamespaces() error {
	var fs unix.Statfs_t
	if err := unix.Statfs("/proc/sys/user", &fs); err != nil {
		return fmt.Errorf("limit user namespaces: look at /proc/sys/user: %w", err)
	}
	if fs.Flags&unix.ST_RDONLY != 0 {
		return errors.New("limit user namespaces: /proc/sys is mounted read-only, as in a " +
			"container; try it outside")
	}
	return nil
}

// booted looks whether systemd is the machine's service manager, as sd_booted(3) does.
func booted() error {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return errors.New("systemd is not this machine's service manager; boot one where it is")
	}
	return nil
}
