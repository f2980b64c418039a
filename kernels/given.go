package kernels

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// resolveDeb uses a package file, such as one that was built by make bindeb-pkg.
func resolveDeb(ctx context.Context, c cache, r ref) (Kernel, error) {
	path, err := filepath.Abs(r.arg)
	if err != nil {
		return Kernel{}, err
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return Kernel{}, missing(r, fmt.Errorf("deb: %w", err))
	}
	if err != nil {
		return Kernel{}, err
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return Kernel{}, fmt.Errorf("read package: %w", err)
	}
	name := "deb-" + hex.EncodeToString(hash.Sum(nil))
	err = c.create(ctx, name, func(dir string) (entry, error) {
		e := entry{Source: "deb " + path, Origin: schemeDeb}
		if err := unpackDeb(ctx, path, dir); err != nil {
			return e, err
		}
		if _, err := os.Stat(filepath.Join(dir, "vmlinuz")); err != nil {
			return e, fmt.Errorf("package %s holds no boot/vmlinuz (Debian has it in"+
				" linux-image, since 6.19 in linux-binary)", path)
		}
		return e, e.complete(ctx, dir)
	})
	if err != nil {
		return Kernel{}, err
	}
	return c.named(r, name)
}

// named loads an entry as the answer to r.
func (c cache) named(r ref, name string) (Kernel, error) {
	k, _, err := c.load(name)
	k.Name = r.spec
	if k.Version == "" {
		k.Version = r.spec
	}
	return k, err
}

// imagesIn are where a folder may have kernels: an unpacked image or package, a
// /boot, a build tree.
var imagesIn = []string{
	"boot/vmlinuz*", "vmlinuz*", "usr/lib/modules/*/vmlinuz", "lib/modules/*/vmlinuz",
	"arch/x86/boot/bzImage",
}

// resolveDir uses a folder: the newest kernel in the first place that has some.
func resolveDir(ctx context.Context, c cache, r ref) (Kernel, error) {
	for _, pattern := range imagesIn {
		found, err := filepath.Glob(filepath.Join(escapeGlob(r.arg), pattern))
		if err != nil {
			return Kernel{}, err
		}
		var images []string
		for _, path := range found {
			info, err := os.Stat(path)
			old := strings.HasSuffix(path, ".old") || strings.Contains(path, "-rescue-")
			if err == nil && info.Mode().IsRegular() && !old {
				images = append(images, path)
			}
		}
		if len(images) > 0 {
			sort.SliceStable(images, func(i, j int) bool {
				return compareVersions(images[i], images[j]) > 0
			})
			return resolveFile(ctx, c, r, images[0])
		}
	}
	return Kernel{}, missing(r, fmt.Errorf("dir %s: has none of %s", r.arg,
		strings.Join(imagesIn, ", ")))
}

// escapeGlob makes a path match only itself.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// resolveHost uses the running kernel.
func resolveHost(ctx context.Context, c cache, r ref) (Kernel, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return Kernel{}, fmt.Errorf("name the running kernel: %w", err)
	}
	release := unix.ByteSliceToString(u.Release[:])
	var tried []error
	for _, path := range []string{"/boot/vmlinuz-" + release,
		"/usr/lib/modules/" + release + "/vmlinuz", "/lib/modules/" + release + "/vmlinuz"} {
		f, err := os.Open(path)
		switch {
		case err == nil:
			f.Close()
			return resolveFile(ctx, c, r, path)
		case errors.Is(err, os.ErrPermission): // Ubuntu's is for root only
			return Kernel{}, fmt.Errorf("kernel host: %w (sudo chmod +r %s)", err, path)
		}
		tried = append(tried, fmt.Errorf("host: %w", err))
	}
	return Kernel{}, missing(r, tried...)
}

// resolveOCI uses an image that has its kernel in boot/, such as those of
// ghcr.io/cilium/ci-kernels. A tag is looked up again after a day.
func resolveOCI(ctx context.Context, c cache, opts Options, r ref) (Kernel, error) {
	ref, err := parseImage(r.arg)
	if err != nil {
		return Kernel{}, err
	}
	fresh := seriesFresh
	if ref.digest != "" {
		fresh = math.MaxInt64
	}
	if name, ok := c.series(r.spec, fresh); ok {
		if k, err := c.named(r, name); err == nil {
			return k, nil
		}
	}
	name, err := fetchImage(ctx, c, opts, &registry{ref: ref})
	if err == nil {
		if err := c.setSeries(r.spec, name); err != nil {
			return Kernel{}, fmt.Errorf("remember image: %w", err)
		}
		return c.named(r, name)
	}
	if ctx.Err() != nil {
		return Kernel{}, fmt.Errorf("find kernel %s: %w", r.spec, ctx.Err())
	}
	if name, ok := c.series(r.spec, math.MaxInt64); ok {
		if k, loadErr := c.named(r, name); loadErr == nil {
			opts.logf("kernels: %s: using %s of the cache (%v)", r.spec, k.Version, err)
			return k, nil
		}
	}
	return Kernel{}, missing(r, fmt.Errorf("oci: %w", err))
}

// fetchImage makes sure that an image's kernel is in the cache and returns the
// entry's name.
func fetchImage(ctx context.Context, c cache, opts Options, g *registry) (string, error) {
	m, digest, err := g.image(ctx)
	if err != nil {
		return "", err
	}
	image := g.ref.registry + "/" + g.ref.repository + "@" + digest
	name := "oci-" + strings.TrimPrefix(digest, "sha256:")
	return name, c.create(ctx, name, func(dir string) (entry, error) {
		e := entry{Source: "oci " + image, Origin: schemeOCI}
		for _, d := range m.Layers {
			opts.logf("kernels: downloading a layer of %s, %d MiB", image, d.Size>>20)
			if err := g.layer(ctx, d, dir); err != nil {
				return e, err
			}
		}
		if _, err := os.Stat(filepath.Join(dir, "vmlinuz")); err != nil {
			return e, fmt.Errorf("image %s has no boot/vmlinuz", image)
		}
		return e, e.complete(ctx, dir)
	})
}
