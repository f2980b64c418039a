package filesystems

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A Place is a mounted file system with two projects in it, out and in, which are
// filled alike.
type Place struct {
	Name  string
	Mount string
	// Below is where in a project it is tried, when the project itself is elsewhere.
	Below string
	// Root is the root directory of whoever uses the place, when it is not the usual
	// one. See [EnterRoot].
	Root string
}

// Project is the directory to jail, or not, for one of "out" and "in".
func (p Place) Project(which string) string { return filepath.Join(p.Mount, which) }

// Tried is the directory that the checks get.
func (p Place) Tried(which string) string { return filepath.Join(p.Project(which), p.Below) }

// A maker mounts a file system on base/NAME; fill makes the projects in a directory
// that it shows, or that is a layer of it.
type maker func(base string, fill func(dir string) error) error

// kinds are the file systems, each with what mounts it. An overlay has its layers on a
// file system of the kind after the dash.
var kinds = []struct {
	name, what string
	below      string
	root       bool // it is mounted as a root directory; the projects are in rootProjects
	make       maker
}{
	{name: "tmpfs", what: "tmpfs", make: makeTmpfs},
	{name: "ext4", what: "ext4", make: onDisk("ext4")},
	{name: "xfs", what: "xfs", make: onDisk("xfs")},
	{name: "btrfs", what: "btrfs", make: onDisk("btrfs")},
	{name: "btrfs-subvolume", what: "btrfs; the project is a subvolume", make: makeSubvolume},
	{name: "below", what: "tmpfs, with an ext4 and a bind mount below the project",
		below: "sub/bound", make: makeBelow},
	{name: "overlay", what: "overlayfs, its layers on tmpfs", make: overOn(makeTmpfs)},
	{name: "overlay-ext4", what: "overlayfs, its layers on ext4", make: overOn(onDisk("ext4"))},
	{name: "overlay-nested", what: "overlayfs on overlayfs", make: makeNested},
	{name: "overlay-root", what: "overlayfs as the root directory, as in a container; the " +
		"jail is started in there", root: true, make: makeRoot},
	{name: "fuse", what: "FUSE: bindfs on a directory of tmpfs", make: makeFuse},
	{name: "fuse-passthrough", what: "FUSE; the kernel reads and writes the files of tmpfs " +
		"itself (since 6.9)", make: makePassthrough},
	{name: "9p", what: "9p: a folder of the host's, through QEMU", make: make9P},
}

// ShareTag is the mount tag of the folder that the host shares for 9p.
const ShareTag = "filesystems"

// Kinds returns the names of the file systems, with what each is.
func Kinds() (names, what []string) {
	for _, k := range kinds {
		names, what = append(names, k.name), append(what, k.what)
	}
	return names, what
}

// Mount makes the place of a kind below base. Its projects belong to the user. An
// error says what the kernel, or the machine, lacks for it.
func Mount(name, base string, uid, gid int) (Place, error) {
	for _, k := range kinds {
		if k.name != name {
			continue
		}
		p := Place{Name: name, Mount: filepath.Join(base, name), Below: k.below}
		fill := func(dir string) error {
			for _, which := range []string{"out", "in"} {
				project := filepath.Join(dir, which)
				if err := os.MkdirAll(filepath.Join(project, k.below), 0o755); err != nil {
					return err
				}
				if err := Populate(filepath.Join(project, k.below)); err != nil {
					return err
				}
				if err := chownAll(project, uid, gid); err != nil {
					return err
				}
			}
			return nil
		}
		at := p.Mount
		if k.root {
			p.Root, p.Mount = at, rootProjects
		}
		if err := os.MkdirAll(at, 0o755); err != nil {
			return p, err
		}
		return p, k.make(at, fill)
	}
	return Place{}, fmt.Errorf("no file system is called %q", name)
}

func chownAll(dir string, uid, gid int) error {
	return filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(name, uid, gid)
	})
}

func mount(source, target, kind, options string) error {
	if err := unix.Mount(source, target, kind, 0, options); err != nil {
		if errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("the kernel has no %s", kind)
		}
		return fmt.Errorf("mount %s: %w", kind, err)
	}
	return nil
}

func makeTmpfs(at string, fill func(string) error) error {
	if err := mount("tmpfs", at, "tmpfs", ""); err != nil {
		return err
	}
	return fill(at)
}

// mkfs makes a file system in a file without data, which takes memory as it is used.
func mkfs(kind, image string) error {
	f, err := os.Create(image)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(2<<30), f.Close()); err != nil {
		return err
	}
	argv := map[string][]string{
		"ext4":  {"mkfs.ext4", "-q", "-F"},
		"xfs":   {"mkfs.xfs", "-q", "-f"},
		"btrfs": {"mkfs.btrfs", "-q", "-f"},
	}[kind]
	out, err := exec.Command(argv[0], append(argv[1:], image)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", argv[0], err, strings.TrimSpace(string(out)))
	}
	return nil
}

// loop makes a block device of a file, which goes away when it is unmounted.
func loop(image string) (string, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return "", errors.New("the kernel has no loop devices")
	}
	defer control.Close()
	backing, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer backing.Close()
	number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return "", fmt.Errorf("get a loop device: %w", err)
	}
	name := fmt.Sprint("/dev/loop", number)
	device, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	config := &unix.LoopConfig{Fd: uint32(backing.Fd())}
	config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
	err = unix.IoctlLoopConfigure(int(device.Fd()), config)
	// Open until it is mounted, or it is gone at once.
	time.AfterFunc(time.Minute, func() { device.Close() })
	return name, err
}

func onDisk(kind string) maker {
	return func(at string, fill func(string) error) error {
		image := at + ".img"
		if err := mkfs(kind, image); err != nil {
			return err
		}
		device, err := loop(image)
		if err != nil {
			return err
		}
		if err := mount(device, at, kind, ""); err != nil {
			return err
		}
		return fill(at)
	}
}

func makeSubvolume(at string, fill func(string) error) error {
	return onDisk("btrfs")(at, func(at string) error {
		dir, err := os.Open(at)
		if err != nil {
			return err
		}
		defer dir.Close()
		for _, name := range []string{"out", "in"} {
			args := make([]byte, 4096)
			copy(args[8:], name)
			if err := ioctl(dir, subvolCreate, args); err != nil {
				return fmt.Errorf("make a subvolume: %w", err)
			}
		}
		return fill(at)
	})
}

// makeBelow mounts ext4 on a directory of the projects, and binds a directory of that.
func makeBelow(at string, fill func(string) error) error {
	disk := at + ".disk"
	if err := os.MkdirAll(disk, 0o755); err != nil {
		return err
	}
	if err := onDisk("ext4")(disk, fill); err != nil {
		return err
	}
	for _, which := range []string{"out", "in"} {
		project := filepath.Join(at, which)
		sub, bound := filepath.Join(project, "sub"), filepath.Join(project, "sub/bound")
		if err := os.MkdirAll(sub, 0o755); err != nil {
			return err
		}
		from := filepath.Join(disk, which, "sub")
		if err := unix.Mount(from, sub, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind: %w", err)
		}
		from = filepath.Join(from, "bound")
		if err := unix.Mount(from, bound, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind: %w", err)
		}
	}
	return nil
}

// overlay mounts one whose lower layer was filled.
func overlay(at, lower, layers string) error {
	for _, dir := range []string{"upper", "work"} {
		if err := os.MkdirAll(filepath.Join(layers, dir), 0o755); err != nil {
			return err
		}
	}
	return mount("overlay", at, "overlay",
		fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", lower, layers, layers))
}

func overOn(make maker) maker {
	return func(at string, fill func(string) error) error {
		layers := at + ".layers"
		if err := os.MkdirAll(layers, 0o755); err != nil {
			return err
		}
		return make(layers, func(layers string) error {
			lower := filepath.Join(layers, "lower")
			if err := os.MkdirAll(lower, 0o755); err != nil {
				return err
			}
			if err := fill(lower); err != nil {
				return err
			}
			return overlay(at, lower, layers)
		})
	}
}

// makeNested has an overlay as the lower layer of another one.
func makeNested(at string, fill func(string) error) error {
	inner, outer := at+".inner", at+".outer"
	for _, dir := range []string{inner, outer} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := overOn(makeTmpfs)(inner, fill); err != nil {
		return err
	}
	return makeTmpfs(outer, func(layers string) error { return overlay(at, inner, layers) })
}

func make9P(at string, fill func(string) error) error {
	share := at + ".share"
	if err := os.MkdirAll(share, 0o755); err != nil {
		return err
	}
	options := "trans=virtio,version=9p2000.L,msize=262144,cache=mmap"
	if err := mount(ShareTag, share, "9p", options); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(share, "guest-") // guests share the folder
	if err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(dir, at, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	return fill(at)
}
