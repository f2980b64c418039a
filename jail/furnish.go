package jail

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/agent-lock/agent-lock/policy"
	"golang.org/x/sys/unix"
)

// furnish gives the jail's namespaces what is in them, but for what needs its /proc.
func furnish(s setup) (writable, error) {
	w, err := makeMounts(s)
	if err == nil && s.Layers.View {
		err = makeView(s)
	}
	if err != nil {
		return w, err
	}
	if s.Spaces&unix.CLONE_NEWUTS != 0 { // else the name is the host's
		if err := unix.Sethostname([]byte("jail")); err != nil {
			return w, fmt.Errorf("set host name: %w", err)
		}
	}
	if s.Spaces&unix.CLONE_NEWNET != 0 {
		return w, raiseLoopback()
	}
	return w, nil
}

// makeMounts gives the jail its own terminals and private directories.
func makeMounts(s setup) (w writable, err error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return w, fmt.Errorf("make mounts private: %w", err)
	}
	files, err := openKept(s.Keep)
	if err != nil {
		return w, err
	}
	if !s.Layers.BPF && !s.Layers.View && !slices.Contains(s.Drop, DropMounts) {
		if w, err = readOnlyBut(s.Rules); err != nil {
			return w, err
		}
	}
	ptys := "newinstance,ptmxmode=0666,mode=0620"
	err = unix.Mount("devpts", "/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, ptys)
	// Where there are none, there are none of the host's either.
	if err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.ENOENT) {
		return w, fmt.Errorf("mount /dev/pts: %w", err)
	}
	if s.User.UID == 0 {
		if err := keepDevices(s.Devices); err != nil {
			return w, err
		}
	}
	if err := coverCgroups(s.Spaces); err != nil {
		return w, err
	}
	for _, dir := range policy.Private {
		err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777")
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return w, fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	runtimeDir := s.User.runtimeDir()
	if err := os.Mkdir(runtimeDir, 0o700); err == nil {
		if err := os.Chown(runtimeDir, s.User.UID, s.User.GID); err != nil {
			return w, fmt.Errorf("make %s: %w", runtimeDir, err)
		}
	}
	return w, bindKept(files)
}

// keepDevices keeps the modes and owners of the host's devices, which root could change, by
// mounting them read-only: that does not keep them from being written. The one that makes
// terminals would not find them then, so the jail has its own.
func keepDevices(rules []policy.Rule) error {
	for _, rule := range rules {
		if rule.Path == ptmx {
			rule.Path = "/dev/pts/ptmx"
		}
		fd, err := openRule(rule)
		if err == nil {
			err = keepDevice(fd, rule.Path)
			unix.Close(fd)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ELOOP) {
			return fmt.Errorf("keep the device %s: %w", rule.Path, err)
		}
	}
	return nil
}

func keepDevice(fd int, path string) error {
	_, mode, err := identify(fd)
	if err != nil || mode&unix.S_IFMT != unix.S_IFCHR && mode&unix.S_IFMT != unix.S_IFBLK {
		return err
	}
	if path != "/dev/pts/ptmx" {
		return lessen(fd, policy.Write)
	}
	point, err := unix.Open(ptmx, unix.O_PATH|unix.O_CLOEXEC, 0) // a link is the jail's already
	if err != nil {
		return err
	}
	defer unix.Close(point)
	return bind(fd, point)
}

// furnishRest mounts what may lie below /proc: without the BPF layer, and in a view, mounts
// keep what rules take away.
func furnishRest(s setup, w writable) error {
	if s.Layers.BPF && !s.Layers.View {
		return nil
	}
	if err := w.put(); err != nil {
		return err
	}
	if s.Layers.View && !s.Layers.BPF && s.User.UID == 0 { // who owns all of /proc/sys
		proc, err := unix.Open("/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = lessen(proc, policy.Write)
			unix.Close(proc)
		}
		if err != nil {
			return fmt.Errorf("make /proc read-only: %w", err)
		}
	}
	return maskRules(s.Rules, s.Layers.View)
}

// keep returns the rules whose paths a private directory would cover.
func keep(p *policy.Policy) []policy.Rule {
	var kept []policy.Rule
	for _, r := range p.Rules {
		for _, dir := range policy.Private {
			if strings.HasPrefix(r.Path, dir+"/") {
				if _, err := os.Lstat(r.Path); err == nil {
					kept = append(kept, r)
				}
			}
		}
	}
	return kept
}

func openKept(rules []policy.Rule) (map[string]*os.File, error) {
	files := map[string]*os.File{}
	for _, rule := range rules {
		fd, err := openRule(rule)
		if rule.Optional && errors.Is(err, unix.ELOOP) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", rule.Path, err)
		}
		files[rule.Path] = os.NewFile(uintptr(fd), rule.Path)
	}
	return files, nil
}

// bindKept binds what was opened before the private directories covered it. What lies in
// something that is bound shows with it.
func bindKept(files map[string]*os.File) error {
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	outer := "/"
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if outer != "/" && below(path, outer) {
			continue
		}
		outer = path
		if err := bindOne(path, int(files[path].Fd())); err != nil {
			return fmt.Errorf("keep %s: %w", path, err)
		}
	}
	return nil
}

func bindOne(path string, fd int) error {
	_, mode, err := identify(fd)
	if err != nil {
		return err
	}
	for _, place := range policy.Private {
		if !below(path, place) {
			continue
		}
		root, err := unix.Open(place, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(root)
		point, err := makePoint(root, path[len(place):], mode&unix.S_IFMT == unix.S_IFDIR)
		if err != nil {
			return err
		}
		defer unix.Close(point)
		return bind(fd, point)
	}
	return errors.New("it lies in no private directory")
}

// bind mounts what is open, and what is mounted below it, on another thing that is.
func bind(fd, point int) error {
	tree, err := cloneMounts(fd, "")
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	return mountOn(tree, point)
}
