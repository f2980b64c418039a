package jail

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"

	"github.com/agent-lock/agent-lock/jail/limit"
	"golang.org/x/sys/unix"
)

// Descriptors of the jail's processes before the command runs.
const (
	controlFD = 3
	rulesetFD = 4 // what pid 1, which has no others then, is given
	// firstCopy is the least number of the copies that the first four are made from,
	// out of the way of all of them.
	firstCopy = 10
)

// do adds a call to a script.
func (s *script) do(what string, number uintptr, args ...uintptr) *call {
	c := call{number: number, what: what}
	copy(c.args[:], args)
	s.calls = append(s.calls, c)
	return &s.calls[len(s.calls)-1]
}

// point returns where something is, which the script then keeps there.
func point[T any](s *script, to *T) uintptr {
	s.held = append(s.held, unsafe.Pointer(to))
	return uintptr(unsafe.Pointer(to))
}

// text returns where a string is, for the kernel.
func (s *script) text(text string) uintptr {
	return point(s, unsafe.SliceData(append([]byte(text), 0)))
}

// report adds that the script has got so far.
func (s *script) report() {
	s.do("tell the supervisor", unix.SYS_WRITE, controlFD, point(s, &report{step: reached}),
		unsafe.Sizeof(report{}))
}

// hear adds that the supervisor is waited for.
func (s *script) hear() {
	iov := &unix.Iovec{Base: new(byte), Len: 1}
	message := &unix.Msghdr{Iov: iov, Iovlen: 1}
	message.SetControllen(unix.CmsgSpace(4))
	message.Control = unsafe.SliceData(make([]byte, message.Controllen))
	s.do("wait for the supervisor", unix.SYS_RECVMSG, controlFD, point(s, message),
		unix.MSG_CMSG_CLOEXEC).want = hears
}

// prepare makes a script ready to be started, in new namespaces.
func (s *script) prepare(namespaces uint64) {
	s.control = controlFD
	s.args = cloneArgs{
		flags:      unix.CLONE_VM | unix.CLONE_CLEAR_SIGHAND | namespaces,
		exitSignal: uint64(unix.SIGCHLD),
		stack:      (uint64(uintptr(unsafe.Pointer(&s.stack))) + 15) &^ 15,
		stackSize:  uint64(len(s.stack) - 16),
	}
}

// explain says what a report means. after is what follows the calls.
func (s *script) explain(r report, after string) error {
	if r.step == reached {
		return nil
	}
	what := after
	if int(r.step) < len(s.calls) {
		what = s.calls[r.step].what
	}
	if r.errno == 0 {
		return errors.New(what)
	}
	return fmt.Errorf("%s: %w", what, syscall.Errno(r.errno))
}

// layFirst lays out the jail's pid 1: it lets go of everything but the standard streams,
// mounts /proc, which shows the processes of whom it is mounted by, starts the command's
// process when it is told to, and waits.
func (s *script) layFirst(copies [4]int, command *script) {
	s.then = command
	s.do("tie pid 1 to the supervisor", unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG,
		uintptr(unix.SIGKILL))
	for i, fd := range copies {
		s.do("pass descriptors on", unix.SYS_DUP3, uintptr(fd), uintptr(i))
	}
	s.do("close descriptors", unix.SYS_CLOSE_RANGE, controlFD+1, math.MaxUint32)
	const nothing = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	proc := s.text("proc")
	s.do("mount /proc", unix.SYS_MOUNT, proc, s.text("/proc"), proc, nothing)
	s.report()
	s.hear()
	s.prepare(unix.CLONE_NEWPID)
}

// layCommand lays out the process that becomes the command: it drops its privileges,
// waits until the jail is armed, and puts the second layers over itself.
func (s *script) layCommand(with setup, second secondLayer) error {
	s.prepare(0)
	if err := s.layDrop(with); err != nil {
		return err
	}
	s.report()
	s.hear()
	if with.Layers.BPF && !with.Mutant {
		s.layInForce() // before the other layers, which would hide that it is not
	}
	// Made in the jail, so that it is the jail's own.
	s.do("make a session keyring", unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING,
		s.text("agent-lock")).but = unix.ENOSYS
	if err := second.lay(s, rulesetFD); err != nil {
		return err
	}
	if !with.Layers.BPF && with.Layers.Landlock && !with.Mutant {
		s.layInForce()
	}
	s.do("restore the signal mask", unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK,
		point(s, with.Mask), 0, unsafe.Sizeof(*with.Mask))
	return s.layPrograms(with)
}

// layDrop gives up everything that the command must not have.
func (s *script) layDrop(with setup) error {
	u := with.User
	if limits := limit.Descriptors; limits.Max > 0 { // else it could not be asked for
		s.do("restore the limit of descriptors", unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE,
			point(s, &limits), 0)
	}
	for capability := range uintptr(64) {
		if u.keeps(capability, with) {
			continue
		}
		s.do("drop capabilities for good", unix.SYS_PRCTL, unix.PR_CAPBSET_DROP,
			capability).but = unix.EINVAL // past the last that this kernel knows
	}
	if !u.Capable {
		// Capabilities keep others away until the process is not dumpable.
		s.do("keep capabilities", unix.SYS_PRCTL, unix.PR_SET_KEEPCAPS, 1)
	}
	s.do("set no_new_privs", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1)
	groups := make([]uint32, len(u.Groups)+1)
	for i, g := range u.Groups {
		groups[i] = uint32(g)
	}
	gid, uid := uintptr(u.GID), uintptr(u.UID)
	s.do("set groups", unix.SYS_SETGROUPS, uintptr(len(u.Groups)), point(s, &groups[0]))
	s.do(fmt.Sprintf("set group id %d", gid), unix.SYS_SETRESGID, gid, gid, gid)
	s.do(fmt.Sprintf("set user id %d", uid), unix.SYS_SETRESUID, uid, uid, uid)
	s.do("keep others from tracing", unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0)
	s.do(fmt.Sprintf("enter %s as %s", with.Dir, u.Name), unix.SYS_CHDIR, s.text(with.Dir))
	if err := s.layCapabilities(u, with); err != nil {
		return err
	}
	s.do("drop ambient capabilities", unix.SYS_PRCTL, unix.PR_CAP_AMBIENT,
		unix.PR_CAP_AMBIENT_CLEAR_ALL)
	s.do("close descriptors", unix.SYS_CLOSE_RANGE, controlFD, math.MaxUint32,
		unix.CLOSE_RANGE_CLOEXEC)
	return nil
}

// layCapabilities gives up the capabilities that the command must not have: execve(2)
// gives root what is inheritable, and what the bounding set still has.
func (s *script) layCapabilities(u User, with setup) error {
	header := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var held, kept [2]unix.CapUserData
	if err := unix.Capget(header, &held[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	for capability := range uintptr(64) {
		if bit := uint32(1) << (capability % 32); u.keeps(capability, with) {
			kept[capability/32].Effective |= held[capability/32].Effective & bit
			kept[capability/32].Permitted |= held[capability/32].Permitted & bit
		}
	}
	s.do("drop capabilities", unix.SYS_CAPSET, point(s, header), point(s, &kept))
	return nil
}

// execComm is the name of the process that tries.
const execComm = "agent-lock"

// layInForce tries what no policy allows: listing the root directory. A kernel that
// lets that pass does not run the programs that it said it attached.
func (s *script) layInForce() {
	s.do("name the process", unix.SYS_PRCTL, unix.PR_SET_NAME, s.text(execComm))
	here := unix.AT_FDCWD
	s.do("the jail is armed but not in force: the root directory can be read; is bpf or "+
		"landlock among the LSMs? (agent-lock vmtest shows how it should behave)",
		unix.SYS_OPENAT, uintptr(here), s.text("/"),
		unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC).want = fails
}

// layPrograms lays out what is executed: a command without a slash is looked for in
// the jail's PATH.
func (s *script) layPrograms(with setup) (err error) {
	paths := []string{with.Command[0]}
	if !strings.Contains(paths[0], "/") {
		paths = nil
		for _, dir := range filepath.SplitList(lookupEnv(with.Env, "PATH")) {
			paths = append(paths, filepath.Join(dir, with.Command[0]))
		}
	}
	for _, list := range []struct {
		from []string
		to   *[]*byte
	}{{paths, &s.programs}, {with.Command, &s.argv}, {with.Env, &s.envp}} {
		if *list.to, err = syscall.SlicePtrFromStrings(list.from); err != nil {
			return fmt.Errorf("execute %s: %w", with.Command[0], err)
		}
	}
	s.programs = s.programs[:len(paths)] // without the NULL
	return nil
}

func lookupEnv(env []string, name string) string {
	for _, e := range env {
		if value, ok := strings.CutPrefix(e, name+"="); ok {
			return value
		}
	}
	return ""
}
