package adversary

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// What the attacks that only root can make have in common. Nothing is harmed by
// their controls: they open without writing, or write what they then restore; the
// rest is made in guests only.

// capability stops what no other hook sees.
var capability = []string{"capable"}

// holding is an attack that gets hold of a descriptor, or with -1 of something else,
// and keeps it while the runner looks.
func holding(get func(t *Target) (int, error)) func(*Target) ([]byte, error) {
	return func(t *Target) ([]byte, error) {
		if !controlIsSocket() {
			return nil, errNoSocket
		}
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		fd, err := get(t)
		if err != nil {
			return nil, err
		}
		defer unix.Close(fd)
		return nil, t.Sync()
	}
}

// opening is an attack that opens a path for writing and writes nothing.
func opening(path string) func(*Target) ([]byte, error) {
	return holding(func(*Target) (int, error) {
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		return fd, call("open", err)
	})
}

// onlyIf is a Setup that wants a path of the machine's.
func onlyIf(path string) func(*Scene) error {
	return func(*Scene) error {
		_, err := os.Stat(path)
		return err
	}
}

// writable sees that the attacker has a path open for writing.
func writable(path string) func(*Scene, int) error {
	return func(s *Scene, pid int) error {
		return eachOpen(pid, func(link, info string) {
			if link == path && strings.Contains(flagsOf(info), "1") {
				s.Evidence = path + " is open for writing"
			}
		})
	}
}

// flagsOf returns the access mode in /proc/PID/fdinfo: the last octal digit.
func flagsOf(info string) string {
	_, flags, _ := strings.Cut(info, "flags:\t")
	flags, _, _ = strings.Cut(flags, "\n")
	return flags[max(0, len(flags)-1):]
}

// has sees that the attacker has a descriptor whose link or description holds text.
func has(text string) func(*Scene, int) error {
	return func(s *Scene, pid int) error {
		return eachOpen(pid, func(link, info string) {
			if strings.Contains(link, text) || strings.Contains(info, text) {
				s.Evidence = "the attacker has a descriptor: " + text
			}
		})
	}
}

// eachOpen calls f with the link and the description of each open descriptor.
func eachOpen(pid int, f func(link, info string)) error {
	dir := fmt.Sprintf("/proc/%d/", pid)
	fds, err := filepath.Glob(dir + "fd/*")
	if err != nil || len(fds) == 0 {
		return errors.Join(fmt.Errorf("look at the descriptors of %d: none", pid), err)
	}
	for _, fd := range fds {
		link, err := os.Readlink(fd)
		info, infoErr := os.ReadFile(dir + "fdinfo/" + filepath.Base(fd))
		if err == nil && infoErr == nil {
			f(link, string(info))
		}
	}
	return nil
}

// fileHas is a judge: a file of the machine's holds the mark.
func fileHas(path string) Judge {
	return Judge{path + " holds what the attacker wrote", func(*Scene) string {
		data, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(data), strings.TrimSpace(mark)) {
			return path + " was written to"
		}
		return ""
	}}
}

// restoring is a Setup that keeps a file of the machine's and writes it back.
func restoring(path string) func(*Scene) error {
	return func(s *Scene) error {
		data, err := os.ReadFile(path)
		if err == nil {
			s.onClose(func() { _ = os.WriteFile(path, data, 0) })
		}
		return err
	}
}

// kernelLog returns what the kernel's log holds.
func kernelLog() (string, error) {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", call("open /dev/kmsg", err)
	}
	defer unix.Close(fd)
	var log strings.Builder
	for buf := make([]byte, 8192); ; {
		n, err := unix.Read(fd, buf)
		switch {
		case errors.Is(err, unix.EPIPE): // overwritten meanwhile: go on
		case err != nil || n == 0:
			return log.String(), nil
		default:
			log.Write(buf[:n])
		}
	}
}

// logged is a judge: the kernel's log holds what is in an argument.
func logged(arg string) Judge {
	return Judge{"the kernel's log holds the " + arg + " of this attempt", func(s *Scene) string {
		log, err := kernelLog()
		if err == nil && strings.Contains(log, s.Target.Args[arg]) {
			return "the kernel's log says " + s.Target.Args[arg]
		}
		return ""
	}}
}

// named is a Setup that tells the attacker a fresh name under an argument.
func named(arg string) func(*Scene) error {
	return func(s *Scene) error {
		s.Arg(arg, "al_"+canary()[:16])
		return nil
	}
}

// reads is a Setup that keeps the beginning of a file of the machine's for the
// judge secretRead(name): what the attacker sends out has to be the same.
func reads(path, name string) func(*Scene) error {
	return func(s *Scene) error {
		data, err := head(path)
		if err == nil && strings.Trim(string(data), "\x00") == "" {
			err = fmt.Errorf("%s begins with zeros, which prove nothing", path)
		}
		s.secrets[name] = string(data)
		return err
	}
}

// head reads the first bytes of a file.
func head(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data := make([]byte, 512)
	n, err := f.Read(data)
	return data[:n], err
}

func heads(path string) func(*Target) ([]byte, error) {
	return func(*Target) ([]byte, error) { return head(path) }
}
