package kernels

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CacheDir returns agent-lock's cache directory: $AGENT_LOCK_CACHE, else
// agent-lock below $XDG_CACHE_HOME, else below ~/.cache.
func CacheDir() (string, error) {
	if dir := os.Getenv("AGENT_LOCK_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache directory: %w (set AGENT_LOCK_CACHE)", err)
	}
	return filepath.Join(dir, "agent-lock"), nil
}

// openCache makes the cache's directory; empty: CacheDir().
func openCache(dir string) (cache, error) {
	var err error
	if dir == "" {
		if dir, err = CacheDir(); err != nil {
			return cache{}, err
		}
	}
	c := cache{filepath.Join(dir, "kernels")}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return c, fmt.Errorf("make kernel cache: %w", err)
	}
	return c, nil
}

// cache is a directory of entries, one folder a kernel. An entry appears whole
// (renamed into place) or not at all, and is never changed afterwards.
//
//	ENTRY/entry.json  what it is
//	ENTRY/vmlinuz     the image as distributed (absent for a user's own file)
//	ENTRY/vmlinux     the ELF in it (absent when it cannot be had)
//	ENTRY/config      its configuration (absent when unknown)
//	series/6.1        the name of the entry a series was last resolved to
type cache struct {
	dir string
}

// entry is the content of entry.json.
type entry struct {
	Version string `json:"version"`
	Release string `json:"release"`
	Source  string `json:"source"`
	Arch    string `json:"arch,omitempty"` // empty: AMD64
	SHA256  string `json:"sha256"`         // of the image
	Note    string `json:"note,omitempty"`
	// Origin is the source: "apt", "debian" or another scheme; empty: apt or a file.
	Origin string `json:"origin,omitempty"`
	// Package and Revision are the package's name and version; empty for a file.
	Package  string `json:"package,omitempty"`
	Revision string `json:"revision,omitempty"`
}

// pin is what names the image for good: a package version, an image's digest.
func (e entry) pin() string {
	if e.Package != "" {
		return e.Package + "=" + e.Revision
	}
	if e.Origin == schemeOCI {
		return strings.TrimPrefix(e.Source, "oci ")
	}
	return ""
}

// seriesFresh is how long a series keeps the answer it got from the package
// manager. A run then takes no second look, and parallel cells agree.
const seriesFresh = 24 * time.Hour

// load reads an entry.
func (c cache) load(name string) (Kernel, entry, error) {
	var e entry
	dir := filepath.Join(c.dir, name)
	text, err := os.ReadFile(filepath.Join(dir, "entry.json"))
	if err != nil {
		return Kernel{}, e, err
	}
	if err := json.Unmarshal(text, &e); err != nil {
		return Kernel{}, e, fmt.Errorf("read %s/entry.json: %w (remove the folder)", dir, err)
	}
	k := Kernel{
		Version: e.Version,
		Release: e.Release,
		Arch:    cmp.Or(e.Arch, AMD64),
		Source:  e.Source,
		SHA256:  e.SHA256,
		Note:    e.Note,
		Pin:     e.pin(),
		entry:   dir,
	}
	for file, field := range map[string]*string{
		"vmlinuz": &k.Image,
		"vmlinux": &k.VMLinux,
		"config":  &k.Config,
	} {
		path := filepath.Join(dir, file)
		if _, err := os.Stat(path); err == nil {
			*field = path
		}
	}
	return k, e, nil
}

// find returns the newest entry made from a package that match accepts.
func (c cache) find(match func(entry) bool) (string, entry, bool) {
	names, err := os.ReadDir(c.dir)
	if err != nil {
		return "", entry{}, false
	}
	best, bestEntry, found := "", entry{}, false
	for _, n := range names {
		if strings.HasPrefix(n.Name(), ".") {
			continue
		}
		_, e, err := c.load(n.Name())
		if err != nil || e.Package == "" || !match(e) {
			continue
		}
		if !found || compareVersions(e.Revision, bestEntry.Revision) > 0 {
			best, bestEntry, found = n.Name(), e, true
		}
	}
	return best, bestEntry, found
}

// create makes an entry by letting fill write its files into a new folder. When
// the entry exists, or appears while waiting for its lock, fill is not called.
func (c cache) create(ctx context.Context, name string,
	fill func(dir string) (entry, error)) error {
	unlock, err := c.lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	if _, _, err := c.load(name); err == nil {
		return nil
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	tmp, err := os.MkdirTemp(c.dir, ".new-")
	if err != nil {
		return fmt.Errorf("make cache entry: %w", err)
	}
	defer os.RemoveAll(tmp)
	e, err := fill(tmp)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(e, "", "\t")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if err := os.WriteFile(filepath.Join(tmp, "entry.json"), text, 0o644); err != nil {
		return fmt.Errorf("write cache entry: %w", err)
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(c.dir, name))
}

// lock takes the lock of an entry's name. It waits as long as ctx allows.
func (c cache) lock(ctx context.Context, name string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(c.dir, "."+name+".lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock cache entry: %w", err)
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock cache entry %s: %w", name, err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("wait for another run that fetches %s: %w", name, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// series returns the entry that a name was resolved to, within the last maxAge.
func (c cache) series(spec string, maxAge time.Duration) (string, bool) {
	path := filepath.Join(c.dir, "series", seriesFile(spec))
	info, err := os.Stat(path)
	if err != nil || time.Since(info.ModTime()) > maxAge {
		return "", false
	}
	name, err := os.ReadFile(path)
	if err != nil {
		return "", false
	}
	return strings.TrimSpace(string(name)), true
}

// seriesFile is the file name for a name. Those of images do not lend themselves.
func seriesFile(spec string) string {
	if strings.Contains(spec, "/") {
		sum := sha256.Sum256([]byte(spec))
		return hex.EncodeToString(sum[:16])
	}
	return strings.ReplaceAll(spec, ":", "_")
}

// setSeries remembers what a series, or another name that moves, was resolved to.
func (c cache) setSeries(spec, name string) error {
	dir := filepath.Join(c.dir, "series")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	if _, err := tmp.WriteString(name + "\n"); err != nil {
		tmp.Close()
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), filepath.Join(dir, seriesFile(spec)))
}
