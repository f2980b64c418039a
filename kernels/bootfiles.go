package kernels

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// limits bound what an archive may make us read and write.
type limits struct {
	entries int
	total   int64 // unpacked
	file    int64 // one that we keep
}

// archiveLimits are far above real kernels: Ubuntu's modules have 7,000 files in 400 MiB.
var archiveLimits = limits{entries: 200_000, total: 4 << 30, file: maxVMLinux}

// errRefused is wrapped by the errors about things that are there, and hostile or
// not what they should be. Such a kernel is not missing.
var errRefused = errors.New("refused")

// errTooLarge means that an archive unpacks to more than archiveLimits allow.
var errTooLarge = fmt.Errorf("is larger than any kernel; %w", errRefused)

// bootPart says under which name the file at a path of an archive or a folder
// belongs into a cache entry: "vmlinuz", "config", or "" when it does not.
func bootPart(name string) string {
	name = path.Clean(name)
	base, dir := path.Base(name), path.Dir(name)
	parent, grand := path.Base(dir), path.Base(path.Dir(dir))
	stem, _, _ := strings.Cut(base, "-")
	switch {
	case parent == "boot" && (stem == "vmlinuz" || stem == "config"):
		return stem
	case grand == "modules" && (base == "vmlinuz" || base == "config"): // Debian since 6.19
		return base
	case strings.HasPrefix(parent, "linux-headers-") && base == ".config":
		return "config"
	}
	return ""
}

// pickBoot reads a tar archive to its end and leaves its kernel image and its
// configuration in dir. Nothing of an archive decides where anything is written;
// one with names or links that try to is refused all the same.
func pickBoot(r io.Reader, dir string, max limits) error {
	return walkTar(r, max, func(h *tar.Header, r io.Reader) error {
		part := bootPart(h.Name)
		switch {
		case part == "" || h.Typeflag == tar.TypeDir:
			return nil
		case h.Typeflag != tar.TypeReg:
			return fmt.Errorf("archive has %q as a link or a device, want a file; %w", h.Name,
				errRefused)
		}
		return writeFile(filepath.Join(dir, part), r)
	})
}

// checkName refuses names that would leave the folder that an archive is unpacked to.
func checkName(name string) error {
	if path.IsAbs(name) {
		return fmt.Errorf("archive has the absolute path %q; %w", name, errRefused)
	}
	for _, part := range strings.Split(name, "/") {
		if part == ".." {
			return fmt.Errorf("archive has the path %q with .. in it; %w", name, errRefused)
		}
	}
	return nil
}

// cappedReader fails once more than left bytes were read. Unlike
// io.LimitedReader it does not take the cut for the end.
type cappedReader struct {
	r    io.Reader
	left int64
}

func (c *cappedReader) Read(p []byte) (int, error) {
	if int64(len(p)) > c.left+1 {
		p = p[:c.left+1]
	}
	n, err := c.r.Read(p)
	if c.left -= int64(n); c.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}

func writeFile(path string, r io.Reader) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, r); err != nil {
		f.Close()
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return f.Close()
}
