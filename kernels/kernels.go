// Package kernels finds the Linux kernels that vmtest boots: in a cache shared
// by parallel runs, through the system's package manager, in the archives of
// Debian and Ubuntu, in registries, or as a file that the user names.
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
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-multierror"
)

// Kernel is one bootable kernel.
type Kernel struct {
	Name    string // as it was asked for, e.g. "6.1"
	Version string // upstream version, e.g. "6.1.192"; the release where there is none
	Release string // what uname -r prints, e.g. "6.1.0-57-cloud-amd64"; empty: unknown
	Arch    string // AMD64 or ARM64
	Image   string // path of the image as distributed: a bzImage, an ELF vmlinux, arm64's Image
	VMLinux string // path of what is in it, such as an ELF with a PVH entry; empty: boot Image
	Config  string // path of the kernel's .config; empty: unknown
	Source  string // where it came from, e.g. "debian sid linux-image-…=6.1.192-3"
	SHA256  string // of Image, in hexadecimal
	Note    string // why VMLinux is empty, for people; empty otherwise
	Pin     string // what names the image for good, e.g. in a lock; empty: nothing does

	entry string // path of its cache entry; empty: none
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
	// Lock is a file with the sums that images must have. Empty: those built in.
	Lock string
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

// MissingError says what was tried. It is an ErrMissing unless a kernel was found
// and refused.
type MissingError struct {
	Spec  string            // the name that was asked for
	Tried *multierror.Error // an error for each place, which says where it is
}

// Error lists on one line what was tried.
func (e *MissingError) Error() string {
	what := ErrMissing
	if e.refused() {
		what = errors.New("kernel refused")
	}
	return fmt.Sprintf("%v: %s (tried: %s; a kernel image can be given as file:PATH)",
		what, e.Spec, oneLine(e.Tried))
}

// refused reports whether something was found and was not what it should be.
func (e *MissingError) refused() bool {
	return slices.ContainsFunc(e.Tried.Errors, func(err error) bool {
		return errors.Is(err, errRefused)
	})
}

func oneLine(errs *multierror.Error) string {
	texts := make([]string, len(errs.Errors))
	for i, err := range errs.Errors {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the errors of what was tried, and ErrMissing unless some of it
// was found and refused: nobody may take that for a kernel that is not there.
func (e *MissingError) Unwrap() []error {
	if e.refused() {
		return e.Tried.Errors
	}
	return append([]error{ErrMissing}, e.Tried.Errors...)
}

// missing says that ref cannot be had, and everywhere that was looked.
func missing(r ref, tried ...error) error {
	return &MissingError{r.spec, multierror.Append(nil, tried...)}
}

// Resolve finds the kernel that spec names and makes it bootable. A spec is
//
//   - a series, "6.1": the newest of it that the package manager has, else the
//     suites of Debian that it could have, else Ubuntu's builds of mainline;
//   - a version, "6.12.117", or the name a distribution gave it, "6.1.0-57";
//   - either of them after "debian:" or "ubuntu-mainline:", for that source only;
//   - either of them after "arm64:" or "amd64:", for that architecture;
//   - "oci:REF", an image of a registry that has the kernel in boot/;
//   - "deb:FILE", a kernel package;
//   - "dir:DIR", a folder with boot/vmlinuz*, or one in which a kernel was built;
//   - "built:NAME", what Build made of the configuration NAME;
//   - "host", the running kernel;
//   - a path to an image, with a slash in it or after "file:".
//
// What is downloaded stays in the cache. A kernel that cannot be had gives an
// error that wraps ErrMissing and says what was tried.
func Resolve(ctx context.Context, spec string, opts Options) (Kernel, error) {
	r, err := parseRef(spec)
	if err != nil {
		return Kernel{}, err
	}
	k, err := resolve(ctx, r, opts)
	if err != nil {
		return Kernel{}, err
	}
	if k.entry != "" { // for Prune; a cache that cannot be written is usable, too
		now := time.Now()
		_ = os.Chtimes(filepath.Join(k.entry, "entry.json"), now, now)
	}
	return k, opts.checkLock(k)
}

func resolve(ctx context.Context, r ref, opts Options) (Kernel, error) {
	c, err := openCache(opts.Cache)
	if err != nil {
		return Kernel{}, err
	}
	switch r.scheme {
	case schemeFile:
		return resolveFile(ctx, c, r, r.arg)
	case schemeDeb:
		return resolveDeb(ctx, c, r)
	case schemeDir:
		return resolveDir(ctx, c, r)
	case schemeBuilt:
		return resolveBuilt(c, r)
	case schemeHost:
		return resolveHost(ctx, c, r)
	case schemeOCI:
		return resolveOCI(ctx, c, opts, r)
	}
	return resolveNamed(ctx, c, opts, r)
}
