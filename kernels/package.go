package kernels

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/go-multierror"
)

// aptSystem is the package manager as it is configured.
type aptSystem struct {
	apt
	cache cache
}

func (a aptSystem) get(ctx context.Context, r ref) (string, error) {
	if r.scheme == schemeDebian {
		archives, _, err := a.debian(ctx)
		if err != nil {
			return "", err
		}
		if len(archives) == 0 {
			return "", errNoDebian
		}
	}
	pkgs, err := a.list(ctx, r)
	if errors.Is(err, errNoLists) {
		if err = a.update(ctx); err == nil {
			pkgs, err = a.list(ctx, r)
		}
	}
	if err != nil {
		return "", err
	}
	found := choose(pkgs, r)
	if len(found) == 0 {
		return "", fmt.Errorf("has no linux-image of %s for %s", r.spec, r.arch)
	}
	return a.cache.fetchFresh(ctx, found[0], r)
}

func (d debian) get(ctx context.Context, r ref) (string, error) {
	found, err := d.find(ctx, r)
	if err != nil {
		return "", err
	}
	return d.cache.fetchFresh(ctx, found[0], r)
}

// fetchFresh fetches p. When that fails it tries once more with fresh lists: the
// mirror may have dropped what old ones name.
func (c cache) fetchFresh(ctx context.Context, p pkg, r ref) (string, error) {
	name, err := c.fetch(ctx, p)
	if err == nil || ctx.Err() != nil || p.from.update(ctx) != nil {
		return name, err
	}
	pkgs, listErr := p.from.list(ctx, r)
	found := choose(pkgs, r)
	if listErr != nil || len(found) == 0 {
		return name, err
	}
	return c.fetch(ctx, found[0])
}

// fetch makes sure that package p is in the cache and returns its entry's name.
func (c cache) fetch(ctx context.Context, p pkg) (string, error) {
	name := p.name + "_" + strings.ReplaceAll(p.version, ":", "%3a")
	return name, c.create(ctx, name, func(dir string) (entry, error) {
		e := entry{
			Version:  p.upstream(),
			Source:   p.from.String() + " " + p.name + "=" + p.version,
			Origin:   "apt",
			Package:  p.name,
			Revision: p.version,
		}
		if p.from.suite != "" {
			e.Origin = schemeDebian
		}
		if err := fetchBoot(ctx, p, dir); err != nil {
			return e, err
		}
		return e, e.complete(ctx, dir)
	})
}

// complete reads what an image says about itself and unpacks it. The folder has
// the image already, and perhaps the configuration.
func (e *entry) complete(ctx context.Context, dir string) error {
	image := filepath.Join(dir, "vmlinuz")
	info, err := inspect(image)
	if err != nil {
		return fmt.Errorf("%s: %w", e.Source, err)
	}
	e.Release, e.SHA256, e.Arch = info.release, info.sha256, info.arch
	if e.Version == "" {
		e.Version = info.version
	}
	if err := extract(ctx, image, dir); err != nil {
		e.Note = err.Error()
	}
	return nil
}

// fetchBoot downloads p and leaves its vmlinuz and config in dir.
func fetchBoot(ctx context.Context, p pkg, dir string) error {
	tmp, err := os.MkdirTemp(dir, "deb-")
	if err != nil {
		return fmt.Errorf("make download folder: %w", err)
	}
	defer os.RemoveAll(tmp)
	unpack := func(name string) error {
		deb, err := p.from.download(ctx, tmp, name, p.version)
		if err != nil {
			return err
		}
		return unpackDeb(ctx, deb, dir)
	}
	if err := unpack(p.name); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "vmlinuz")); err != nil {
		return fmt.Errorf("package %s holds no boot/vmlinuz", p.name)
	}
	if err := p.addConfig(dir, unpack); err != nil {
		p.from.opts.logf("kernels: no config for %s: %v", p.name, err)
	}
	return nil
}

// addConfig takes the configuration out of another package unless it is there.
// Without it the kernel boots as well.
func (p pkg) addConfig(dir string, unpack func(name string) error) error {
	has := func() bool {
		_, err := os.Stat(filepath.Join(dir, "config"))
		return err == nil
	}
	var errs *multierror.Error
	for _, name := range p.configPackages() {
		if has() {
			break
		}
		errs = multierror.Append(errs, unpack(name))
	}
	if has() || errs.ErrorOrNil() == nil {
		return nil
	}
	return errors.New(oneLine(errs))
}

// configPackages are packages that have the configuration when p does not have it
// itself, the smallest first: Debian's since 6.19; Ubuntu's.
func (p pkg) configPackages() []string {
	release := p.abi + "-" + p.flavour
	if p.binary {
		return []string{"linux-base-" + release}
	}
	return []string{"linux-headers-" + release, "linux-modules-" + release}
}
