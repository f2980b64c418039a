package kernels

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"
)

// modulesCache is the cache of kernels' modules, beside that of the kernels: most
// runs need none, and they are ten times as large.
func modulesCache(opts Options) (cache, error) {
	c, err := openCache(opts.Cache)
	if err != nil {
		return c, err
	}
	m := cache{filepath.Join(filepath.Dir(c.dir), "modules")}
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return m, fmt.Errorf("make module cache: %w", err)
	}
	return m, nil
}

// Modules finds the modules that were built with k: in the packages that its image
// came from, or beside the image.
func Modules(ctx context.Context, k Kernel, opts Options) (*ModuleSet, error) {
	if k.Release == "" {
		return nil, fmt.Errorf("find the modules of %s: its release is unknown", k.Name)
	}
	var e entry
	if k.entry != "" {
		var err error
		if _, e, err = (cache{filepath.Dir(k.entry)}).load(filepath.Base(k.entry)); err != nil {
			return nil, err
		}
	}
	if e.Package == "" && e.Origin != schemeDeb {
		return modulesBeside(k)
	}
	c, err := modulesCache(opts)
	if err != nil {
		return nil, err
	}
	name := filepath.Base(k.entry)
	err = c.create(ctx, name, func(dir string) (entry, error) {
		into := moduleFolder(dir)
		if err := fetchModules(ctx, k, e, opts, into); err != nil {
			return e, fmt.Errorf("find the modules of %s: %w", k.Name, err)
		}
		return entry{Version: e.Version, Release: e.Release, Source: e.Source}, nil
	})
	if err != nil {
		return nil, err
	}
	return readModuleSet(filepath.Join(c.dir, name))
}

// modulesBeside are those of an image that is no package's: what surrounds it, or
// what this machine has for the release.
func modulesBeside(k Kernel) (*ModuleSet, error) {
	dir := filepath.Dir(k.Image)
	for _, try := range []string{
		dir, // usr/lib/modules/RELEASE/vmlinuz
		filepath.Join(dir, "../lib/modules", k.Release),
		filepath.Join(dir, "../usr/lib/modules", k.Release),
		filepath.Join("/lib/modules", k.Release),
	} {
		if info, err := os.Stat(filepath.Join(try, "kernel")); err == nil && info.IsDir() {
			return readModuleSet(try)
		}
	}
	return nil, fmt.Errorf("find the modules of %s: no lib/modules/%s beside %s, none in /lib",
		k.Name, k.Release, k.Image)
}

// moduleFolder unpacks modules to a folder, flat: their names are unique.
type moduleFolder string

// take unpacks what a package has of modules.
func (f moduleFolder) take(ctx context.Context, deb string) error {
	return readDeb(ctx, deb, func(data io.Reader) error {
		return walkTar(data, archiveLimits, func(h *tar.Header, r io.Reader) error {
			base := path.Base(h.Name)
			in := strings.Contains(path.Clean(h.Name), "lib/modules/")
			if !in || h.Typeflag != tar.TypeReg ||
				moduleName(base) == "" && base != builtinList {
				return nil
			}
			return writeFile(filepath.Join(string(f), base), r)
		})
	})
}

func (f moduleFolder) empty() bool {
	names, err := filepath.Glob(filepath.Join(string(f), "*.ko*"))
	return err != nil || len(names) == 0
}

// modulePackages are packages that have modules of p's kernel: the image's own,
// and those that some releases of the distributions moved them to.
func (p pkg) modulePackages() []string {
	release := p.abi + "-" + p.flavour
	names := []string{"linux-modules-" + release, "linux-modules-extra-" + release}
	if p.binary || p.flavour == "generic" {
		return names
	}
	return append([]string{p.name}, names...)
}

// fetchModules unpacks all modules of an entry's kernel into a folder.
func fetchModules(ctx context.Context, k Kernel, e entry, opts Options, f moduleFolder) error {
	if e.Origin == schemeDeb {
		if err := f.take(ctx, strings.TrimPrefix(e.Source, "deb ")); err != nil {
			return err
		}
		if f.empty() {
			return fmt.Errorf("%s has none", e.Source)
		}
		return nil
	}
	c, err := openCache(opts.Cache)
	if err != nil {
		return err
	}
	if e.Origin == schemeMainline {
		return mainline{opts, c}.modules(ctx, e, f)
	}
	r := ref{spec: e.Revision, version: e.Revision}
	var errs *multierror.Error
	pkgs, err := apt{opts: opts}.list(ctx, r)
	found := choose(pkgs, r)
	errs = multierror.Append(errs, err)
	if len(found) == 0 {
		if found, err = (debian{opts, c}).find(ctx, r); err != nil {
			return multierror.Append(errs, err)
		}
	}
	i := slices.IndexFunc(found, func(p pkg) bool { return p.name == e.Package })
	if i < 0 {
		return fmt.Errorf("%s=%s is gone from the archive; agent-lock kernels prune, then "+
			"fetch the series again", e.Package, e.Revision)
	}
	return found[i].modules(ctx, f)
}

// modules downloads the packages that have p's modules. That a distribution has no
// package of one of the names is usual, that none has a module is not.
func (p pkg) modules(ctx context.Context, f moduleFolder) error {
	tmp, err := os.MkdirTemp(string(f), "deb-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	var errs *multierror.Error
	for _, name := range p.modulePackages() {
		deb, err := p.from.download(ctx, tmp, name, p.version)
		if err == nil {
			err = f.take(ctx, deb)
		}
		errs = multierror.Append(errs, err)
		if p.flavour != "generic" && !f.empty() { // Ubuntu's are in two packages
			break
		}
	}
	if f.empty() {
		return errors.New(oneLine(multierror.Append(errs, errors.New("no package has modules"))))
	}
	return ctx.Err()
}

// modules downloads the modules of a release of mainline.
func (m mainline) modules(ctx context.Context, e entry, f moduleFolder) error {
	releases, at, err := m.releases(ctx, ref{spec: e.Version, version: e.Version})
	if err != nil {
		return err
	}
	b, err := m.look(ctx, at, releases[0])
	if err != nil {
		return err
	}
	name := b.image.modulePackages()[0]
	deb := filepath.Join(string(f), "download.deb")
	defer os.Remove(deb)
	if err := m.download(ctx, b, deb, name); err != nil {
		return err
	}
	if err := f.take(ctx, deb); err != nil {
		return err
	}
	if f.empty() {
		return fmt.Errorf("package %s has none", name)
	}
	return nil
}
