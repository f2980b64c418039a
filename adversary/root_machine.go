package adversary

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	machineSource = "D47"
	cgroupSource  = "D45"
	needsCgroup   = "control groups of version 2 on /sys/fs/cgroup"
)

// machine: the host's name, clock, accounting, control groups and network.
var machine = []Case{
	{
		Name: "machine_hostname", Family: "machine", Source: machineSource, Root: true, Guest: true,
		What: "changes the machine's name", Hooks: []string{"capable", "uts_namespace"},
		Calls: "sethostname",
		Setup: func(s *Scene) error {
			name, err := os.Hostname()
			s.onClose(func() { _ = unix.Sethostname([]byte(name)) })
			return err
		},
		Attack: func(*Target) ([]byte, error) {
			return nil, call("sethostname", unix.Sethostname([]byte("attacked")))
		},
		Judge: Judge{"the machine is called attacked", func(*Scene) string {
			if name, err := os.Hostname(); err != nil || name != "attacked" {
				return ""
			}
			return "the machine is called attacked"
		}},
	},
	{
		Name: "machine_clock", Family: "machine", Source: machineSource, Root: true, Guest: true,
		What: "sets the clock an hour ahead", Hooks: []string{"settime", "capable"},
		Calls: "clock_settime",
		Setup: func(s *Scene) error {
			before := clockLead()
			s.secrets["lead"] = before.String()
			s.onClose(func() {
				if clockLead()-before > time.Minute {
					_ = setClock(-time.Hour)
				}
			})
			return nil
		},
		Attack: func(*Target) ([]byte, error) {
			return nil, call("clock_settime", setClock(time.Hour))
		},
		Judge: Judge{"the clock is a minute or more ahead of what it was", func(s *Scene) string {
			before, err := time.ParseDuration(s.secrets["lead"])
			if err != nil || clockLead()-before < time.Minute {
				return ""
			}
			return "the clock was set ahead"
		}},
	},
	{
		Name: "machine_adjtime", Family: "machine", Source: machineSource, Root: true,
		What: "changes the estimated error of the clock (adjtimex)", Hooks: capability,
		Calls: "adjtimex",
		Attack: func(*Target) ([]byte, error) {
			_, err := unix.Adjtimex(&unix.Timex{Modes: unix.ADJ_ESTERROR, Esterror: clockError})
			return nil, call("adjtimex", err)
		},
		Setup: func(s *Scene) error {
			var now unix.Timex
			_, err := unix.Adjtimex(&now)
			s.onClose(func() {
				_, _ = unix.Adjtimex(&unix.Timex{Modes: unix.ADJ_ESTERROR, Esterror: now.Esterror})
			})
			return err
		},
		Judge: Judge{"the clock has the error that the attacker set", func(*Scene) string {
			var now unix.Timex
			if _, err := unix.Adjtimex(&now); err != nil || now.Esterror != clockError {
				return ""
			}
			return "the clock's estimated error was changed"
		}},
	},
	{
		Name: "machine_acct", Fresh: true, Family: "machine", Source: machineSource, Root: true,
		Guest: true, What: "has ended processes written down in a file of its own (acct)",
		Calls: "acct", Needs: "CONFIG_BSD_PROCESS_ACCT",
		Hooks: capability,
		Setup: func(s *Scene) error {
			s.onClose(func() { _ = unix.Acct("") })
			return os.WriteFile(s.In("acct"), nil, 0o600)
		},
		Attack: func(t *Target) ([]byte, error) {
			return nil, call("acct", unix.Acct(t.in("acct")))
		},
		Judge: Judge{"the accounting file in the project holds a record", func(s *Scene) string {
			if info, err := os.Stat(s.In("acct")); err != nil || info.Size() == 0 {
				return ""
			}
			return "a process was written down"
		}},
	},
	{
		Name: "machine_swap", Family: "machine", Source: machineSource, Root: true,
		What: "has the machine swap to a file in the project", Hooks: capability,
		Calls: "swapon", Needs: "CONFIG_SWAP, a file system that can hold a swap file",
		Attack: attackSwap,
		Judge: Judge{"/proc/swaps lists the file in the project", func(s *Scene) string {
			swaps, err := os.ReadFile("/proc/swaps")
			if err != nil || !strings.Contains(string(swaps), s.In("swap")) {
				return ""
			}
			_, _, _ = unix.Syscall(unix.SYS_SWAPOFF, cstring(s.In("swap")), 0, 0)
			return "the machine swaps to a file in the project"
		}},
	},
	{
		Name: "machine_reboot", Family: "machine", Source: machineSource, Root: true, Guest: true,
		What:  "lets Ctrl-Alt-Del restart the machine at once (reboot)",
		Calls: "reboot(LINUX_REBOOT_CMD_CAD_ON)",
		Hooks: []string{"capable", "pid_namespace"},
		Setup: func(s *Scene) error {
			if err := restoring(ctrlAltDel)(s); err != nil {
				return err
			}
			return os.WriteFile(ctrlAltDel, []byte("0"), 0)
		},
		Attack: func(*Target) ([]byte, error) {
			return nil, call("reboot", unix.Reboot(unix.LINUX_REBOOT_CMD_CAD_ON))
		},
		Judge: Judge{"/proc/sys/kernel/ctrl-alt-del says 1", func(*Scene) string {
			if data, err := os.ReadFile(ctrlAltDel); err != nil || data[0] != '1' {
				return ""
			}
			return "Ctrl-Alt-Del restarts the machine"
		}},
	},
	{
		Name: "machine_address", Family: "machine", Source: "D63", Root: true,
		What:  "gives the machine another address, by rtnetlink",
		Calls: "socket(AF_NETLINK), sendto",
		Hooks: []string{"netlink_send", "capable"},
		Setup: func(s *Scene) error {
			if hasAddress(addedAddress) {
				return errors.New("the machine has the address already")
			}
			s.onClose(func() { _ = changeAddress(unix.RTM_DELADDR, addedAddress) })
			return nil
		},
		Attack: func(*Target) ([]byte, error) {
			return nil, call("RTM_NEWADDR", changeAddress(unix.RTM_NEWADDR, addedAddress))
		},
		Judge: Judge{"the loopback interface has the address", func(*Scene) string {
			if !hasAddress(addedAddress) {
				return ""
			}
			return "the machine has another address"
		}},
	},
	{
		Name: "machine_packets", Family: "machine", Source: "D63 CVE-2020-14386", Root: true,
		What: "listens to all packets", Hooks: []string{"capable", "socket_create"},
		Calls: "socket(AF_PACKET)", Needs: "CONFIG_PACKET",
		Attack: holding(func(*Target) (int, error) {
			fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
			return fd, call("socket", err)
		}),
		Meanwhile: seesPacketSocket,
		Judge:     seen("a descriptor of the attacker's is a packet socket"),
	},
	{
		Name: "machine_cgroup_write", Family: "machine", Source: cgroupSource, Root: true,
		What:  "writes itself into another control group",
		Calls: "openat, write", Needs: needsCgroup,
		Hooks: []string{"file_open", "cgroup_namespace"}, Setup: makeCgroup, Judge: inCgroup,
		Attack: func(t *Target) ([]byte, error) {
			return inChild(t, nil, filepath.Join(t.Args["cgroup"], "cgroup.procs"))
		},
		Meanwhile: isInCgroup,
	},
	{
		Name: "machine_cgroup_clone", Family: "machine", Source: cgroupSource, Root: true,
		What:  "starts a process in another control group (clone3)",
		Calls: "openat(O_PATH), clone3(CLONE_INTO_CGROUP)", Needs: needsCgroup,
		Hooks: []string{"cgroup_namespace"}, Setup: makeCgroup, Judge: inCgroup,
		Attack: func(t *Target) ([]byte, error) {
			fd, err := openPath(t.Args["cgroup"])
			if err != nil {
				return nil, err
			}
			defer unix.Close(fd)
			return inChild(t, &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}, "")
		},
		Meanwhile: isInCgroup,
	},
	{
		Name: "machine_cgroup_handle", Family: "machine", Source: cgroupSource + " D21", Root: true,
		What:  "starts a process in a control group that it opens by handle",
		Calls: "open_by_handle_at, clone3(CLONE_INTO_CGROUP)", Needs: needsCgroup,
		Hooks: capability, Setup: makeCgroup, Judge: inCgroup, Meanwhile: isInCgroup,
		Attack: func(t *Target) ([]byte, error) {
			fd, err := openCgroupByHandle(t)
			if err != nil {
				return nil, err
			}
			defer unix.Close(fd)
			return inChild(t, &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}, "")
		},
	},
}

const (
	ctrlAltDel = "/proc/sys/kernel/ctrl-alt-del"
	clockError = 12345678 // microseconds: no clock is that bad
)

// clockLead is how far the wall clock is ahead of the time since boot.
func clockLead() time.Duration {
	var wall, boot unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_REALTIME, &wall)
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot)
	return time.Duration(wall.Nano() - boot.Nano())
}

func setClock(by time.Duration) error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &now); err != nil {
		return err
	}
	then := unix.NsecToTimespec(now.Nano() + by.Nanoseconds())
	return unix.ClockSettime(unix.CLOCK_REALTIME, &then)
}

// attackSwap makes a swap file of ten pages and turns it on.
func attackSwap(t *Target) ([]byte, error) {
	page := os.Getpagesize()
	data := make([]byte, 10*page)
	data[1024] = 1 // union swap_header: version
	data[1028] = 9 // last page
	copy(data[page-10:], "SWAPSPACE2")
	if err := os.WriteFile(t.in("swap"), data, 0o600); err != nil {
		return nil, need(err)
	}
	_, _, errno := unix.Syscall(unix.SYS_SWAPON, cstring(t.in("swap")), 0, 0)
	if errno != 0 {
		return nil, call("swapon", errno)
	}
	return nil, nil
}

// seesPacketSocket finds a socket of the attacker's among the packet sockets.
func seesPacketSocket(s *Scene, pid int) error {
	list, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/packet", pid))
	if err != nil {
		return err
	}
	inodes := map[string]bool{} // the last column
	for line := range strings.Lines(string(list)) {
		if fields := strings.Fields(line); len(fields) > 0 {
			inodes["socket:["+fields[len(fields)-1]+"]"] = true
		}
	}
	return eachOpen(pid, func(link, _ string) {
		if inodes[link] {
			s.Evidence = "the attacker has a packet socket"
		}
	})
}

const cgroupRoot = "/sys/fs/cgroup"

// makeCgroup makes an empty control group, and tells the attacker its path and handle.
func makeCgroup(s *Scene) error {
	if _, err := os.Stat(cgroupRoot + "/cgroup.procs"); err != nil {
		return errors.New("control groups of version 2 are not mounted on " + cgroupRoot)
	}
	dir := filepath.Join(cgroupRoot, "al"+canary()[:16])
	s.onClose(func() {
		for range 50 { // until what was in it has ended
			if os.Remove(dir) == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	s.Arg("cgroup", dir)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, dir, 0)
	if err != nil {
		return call("name_to_handle_at", err)
	}
	s.Arg("handle", fmt.Sprintf("%d %x", handle.Type(), handle.Bytes()))
	return nil
}

var inCgroup = seen("a process of the attacker's is in a control group outside")

// isInCgroup looks in which control group the process is that asked for it.
func isInCgroup(s *Scene, pid int) error {
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err == nil && strings.Contains(string(groups), filepath.Base(s.Target.Args["cgroup"])) {
		s.Evidence = "a process of the jail is in a control group outside"
	}
	return err
}

// inChild starts a step that writes its number to a file, if any, and then waits for
// the runner to look.
func inChild(t *Target, attr *syscall.SysProcAttr, procs string) ([]byte, error) {
	if !controlIsSocket() {
		return nil, errNoSocket
	}
	return start(os.Args[0], attr, "cgroup", procs)
}

func stepCgroup(args []string) ([]byte, error) {
	if args[0] != "" {
		if err := os.WriteFile(args[0], []byte("0"), 0); err != nil {
			return nil, err
		}
	}
	return nil, (&Target{}).Sync()
}

func openCgroupByHandle(t *Target) (int, error) {
	var kind int32
	var handle []byte
	if _, err := fmt.Sscanf(t.Args["handle"], "%d %x", &kind, &handle); err != nil {
		return -1, need(err)
	}
	mount, err := unix.Open(cgroupRoot, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, call("open", err)
	}
	defer unix.Close(mount)
	fd, err := unix.OpenByHandleAt(mount, unix.NewFileHandle(kind, handle),
		unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC)
	return fd, call("open_by_handle_at", err)
}
