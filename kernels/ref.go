package kernels

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The sources that a name can begin with, before a colon. A name without one is
// a series or a version, of whatever source has it.
const (
	schemeDebian   = "debian"          // a series or a version, from Debian's archive
	schemeMainline = "ubuntu-mainline" // the same, from Ubuntu's builds of mainline
	schemeOCI      = "oci"             // an image in a registry
	schemeDeb      = "deb"             // a package file
	schemeFile     = "file"            // a kernel image
	schemeDir      = "dir"             // a folder with boot/, or a build tree
	schemeBuilt    = "built"           // one that Build made, by its configuration's name
	schemeHost     = "host"            // the running kernel; takes no colon
)

// ref is a parsed name. Series and version exclude each other; the schemes that
// have neither use arg.
type ref struct {
	spec    string
	scheme  string // empty: any source
	arg     string // what follows the scheme
	arch    string // as in Kernel; set with series and version
	series  string // "6.1"
	version string // "6.1.192" or an ABI or release name, "6.1.0-57"
}

var (
	seriesRE  = lazily(`^[0-9]+\.[0-9]+$`)
	versionRE = lazily(`^[0-9]+\.[0-9]+\.[0-9]+[0-9A-Za-z.+~-]*$`)
)

const nameForms = "6.1, 6.12.117, debian:6.1, arm64:6.12, ubuntu-mainline:6.6," +
	" oci:REGISTRY/NAME:TAG, deb:FILE, file:IMAGE, dir:DIR, built:NAME, host or a path with a slash"

func parseRef(spec string) (ref, error) {
	r := ref{spec: spec}
	scheme, arg, colon := strings.Cut(spec, ":")
	takesArg := []string{schemeOCI, schemeDeb, schemeFile, schemeDir, schemeBuilt}
	switch {
	case colon && slices.Contains(takesArg, scheme):
		if arg == "" {
			return r, fmt.Errorf("kernel %s: names nothing; give %sSOMETHING", spec, spec)
		}
		r.scheme, r.arg = scheme, arg
		if scheme == schemeOCI {
			_, err := parseImage(arg)
			return r, err
		}
		return r, nil
	case spec == schemeHost:
		r.scheme = schemeHost
		return r, nil
	case colon && (scheme == schemeDebian || scheme == schemeMainline):
		r.scheme = scheme
	case colon && (scheme == AMD64 || scheme == ARM64):
		r.arch = scheme
	case strings.Contains(spec, "/"):
		r.scheme, r.arg = schemeFile, spec
		return r, nil
	case colon:
		return r, fmt.Errorf("kernel %q: no source is called %s; the forms are %s",
			spec, scheme, nameForms)
	default:
		arg = spec
	}
	r.arch = cmp.Or(r.arch, arch())
	switch {
	case seriesRE().MatchString(arg):
		r.series = arg
	case versionRE().MatchString(arg):
		r.version = arg
	default:
		return r, fmt.Errorf("kernel %q is neither a series nor a version; the forms are %s",
			spec, nameForms)
	}
	return r, nil
}

// want is the series that r is in.
func (r ref) want() string {
	if r.series != "" {
		return r.series
	}
	parts := strings.SplitN(r.version, ".", 3)
	return parts[0] + "." + parts[1]
}

// matches reports whether p is what r asks for.
func (r ref) matches(p pkg) bool {
	if p.arch() != r.arch {
		return false
	}
	if r.series != "" {
		return strings.HasPrefix(p.upstream(), r.series+".")
	}
	return r.version == p.upstream() || r.version == p.abi || r.version == p.version ||
		r.version == p.abi+"-"+p.flavour
}

// ParseList splits a comma-separated list of kernels and checks that each entry
// is one that Resolve understands. It touches no file.
func ParseList(list string) ([]string, error) {
	var specs []string
	for _, spec := range strings.Split(list, ",") {
		spec = strings.TrimSpace(spec)
		if spec == "" {
			return nil, fmt.Errorf("kernel list %q has an empty entry", list)
		}
		if _, err := parseRef(spec); err != nil {
			return nil, err
		}
		if slices.Contains(specs, spec) {
			return nil, fmt.Errorf("kernel list %q has %s twice", list, spec)
		}
		specs = append(specs, spec)
	}
	if len(specs) == 0 {
		return nil, errors.New("kernel list is empty")
	}
	return specs, nil
}
