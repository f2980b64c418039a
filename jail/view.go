package jail

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/agent-lock/agent-lock/policy"
	"golang.org/x/sys/unix"
)

// view is a root directory that holds what the rules show and what leads there, and
// nothing else: about what is not there, nothing has to be decided.
type view struct {
	root   string // where it is built: the mount point of a file system of its own
	fd     int    // its root directory
	above  int    // the directory that root is in
	ways   map[string]fs.FileInfo
	links  map[string]string // with where they lead
	places map[string]shown
}

// shown is an object that a rule shows, by its path without symbolic links.
type shown struct {
	tree   int // what is mounted there, detached
	mode   uint32
	rights policy.Rights
}

// makeView builds the view of what is mounted now and makes it the root directory.
func makeView(s setup) error {
	v := view{fd: -1, above: -1, ways: map[string]fs.FileInfo{}, links: map[string]string{},
		places: map[string]shown{}}
	defer v.close()
	for _, rule := range s.Rules {
		if err := v.show(rule); err != nil {
			return fmt.Errorf("show %s (%s): %w", rule.Path, rule.Origin, err)
		}
	}
	// Programs look for these whether a rule shows something in them or not.
	for _, dir := range []string{"/proc", s.User.Home} {
		if path, err := v.lead(dir, policy.Rule{}); err == nil && path != "/" {
			if info, err := os.Lstat(path); err == nil {
				v.ways[path] = info
			}
		}
	}
	if err := v.open(); err != nil {
		return fmt.Errorf("make the jail's root directory: %w", err)
	}
	if err := v.build(); err != nil {
		return fmt.Errorf("fill the jail's root directory: %w", err)
	}
	if err := v.enter(!s.Layers.BPF); err != nil {
		return fmt.Errorf("change the jail's root directory: %w", err)
	}
	return nil
}

// open makes the directory, in which nothing is yet.
func (v *view) open() (err error) {
	if v.root, err = makePrivate(".view-"); err != nil {
		return err
	}
	if v.above, err = unix.Open(filepath.Dir(v.root), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC,
		0); err != nil {
		return err
	}
	if err = unix.Mount("tmpfs", v.root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV,
		"mode=0711"); err != nil {
		return err
	}
	v.fd, err = unix.Open(v.root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return err
}

// ptmx makes terminals in the pts beside it, which it does not find when it is mounted
// by itself (path_pts in fs/namei.c).
const ptmx = "/dev/ptmx"

// show takes what a rule gives, and what leads there.
func (v *view) show(rule policy.Rule) error {
	if rule.Rights == 0 {
		return nil
	}
	if rule.Path == ptmx {
		v.links[ptmx] = "pts/ptmx"
		return nil
	}
	path, err := v.lead(rule.Path, rule)
	if rule.Optional && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) ||
		errors.Is(err, unix.ELOOP)) {
		return nil
	}
	if err != nil || path == "/proc" {
		return err // pid 1 mounts /proc
	}
	// Whoever has put a link in since then is not followed.
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, mode, err := identify(fd)
	if err != nil {
		return err
	}
	if before, ok := v.places[path]; ok { // the last rule holds, as with the other layers
		unix.Close(before.tree)
	}
	tree, err := cloneMounts(fd, "")
	if err != nil {
		delete(v.places, path)
		return err
	}
	v.places[path] = shown{tree, mode, rule.Rights}
	return nil
}

// lead follows a path, link by link, and notes what leads to its end, whose path without
// links it returns: /proc for what lies in there, which differs with who looks. Of links it
// follows those that the rule does.
func (v *view) lead(path string, rule policy.Rule) (string, error) {
	at := "/"
	links := 0
	for names := split(path); len(names) > 0; {
		next := filepath.Join(at, names[0])
		names = names[1:]
		info, err := os.Lstat(next)
		if err != nil || next == "/proc" {
			return next, err
		}
		if next == "/" {
			at = next
			continue
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			if len(names) > 0 {
				v.ways[next] = info
			}
			continue
		}
		target, err := os.Readlink(next)
		if links++; err == nil && (!rule.Follows(at) || links > maxLinks) {
			err = unix.ELOOP
		}
		if err != nil {
			return "", err
		}
		v.links[next] = target
		if filepath.IsAbs(target) {
			at = "/"
		}
		names = append(split(target), names...)
	}
	return at, nil
}

// build fills the view, what is above before what is below.
func (v *view) build() error {
	paths := slices.Concat(slices.Collect(maps.Keys(v.ways)), slices.Collect(maps.Keys(v.links)),
		slices.Collect(maps.Keys(v.places)))
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		if err := v.add(path); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// add puts one path in. What lies in a place is there already, or is gone.
func (v *view) add(path string) error {
	around, inPlace := v.around(path)
	if p, ok := v.places[path]; ok {
		if inPlace && p.rights == around.rights {
			return nil
		}
		return v.mount(path, p, !inPlace)
	}
	if inPlace {
		return nil
	}
	parent, err := openOwn(v.fd, filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	base := filepath.Base(path)
	if target, ok := v.links[path]; ok {
		return unix.Symlinkat(target, parent, base)
	}
	if err := unix.Mkdirat(parent, base, 0o700); err != nil {
		return err
	}
	dir, err := openOwn(parent, base, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	info := v.ways[path]
	owner := info.Sys().(*syscall.Stat_t)
	if err := unix.Fchown(dir, int(owner.Uid), int(owner.Gid)); err != nil {
		return err
	}
	return unix.Fchmod(dir, uint32(info.Mode().Perm()))
}

// around returns the nearest place that a path lies in.
func (v *view) around(path string) (shown, bool) {
	for dir := path; dir != "/"; {
		dir = filepath.Dir(dir)
		if p, ok := v.places[dir]; ok {
			return p, true
		}
	}
	return shown{}, false
}

// mount mounts a place with no more than its rights. Devices, pipes and sockets are written
// and connected to on read-only mounts as well; their modes and owners are the host's.
func (v *view) mount(path string, p shown, fresh bool) error {
	var attr unix.MountAttr
	kind := p.mode & unix.S_IFMT
	if p.rights&policy.Write == 0 || kind != unix.S_IFDIR && kind != unix.S_IFREG {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if p.rights&policy.Execute == 0 {
		attr.Attr_set |= unix.MOUNT_ATTR_NOEXEC
	}
	const all = unix.AT_EMPTY_PATH | unix.AT_RECURSIVE
	if err := unix.MountSetattr(p.tree, "", all, &attr); err != nil {
		return err
	}
	var point int
	var err error
	if fresh {
		point, err = makePoint(v.fd, path, p.mode&unix.S_IFMT == unix.S_IFDIR)
	} else {
		point, err = unix.Openat2(v.fd, relative(path), &unix.OpenHow{
			Flags:   unix.O_PATH | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
		})
	}
	if err != nil {
		return err
	}
	defer unix.Close(point)
	return mountOn(p.tree, point)
}

// enter makes the view the root directory of this thread and of what it starts. What
// was mounted before is gone then.
func (v *view) enter(readOnly bool) error {
	if readOnly { // else the programs decide, and say why
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(unix.AT_FDCWD, v.root, 0, &attr); err != nil {
			return err
		}
	}
	if err := unix.Fchdir(v.fd); err != nil {
		return err
	}
	// The old root comes to lie over the new one, pivot_root(2).
	if err := unix.PivotRoot(".", "."); err != nil {
		return err
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	return unix.Unlinkat(v.above, filepath.Base(v.root), unix.AT_REMOVEDIR)
}

func (v *view) close() {
	unix.Close(v.fd)
	unix.Close(v.above)
	for _, p := range v.places {
		unix.Close(p.tree)
	}
}

// refusesInView names what the user asked for and a view cannot show: what is not there
// at the start.
func refusesInView(p *policy.Policy) error {
	for _, rule := range p.Rules {
		what := ""
		switch {
		case rule.Prefix:
			what = "'" + rule.Path + "*'"
		case rule.New && !exists(rule.Path):
			what = rule.Path + ", which is missing,"
		case rule.Path == "/proc" && rule.Rights&policy.Read == 0: // pid 1 mounts it
			what = rule.Path
		default:
			continue
		}
		return fmt.Errorf("%s %s cannot be kept with the view layer, which shows what is there at "+
			"the start, and /proc; name what exists, or leave the layer out", rule.Origin, what)
	}
	return nil
}
