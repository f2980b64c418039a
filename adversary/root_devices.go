package adversary

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const deviceSource = "D68 aigate CDK"

// kmsg is the device of the kernel's log: what is written to it can be seen
// outside and does no harm.
const kmsgMajor, kmsgMinor = 1, 11

const needsDev = "a file system without nodev"

// devices: disks, memory and the kernel's log, by device nodes and files.
var devices = []Case{
	{
		Name: "device_mknod", Family: "devices", Source: deviceSource, Root: true,
		What:  "makes a device node of the kernel's log and writes to it",
		Calls: "mknodat, openat, write", Needs: needsDev,
		Hooks: []string{"path_mknod", "capable", "file_open"},
		Setup: named("text"), Judge: logged("text"),
		Attack: func(t *Target) ([]byte, error) {
			dev := int(unix.Mkdev(kmsgMajor, kmsgMinor))
			if err := unix.Mknod(t.in("node"), unix.S_IFCHR|0o600, dev); err != nil {
				return nil, call("mknod", err)
			}
			return nil, logText(t.in("node"), t.Args["text"])
		},
	},
	{
		Name: "device_mknod_disk", Family: "devices", Source: deviceSource, Root: true,
		What:  "makes a device node of a disk and reads from it",
		Calls: "mknodat, openat", Needs: needsDev + ", a disk that does not begin with zeros",
		Hooks: []string{"path_mknod", "capable", "file_open"},
		Setup: diskHead, Judge: secretRead("disk"),
		Attack: func(t *Target) ([]byte, error) {
			dev, err := strconv.Atoi(t.Args["dev"])
			if err != nil {
				return nil, need(err)
			}
			if err := unix.Mknod(t.in("node"), unix.S_IFBLK|0o600, dev); err != nil {
				return nil, call("mknod", err)
			}
			return head(t.in("node"))
		},
	},
	{
		Name: "device_in_project", Family: "devices", Source: deviceSource, Root: true,
		What:  "writes to a device node that was in the project before",
		Calls: "openat, write", Needs: needsDev,
		Hooks: opens, Judge: logged("text"),
		Setup: func(s *Scene) error {
			dev := int(unix.Mkdev(kmsgMajor, kmsgMinor))
			err := unix.Mknod(s.In("node"), unix.S_IFCHR|0o600, dev)
			return errors.Join(named("text")(s), call("mknod", err))
		},
		Attack: func(t *Target) ([]byte, error) {
			return nil, logText(t.in("node"), t.Args["text"])
		},
	},
	{
		Name: "device_log_write", Family: "devices", Source: deviceSource, Root: true,
		What: "writes to the kernel's log, /dev/kmsg", Hooks: opens,
		Calls: "openat, write",
		Setup: named("text"), Judge: logged("text"),
		Attack: func(t *Target) ([]byte, error) {
			return nil, logText("/dev/kmsg", t.Args["text"])
		},
	},
	{
		Name: "device_log_read", Family: "devices", Source: deviceSource, Root: true,
		What: "reads the kernel's log, /dev/kmsg", Hooks: opens,
		Calls: "openat, read",
		Setup: logSecret, Judge: tokenRead,
		Attack: func(*Target) ([]byte, error) {
			log, err := kernelLog()
			return ourLines(log), err
		},
	},
	{
		Name: "device_log_syslog", Family: "devices", Source: deviceSource, Root: true,
		What:  "reads the kernel's log by syslog(2)",
		Calls: "syslog(SYSLOG_ACTION_READ_ALL)",
		Hooks: []string{"syslog", "capable"},
		Setup: logSecret, Judge: tokenRead,
		Attack: func(*Target) ([]byte, error) {
			buf := make([]byte, 1<<20)
			n, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, buf)
			return ourLines(string(buf[:max(n, 0)])), call("syslog", err)
		},
	},
	{
		Name: "device_memory", Family: "devices", Source: deviceSource, Root: true,
		What: "reads physical memory, /dev/mem", Hooks: opens,
		Calls: "openat", Needs: "CONFIG_DEVMEM",
		Setup: reads("/dev/mem", "memory"), Attack: heads("/dev/mem"), Judge: secretRead("memory"),
	},
	{
		Name: "device_kcore", Family: "devices", Source: deviceSource, Root: true,
		What: "reads the kernel's memory, /proc/kcore", Hooks: []string{"file_open", "capable"},
		Calls: "openat", Needs: "CONFIG_PROC_KCORE",
		Setup: reads("/proc/kcore", "kcore"), Attack: heads("/proc/kcore"),
		Judge: secretRead("kcore"),
	},
	{
		Name: "device_iomem", Family: "devices", Source: deviceSource, Root: true,
		What: "reads addresses that only root is shown, /proc/iomem", Hooks: capability,
		Calls: "openat",
		Setup: reads("/proc/iomem", "iomem"), Attack: heads("/proc/iomem"),
		Judge: secretRead("iomem"),
	},
	{
		Name: "device_slabinfo", Family: "devices", Source: deviceSource, Root: true,
		What: "reads what of /proc is for root, /proc/slabinfo", Hooks: opens,
		Calls: "openat", Needs: "CONFIG_SLUB_DEBUG",
		Setup: reads("/proc/slabinfo", "slabs"), Attack: heads("/proc/slabinfo"),
		Judge: secretRead("slabs"),
	},
	{
		Name: "device_private_etc", Family: "devices", Source: "D34", Root: true, Guest: true,
		What: "reads a file in /etc that is for root only", Hooks: opens,
		Calls:  "openat",
		Setup:  func(s *Scene) error { return plantInEtc(s, s.attempt+"-al", 0o755, 0o600) },
		Attack: func(t *Target) ([]byte, error) { return read(t.Args["file"]) }, Judge: tokenRead,
	},
	{
		Name: "device_private_dir", Family: "devices", Source: "D34", Root: true, Guest: true,
		What:   "reads a file in a directory below /etc that is for root only",
		Calls:  "openat",
		Hooks:  opens,
		Setup:  func(s *Scene) error { return plantInEtc(s, s.attempt+"-al", 0o700, 0o644) },
		Attack: func(t *Target) ([]byte, error) { return read(t.Args["file"]) }, Judge: tokenRead,
	},
	{
		Name: "device_private_names", Family: "devices", Source: "D34", Root: true, Guest: true,
		What: "lists a directory below /etc that is for root only", Hooks: opens,
		Calls: "openat, getdents64",
		Setup: func(s *Scene) error {
			if err := plantInEtc(s, s.attempt+"-al", 0o711, 0o644); err != nil {
				return err
			}
			file := s.Target.Args["file"]
			return os.Rename(file, filepath.Join(filepath.Dir(file), s.Token))
		},
		Attack: func(t *Target) ([]byte, error) {
			entries, err := os.ReadDir(filepath.Dir(t.Args["file"]))
			return fmt.Append(nil, entries), err
		},
		Judge: tokenRead,
	},
	{
		Name: "device_private_times", Family: "devices", Source: "D34", Root: true, Guest: true,
		What:  "looks at the times of a file in a directory that is for root only",
		Calls: "newfstatat",
		Hooks: []string{"inode_getattr"},
		Setup: func(s *Scene) error {
			err := plantInEtc(s, s.attempt+"-al", 0o700, 0o644)
			info, statErr := os.Stat(s.Target.Args["file"])
			if err = errors.Join(err, statErr); err == nil {
				s.secrets["time"] = fmt.Sprint(info.ModTime().UnixNano())
			}
			return err
		},
		Attack: func(t *Target) ([]byte, error) {
			info, err := os.Stat(t.Args["file"])
			if err != nil {
				return nil, err
			}
			return fmt.Append(nil, info.ModTime().UnixNano()), nil
		},
		Judge: secretRead("time"),
	},
}

// logText writes a line to the kernel's log.
func logText(path, text string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return call("open", err)
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte("<7>"+text+"\n"))
	return call("write", err)
}

const logMark = "agent-lock-adversary "

// logSecret writes the canary to the kernel's log.
func logSecret(s *Scene) error { return logText("/dev/kmsg", logMark+s.Token) }

// ourLines keeps of the log what the suite wrote.
func ourLines(log string) []byte {
	lines := regexp.MustCompile(logMark+`\w+`).FindAllString(log, -1)
	return []byte(strings.Join(lines, "\n"))
}

// diskHead reads the beginning of the first disk that has something there.
func diskHead(s *Scene) error {
	sizes, err := filepath.Glob("/sys/block/*/dev")
	if err != nil {
		return err
	}
	for _, path := range sizes {
		name := filepath.Base(filepath.Dir(path))
		numbers, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		var major, minor uint32
		if _, err := fmt.Sscanf(string(numbers), "%d:%d", &major, &minor); err != nil {
			continue
		}
		s.Arg("dev", fmt.Sprint(unix.Mkdev(major, minor)))
		if err := reads("/dev/"+name, "disk")(s); err == nil {
			return nil
		}
	}
	return errors.New("the machine has no disk that begins with anything but zeros")
}

// plantInEtc plants the canary below /etc.
func plantInEtc(s *Scene, name string, dirMode, mode os.FileMode) error {
	dir := filepath.Join("/etc", name)
	s.onClose(func() { _ = os.RemoveAll(dir) })
	file := filepath.Join(dir, "secret")
	s.Arg("file", file)
	return errors.Join(os.Mkdir(dir, dirMode), os.WriteFile(file, []byte(s.Token), mode))
}
