package vmtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// The unprivileged user of the guest.
const (
	guestUser = "dev"
	guestUID  = 1000
	guestHome = "/home/" + guestUser
)

const guestPath = "/bin:/usr/bin:/sbin:/usr/sbin"

// guestDir is a folder of the guest's root file system. Modes are not masked.
type guestDir struct {
	path string
	mode os.FileMode
	uid  int
}

func (d guestDir) make(root string) error {
	path := filepath.Join(root, d.path)
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	return errors.Join(os.Chown(path, d.uid, d.uid), os.Chmod(path, d.mode))
}

var guestDirs = []guestDir{
	{path: "/bin", mode: 0o755},
	{path: "/dev", mode: 0o755},
	{path: "/etc", mode: 0o755},
	{path: "/home", mode: 0o755},
	{path: guestHome, mode: 0o700, uid: guestUID},
	{path: "/lib", mode: 0o755},
	{path: "/lib64", mode: 0o755},
	{path: "/mnt", mode: 0o755},
	{path: "/opt", mode: 0o755},
	{path: "/proc", mode: 0o755},
	{path: "/root", mode: 0o700},
	{path: "/run", mode: 0o755},
	{path: "/run/user", mode: 0o755},
	{path: "/run/user/1000", mode: 0o700, uid: guestUID},
	{path: "/sbin", mode: 0o755},
	{path: "/srv", mode: 0o755},
	{path: "/sys", mode: 0o755},
	{path: "/tmp", mode: 0o777 | os.ModeSticky},
	{path: "/usr", mode: 0o755},
	{path: "/usr/bin", mode: 0o755},
	{path: "/usr/lib", mode: 0o755},
	{path: "/usr/sbin", mode: 0o755},
	{path: "/var", mode: 0o755},
	{path: "/var/lib", mode: 0o755},
	{path: "/var/log", mode: 0o755},
	{path: "/var/tmp", mode: 0o777 | os.ModeSticky},
}

// guestMount is one mount of the guest. An optional one may be missing from the
// kernel's configuration.
type guestMount struct {
	target   string
	fstype   string
	flags    uintptr
	data     string
	optional bool
}

const secure = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

var guestMounts = []guestMount{
	{target: "/proc", fstype: "proc", flags: secure},
	{target: "/sys", fstype: "sysfs", flags: secure},
	{target: "/sys/kernel/security", fstype: "securityfs", flags: secure},
	{target: "/sys/fs/bpf", fstype: "bpf", flags: secure, data: "mode=0700"},
	{target: "/sys/fs/cgroup", fstype: "cgroup2", flags: secure},
	{target: "/sys/kernel/tracing", fstype: "tracefs", flags: secure, optional: true},
	{target: "/sys/kernel/debug", fstype: "debugfs", flags: secure, optional: true},
	{target: "/dev", fstype: "devtmpfs", flags: unix.MS_NOSUID, data: "mode=0755"},
	{target: "/dev/pts", fstype: "devpts", flags: unix.MS_NOSUID | unix.MS_NOEXEC,
		data: "gid=5,mode=0620,ptmxmode=0666"},
	{target: "/dev/shm", fstype: "tmpfs", flags: unix.MS_NOSUID | unix.MS_NODEV, data: "mode=1777"},
	{target: "/dev/mqueue", fstype: "mqueue", flags: secure, optional: true},
}

func mountAll(mounts []guestMount) error {
	for _, m := range mounts {
		// Fails for the mount points that a kernel file system has already.
		err := os.Mkdir(m.target, 0o755)
		if err != nil && !errors.Is(err, os.ErrExist) && !m.optional {
			return err
		}
		err = unix.Mount(m.fstype, m.target, m.fstype, m.flags, m.data)
		if err != nil && !m.optional {
			return fmt.Errorf("mount %s on %s: %w", m.fstype, m.target, err)
		}
	}
	return nil
}

// guestFiles are the files of /etc that programs look for.
var guestFiles = map[string]string{
	"/etc/passwd": "root:x:0:0:root:/root:/bin/sh\n" +
		guestUser + ":x:1000:1000:developer:" + guestHome + ":/bin/sh\n" +
		"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
	"/etc/group":         "root:x:0:\ntty:x:5:\n" + guestUser + ":x:1000:\nnogroup:x:65534:\n",
	"/etc/hosts":         "127.0.0.1 localhost guest\n::1 localhost\n",
	"/etc/hostname":      "guest\n",
	"/etc/resolv.conf":   "nameserver 127.0.0.1\n",
	"/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}

// guestSetUp finishes what is not a mount: files, host name, loopback, sysctls.
func guestSetUp() error {
	for path, text := range guestFiles {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, os.ErrExist) {
			continue // came with --file
		}
		if err != nil {
			return err
		}
		_, err = f.WriteString(text)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{
		"/dev/fd":     "/proc/self/fd",
		"/dev/stdin":  "/proc/self/fd/0",
		"/dev/stdout": "/proc/self/fd/1",
		"/dev/stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(target, name); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	if err := unix.Sethostname([]byte("guest")); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	if err := loopbackUp(); err != nil {
		return err
	}
	// Everybody may ping, so that the suite sees who may not.
	const ping = "/proc/sys/net/ipv4/ping_group_range"
	if err := os.WriteFile(ping, []byte("0 2147483647"), 0); err != nil {
		return fmt.Errorf("let everybody ping: %w", err)
	}
	// Every SysRq works, also where the distribution's mask forbids some.
	return writeSysctl("kernel.sysrq", 1)
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	// For services that are not on the loopback's own addresses: what other machines
	// would use (RFC 5737), and where clouds answer.
	for alias, address := range map[string][]byte{
		"lo:1": {192, 0, 2, 1}, "lo:2": {169, 254, 169, 254},
	} {
		if err := addAddress(fd, alias, address); err != nil {
			return err
		}
	}
	return nil
}

func addAddress(fd int, alias string, address []byte) error {
	for _, step := range []struct {
		ioctl uint
		value []byte
	}{{unix.SIOCSIFADDR, address}, {unix.SIOCSIFNETMASK, []byte{255, 255, 255, 255}}} {
		req, err := unix.NewIfreq(alias)
		if err != nil {
			return err
		}
		if err := req.SetInet4Addr(step.value); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(fd, step.ioctl, req); err != nil {
			return fmt.Errorf("give %s the address %d: %w", alias, address, err)
		}
	}
	return nil
}
