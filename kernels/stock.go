package kernels

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"
)

// Stored is a kernel in the cache.
type Stored struct {
	Kernel
	Entry string    // its folder's name
	Bytes int64     // on disk
	Used  time.Time // when it was last resolved
}

// List returns what the cache holds, by version, newest first.
func List(opts Options) ([]Stored, error) {
	c, err := openCache(opts.Cache)
	if err != nil {
		return nil, err
	}
	names, err := os.ReadDir(c.dir)
	if err != nil {
		return nil, fmt.Errorf("list kernel cache: %w", err)
	}
	var all []Stored
	for _, n := range names {
		if strings.HasPrefix(n.Name(), ".") {
			continue
		}
		k, _, err := c.load(n.Name())
		if errors.Is(err, os.ErrNotExist) { // the folder of series
			continue
		}
		if err != nil {
			return nil, err
		}
		s := Stored{Kernel: k, Entry: n.Name(), Bytes: size(filepath.Join(c.dir, n.Name()))}
		if info, err := os.Stat(filepath.Join(c.dir, n.Name(), "entry.json")); err == nil {
			s.Used = info.ModTime()
		}
		all = append(all, s)
	}
	sort.SliceStable(all, func(i, j int) bool {
		return compareVersions(all[i].Version, all[j].Version) > 0
	})
	return all, nil
}

// size is what the files below a folder take.
func size(dir string) int64 {
	var n int64
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // gone meanwhile
		}
		if info, err := d.Info(); err == nil && d.Type().IsRegular() {
			n += info.Size()
		}
		return nil
	})
	return n
}

// Pruning says what Prune removes.
type Pruning struct {
	Unused time.Duration // kernels that were not resolved for that long
	DryRun bool          // only say what would be removed
}

// leftoverAge is when a half-made entry cannot belong to a run any more.
const leftoverAge = 24 * time.Hour

// Prune removes kernels from the cache, package lists as old as them, and what
// runs that were killed have left. It returns what it removed. What another run
// works on stays.
func Prune(ctx context.Context, opts Options, p Pruning) ([]Stored, error) {
	c, err := openCache(opts.Cache)
	if err != nil {
		return nil, err
	}
	all, err := List(opts)
	if err != nil {
		return nil, err
	}
	lists, err := c.folders("../apt/*", "updated")
	if err != nil {
		return nil, err
	}
	leftovers, err := c.folders(".new-*", ".")
	if err != nil {
		return nil, err
	}
	var gone []Stored
	for i, s := range slices.Concat(leftovers, all, lists) {
		age := p.Unused
		if i < len(leftovers) {
			age = max(age, leftoverAge)
		}
		if time.Since(s.Used) < age || !p.DryRun && !c.remove(ctx, s.Entry) {
			continue
		}
		gone = append(gone, s)
	}
	return gone, ctx.Err()
}

// folders finds folders that are no entries; they were used when the file stamp
// in them was written.
func (c cache) folders(pattern, stamp string) ([]Stored, error) {
	paths, err := filepath.Glob(filepath.Join(escapeGlob(c.dir), pattern))
	if err != nil {
		return nil, err
	}
	var found []Stored
	for _, path := range paths {
		info, err := os.Stat(filepath.Join(path, stamp))
		if err != nil {
			info, err = os.Stat(path)
		}
		rel, relErr := filepath.Rel(c.dir, path)
		if err == nil && relErr == nil {
			found = append(found, Stored{Entry: rel, Bytes: size(path), Used: info.ModTime()})
		}
	}
	return found, nil
}

// remove removes a folder under its lock, and reports whether it could.
func (c cache) remove(ctx context.Context, name string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	unlock, err := c.lock(ctx, filepath.Base(name))
	if err != nil {
		return false
	}
	defer unlock()
	// Renamed first: nobody sees half an entry.
	tmp, err := os.MkdirTemp(c.dir, ".new-")
	if err != nil {
		return false
	}
	defer os.RemoveAll(tmp)
	return os.Rename(filepath.Join(c.dir, name), filepath.Join(tmp, "gone")) == nil
}
