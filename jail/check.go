package jail

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/agent-lock/agent-lock/policy"
	"golang.org/x/sys/unix"
)

// settle says why no jail can be built on this machine, with the remedy, or decides
// on its layers.
func settle(cfg Config) (Config, error) {
	if inside() {
		return cfg, fmt.Errorf("start a jail: this process is already in a jail, which holds " +
			"for all that it starts; run the command itself")
	}
	if os.Geteuid() != 0 {
		return cfg, fmt.Errorf("start a jail: only root can make its namespaces and load BPF " +
			"programs; run it with sudo")
	}
	if cfg.Layers == (Layers{}) {
		cfg.Layers = DefaultLayers
	}
	kernel, err := askKernel()
	if err != nil && cfg.Layers.BPF {
		return cfg, fmt.Errorf("%w%s", err, kernel.hint())
	}
	if cfg.Layers, err = cfg.Layers.settle(kernel); err != nil {
		return cfg, err
	}
	cfg.Attach.First = cfg.Layers.Landlock && kernel.landlockFirst()
	if cfg.Held != nil {
		cfg.Held(cfg.Layers.describe(kernel))
	}
	if cfg.Layers.View {
		if err := refusesInView(cfg.Policy); err != nil {
			return cfg, err
		}
	}
	if cfg.Layers.BPF {
		return cfg, nil
	}
	if err := refusesWithout(cfg.Policy); err != nil {
		return cfg, err
	}
	if cfg.Weaker != nil {
		cfg.Weaker(cfg.Layers.losses(kernel))
	}
	return cfg, nil
}

// inside reports whether this process is jailed, for the message alone: there is a
// jail's variable, and what every jail closes is closed.
func inside() bool {
	if os.Getenv("AGENT_LOCK") == "" {
		return false
	}
	fd, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err != nil
}

// checkLSMs wants bpf in the list that the kernel booted with.
func checkLSMs(lsms []string, cmdline string) error {
	if slices.Contains(lsms, "bpf") {
		return nil
	}
	if asksForBPF(cmdline) {
		return fmt.Errorf("start a jail: the kernel was asked for the BPF LSM (lsm=) and runs " +
			"without it: it was built without CONFIG_BPF_LSM; boot another one")
	}
	return fmt.Errorf("start a jail: the kernel runs without the BPF LSM; boot it with lsm=%s "+
		"(on Debian and Ubuntu: add that to GRUB_CMDLINE_LINUX in /etc/default/grub, run "+
		"update-grub, reboot)", strings.Join(append(withoutCapability(lsms), "bpf"), ","))
}

// asksForBPF reports whether the kernel's command line has bpf in its last lsm=,
// the one that counts.
func asksForBPF(cmdline string) bool {
	asks := false
	for _, word := range strings.Fields(cmdline) {
		if list, ok := strings.CutPrefix(word, "lsm="); ok {
			asks = slices.Contains(strings.Split(list, ","), "bpf")
		}
	}
	return asks
}

// activeLSMs reads the list that the kernel booted with.
func activeLSMs() ([]string, error) {
	const dir = "/sys/kernel/security"
	list, err := os.ReadFile(dir + "/lsm")
	if os.IsNotExist(err) {
		if unix.Mount("securityfs", dir, "securityfs", 0, "") == nil {
			list, err = os.ReadFile(dir + "/lsm")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("start a jail: read the active LSMs: %w (the kernel needs "+
			"CONFIG_SECURITYFS and CONFIG_BPF_LSM, and bpf in its lsm= list)", err)
	}
	return strings.Split(strings.TrimSpace(string(list)), ","), nil
}

// withoutCapability drops what the kernel adds by itself.
func withoutCapability(lsms []string) []string {
	return slices.DeleteFunc(slices.Clone(lsms), func(lsm string) bool {
		return lsm == "capability"
	})
}

// namespaceFlags are the namespaces of a jail but for that of pids. A kernel without
// IPC namespaces will do if it has nothing that they would separate.
func namespaceFlags(n policy.Network) (uintptr, error) {
	flags, err := networkFlags(n)
	if err != nil {
		return 0, err
	}
	flags |= unix.CLONE_NEWNS
	if exists("/proc/self/ns/uts") {
		flags |= unix.CLONE_NEWUTS
	}
	if exists("/proc/self/ns/cgroup") { // see coverCgroups
		flags |= unix.CLONE_NEWCGROUP
	}
	switch {
	case exists("/proc/self/ns/ipc"):
		flags |= unix.CLONE_NEWIPC
	case exists("/proc/sysvipc"), exists("/proc/sys/fs/mqueue"):
		return 0, fmt.Errorf("start a jail: the kernel has System V IPC or message queues but no " +
			"IPC namespaces to keep the jail from the host's; it needs CONFIG_IPC_NS")
	}
	return flags, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
