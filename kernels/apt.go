package kernels

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"sort"
	"strings"
)

// apt finds and fetches kernel packages of Debian and Ubuntu. It installs nothing.
type apt struct {
	opts Options
}

// errNoLists means that the package manager knows of no package at all.
var errNoLists = errors.New("apt has no package lists; run apt-get update")

// pkg is one version of one kernel image package.
type pkg struct {
	name     string // linux-image-6.1.0-57-cloud-amd64
	version  string // 6.1.192-3
	abi      string // 6.1.0-57
	flavour  string // cloud-amd64, amd64, generic
	unsigned bool
}

// imageName matches the flavours that run anywhere: Debian's cloud-ARCH and
// ARCH, Ubuntu's generic. Debug symbols, real-time and vendor kernels are not among them.
var imageName = regexp.MustCompile(
	`^linux-image-(unsigned-)?([0-9]+\.[0-9]+\.[0-9]+\S*?)-((?:cloud-)?(?:amd64|arm64)|generic)$`)

// parsePackages reads the paragraphs that apt-cache show prints, keeping the
// kernel images that could be booted.
func parsePackages(text []byte) []pkg {
	var pkgs []pkg
	seen := make(map[string]bool)
	for _, paragraph := range strings.Split(string(text), "\n\n") {
		var p pkg
		for _, line := range strings.Split(paragraph, "\n") {
			if v, ok := strings.CutPrefix(line, "Package: "); ok {
				p.name = v
			} else if v, ok := strings.CutPrefix(line, "Version: "); ok {
				p.version = v
			}
		}
		m := imageName.FindStringSubmatch(p.name)
		if m == nil || p.version == "" || seen[p.name+"="+p.version] {
			continue
		}
		if strings.HasSuffix(m[2], "-rt") { // it looks like a part of the ABI name
			continue
		}
		seen[p.name+"="+p.version] = true
		p.unsigned, p.abi, p.flavour = m[1] != "", m[2], m[3]
		pkgs = append(pkgs, p)
	}
	return pkgs
}

// upstream is the kernel version in a package version. Debian puts the stable
// release there (6.1.192-3); Ubuntu does not (6.8.0-51.52), so there the ABI
// name is the most precise one there is.
func (p pkg) upstream() string {
	_, v, _ := strings.Cut("0:"+p.version, ":")
	if _, rest, ok := strings.Cut(v, ":"); ok {
		v = rest
	}
	v, _, _ = strings.Cut(v, "-")
	v, _, _ = strings.Cut(v, "+")
	if strings.HasSuffix(v, ".0") && strings.HasPrefix(p.abi, v) {
		return p.abi
	}
	return v
}

// matches reports whether p is what r asks for.
func (r ref) matches(p pkg) bool {
	if r.series != "" {
		return strings.HasPrefix(p.upstream(), r.series+".")
	}
	return r.version == p.upstream() || r.version == p.abi || r.version == p.version ||
		r.version == p.abi+"-"+p.flavour
}

// choose returns the packages that r asks for, best first: the smaller flavour
// (it boots twice as fast), then the newest, then the signed one.
func choose(pkgs []pkg, r ref) []pkg {
	var found []pkg
	for _, p := range pkgs {
		if r.matches(p) {
			found = append(found, p)
		}
	}
	cloud := func(p pkg) bool { return strings.HasPrefix(p.flavour, "cloud-") }
	sort.SliceStable(found, func(i, j int) bool {
		a, b := found[i], found[j]
		if cloud(a) != cloud(b) {
			return cloud(a)
		}
		if c := compareVersions(a.version, b.version); c != 0 {
			return c > 0
		}
		if a.unsigned != b.unsigned {
			return b.unsigned
		}
		return a.name < b.name
	})
	return found
}

// list asks the package manager for the packages that r could mean.
func (a apt) list(ctx context.Context, r ref) ([]pkg, error) {
	if _, err := exec.LookPath("apt-cache"); err != nil {
		return nil, errors.New("apt-cache is not installed: only Debian's and Ubuntu's" +
			" package manager is supported")
	}
	targets, err := run(ctx, "apt-get", "indextargets", "--format", "$(FILENAME)",
		"Created-By: Packages")
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(targets)) == 0 {
		return nil, errNoLists
	}
	want := r.series
	if want == "" {
		parts := strings.SplitN(r.version, ".", 3)
		want = parts[0] + "." + parts[1]
	}
	names, err := run(ctx, "apt-cache", "search", "--names-only",
		`^linux-image-(unsigned-)?`+regexp.QuoteMeta(want)+`\.`)
	if err != nil {
		return nil, err
	}
	args := []string{"show"}
	for _, line := range strings.Split(string(names), "\n") {
		name, _, _ := strings.Cut(line, " ")
		if imageName.MatchString(name) {
			args = append(args, name)
		}
	}
	if len(args) == 1 {
		return nil, nil
	}
	text, err := run(ctx, "apt-cache", args...)
	if err != nil {
		return nil, err
	}
	return parsePackages(text), nil
}

// update refreshes the package lists, for which one has to be root.
func (a apt) update(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errNoLists
	}
	a.opts.logf("kernels: apt-get update")
	_, err := run(ctx, "apt-get", "update", "-q")
	return err
}

// download fetches the .deb of one package version into dir.
func (a apt) download(ctx context.Context, dir, name, version string) (string, error) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		return "", errors.New("dpkg-deb is not installed; install it with apt-get install dpkg")
	}
	a.opts.logf("kernels: downloading %s %s", name, version)
	// The sandbox user could not write to a cache below root's home.
	cmd := exec.CommandContext(ctx, "apt-get", "download", "-q",
		"-o", "APT::Sandbox::User=root", name+"="+version)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("apt-get download %s=%s: %w: %s", name, version, err, lastLine(out))
	}
	debs, err := filepath.Glob(filepath.Join(dir, name+"_*.deb"))
	if err != nil || len(debs) != 1 {
		return "", fmt.Errorf("apt-get download %s: left %d files, want 1", name, len(debs))
	}
	return debs[0], nil
}

// run runs a command in the C locale and returns its standard output.
func run(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", name, args[0], err, lastLine(stderr.Bytes()))
	}
	return out, nil
}

func lastLine(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

// arch is the kernel architecture that guests of this program have, in Debian's words.
func arch() string { return runtime.GOARCH }
