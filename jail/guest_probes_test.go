//go:build guest

package jail_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// probes run in the jail.
var probes = map[string]func(args []string) int{
	"exit":    func(args []string) int { n, _ := strconv.Atoi(args[0]); return n },
	"die":     func([]string) int { unix.Kill(os.Getpid(), unix.SIGKILL); return 0 },
	"posture": printPosture,
	"open":    func(args []string) int { return tryOpen(args[0], os.O_RDONLY) },
	"write":   func(args []string) int { return tryOpen(args[0], os.O_WRONLY) },
	"create":  func(args []string) int { return tryOpen(args[0], os.O_WRONLY|os.O_CREATE) },
	"access":  func(args []string) int { return answer(unix.Access(args[0], unix.F_OK)) },
	"chmod":   func(args []string) int { return answer(unix.Chmod(args[0], 0o666)) },
	"list":    listDir,
	"sleep":   func([]string) int { fmt.Println("up"); time.Sleep(time.Hour); return 0 },
	"forks":   forkAndTry,
	"attempt": attempt,
	"term":    waitForTerm,
}

func init() { probes["several"] = several } // which would else refer to itself

// several runs probes of one argument, given in pairs.
func several(args []string) int {
	for ; len(args) > 1; args = args[2:] {
		probes[args[0]](args[1:2])
	}
	return 0
}

func tryOpen(path string, flags int) int {
	f, err := os.OpenFile(path, flags, 0o644)
	if err == nil {
		f.Close()
	}
	return answer(err)
}

func answer(err error) int {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		fmt.Println(unix.ErrnoName(errno))
		return 1
	}
	fmt.Println("ok")
	return 0
}

func listDir(args []string) int {
	entries, err := os.ReadDir(args[0])
	if err != nil {
		fmt.Println(err)
		return 1
	}
	for _, e := range entries {
		fmt.Println(e.Name())
	}
	return 0
}

// forkAndTry keeps children that try to read a file, for ever. What they get
// they write to DIR/leak.
func forkAndTry(args []string) int {
	for range 4 {
		cmd := exec.Command("/proc/self/exe", "attempt", args[0], args[1])
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	fmt.Println("up")
	time.Sleep(time.Hour)
	return 0
}

func attempt(args []string) int {
	for {
		if data, err := os.ReadFile(args[0]); err == nil {
			os.WriteFile(args[1], data, 0o644)
		}
	}
}

func waitForTerm([]string) int {
	c := notify(unix.SIGTERM)
	fmt.Println("up")
	<-c
	return 42
}

func notify(sig os.Signal) <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, sig)
	return c
}

// posture is what a process can tell about its own confinement.
type posture struct {
	UID, GID   int
	Groups     []int
	Caps       map[string]string
	NoNewPrivs string
	Seccomp    string // mode: 2 is a filter
	Landlock   int    // rulesets in force
	Fds        []string
	Env        []string
	Dir        string
	Parent     int
	Host       string
	Session    string // the session keyring's name
}

func printPosture([]string) int {
	json.NewEncoder(os.Stdout).Encode(readPosture())
	return 0
}

func readPosture() posture {
	p := posture{UID: os.Getuid(), GID: os.Getgid(), Caps: map[string]string{},
		Parent: os.Getppid()}
	p.Groups, _ = os.Getgroups()
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
		if strings.HasPrefix(key, "Cap") {
			p.Caps[key] = value
		}
		if key == "NoNewPrivs" {
			p.NoNewPrivs = value
		}
		if key == "Seccomp" {
			p.Seccomp = value
		}
	}
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		p.Env = append(p.Env, name)
	}
	slices.Sort(p.Env)
	for fd := range 64 {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil {
			if target, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err == nil &&
				!strings.HasPrefix(target, "anon_inode:") {
				p.Fds = append(p.Fds, strconv.Itoa(fd))
			}
		}
	}
	p.Dir, _ = os.Getwd()
	p.Host, _ = os.Hostname()
	if id, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, false); err == nil {
		if text, err := unix.KeyctlString(unix.KEYCTL_DESCRIBE, id); err == nil {
			p.Session = text[strings.LastIndex(text, ";")+1:]
		}
	}
	p.Landlock = landlockDepth()
	return p
}

// landlockDepth counts the rulesets over this thread by adding more until the kernel
// refuses the 17th. 0 where there is no Landlock.
func landlockDepth() int {
	const most = 16
	runtime.LockOSThread()
	for added := 0; ; added++ {
		fd, err := ll.LandlockCreateRuleset(&ll.RulesetAttr{HandledAccessFS: ll.AccessFSExecute}, 0)
		if err == nil {
			err = ll.LandlockRestrictSelf(fd, 0)
			unix.Close(fd)
		}
		if errors.Is(err, unix.E2BIG) {
			return most - added
		}
		if err != nil {
			return 0
		}
	}
}
