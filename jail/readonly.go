package jail

import (
	"errors"
	"fmt"
	"slices"

	"github.com/agent-lock/agent-lock/policy"
	"golang.org/x/sys/unix"
)

// writable are the places that stay as they are when all else becomes read-only: the
// trees of the rules that give writing, taken before.
type writable struct {
	rules []policy.Rule
	trees []int
	ids   []object // of what was there
}

// readOnlyBut makes every mount of the jail read-only. Without the BPF layer nothing
// else keeps modes, owners, times and attributes of outside files from being
// changed. What is mounted later is not concerned, nor are devices.
func readOnlyBut(rules []policy.Rule) (writable, error) {
	var w writable
	for _, rule := range rules {
		if rule.Rights&policy.Write == 0 || !w.wants(rule.Path) {
			continue
		}
		fd, err := openRule(rule)
		if errors.Is(err, unix.ENOENT) && rule.Optional {
			continue
		}
		if err == nil {
			err = w.take(fd, rule)
		}
		if err != nil {
			w.close()
			return w, fmt.Errorf("keep %s writable: %w", rule.Path, err)
		}
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &attr); err != nil {
		w.close()
		return w, fmt.Errorf("make what is outside read-only: %w", err)
	}
	return w, nil
}

// wants leaves out what is mounted fresh, and devices.
func (w *writable) wants(path string) bool {
	fresh := append([]string{"/proc", "/dev"}, policy.Private...)
	return !slices.Contains(fresh, path) && !below(path, "/proc") && !below(path, "/dev")
}

func (w *writable) take(fd int, rule policy.Rule) error {
	defer unix.Close(fd)
	id, _, err := identify(fd)
	if err != nil {
		return err
	}
	tree, err := cloneMounts(fd, "")
	if err != nil {
		return err
	}
	w.rules, w.trees, w.ids = append(w.rules, rule), append(w.trees, tree), append(w.ids, id)
	return nil
}

// put mounts the places where they were.
func (w *writable) put() error {
	defer w.close()
	for i := range w.rules {
		if err := w.putOne(i); err != nil {
			return fmt.Errorf("keep %s writable: %w", w.rules[i].Path, err)
		}
	}
	return nil
}

// putOne looks the place up again, since it may have been bound in a fresh directory. Another
// one, which a jail has put there, is refused.
func (w *writable) putOne(i int) error {
	fd, err := openRule(w.rules[i])
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	id, _, err := identify(fd)
	if err != nil {
		return err
	}
	if id != w.ids[i] {
		return errors.New("it was replaced in the meantime")
	}
	return mountOn(w.trees[i], fd)
}

func (w *writable) close() {
	for _, tree := range w.trees {
		unix.Close(tree)
	}
}
