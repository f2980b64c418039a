package vmtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// guestBinary is where the binary lives in the guest.
const guestBinary = "/bin/agent-lock"

// stayArg is the argument with which pid 1 executes itself again.
const stayArg = "stay"

// guestPlan is where the first stage leaves the plan for the second.
const guestPlan = "/run/plan.json"

// GuestMain is pid 1 of the guest. args are those after the verb's name. It does
// not return: when its work is done, or cannot be done, the machine goes off.
//
// It runs twice. The first stage, on the kernel's rootfs, moves to a tmpfs:
// rootfs can be neither pivoted away from nor unmounted, which jails do. The
// second stage is a new program image: libraries that look for /proc when they
// are initialised (cilium/ebpf does) find it.
func GuestMain(args []string) int {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "agent-lock: guest-init is pid 1 of vmtest's guests, nothing else")
		return 125
	}
	var err error
	if len(args) == 1 && args[0] == stayArg {
		err = guestStay()
	} else {
		err = guestEnter()
	}
	fmt.Fprintln(os.Stderr, "agent-lock: guest-init:", err)
	powerOff(exitBroken)
	return 125
}

// guestEnter builds the root file system on a tmpfs and executes the second stage there.
func guestEnter() error {
	const root = "/root.new"
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount the root tmpfs: %w", err)
	}
	unix.Umask(0)
	p, err := readPlan("/" + planPath)
	if err != nil {
		return err
	}
	if err := makeDirs(root, p.Tree); err != nil {
		return err
	}
	if p.Tree {
		if err := moveTree("/"+treePath, root); err != nil {
			return fmt.Errorf("unpack the tree: %w", err)
		}
	}
	if err := moveFile("/"+initPath, root+guestBinary, 0o755); err != nil {
		return err
	}
	for _, m := range p.Modules {
		if err := moveFile("/"+m.Archive, root+guestModules+m.Name, 0o600); err != nil {
			return err
		}
	}
	for _, f := range p.Files {
		if err := moveFile("/"+f.Archive, root+f.Guest, f.Mode); err != nil {
			return err
		}
	}
	if err := moveFile("/"+planPath, root+guestPlan, 0o600); err != nil {
		return err
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the root tmpfs: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("enter the root tmpfs: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := mountAll(guestMounts); err != nil {
		return err
	}
	unix.Umask(0o022)
	argv := []string{"agent-lock", "guest-init", stayArg}
	err = unix.Exec(guestBinary, argv, []string{"PATH=" + guestPath})
	return fmt.Errorf("execute %s: %w", guestBinary, err)
}

// moveFile copies a file and removes the original, which stays out of sight
// below the new root but would take memory, and would show the nonce.
func moveFile(from, to string, mode uint32) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	// In its place the tree may have a link, which would lead out of the new root.
	if err := os.Remove(to); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(to, data, 0o600); err != nil {
		return err
	}
	return errors.Join(os.Chmod(to, os.FileMode(mode)), os.Remove(from))
}

func readPlan(path string) (plan, error) {
	var p plan
	text, err := os.ReadFile(path)
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return p, fmt.Errorf("read plan: %w", err)
	}
	return p, nil
}

// guestStay runs the plan and ends the machine.
func guestStay() error {
	ch, err := openChannel(channelDevice)
	if err != nil {
		return err
	}
	p, err := readPlan(guestPlan)
	if err != nil {
		return err
	}
	if err := os.Remove(guestPlan); err != nil {
		return err
	}
	if err := errors.Join(guestSetUp(), p.equip()); err != nil {
		ch.send(frameHello, hello(p.Nonce))
		ch.send(frameError, errorPayload{err.Error()})
		return errors.Join(err, ch.drain())
	}
	ch.send(frameHello, hello(p.Nonce))
	go ch.beat()
	go ch.listen()
	for i, s := range p.Steps {
		status := runStep(ch, i, s)
		ch.send(frameExit, status)
		if status.Status != 0 && s.StopOnFail {
			break
		}
	}
	ch.send(frameEnd, endPayload{p.Nonce, taint()})
	if err := ch.drain(); err != nil {
		return err
	}
	powerOff(exitDone)
	return errors.New("the machine is still on")
}

// hello describes the kernel that pid 1 found itself on.
func hello(nonce string) helloPayload {
	h := helloPayload{Nonce: nonce}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		h.Release = unix.ByteSliceToString(u.Release[:])
	}
	if lsm, err := os.ReadFile("/sys/kernel/security/lsm"); err == nil {
		h.LSM = strings.TrimSpace(string(lsm))
	}
	_, err := os.Stat("/sys/kernel/btf/vmlinux")
	h.BTF = err == nil
	return h
}

// taint is why the kernel is not to be trusted any more (Documentation/admin-guide/
// tainted-kernels.rst).
func taint() uint64 {
	text, err := os.ReadFile("/proc/sys/kernel/tainted")
	if err != nil {
		return 0
	}
	bits, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return bits
}

// powerOff ends the machine with a status that the host sees as QEMU's exit
// status, or, where there is no such device, without one.
func powerOff(status byte) {
	runtime.LockOSThread() // the port permission is the thread's
	debugExit(status)
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Fprintln(os.Stderr, "agent-lock: guest-init: power off:", err)
	}
}

// EndGuest ends the machine at once as pid 1 would at its normal end, but with
// no end frame. It is there to test that the host notices.
func EndGuest() { powerOff(exitDone) }

// lookPath finds a step's command in the guest's PATH.
func lookPath(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, dir := range filepath.SplitList(guestPath) {
		p := filepath.Join(dir, name)
		info, err := os.Stat(p)
		if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s is not in the guest (add it with --file)", name)
}

func writeSysctl(name string, value int) error {
	path := "/proc/sys/" + strings.ReplaceAll(name, ".", "/")
	return os.WriteFile(path, []byte(strconv.Itoa(value)), 0)
}
