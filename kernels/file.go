package kernels

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// resolveFile uses an image of the user's. The file stays where it is; only the
// vmlinux taken out of it goes to the cache, under the image's checksum.
func resolveFile(ctx context.Context, c cache, r ref, path string) (Kernel, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return Kernel{}, err
	}
	img, err := inspect(path)
	if errors.Is(err, os.ErrNotExist) {
		return Kernel{}, missing(r, fmt.Errorf("file: %w", err))
	}
	if err != nil {
		return Kernel{}, err
	}
	k := Kernel{
		Name:    r.spec,
		Version: img.version,
		Release: img.release,
		Arch:    img.arch,
		Image:   path,
		Config:  configBeside(path, img.release),
		Source:  "file " + path,
		SHA256:  img.sha256,
	}
	if k.Version == "" {
		k.Version = r.spec
	}
	if img.elf {
		f, err := os.Open(path)
		if err != nil {
			return Kernel{}, err
		}
		defer f.Close()
		if err := checkPVH(f); err != nil {
			return Kernel{}, fmt.Errorf("%s: %w; give its bzImage instead", path, err)
		}
		k.VMLinux = path
	}
	name := "file-" + img.sha256
	err = c.create(ctx, name, func(dir string) (entry, error) {
		e := img.entry(k.Source)
		if img.elf {
			return e, keepConfigOf(path, dir)
		}
		if err := extract(ctx, path, dir); err != nil {
			e.Note = err.Error()
		}
		return e, nil
	})
	if err != nil {
		return Kernel{}, err
	}
	cached, _, err := c.load(name)
	k.entry = cached.entry
	if !img.elf {
		k.VMLinux, k.Note = cached.VMLinux, cached.Note
	}
	if k.Config == "" {
		k.Config = cached.Config
	}
	return k, err
}

// keepConfigOf is keepConfig for a file.
func keepConfigOf(vmlinux, dir string) error {
	data, err := os.ReadFile(vmlinux)
	if err != nil {
		return fmt.Errorf("read kernel image: %w", err)
	}
	return keepConfig(data, dir)
}

// configBeside finds the configuration that belongs to an image by the customs
// of /boot (vmlinuz-X and config-X), of /usr/lib/modules/X and of a build tree.
func configBeside(image, release string) string {
	dir, base := filepath.Split(image)
	_, suffix, dashed := strings.Cut(base, "-")
	var names []string
	switch {
	case dashed:
		names = append(names, "config-"+suffix)
	case base == "vmlinuz":
		names = append(names, "config")
	case base == "bzImage":
		names = append(names, "../../../.config")
	}
	if release != "" {
		names = append(names, "config-"+release)
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	return ""
}

// entry is the cache's entry for an image.
func (i image) entry(source string) entry {
	return entry{Version: i.version, Release: i.release, Arch: i.arch, Source: source,
		SHA256: i.sha256}
}
