// Package kernels finds the Linux kernels that vmtest boots: in a cache shared
// by parallel runs, through the system's package manager, or as a file that the
// user names.
//
// A kernel is wanted as an ELF vmlinux with a PVH entry point, which QEMU starts
// directly: that saves the guest the boot stub's decompressor, up to a second of
// emulated time. The vmlinux is taken out of the bzImage once and kept beside it.
package kernels

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Kernel is one bootable kernel.
type Kernel struct {
	Name    string // as it was asked for, e.g. "6.1"
	Version string // upstream version, e.g. "6.1.192"; the release where there is none
	Release string // what uname -r prints, e.g. "6.1.0-57-cloud-amd64"; empty: unknown
	Image   string // path of the image as distributed: a bzImage or an ELF vmlinux
	VMLinux string // path of the ELF vmlinux with a PVH entry; empty: boot Image
	Config  string // path of the kernel's .config; empty: unknown
	Source  string // where it came from, e.g. "apt linux-image-…=6.1.192-3"
	SHA256  string // of Image, in hexadecimal
	Note    string // why VMLinux is empty, for people; empty otherwise
}

// Boot returns the file to hand to QEMU's -kernel.
func (k Kernel) Boot() string {
	if k.VMLinux != "" {
		return k.VMLinux
	}
	return k.Image
}

// Options are the surroundings in which Resolve works. The zero value is usable.
type Options struct {
	// Cache is the cache directory. Empty: CacheDir().
	Cache string
	// Logf, when set, is told about slow things (a download) before they start.
	Logf func(format string, args ...any)
}

func (o Options) logf(format string, args ...any) {
	if o.Logf != nil {
		o.Logf(format, args...)
	}
}

// ErrMissing is wrapped by the errors of Resolve that mean "this kernel cannot be
// had here", as opposed to a kernel that is there and unusable.
var ErrMissing = errors.New("kernel not found")

// missing says that ref cannot be had, and everywhere that was looked.
func missing(ref ref, tried []string) error {
	return fmt.Errorf("%w: %s (tried: %s; a kernel image can be given as file:PATH)",
		ErrMissing, ref.spec, strings.Join(tried, "; "))
}

// ref is a parsed list entry: exactly one of the last three is set.
type ref struct {
	spec    string
	path    string // an image file
	series  string // "6.1"
	version string // "6.1.192" or an ABI or release name, "6.1.0-57"
}

var (
	seriesRE  = regexp.MustCompile(`^[0-9]+\.[0-9]+$`)
	versionRE = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+[0-9A-Za-z.+~-]*$`)
)

func parseRef(spec string) (ref, error) {
	r := ref{spec: spec}
	path, isFile := strings.CutPrefix(spec, "file:")
	switch {
	case isFile && path == "":
		return r, errors.New("kernel file: has no path")
	case isFile || strings.Contains(spec, "/"):
		r.path = path
	case seriesRE.MatchString(spec):
		r.series = spec
	case versionRE.MatchString(spec):
		r.version = spec
	default:
		return r, fmt.Errorf("kernel %q is neither a series (6.1), a version (6.12.117)"+
			" nor a path (file:bzImage, ./bzImage)", spec)
	}
	return r, nil
}

// ParseList splits a comma-separated list of kernels and checks that each entry
// is one that Resolve understands. It touches no file.
func ParseList(list string) ([]string, error) {
	var specs []string
	seen := make(map[string]bool)
	for _, spec := range strings.Split(list, ",") {
		spec = strings.TrimSpace(spec)
		if spec == "" {
			return nil, fmt.Errorf("kernel list %q has an empty entry", list)
		}
		if _, err := parseRef(spec); err != nil {
			return nil, err
		}
		if seen[spec] {
			return nil, fmt.Errorf("kernel list %q has %s twice", list, spec)
		}
		seen[spec] = true
		specs = append(specs, spec)
	}
	return specs, nil
}

// Resolve finds the kernel that spec names and makes it bootable. A spec is
//
//   - a series, "6.1": the newest of it that the package manager has;
//   - a version, "6.12.117", or the name a distribution gave it, "6.1.0-57";
//   - a path to an image, with a slash in it or after "file:".
//
// What is downloaded stays in the cache. A kernel that cannot be had gives an
// error that wraps ErrMissing and says what was tried.
func Resolve(ctx context.Context, spec string, opts Options) (Kernel, error) {
	r, err := parseRef(spec)
	if err != nil {
		return Kernel{}, err
	}
	if opts.Cache == "" {
		if opts.Cache, err = CacheDir(); err != nil {
			return Kernel{}, err
		}
	}
	c := cache{dir: filepath.Join(opts.Cache, "kernels")}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return Kernel{}, fmt.Errorf("make kernel cache: %w", err)
	}
	if r.path != "" {
		return resolveFile(ctx, c, r)
	}
	return resolvePackage(ctx, c, apt{opts}, r)
}
