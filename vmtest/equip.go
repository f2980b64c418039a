package vmtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/u-root/u-root/pkg/cpio"

	"github.com/agent-lock/agent-lock/kernels"
	"golang.org/x/sys/unix"
)

// treePath is the folder of the archive that has what Config.Trees have.
const treePath = "tree"

// shareArgs are the options that give a guest its shares.
func shareArgs(shares []Share) []string {
	var args []string
	for i, s := range shares {
		id := "share" + strconv.Itoa(i)
		// Owners and modes of the guest's are kept beside the files: QEMU need not be root.
		args = append(args, "-fsdev", "local,id="+id+",path="+strings.ReplaceAll(s.Host, ",", ",,")+
			",multidevs=remap,security_model="+securityModel(s.Host),
			"-device", "virtio-9p-pci,fsdev="+id+",mount_tag="+s.tag(i))
	}
	return args
}

// securityModel keeps them in extended attributes where the folder can have those.
func securityModel(dir string) string {
	const probe = "user.agent-lock.probe"
	if unix.Setxattr(dir, probe, nil, 0) != nil {
		return "mapped-file"
	}
	unix.Removexattr(dir, probe)
	return "mapped-xattr"
}

func (s Share) tag(i int) string {
	if path.IsAbs(s.Guest) {
		return "share" + strconv.Itoa(i)
	}
	return s.Guest
}

// equip returns the records of what cfg wants in the guest besides files, and
// enters it into the plan.
func (r *runner) equip(ctx context.Context, k kernels.Kernel, label string,
	p *plan) ([]cpio.Record, error) {
	var recs []cpio.Record
	for i, s := range r.cfg.Shares {
		if path.IsAbs(s.Guest) {
			p.Mounts = append(p.Mounts, planMount{s.tag(i), s.Guest})
		}
	}
	for _, t := range r.cfg.Trees {
		tree, err := t.records()
		if err != nil {
			return nil, fmt.Errorf("read tree: %w", err)
		}
		recs, p.Tree = append(recs, tree...), true
	}
	modules, err := r.modules(ctx, k, label, p)
	return append(recs, modules...), err
}

// modules finds the modules of one kernel. That it has some of them neither as
// modules nor built in is said, and for the steps to notice.
func (r *runner) modules(ctx context.Context, k kernels.Kernel, label string,
	p *plan) ([]cpio.Record, error) {
	names := slices.Clone(r.cfg.Modules)
	if len(r.cfg.Shares) > 0 {
		names = append(names, shareModules...)
	}
	if len(names) == 0 {
		return nil, nil
	}
	opts := kernels.Options{Cache: r.cfg.Cache, Logf: r.cfg.Logf}
	set, err := kernels.Modules(ctx, k, opts)
	if err != nil {
		r.cfg.Logf("%s: no modules: %v", label, err)
		return nil, ctx.Err()
	}
	order, lacks, err := set.Order(ctx, names)
	if err != nil {
		return nil, err
	}
	if len(lacks) > 0 {
		r.cfg.Logf("%s: no modules, so built in or not there: %s", label,
			strings.Join(lacks, ", "))
	}
	recs := []cpio.Record{cpio.Directory("modules", 0o700)}
	for _, m := range order {
		archive := "modules/" + m.Name
		recs = append(recs, privateRecord(archive, m.Data))
		wanted := slices.ContainsFunc(names, func(n string) bool {
			return strings.ReplaceAll(n, "-", "_") == m.Name
		})
		p.Modules = append(p.Modules, planModule{Archive: archive, Name: m.Name, Wanted: wanted})
	}
	return recs, nil
}

// records reads the tree. Devices, pipes and sockets are left out.
func (t Tree) records() ([]cpio.Record, error) {
	dir, err := filepath.EvalSymlinks(t.Host)
	if err != nil {
		return nil, err
	}
	recs := []cpio.Record{cpio.Directory(treePath, 0o700)}
	at := treePath
	for _, parent := range strings.FieldsFunc(t.Guest, func(r rune) bool { return r == '/' }) {
		at += "/" + parent
		recs = append(recs, cpio.Directory(at, 0o755))
	}
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		rec, err := t.record(name, at+"/"+filepath.ToSlash(rel), d)
		if rec != nil {
			recs = append(recs, *rec)
		}
		return err
	})
	cpio.MakeAllReproducible(recs)
	return recs, err
}

// record reads one entry; nil: it is left out.
func (t Tree) record(name, to string, d fs.DirEntry) (*cpio.Record, error) {
	info, err := d.Info()
	if err != nil {
		return nil, err
	}
	perm := uint64(info.Mode().Perm())
	if t.Readable {
		perm |= perm & 0o500 >> 6
	}
	var rec cpio.Record
	switch {
	case d.IsDir():
		rec = cpio.Directory(to, perm)
	case d.Type() == fs.ModeSymlink:
		target, err := os.Readlink(name)
		if err != nil {
			return nil, err
		}
		rec = cpio.Symlink(to, target)
	case d.Type().IsRegular():
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		rec = cpio.StaticRecord(data, cpio.Info{Name: to, Mode: cpio.S_IFREG | perm})
	default:
		return nil, nil
	}
	return &rec, nil
}

// mergedDirs are links into /usr where there is a tree, as in today's distributions.
var mergedDirs = []string{"/bin", "/lib", "/lib64", "/sbin"}

// makeDirs makes the folders of the guest's root file system.
func makeDirs(root string, merge bool) error {
	for _, d := range guestDirs {
		if merge && slices.Contains(mergedDirs, d.path) {
			continue
		}
		if err := d.make(root); err != nil {
			return err
		}
	}
	if !merge {
		return nil
	}
	for _, dir := range mergedDirs {
		if err := os.MkdirAll(root+"/usr"+dir, 0o755); err != nil {
			return err
		}
		if err := os.Symlink("usr"+dir, root+dir); err != nil {
			return err
		}
	}
	return nil
}

// moveTree moves what is in a folder of the archive to the new root.
func moveTree(from, root string) error {
	err := filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == from {
			return err
		}
		rel := strings.TrimPrefix(name, from)
		first, _, _ := strings.Cut(rel[1:], "/")
		if slices.Contains(mergedDirs, "/"+first) {
			if rel == "/"+first {
				return nil
			}
			rel = "/usr" + rel
		}
		to := root + rel
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			err := os.Mkdir(to, info.Mode().Perm())
			if errors.Is(err, fs.ErrExist) {
				return nil
			}
			return err
		case d.Type() == fs.ModeSymlink:
			target, err := os.Readlink(name)
			if err != nil {
				return err
			}
			if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return os.Symlink(target, to)
		}
		return moveFile(name, to, uint32(info.Mode().Perm()))
	})
	return errors.Join(err, os.RemoveAll(from))
}

// guestModules is where pid 1's second stage finds the modules.
const guestModules = "/run/modules/"

// equip loads the plan's modules and mounts its shares.
func (p plan) equip() error {
	for _, m := range p.Modules {
		data, err := os.ReadFile(guestModules + m.Name)
		if err != nil {
			return err
		}
		err = unix.InitModule(data, "")
		if err != nil && !errors.Is(err, unix.EEXIST) && m.Wanted {
			return fmt.Errorf("load module %s: %w", m.Name, err)
		}
	}
	if err := os.RemoveAll(guestModules); err != nil {
		return err
	}
	for _, m := range p.Mounts {
		if err := os.MkdirAll(m.Guest, 0o755); err != nil {
			return err
		}
		options := "trans=virtio,version=9p2000.L,msize=262144"
		if err := unix.Mount(m.Tag, m.Guest, "9p", 0, options); err != nil {
			return fmt.Errorf("mount the share %s: %w (does the kernel have 9p?)", m.Guest, err)
		}
	}
	return nil
}
