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
		switch {
		case lost&policy.Read != 0:
			err = nothing.hide(rule.Path, rules)
		case lost&(policy.Write|policy.Execute) != 0:
			err = lessen(rule.Path, lost)
		}
		if err != nil && !(rule.Optional && errors.Is(err, unix.ENOENT)) {
			return fmt.Errorf("keep %s (%s) from the jail: %w", rule.Path, rule.Origin, err)
		}
	}
	return nil
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

// lessen mounts a path over itself, without what was lost.
func lessen(path string, lost policy.Rights) error {
	var attr unix.MountAttr
	if lost&policy.Write != 0 {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if lost&policy.Execute != 0 {
		attr.Attr_set |= unix.MOUNT_ATTR_NOEXEC
	}
	return cover(unix.AT_FDCWD, path, path, attr)
}

// cover mounts a copy of from over path.
func cover(dir int, from, path string, attr unix.MountAttr) error {
	clone, err := unix.OpenTree(dir, from,
		unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return err
	}
	defer unix.Close(clone)
	const all = unix.AT_EMPTY_PATH | unix.AT_RECURSIVE
	if err := unix.MountSetattr(clone, "", all, &attr); err != nil {
		return err
	}
	return unix.MoveMount(clone, "", unix.AT_FDCWD, path,
		unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_SYMLINKS)
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

// hide covers a path; of a directory in which a rule shows something, all the rest.
func (n nothing) hide(path string, rules []policy.Rule) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() && shows(rules, path) {
		return n.hideAround(path, rules)
	}
	from := "file"
	if info.IsDir() {
		from = "dir"
	}
	return cover(n.fd, from, path, unix.MountAttr{
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

func (n nothing) hideAround(dir string, rules []policy.Rule) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if ruled(rules, path) || entry.Type()&os.ModeSymlink != 0 {
			continue // a link shows nothing that its target does not
		}
		if err := n.hide(path, rules); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
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
