package jail

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/agent-lock/agent-lock/policy"
	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// LandlockABI is the version of Landlock that the kernel speaks, 0 for none.
func LandlockABI() int {
	version, err := ll.LandlockGetABIVersion()
	if err != nil {
		return 0
	}
	return version
}

// handledBy is all that the kernel's Landlock can restrict, as far as the library
// knows it.
func handledBy(abi int) landlock.Config {
	known := []landlock.Config{
		{}, landlock.V1, landlock.V2, landlock.V3, landlock.V4, landlock.V5, landlock.V6,
		landlock.V7, landlock.V8, landlock.V9, landlock.V10, landlock.V11,
	}
	return known[min(abi, len(known)-1)]
}

// Rights of Landlock by right of a rule. Devices that a rule shows may be used:
// which ioctl(2) is harmful is the filter's business, and the BPF layer's. No
// rule lets device nodes be made.
const (
	landlockRead  = ll.AccessFSReadFile | ll.AccessFSReadDir | ll.AccessFSIoctlDev
	landlockWrite = ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSRemoveDir |
		ll.AccessFSRemoveFile | ll.AccessFSMakeDir | ll.AccessFSMakeReg | ll.AccessFSMakeSock |
		ll.AccessFSMakeFifo | ll.AccessFSMakeSym | ll.AccessFSRefer | ll.AccessFSIoctlDev
	// landlockFile are the rights that a rule on what is no directory may give.
	landlockFile = ll.AccessFSExecute | ll.AccessFSWriteFile | ll.AccessFSReadFile |
		ll.AccessFSTruncate | ll.AccessFSIoctlDev | ll.AccessFSResolveUnix
	// landlockReplace is what putting another file into the place of one takes.
	landlockReplace = ll.AccessFSMakeReg | ll.AccessFSRemoveFile
)

// landlockRights translates a rule's rights.
func landlockRights(r policy.Rights) uint64 {
	var access uint64
	for _, pair := range []struct {
		right  policy.Rights
		access uint64
	}{
		{policy.Read, landlockRead},
		{policy.Write, landlockWrite},
		{policy.Execute, ll.AccessFSExecute},
		{policy.Connect, ll.AccessFSResolveUnix},
	} {
		if r&pair.right != 0 {
			access |= pair.access
		}
	}
	return access
}

// ruleset is a Landlock ruleset that is being filled.
type ruleset struct {
	fd      int
	handled landlock.Config
	// wide gives the directory of a file in place of the file: the BPF layer
	// decides about the files in it, and a file that is replaced outside is
	// another one to Landlock.
	wide bool
	fds  int // the directory of this thread's descriptors in a /proc that shows it
}

// landlockHandles is what is refused unless a rule allows it: everything that the
// kernel's Landlock can, but for what the BPF layer decides better when it is there:
// it tells the jail's own sockets from others, and addresses from ports.
func landlockHandles(withBPF bool, net string) landlock.Config {
	handled := handledBy(LandlockABI())
	restricted, _ := landlockNet(net)
	handled.HandledAccessNet &= restricted
	if withBPF {
		handled.HandledAccessFS &^= ll.AccessFSResolveUnix
		handled.Scoped &^= ll.ScopeAbstractUnixSocket
		handled.HandledAccessNet = 0
	}
	return handled
}

// netHost is a policy that does not restrict the network.
const netHost = "host"

// landlockNet is what of the network Landlock restricts under a policy, and the
// ports that stay. Only going out is restricted: the jail's own servers work.
func landlockNet(net string) (landlock.AccessNetSet, []uint16) {
	const out = ll.AccessNetConnectTCP | ll.AccessNetConnectSendUDP
	switch net {
	case netHost:
		return 0, nil
	case "web":
		return out, []uint16{53, 80, 443}
	}
	return out, nil
}

// allowPorts lets the jail send to ports, where the kernel's Landlock knows ports.
func (r *ruleset) allowPorts(ports []uint16) error {
	if r.handled.HandledAccessNet == 0 {
		return nil
	}
	for _, port := range ports {
		attr := &ll.NetPortAttr{
			AllowedAccess: uint64(r.handled.HandledAccessNet), Port: uint64(port),
		}
		if err := ll.LandlockAddNetPortRule(r.fd, attr, 0); err != nil {
			return fmt.Errorf("allow port %d in Landlock: %w", port, err)
		}
	}
	return nil
}

// allow adds a rule's path. Rules without rights add nothing: Landlock cannot take
// away below a directory what it gives above.
func (r *ruleset) allow(rule policy.Rule) error {
	access := landlockRights(rule.Rights)
	if access == 0 {
		return nil
	}
	if rule.Prefix {
		return r.allowNames(rule, access)
	}
	fd, err := openRule(rule)
	if errors.Is(err, unix.ENOENT) && rule.Keep && r.wide {
		return r.allowNames(rule, access)
	}
	// ELOOP: through /proc/self/fd, to where a process has its own streams.
	if (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP)) && rule.Optional {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find %s for Landlock: %w", rule.Path, err)
	}
	defer unix.Close(fd)
	_, mode, err := identify(fd)
	if err != nil {
		return err
	}
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return r.add(fd, access, rule.Path)
	case unix.S_IFREG, unix.S_IFSOCK:
		if r.wide {
			return r.allowPlace(fd, access&landlockFile, rule.Path)
		}
	}
	return r.add(fd, access&landlockFile, rule.Path)
}

// allowNames gives rights on the directory in which a rule's names are or will be:
// the programs tell them from others.
func (r *ruleset) allowNames(rule policy.Rule, access uint64) error {
	dir := filepath.Dir(rule.Path)
	if dir == "/" {
		return nil
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) && rule.Optional {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find %s for Landlock: %w", dir, err)
	}
	defer unix.Close(fd)
	return r.add(fd, access, dir)
}

// allowPlace gives rights on the files of the directories in which a file is
// found: where the rule's path names it and, if that is a link, where it lies.
func (r *ruleset) allowPlace(file int, access uint64, path string) error {
	if access&ll.AccessFSWriteFile != 0 {
		access |= landlockReplace
	}
	target, err := r.pathOf(file)
	if err != nil {
		return fmt.Errorf("find the directory of %s: %w", path, err)
	}
	for _, dir := range []string{filepath.Dir(path), filepath.Dir(target)} {
		if dir == "/" {
			continue // that would be everything
		}
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOENT) {
			continue // it is mounted from where the jail does not see it
		}
		if err != nil {
			return fmt.Errorf("find %s for Landlock: %w", dir, err)
		}
		err = r.add(fd, access, dir)
		unix.Close(fd)
		if err != nil {
			return err
		}
	}
	return r.add(file, access&landlockFile, path)
}

// pathOf is the path of an open file.
func (r *ruleset) pathOf(fd int) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(r.fds, strconv.Itoa(fd), buf)
	return string(buf[:max(n, 0)]), err
}

func openRule(rule policy.Rule) (int, error) {
	how := &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS,
	}
	path := rule.Path
	if rule.Direct || rule.Links != nil {
		var err error
		if path, err = rule.Target(); err != nil {
			return -1, err
		}
		how.Resolve |= unix.RESOLVE_NO_SYMLINKS
	}
	return unix.Openat2(unix.AT_FDCWD, path, how)
}

func (r *ruleset) add(fd int, access uint64, path string) error {
	access &= uint64(r.handled.HandledAccessFS)
	if access == 0 {
		return nil
	}
	attr := &ll.PathBeneathAttr{AllowedAccess: access, ParentFd: fd}
	if err := ll.LandlockAddPathBeneathRule(r.fd, attr, 0); err != nil {
		return fmt.Errorf("allow %s in Landlock: %w", path, err)
	}
	return nil
}

// landlockRules makes the ruleset of a policy. It is made as root, since not
// every directory on the way may be searched by the command's user.
func landlockRules(rules []policy.Rule, handled landlock.Config, withBPF bool, net string,
	fds int) (*ruleset, error) {
	fd, err := ll.LandlockCreateRuleset(&ll.RulesetAttr{
		HandledAccessFS:  uint64(handled.HandledAccessFS),
		HandledAccessNet: uint64(handled.HandledAccessNet),
		Scoped:           uint64(handled.Scoped),
	}, 0)
	if errors.Is(err, unix.ENOMSG) {
		return nil, nil // nothing is to be refused: only tests ask for that
	}
	if err != nil {
		return nil, fmt.Errorf("make a Landlock ruleset: %w", err)
	}
	r := &ruleset{fd: fd, handled: handled, wide: withBPF, fds: fds}
	_, ports := landlockNet(net)
	err = r.allowPorts(ports)
	for _, rule := range rules {
		if err == nil {
			err = r.allow(rule)
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return r, nil
}
