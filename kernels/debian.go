package kernels

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-multierror"
)

// debian is the archive of which the machine has some suite configured, with the
// suites that it has not. They are read by the machine's own apt, through its
// proxies and with its keys, but with lists and a cache of our own: nothing of
// the machine's is changed, and root is not needed.
type debian struct {
	opts  Options
	cache cache
}

var errNoDebian = errors.New("apt has no source in an archive of Debian's")

// find returns the packages that r asks for, best first, of the first suite that
// has one. Those of the catalogue begin with the newest and the smallest. Without
// a package there is an error for each suite.
func (d debian) find(ctx context.Context, r ref) ([]pkg, error) {
	system := apt{opts: d.opts}
	archives, configured, err := system.debian(ctx)
	if err != nil {
		return nil, err
	}
	if len(archives) == 0 {
		return nil, errNoDebian
	}
	if ok, err := system.hasLists(ctx); err != nil || !ok || r.arch != arch() {
		configured = nil // the machine's own apt could not look there
	}
	var errs *multierror.Error
	away := map[string]bool{} // archives that cannot be reached: each suite would wait again
	for _, s := range catalogue().Suites {
		base, ok := archives[s.Archive]
		if !ok || slices.Contains(configured, s.Name) {
			continue
		}
		base.suite = s.Name
		if away[base.uri] {
			errs = multierror.Append(errs, fmt.Errorf("debian %s: not tried at %s either",
				s.Name, base.uri))
			continue
		}
		found, err := d.look(ctx, base, r)
		if err == nil || ctx.Err() != nil {
			return found, err
		}
		errs = multierror.Append(errs, fmt.Errorf("debian %s: %w", s.Name, err))
		away[base.uri] = unreachable(err)
	}
	if errs == nil {
		return nil, errors.New("no suite that apt is not configured for")
	}
	return nil, errs
}

// unreachable reports whether an error of apt's is about the way to a server,
// and not about what the server has.
func unreachable(err error) bool {
	for _, words := range []string{"Could not connect", "Could not resolve", "Unable to connect",
		"resolving", "timed out", "unreachable"} {
		if strings.Contains(err.Error(), words) {
			return true
		}
	}
	return false
}

// look finds r in one suite, whose lists are refreshed when they are old.
func (d debian) look(ctx context.Context, s aptSource, r ref) ([]pkg, error) {
	a, err := d.private(ctx, s, r.arch)
	if err != nil {
		return nil, err
	}
	pkgs, err := a.list(ctx, r)
	if err != nil {
		return nil, err
	}
	found := choose(pkgs, r)
	if len(found) == 0 {
		return nil, fmt.Errorf("%s has no linux-image of %s for %s", s.uri, r.spec, r.arch)
	}
	return found, nil
}

// private returns an apt that knows nothing but one suite.
func (d debian) private(ctx context.Context, s aptSource, arch string) (apt, error) {
	sum := sha256.Sum256([]byte(s.uri + "\n" + s.signedBy + "\n" + arch))
	name := "apt-" + s.suite + "-" + hex.EncodeToString(sum[:4])
	dir := filepath.Join(filepath.Dir(d.cache.dir), "apt", name)
	if strings.ContainsAny(dir, "\"\n") {
		return apt{}, fmt.Errorf("apt cannot work in %s", dir)
	}
	a := apt{opts: d.opts, conf: filepath.Join(dir, "apt.conf"), suite: s.suite}
	unlock, err := d.cache.lock(ctx, name)
	if err != nil {
		return a, err
	}
	defer unlock()
	stamp := filepath.Join(dir, "updated")
	info, err := os.Stat(stamp)
	if err == nil && time.Since(info.ModTime()) < seriesFresh {
		return a, nil
	}
	if err := writeApt(dir, s, arch); err != nil {
		return a, fmt.Errorf("set up apt: %w", err)
	}
	d.opts.logf("kernels: reading the package lists of Debian %s", s.suite)
	if err := a.update(ctx); err != nil {
		return a, err
	}
	return a, os.WriteFile(stamp, nil, 0o644)
}

// writeApt makes the folder of a private apt.
func writeApt(dir string, s aptSource, arch string) error {
	for _, sub := range []string{"state/lists/partial", "cache/archives/partial", "sources"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	files := map[string]string{
		"apt.conf":               aptConf(dir, arch),
		"status":                 "", // no package is installed
		"sources/debian.sources": s.deb822(arch),
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// aptConf is read after the machine's own configuration.
func aptConf(dir, arch string) string {
	conf := `#clear APT::Architectures;
APT::Architecture "ARCH";
APT::Architectures "ARCH";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "DIR/sources";
Dir::State "DIR/state";
Dir::State::lists "lists";
Dir::State::status "DIR/status";
Dir::Cache "DIR/cache";
Dir::Cache::pkgcache "pkgcache.bin";
Dir::Cache::srcpkgcache "";
Acquire::AllowInsecureRepositories "false";
Acquire::GzipIndexes "true";
Acquire::Languages "none";
Acquire::Retries "1";
Acquire::http::Timeout "20";
Acquire::https::Timeout "20";
APT::Get::AllowUnauthenticated "false";
APT::Sandbox::User "";
APT::Update::Error-Mode "any";
`
	return strings.NewReplacer("DIR", dir, "ARCH", arch).Replace(conf)
}

// deb822 is s as a file of sources.list.d. The options of the machine's own
// entry, which may say that nothing is to be verified, are not taken over.
func (s aptSource) deb822(arch string) string {
	text := "Types: deb\nURIs: " + s.uri + "\nSuites: " + s.suite +
		"\nComponents: main\nArchitectures: " + arch + "\nTargets: Packages\n"
	if s.signedBy != "" {
		text += "Signed-By: " + s.signedBy + "\n"
	}
	return text
}
