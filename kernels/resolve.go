package kernels

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/go-multierror"
)

// A source is a place that has kernels of a series or a version. Its get makes
// sure that the cache has the one that r asks for, and returns the entry's name.
type source struct {
	name string
	get  func(ctx context.Context, r ref) (string, error)
}

// sources are those that r may come from, in the order to ask them in.
func sources(c cache, opts Options, r ref) []source {
	apt := source{"apt", aptSystem{apt{opts: opts}, c}.get}
	debian := source{schemeDebian, debian{opts, c}.get}
	mainline := source{schemeMainline, mainline{opts, c}.get}
	switch {
	case r.arch != arch(): // the machine's own apt knows its own
		return []source{debian}
	case r.scheme == schemeDebian:
		return []source{apt, debian}
	case r.scheme == schemeMainline:
		return []source{mainline}
	case prefer(r.want()) == schemeMainline:
		return []source{apt, mainline, debian}
	}
	return []source{apt, debian, mainline}
}

// resolveNamed finds a series or a version: in the cache, else wherever it can
// be had, else in the cache, however old that answer is.
func resolveNamed(ctx context.Context, c cache, opts Options, r ref) (Kernel, error) {
	if name, ok := c.lookup(r); ok {
		if k, _, err := c.load(name); err == nil {
			k.Name = r.spec
			return k, nil
		}
	}
	tried := multierror.Append(nil, fmt.Errorf("cache %s: has none", c.dir))
	for _, s := range sources(c, opts, r) {
		name, err := s.get(ctx, r)
		if ctx.Err() != nil {
			return Kernel{}, fmt.Errorf("find kernel %s: %w", r.spec, ctx.Err())
		}
		if err != nil {
			tried = multierror.Append(tried, prefixed(s.name, err)...)
			continue
		}
		if r.series != "" {
			if err := c.setSeries(r.spec, name); err != nil {
				return Kernel{}, fmt.Errorf("remember series %s: %w", r.spec, err)
			}
		}
		k, _, err := c.load(name)
		k.Name = r.spec
		return k, err
	}
	return c.stale(opts, r, tried)
}

// prefixed puts the name of a source before its error, or before each of its
// errors unless it says so itself.
func prefixed(name string, err error) []error {
	var many *multierror.Error
	if !errors.As(err, &many) {
		many = multierror.Append(nil, err)
	}
	out := make([]error, len(many.Errors))
	for i, err := range many.Errors {
		if out[i] = err; !strings.HasPrefix(err.Error(), name+" ") {
			out[i] = fmt.Errorf("%s: %w", name, err)
		}
	}
	return out
}

// lookup finds what needs no source: an exact version, or a series that was
// resolved not long ago.
func (c cache) lookup(r ref) (string, bool) {
	if r.series != "" {
		return c.series(r.spec, seriesFresh)
	}
	name, _, ok := c.find(r.accepts)
	return name, ok
}

// stale is the last resort: whatever the cache holds of a series, however old.
func (c cache) stale(opts Options, r ref, tried *multierror.Error) (Kernel, error) {
	name, _, ok := c.find(r.accepts)
	if !ok {
		return Kernel{}, &MissingError{r.spec, tried}
	}
	k, _, err := c.load(name)
	if err != nil {
		return Kernel{}, err
	}
	opts.logf("kernels: %s: using %s of the cache (%v)", r.spec, k.Version,
		tried.Errors[len(tried.Errors)-1])
	k.Name = r.spec
	return k, nil
}

// accepts reports whether an entry of the cache is what r asks for.
func (r ref) accepts(e entry) bool {
	switch p := e.pkg(); r.scheme {
	case "":
		return r.matches(p)
	case schemeDebian: // Ubuntu's flavours have other names
		return e.Origin != schemeMainline && p.flavour != "generic" && r.matches(p)
	default:
		return e.Origin == r.scheme && r.matches(p)
	}
}

// pkg is the package that an entry was made from.
func (e entry) pkg() pkg {
	pkgs := parsePackages([]byte("Package: " + e.Package + "\nVersion: " + e.Revision + "\n"))
	if len(pkgs) == 0 {
		return pkg{}
	}
	return pkgs[0]
}
