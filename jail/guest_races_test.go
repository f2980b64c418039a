//go:build guest

package jail_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel gives a pid namespace's number out again at once: a jail that ends
// must not take the entry of one that has just started.
func TestJailsThatEndWhileOthersStart(t *testing.T) {
	outside := secret(t)
	var wg sync.WaitGroup
	for range 5 {
		dir := project(t)
		wg.Go(func() {
			for range 6 {
				cmd := jailed(dir, []string{"--denials", "off"}, "twice", outside)
				out, err := cmd.CombinedOutput()
				if err != nil || string(out) != "ENOENT\nENOENT\n" {
					t.Errorf("opening an outside file twice = %q, %v; want ENOENT both times",
						out, err)
				}
			}
		})
	}
	wg.Wait()
}

// Nothing of ours is refused anything on the way to the command.
func TestStartsAreSilent(t *testing.T) {
	dir := project(t)
	for range 10 {
		if _, stderr, status := run(t, jailed(dir, nil, "exit", "0")); stderr != "" || status != 0 {
			t.Fatalf("a start of nothing: status %d, stderr %q", status, stderr)
		}
	}
}

// A child that has ended and was not waited for is still the jail's own.
func TestSignalToZombie(t *testing.T) {
	out, stderr, _ := run(t, jailed(project(t), nil, "zombie"))
	if out != "<nil>\n" || stderr != "" {
		t.Errorf("kill of an unreaped child = %q, want <nil>; stderr: %s", out, stderr)
	}
}

// With the inside name removed, a descriptor still leads to the outside file.
func TestHardLinkAfterItsNameIsGone(t *testing.T) {
	for _, tt := range []struct{ mode, want string }{
		{"readonly", "EACCES EACCES EACCES"},
		{"deny", "EACCES EACCES EACCES"},
	} {
		for _, how := range []string{"unlink", "rename"} {
			t.Run(tt.mode+"_"+how, func(t *testing.T) {
				dir, outside := project(t), secret(t)
				link := filepath.Join(dir, "link")
				if err := os.Link(outside, link); err != nil {
					t.Fatal(err)
				}
				flags := []string{"--denials", "off", "--hardlinks", tt.mode}
				out, stderr, _ := run(t, jailed(dir, flags, "unnamed", how, link))
				if got := strings.TrimSpace(out); got != tt.want {
					t.Errorf("write, chmod, truncate = %q, want %q; stderr: %s",
						got, tt.want, stderr)
				}
				if data, err := os.ReadFile(outside); string(data) != "secret" {
					t.Errorf("the outside file holds %q, %v", data, err)
				}
			})
		}
	}
}

// Files that were made inside and have lost their name go on working.
func TestUnnamedFilesOfTheJail(t *testing.T) {
	dir := project(t)
	own := filepath.Join(dir, "own")
	write(t, own, []byte("x"), 0o644)
	out, stderr, _ := run(t, jailed(dir, nil, "unnamed", "unlink", own))
	if got := strings.TrimSpace(out); got != "ok ok ok" || stderr != "" {
		t.Errorf("write, chmod, truncate = %q, want ok; stderr: %s", got, stderr)
	}
}

// An ioctl changes nothing through a descriptor that was opened to read.
func TestIoctlOnReadableFile(t *testing.T) {
	dir, outside := project(t), secret(t)
	own := filepath.Join(dir, "own")
	write(t, own, []byte("x"), 0o644)
	flags := []string{"--denials", "off", "--ro", outside}
	for _, tt := range []struct{ path, want string }{
		{own, "get ok set ok"}, {outside, "get ok set EACCES"},
	} {
		out, stderr, _ := run(t, jailed(dir, flags, "flags", tt.path))
		if got := strings.TrimSpace(out); got != tt.want {
			t.Errorf("FS_IOC_SETFLAGS on %s: %q, want %q; stderr: %s",
				tt.path, got, tt.want, stderr)
		}
	}
}

func errnoName(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return unix.ErrnoName(errno)
	}
	if err != nil {
		return err.Error()
	}
	return "ok"
}

func init() {
	probes["twice"] = func(args []string) int {
		tryOpen(args[0], os.O_RDONLY)
		time.Sleep(150 * time.Millisecond)
		tryOpen(args[0], os.O_RDONLY)
		return 0
	}
	probes["zombie"] = func([]string) int {
		cmd := exec.Command("/proc/self/exe", "exit", "0")
		if err := cmd.Start(); err != nil {
			fmt.Println(err)
			return 1
		}
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if err == nil {
			err = unix.Kill(cmd.Process.Pid, 0)
		}
		fmt.Println(err)
		return 0
	}
	probes["unnamed"] = func(args []string) int {
		how, path := args[0], args[1]
		fd, err := unix.Open(path, unix.O_PATH, 0)
		if err == nil && how == "unlink" {
			err = unix.Unlink(path)
		} else if err == nil {
			os.WriteFile(path+"2", nil, 0o644)
			err = os.Rename(path+"2", path)
		}
		if err != nil {
			fmt.Println(err)
			return 1
		}
		self := fmt.Sprintf("/proc/self/fd/%d", fd)
		_, opened := os.OpenFile(self, os.O_RDWR, 0)
		fmt.Println(errnoName(opened), errnoName(unix.Chmod(self, 0o600)),
			errnoName(unix.Truncate(self, 0)))
		return 0
	}
	probes["flags"] = tryFlags
}

func tryFlags(args []string) int {
	f, err := os.Open(args[0])
	if err != nil {
		fmt.Println(err)
		return 1
	}
	var flags int
	_, _, get := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.FS_IOC_GETFLAGS,
		uintptr(unsafe.Pointer(&flags)))
	_, _, set := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.FS_IOC_SETFLAGS,
		uintptr(unsafe.Pointer(&flags)))
	name := func(errno unix.Errno) string {
		if errno != 0 {
			return unix.ErrnoName(errno)
		}
		return "ok"
	}
	fmt.Println("get", name(get), "set", name(set))
	return 0
}
