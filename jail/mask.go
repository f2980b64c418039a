package jail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/agent-lock/agent-lock/policy"
	"golang.org/x/sys/unix"
)

// Without the BPF layer, mounts take away what Landlock and a view cannot: they give a
// directory with all that is below it. Mounts hold for what is there at the start.

// lastRules leaves out rules for whose path there is a later one: as with the BPF layer, the
// last holds. Landlock would add them up.
func lastRules(rules []policy.Rule) []policy.Rule {
	type key struct {
		path   string
		prefix bool
	}
	last := map[key]int{}
	for i, rule := range rules {
		last[key{filepath.Clean(rule.Path), rule.Prefix}] = i
	}
	var kept []policy.Rule
	for i, rule := range rules {
		if last[key{filepath.Clean(rule.Path), rule.Prefix}] == i {
			kept = append(kept, rule)
		}
	}
	return kept
}

// maskRules covers what a rule takes away from a wider one. In a view, what is mounted by
// itself has its own rights already.
func maskRules(rules []policy.Rule, inView bool) error {
	nothing, err := newNothing()
	if err != nil {
		return err
	}
	defer nothing.close()
	for _, rule := range rules {
		lost := widest(rules, rule.Path).Rights &^ rule.Rights
		if inView && lost&policy.Read == 0 && !below(rule.Path, "/proc") {
			continue
		}
		if lost == 0 {
			continue
		}
		err := nothing.mask(rule, lost, rules)
		if err != nil && !(rule.Optional &&
			(errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP))) {
			return fmt.Errorf("keep %s (%s) from the jail: %w", rule.Path, rule.Origin, err)
		}
	}
	return nil
}

// mask covers what a rule's path leads to, which is looked up once.
func (n nothing) mask(rule policy.Rule, lost policy.Rights, rules []policy.Rule) error {
	fd, err := openRule(rule)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if lost&policy.Read != 0 {
		return n.hide(fd, rule.Path, rules)
	}
	return lessen(fd, lost)
}

// widest joins the rules for the directories above a path.
func widest(rules []policy.Rule, path string) policy.Rule {
	var all policy.Rule
	for _, rule := range rules {
		if below(path, rule.Path) {
			all.Rights |= rule.Rights
		}
	}
	return all
}

func below(path, dir string) bool {
	return strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// lessen mounts what is open over itself, without what was lost.
func lessen(fd int, lost policy.Rights) error {
	var attr unix.MountAttr
	if lost&policy.Write != 0 {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if lost&policy.Execute != 0 {
		attr.Attr_set |= unix.MOUNT_ATTR_NOEXEC
	}
	return cover(fd, "", fd, attr)
}

// cover mounts a copy of what a name in a directory, or "" for itself, is over what is open.
func cover(dir int, from string, fd int, attr unix.MountAttr) error {
	clone, err := cloneMounts(dir, from)
	if err != nil {
		return err
	}
	defer unix.Close(clone)
	const all = unix.AT_EMPTY_PATH | unix.AT_RECURSIVE
	if err := unix.MountSetattr(clone, "", all, &attr); err != nil {
		return err
	}
	return mountOn(clone, fd)
}

// nothing is a directory that holds a file and a directory that nobody may open. It
// lies in one of the jail's own places and is removed at the end: what is mounted
// stays.
type nothing struct {
	fd   int
	path string
}

func newNothing() (nothing, error) {
	n := nothing{fd: -1}
	var err error
	if n.path, err = makePrivate(".nothing-"); err == nil {
		n.fd, err = unix.Open(n.path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(n.path, "file"), nil, 0)
	}
	if err == nil {
		err = os.Mkdir(filepath.Join(n.path, "dir"), 0)
	}
	if err != nil {
		n.close()
		return n, fmt.Errorf("make what hides files: %w", err)
	}
	return n, nil
}

func (n nothing) close() {
	unix.Close(n.fd)
	os.RemoveAll(n.path)
}

// hide covers what is open, by a path; of a directory in which a rule shows something, all
// the rest.
func (n nothing) hide(fd int, path string, rules []policy.Rule) error {
	_, mode, err := identify(fd)
	if err != nil {
		return err
	}
	dir := mode&unix.S_IFMT == unix.S_IFDIR
	if dir && shows(rules, path) {
		return n.hideAround(fd, path, rules)
	}
	from := "file"
	if dir {
		from = "dir"
	}
	return cover(n.fd, from, fd, unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOEXEC,
	})
}

// shows reports whether a rule gives something below a directory.
func shows(rules []policy.Rule, dir string) bool {
	for _, rule := range rules {
		if rule.Rights != 0 && below(rule.Path, dir) {
			return true
		}
	}
	return false
}

func (n nothing) hideAround(dir int, path string, rules []policy.Rule) error {
	list, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(list), path)
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if ruled(rules, filepath.Join(path, name)) {
			continue
		}
		err := n.hideIn(dir, name, filepath.Join(path, name), rules)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

// hideIn covers what a name in a directory is, but a link: it shows nothing that its target
// does not.
func (n nothing) hideIn(dir int, name, path string, rules []policy.Rule) error {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if _, mode, err := identify(fd); err != nil || mode&unix.S_IFMT == unix.S_IFLNK {
		return err
	}
	return n.hide(fd, path, rules)
}

// ruled reports whether a path has a rule of its own.
func ruled(rules []policy.Rule, path string) bool {
	for _, rule := range rules {
		if filepath.Clean(rule.Path) == path {
			return true
		}
	}
	return false
}
