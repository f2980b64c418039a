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
	opts  Options
	conf  string // configuration of a private one; empty: the machine's own
	suite string // of Debian's, which a private one is about
}

// String says where a package came from.
func (a apt) String() string {
	if a.suite != "" {
		return "debian " + a.suite
	}
	return "apt"
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
	binary   bool // linux-binary-…: the image, since linux-image-… holds none
	from     apt
}

// imageName matches the flavours that run anywhere: Debian's cloud-ARCH and
// ARCH, Ubuntu's generic. Debug symbols, real-time and vendor kernels are not among them.
var imageName = lazily(
	`^linux-(image|binary)-(unsigned-)?([0-9]+\.[0-9]+\.[0-9]+\S*?)` +
		`-((?:cloud-)?(?:amd64|arm64)|generic)$`)

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
		m := imageName().FindStringSubmatch(p.name)
		if m == nil || p.version == "" || seen[p.name+"="+p.version] {
			continue
		}
		if strings.HasSuffix(m[3], "-rt") { // it looks like a part of the ABI name
			continue
		}
		seen[p.name+"="+p.version] = true
		p.binary, p.unsigned, p.abi, p.flavour = m[1] == "binary", m[2] != "", m[3], m[4]
		pkgs = append(pkgs, p)
	}
	return pkgs
}

// arch is the architecture that a package is for. Ubuntu's names do not tell it: there is
// one for the machine's own.
func (p pkg) arch() string {
	for _, a := range []string{AMD64, ARM64} {
		if strings.HasSuffix(p.flavour, a) {
			return a
		}
	}
	return arch()
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

// choose returns the packages that r asks for, best first: the smaller flavour
// (it boots twice as fast), then the newest, then the one that holds the image,
// then the signed one.
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
		if a.binary != b.binary {
			return a.binary
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
	switch ok, err := a.hasLists(ctx); {
	case err != nil:
		return nil, err
	case !ok:
		return nil, errNoLists
	}
	names, err := a.run(ctx, "apt-cache", "search", "--names-only",
		`^linux-(image|binary)-(unsigned-)?`+regexp.QuoteMeta(r.want())+`\.`)
	if err != nil {
		return nil, err
	}
	args := []string{"show"}
	for line := range strings.Lines(string(names)) {
		name, _, _ := strings.Cut(line, " ")
		if imageName().MatchString(name) {
			args = append(args, name)
		}
	}
	if len(args) == 1 {
		return nil, nil
	}
	text, err := a.run(ctx, "apt-cache", args...)
	if err != nil {
		return nil, err
	}
	pkgs := parsePackages(text)
	for i := range pkgs {
		pkgs[i].from = a
	}
	return pkgs, nil
}

// hasLists reports whether apt knows any package.
func (a apt) hasLists(ctx context.Context) (bool, error) {
	if _, err := exec.LookPath("apt-cache"); err != nil {
		return false, errors.New("apt-cache is not installed: of package managers only" +
			" Debian's and Ubuntu's is known")
	}
	targets, err := a.run(ctx, "apt-get", "indextargets", "--format", "$(FILENAME)",
		"Created-By: Packages")
	return len(bytes.TrimSpace(targets)) > 0, err
}

// debian finds Debian's archives in the configuration, and the names of the
// suites of theirs in it.
func (a apt) debian(ctx context.Context) (map[string]aptSource, []string, error) {
	if _, err := exec.LookPath("apt-config"); err != nil {
		return nil, nil, errors.New("apt-config is not installed")
	}
	out, err := a.run(ctx, "apt-config", "shell", "list", "Dir::Etc::sourcelist/f",
		"parts", "Dir::Etc::sourceparts/d")
	if err != nil {
		return nil, nil, err
	}
	paths := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		paths[name] = strings.Trim(value, "'")
	}
	archives, suites := debianArchives(readSources(paths["list"], paths["parts"]))
	return archives, suites, nil
}

// update refreshes the package lists. Those of the machine take root.
func (a apt) update(ctx context.Context) error {
	if a.conf == "" {
		if os.Geteuid() != 0 {
			return errNoLists
		}
		a.opts.logf("kernels: apt-get update")
	}
	_, err := a.run(ctx, "apt-get", "update", "-q")
	return err
}

// download fetches the .deb of one package version into dir.
func (a apt) download(ctx context.Context, dir, name, version string) (string, error) {
	a.opts.logf("kernels: downloading %s %s", name, version)
	// The sandbox user could not write to a cache below root's home.
	args := append(a.options(), "download", "-q", "-o", "APT::Sandbox::User=root",
		name+"="+version)
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("apt-get download %s=%s: %w: %s", name, version, err, aptError(out))
	}
	debs, err := filepath.Glob(filepath.Join(dir, name+"_*.deb"))
	if err != nil || len(debs) != 1 {
		return "", fmt.Errorf("apt-get download %s: left %d files, want 1", name, len(debs))
	}
	return debs[0], nil
}

// options are those of every call.
func (a apt) options() []string {
	if a.conf == "" {
		return nil
	}
	return []string{"-c", a.conf}
}

// run runs one of apt's commands in the C locale and returns its output.
func (a apt) run(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, append(a.options(), args...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", name, args[0], err, aptError(stderr.Bytes()))
	}
	return out, nil
}

// aptError is the first error in what apt printed, which explains the others;
// without one, the last line.
func aptError(text []byte) string {
	for line := range strings.Lines(string(text)) {
		if message, ok := strings.CutPrefix(line, "E: "); ok {
			return strings.TrimSpace(message)
		}
	}
	return lastLine(text)
}

func lastLine(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

// The architectures of kernels, in Debian's words and Go's.
const (
	AMD64 = "amd64"
	ARM64 = "arm64"
)

// arch is the architecture of this program, which its guests have unless another is named.
func arch() string { return runtime.GOARCH }
