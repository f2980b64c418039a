package kernels

import (
	"context"
	"fmt"
	"html"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/hashicorp/go-multierror"
)

// mainlineURL is Ubuntu's archive of upstream releases, built with Ubuntu's
// configuration. AGENT_LOCK_MAINLINE names a mirror.
const mainlineURL = "https://kernel.ubuntu.com/mainline"

// mainlineTries is how many releases are looked at, newest first. A release
// appears before it is built, some builds fail, and old ones are moved away.
const mainlineTries = 10

// mainline is an archive with a folder for each release, v6.6.30/, that has one
// for each architecture, amd64/, with packages and their CHECKSUMS.
type mainline struct {
	opts  Options
	cache cache
}

func (m mainline) url() string {
	if u := os.Getenv("AGENT_LOCK_MAINLINE"); u != "" {
		return u
	}
	return mainlineURL
}

// build is what one release has for our architecture.
type build struct {
	release string            // "6.6.30"
	at      *url.URL          // of the folder
	image   pkg               // its name and version
	sums    map[string]string // file name: SHA-256
}

func (m mainline) get(ctx context.Context, r ref) (string, error) {
	releases, at, err := m.releases(ctx, r)
	if err != nil {
		return "", err
	}
	var errs *multierror.Error
	for _, release := range releases[:min(len(releases), mainlineTries)] {
		name, err := m.fetch(ctx, at, release)
		if err == nil || ctx.Err() != nil {
			return name, err
		}
		m.opts.logf("kernels: skipping mainline v%s: %v", release, err)
		errs = multierror.Append(errs, fmt.Errorf("%s v%s: %w", schemeMainline, release, err))
	}
	return "", errs
}

var hrefRE = lazily(`(?i)<a\s[^>]*?href="([^"?#]+)"`)

// links are the last parts of the paths that an index page links to.
func links(page []byte) []string {
	var names []string
	for _, m := range hrefRE().FindAllSubmatch(page, -1) {
		u, err := url.Parse(html.UnescapeString(string(m[1])))
		if err == nil {
			names = append(names, path.Base(u.Path))
		}
	}
	return names
}

// mainlineRE takes a version apart: upstream's, and what Ubuntu adds to it.
// Debian's names, 6.1.0-57, are none.
var mainlineRE = lazily(
	`^([0-9]+\.[0-9]+(?:\.[1-9][0-9]*)?)(?:\.0)?(?:-0[0-9]{5,}(?:-generic)?)?$`)

// isRelease reports whether r could be a release of upstream's.
func (r ref) isRelease(release string) bool {
	if r.series != "" {
		return release == r.series || strings.HasPrefix(release, r.series+".")
	}
	m := mainlineRE().FindStringSubmatch(r.version)
	return m != nil && m[1] == release
}

// releases lists what r could be, newest first.
func (m mainline) releases(ctx context.Context, r ref) ([]string, *url.URL, error) {
	index, at, err := page(ctx, m.url()+"/")
	if err != nil {
		return nil, nil, err
	}
	var found []string
	for _, name := range links(index) {
		if release, ok := strings.CutPrefix(name, "v"); ok && r.isRelease(release) {
			found = append(found, release)
		}
	}
	if len(found) == 0 {
		return nil, nil, fmt.Errorf("%s lists no release of %s", m.url(), r.spec)
	}
	sort.Slice(found, func(i, j int) bool { return compareVersions(found[i], found[j]) > 0 })
	return slices.Compact(found), at, nil
}

// look finds the newest build of a release.
func (m mainline) look(ctx context.Context, at *url.URL, release string) (build, error) {
	b := build{release: release}
	index, folder, err := page(ctx, at.JoinPath("v"+release, arch()).String()+"/")
	if err != nil {
		return b, err
	}
	b.at = folder
	ending := "_" + arch() + ".deb"
	for _, file := range links(index) {
		name, version, _ := strings.Cut(strings.TrimSuffix(file, ending), "_")
		pkgs := parsePackages([]byte("Package: " + name + "\nVersion: " + version + "\n"))
		if !strings.HasSuffix(file, ending) || len(pkgs) == 0 || pkgs[0].flavour != "generic" {
			continue
		}
		if b.image.name == "" || compareVersions(version, b.image.version) > 0 {
			b.image = pkgs[0]
		}
	}
	if b.image.name == "" {
		return b, fmt.Errorf("%s has no linux-image package", b.at)
	}
	sums, _, err := page(ctx, b.at.JoinPath("CHECKSUMS").String())
	b.sums = parseSums(sums)
	return b, err
}

// parseSums reads lines of a SHA-256 and a file name; other sums are in between.
func parseSums(text []byte) map[string]string {
	sums := map[string]string{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 2 && len(fields[0]) == 64 {
			sums[strings.TrimPrefix(fields[1], "*")] = strings.ToLower(fields[0])
		}
	}
	return sums
}

// fetch makes sure that a release is in the cache and returns its entry's name.
func (m mainline) fetch(ctx context.Context, at *url.URL, release string) (string, error) {
	b, err := m.look(ctx, at, release)
	if err != nil {
		return "", err
	}
	name := schemeMainline + "-" + b.image.name + "_" + b.image.version + "_" + arch()
	return name, m.cache.create(ctx, name, func(dir string) (entry, error) {
		e := entry{
			Version:  release,
			Source:   schemeMainline + " " + b.image.name + "=" + b.image.version,
			Origin:   schemeMainline,
			Package:  b.image.name,
			Revision: b.image.version,
		}
		if err := m.unpack(ctx, b, dir, b.image.name); err != nil {
			return e, err
		}
		if _, err := os.Stat(filepath.Join(dir, "vmlinuz")); err != nil {
			return e, fmt.Errorf("package %s holds no boot/vmlinuz", b.image.name)
		}
		if err := b.image.addConfig(dir, func(name string) error {
			return m.unpack(ctx, b, dir, name)
		}); err != nil {
			m.opts.logf("kernels: no config for mainline v%s: %v", release, err)
		}
		return e, e.complete(ctx, dir)
	})
}

// unpack downloads one package of a build and takes what it has into dir.
func (m mainline) unpack(ctx context.Context, b build, dir, name string) error {
	deb := filepath.Join(dir, "download.deb")
	defer os.Remove(deb)
	if err := m.download(ctx, b, deb, name); err != nil {
		return err
	}
	return unpackDeb(ctx, deb, dir)
}

// download fetches one package of a build into the file deb.
func (m mainline) download(ctx context.Context, b build, deb, name string) error {
	file := name + "_" + b.image.version + "_" + arch() + ".deb"
	sum, ok := b.sums[file]
	if !ok {
		return fmt.Errorf("CHECKSUMS has no SHA-256 of %s", file)
	}
	address := b.at.JoinPath(file).String()
	m.opts.logf("kernels: downloading %s", address)
	return download(ctx, address, deb, sum)
}
