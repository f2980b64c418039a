package jail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agent-lock/agent-lock/bpf"
	"github.com/agent-lock/agent-lock/policy"
	"golang.org/x/sys/unix"
)

// rules are a policy's rules as objects: descriptors that stay open as long as
// the jail lives, since they keep the labelled inodes where they are.
type rules struct {
	policy *policy.Policy
	root   int // of the jail's mount namespace
	mounts []mount
	open   []int
	// inodes are the labelled ones by descriptor; two descriptors may be the
	// same object.
	labelled map[int]bpf.Rights
	ruled    map[object]int // descriptor that carries the rule's label
}

// object identifies an inode for this process.
type object struct {
	dev, ino uint64
}

// resolve opens the policy's paths in the mount namespace of the process whose
// directory in /proc is given.
func resolve(p *policy.Policy, proc string) (*rules, error) {
	root, err := unix.Open(proc+"/root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the jail's root directory: %w", err)
	}
	r := &rules{policy: p, root: root, labelled: map[int]bpf.Rights{},
		ruled: map[object]int{}}
	if r.mounts, err = readMounts(proc + "/mountinfo"); err == nil {
		err = r.resolveAll()
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Close lets go of the inodes: from then on the labels mean nothing.
func (r *rules) Close() error {
	for _, fd := range append(r.open, r.root) {
		unix.Close(fd)
	}
	return nil
}

// resolveAll labels the rules' objects first and then what leads to them: a
// directory on the way is shown only where no rule shows it already.
func (r *rules) resolveAll() error {
	var found []policy.Rule
	for _, rule := range r.policy.Rules {
		fd, err := r.walk(rule.Path, refuseLinks(rule))
		if errors.Is(err, unix.ENOENT) && rule.Optional {
			found = append(found, rule) // its links are labelled all the same
			continue
		}
		if err != nil {
			return fmt.Errorf("find %s (%s): %w", rule.Path, rule.Origin, err)
		}
		if err := r.label(fd, rightsOf(rule)); err != nil {
			return err
		}
		found = append(found, rule)
	}
	for _, rule := range found {
		if err := r.showWay(rule); err != nil {
			return err
		}
	}
	return r.labelMounts()
}

// refuseLinks lets a direct rule meet no link: an earlier jail's process could
// have put one where the project was when it was checked.
func refuseLinks(rule policy.Rule) func(fd int, last bool) error {
	if !rule.Direct {
		return nil
	}
	return func(fd int, _ bool) error {
		_, mode, err := identify(fd)
		if err == nil && mode&unix.S_IFMT == unix.S_IFLNK {
			return fmt.Errorf("a symbolic link has come into the path: %w", unix.ELOOP)
		}
		return err
	}
}

func rightsOf(rule policy.Rule) bpf.Rights {
	var rights bpf.Rights
	for _, pair := range []struct {
		from policy.Rights
		to   bpf.Rights
	}{
		{policy.Read, bpf.Read},
		{policy.Write, bpf.Write},
		{policy.Execute, bpf.Execute},
		{policy.Connect, bpf.Connect | bpf.Self},
	} {
		if rule.Rights&pair.from != 0 {
			rights |= pair.to
		}
	}
	if rule.Linked {
		rights |= bpf.Linked
	}
	return rights
}

func (r *rules) label(fd int, rights bpf.Rights) error {
	obj, _, err := identify(fd)
	if err != nil {
		return err
	}
	if earlier, ok := r.ruled[obj]; ok {
		delete(r.labelled, earlier) // of two rules for one object the last holds
	}
	r.labelled[fd] = rights
	r.ruled[obj] = fd
	return nil
}

func identify(fd int) (object, uint32, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return object{}, 0, fmt.Errorf("look at a rule's path: %w", err)
	}
	return object{uint64(st.Dev), st.Ino}, st.Mode, nil
}

// showWay makes the directories and links that lead to a rule's path visible.
func (r *rules) showWay(rule policy.Rule) error {
	var current bpf.Rights // of the nearest rule so far
	_, err := r.walk(rule.Path, func(fd int, last bool) error {
		obj, _, err := identify(fd)
		if err != nil {
			return err
		}
		if ruled, ok := r.ruled[obj]; ok {
			current = r.labelled[ruled]
			return nil
		}
		if last || current&(bpf.Read|bpf.Self) == bpf.Read {
			return nil
		}
		r.labelled[fd] |= bpf.Self
		return nil
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("find %s (%s): %w", rule.Path, rule.Origin, err)
	}
	return nil
}

// maxLinks is the kernel's own limit (MAXSYMLINKS).
const maxLinks = 40

// walk follows a path in the jail's mounts, link by link, and returns a
// descriptor of its end. visit sees every object on the way.
func (r *rules) walk(path string, visit func(fd int, last bool) error) (int, error) {
	names := split(path)
	dirs := []int{r.root}
	see := func(fd int, last bool) error {
		if visit == nil {
			return nil
		}
		return visit(fd, last)
	}
	if err := see(r.root, len(names) == 0); err != nil {
		return -1, err
	}
	for links := 0; len(names) > 0; {
		name := names[0]
		names = names[1:]
		if name == ".." {
			dirs = dirs[:max(1, len(dirs)-1)]
			continue
		}
		fd, err := unix.Openat(dirs[len(dirs)-1], name,
			unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, err
		}
		r.open = append(r.open, fd)
		_, mode, err := identify(fd)
		if err != nil {
			return -1, err
		}
		isLink := mode&unix.S_IFMT == unix.S_IFLNK
		if err := see(fd, len(names) == 0 && !isLink); err != nil {
			return -1, err
		}
		if !isLink {
			dirs = append(dirs, fd)
			continue
		}
		if links++; links > maxLinks {
			return -1, unix.ELOOP
		}
		target, err := readlink(fd)
		if err != nil {
			return -1, err
		}
		if strings.HasPrefix(target, "/") {
			dirs = dirs[:1]
		}
		names = append(split(target), names...)
	}
	return dirs[len(dirs)-1], nil
}

// split returns the names of a path, keeping "..".
func split(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(name string) bool {
		return name == "" || name == "."
	})
}

// readlink reads the link that an O_PATH descriptor is.
func readlink(fd int) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// labelMounts lets the roots of file systems mounted below a rule's path
// inherit its rights: walking up ends at them.
func (r *rules) labelMounts() error {
	for _, m := range r.mounts {
		rule, ok := r.policy.Nearest(m.point)
		if !ok || !rule.Mounts || filepath.Clean(rule.Path) == m.point {
			continue
		}
		fd, err := r.walk(m.point, nil)
		if err != nil {
			continue // hidden by a later mount
		}
		obj, _, err := identify(fd)
		if err != nil {
			return err
		}
		// A bind mount of a directory that leads to the project would open
		// all that is in it.
		if _, ruled := r.ruled[obj]; ruled || r.labelled[fd]&bpf.Self != 0 || r.isWay(obj) {
			continue
		}
		if err := r.label(fd, rightsOf(rule)); err != nil {
			return err
		}
	}
	return nil
}

// isWay reports whether an object is only shown because it leads somewhere.
func (r *rules) isWay(obj object) bool {
	for fd, rights := range r.labelled {
		if rights != bpf.Self {
			continue
		}
		if other, _, err := identify(fd); err == nil && other == obj {
			return true
		}
	}
	return false
}

// labels are the rules by inode address, as the kernel told them.
func (r *rules) labels(fds []bpf.Descriptor) (map[uint64]bpf.Rights, error) {
	address := map[int]uint64{}
	for _, d := range fds {
		address[d.FD] = d.Inode
	}
	labels := map[uint64]bpf.Rights{}
	explicit := map[uint64]bool{}
	for fd, rights := range r.labelled {
		inode, ok := address[fd]
		if !ok || inode == 0 {
			return nil, fmt.Errorf("label inodes: the kernel did not tell the address of one "+
				"(descriptor %d)", fd)
		}
		if rights == bpf.Self && explicit[inode] {
			continue
		}
		if rights != bpf.Self {
			explicit[inode] = true
		}
		labels[inode] = rights
	}
	return labels, nil
}

// mount is a line of /proc/PID/mountinfo.
type mount struct {
	dev   uint32 // as the kernel encodes it in super_block.s_dev
	root  string // the mounted directory within its file system
	point string
}

func readMounts(path string) ([]mount, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the jail's mounts: %w", err)
	}
	var mounts []mount
	for line := range strings.Lines(string(data)) {
		m, err := parseMount(line)
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, m)
	}
	return mounts, nil
}

func parseMount(line string) (mount, error) {
	fields := strings.Fields(line)
	if len(fields) < 5 {
		return mount{}, fmt.Errorf("read the jail's mounts: unexpected line %q", line)
	}
	var major, minor uint32
	if _, err := fmt.Sscanf(fields[2], "%d:%d", &major, &minor); err != nil {
		return mount{}, fmt.Errorf("read the jail's mounts: device %q: %w", fields[2], err)
	}
	const minorBits = 20 // include/linux/kdev_t.h
	return mount{
		dev: major<<minorBits | minor, root: unescape(fields[3]), point: unescape(fields[4]),
	}, nil
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// visiblePath turns a path within a file system into one that the jail's
// mounts show: through the mount with the longest fitting root.
func (r *rules) visiblePath(dev uint32, path string) string {
	best, bestLen := path, -1
	for _, m := range r.mounts {
		if m.dev != dev || len(m.root) <= bestLen {
			continue
		}
		rest, ok := strings.CutPrefix(path, strings.TrimSuffix(m.root, "/"))
		if ok && (rest == "" || rest[0] == '/') {
			best, bestLen = filepath.Join(m.point, rest), len(m.root)
		}
	}
	return best
}
