package kernels

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// resolvePackage finds a series or a version: in the cache, else through apt.
func resolvePackage(ctx context.Context, c cache, a apt, r ref) (Kernel, error) {
	if name, ok := c.lookup(r); ok {
		if k, _, err := c.load(name); err == nil {
			k.Name = r.spec
			return k, nil
		}
	}
	tried := []string{"cache " + c.dir}
	pkgs, err := a.list(ctx, r)
	if errors.Is(err, errNoLists) {
		if err = a.update(ctx); err == nil {
			pkgs, err = a.list(ctx, r)
		}
	}
	if err != nil {
		tried = append(tried, err.Error())
		return c.stale(a, r, tried)
	}
	found := choose(pkgs, r)
	if len(found) == 0 {
		tried = append(tried, "apt-cache: no linux-image package of "+r.spec+" for "+arch())
		return c.stale(a, r, tried)
	}
	name, err := fetch(ctx, c, a, found[0])
	if err != nil && a.update(ctx) == nil { // the mirror may have dropped what old lists name
		if pkgs, listErr := a.list(ctx, r); listErr == nil {
			if found = choose(pkgs, r); len(found) > 0 {
				name, err = fetch(ctx, c, a, found[0])
			}
		}
	}
	if err != nil {
		return c.stale(a, r, append(tried, err.Error()))
	}
	if r.series != "" {
		if err := c.setSeries(r.series, name); err != nil {
			return Kernel{}, fmt.Errorf("remember series %s: %w", r.series, err)
		}
	}
	k, _, err := c.load(name)
	k.Name = r.spec
	return k, err
}

// lookup finds what needs no package manager: an exact version, or a series
// that was resolved not long ago.
func (c cache) lookup(r ref) (string, bool) {
	if r.series != "" {
		return c.series(r.series)
	}
	name, _, ok := c.find(func(e entry) bool { return r.matches(e.pkg()) })
	return name, ok
}

// stale is the last resort: whatever the cache holds of a series, however old.
func (c cache) stale(a apt, r ref, tried []string) (Kernel, error) {
	name, _, ok := c.find(func(e entry) bool { return r.matches(e.pkg()) })
	if !ok {
		return Kernel{}, missing(r, tried)
	}
	k, _, err := c.load(name)
	if err != nil {
		return Kernel{}, err
	}
	a.opts.logf("kernels: %s: using %s of the cache (%s)", r.spec, k.Version, tried[len(tried)-1])
	k.Name = r.spec
	return k, nil
}

// pkg is the package that an entry was made from.
func (e entry) pkg() pkg {
	pkgs := parsePackages([]byte("Package: " + e.Package + "\nVersion: " + e.Revision + "\n"))
	if len(pkgs) == 0 {
		return pkg{}
	}
	return pkgs[0]
}

// fetch makes sure that package p is in the cache and returns its entry's name.
func fetch(ctx context.Context, c cache, a apt, p pkg) (string, error) {
	name := p.name + "_" + strings.ReplaceAll(p.version, ":", "%3a")
	return name, c.create(ctx, name, func(dir string) (entry, error) {
		if err := fetchBoot(ctx, a, p, dir); err != nil {
			return entry{}, err
		}
		e := entry{
			Version:  p.upstream(),
			Source:   "apt " + p.name + "=" + p.version,
			Package:  p.name,
			Revision: p.version,
		}
		image := filepath.Join(dir, "vmlinuz")
		info, err := inspect(image)
		if err != nil {
			return e, fmt.Errorf("package %s: %w", p.name, err)
		}
		e.Release, e.SHA256 = info.release, info.sha256
		if err := extract(ctx, image, dir); err != nil {
			e.Note = err.Error()
		}
		return e, nil
	})
}

// fetchBoot downloads p and leaves its vmlinuz and config in dir.
func fetchBoot(ctx context.Context, a apt, p pkg, dir string) error {
	tmp, err := os.MkdirTemp(dir, "deb-")
	if err != nil {
		return fmt.Errorf("make download folder: %w", err)
	}
	defer os.RemoveAll(tmp)
	deb, err := a.download(ctx, tmp, p.name, p.version)
	if err != nil {
		return err
	}
	if err := unpackDeb(ctx, deb, dir); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "vmlinuz")); err != nil {
		return fmt.Errorf("package %s holds no boot/vmlinuz", p.name)
	}
	if _, err := os.Stat(filepath.Join(dir, "config")); err == nil {
		return nil
	}
	// Ubuntu keeps the config with the modules. Without it the kernel boots too.
	modules := "linux-modules-" + p.abi + "-" + p.flavour
	deb, err = a.download(ctx, tmp, modules, p.version)
	if err != nil {
		a.opts.logf("kernels: no config for %s: %v", p.name, err)
		return nil
	}
	return unpackDeb(ctx, deb, dir)
}
