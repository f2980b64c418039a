package kernels

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// put makes a cache entry of a package version.
func put(t *testing.T, c cache, name, revision string) string {
	t.Helper()
	dir := name + "_" + revision
	err := c.create(t.Context(), dir, func(tmp string) (entry, error) {
		e := entry{Package: name, Revision: revision}
		e.Version = e.pkg().upstream()
		return e, os.WriteFile(filepath.Join(tmp, "vmlinuz"), nil, 0o600)
	})
	if err != nil {
		t.Fatalf("create(%s) = %v", dir, err)
	}
	return dir
}

func TestCreateOnce(t *testing.T) {
	c := cache{t.TempDir()}
	var filled atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			err := c.create(t.Context(), "e", func(string) (entry, error) {
				filled.Add(1)
				return entry{Version: "1"}, nil
			})
			if err != nil {
				t.Errorf("create = %v", err)
			}
		}()
	}
	wg.Wait()
	if n := filled.Load(); n != 1 {
		t.Errorf("the entry was filled %d times, want once", n)
	}
}

func TestCreateLeavesNothingBehindOnError(t *testing.T) {
	c := cache{t.TempDir()}
	broken := errors.New("broken")
	err := c.create(t.Context(), "e", func(dir string) (entry, error) {
		return entry{}, errors.Join(broken, os.WriteFile(filepath.Join(dir, "x"), nil, 0o600))
	})
	if !errors.Is(err, broken) {
		t.Errorf("create = %v, want %v", err, broken)
	}
	names, err := filepath.Glob(filepath.Join(c.dir, "*"))
	if want := []string{filepath.Join(c.dir, ".e.lock")}; err != nil || !slices.Equal(names, want) {
		t.Errorf("left behind: %v, %v, want only %v", names, err, want)
	}
}

// What the cache answers, and when, without any package manager.
func TestResolveFromCache(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	dir := t.TempDir()
	c := cache{filepath.Join(dir, "kernels")}
	if err := os.Mkdir(c.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	put(t, c, "linux-image-6.1.0-56-cloud-amd64", "6.1.190-1")
	newest := put(t, c, "linux-image-6.1.0-57-cloud-amd64", "6.1.192-9")
	old := put(t, c, "linux-image-6.12.117+deb12-amd64", "6.12.117-1")
	resolve := func(spec string) string {
		t.Helper()
		k, err := Resolve(t.Context(), spec, Options{Cache: dir})
		if err != nil {
			t.Fatalf("Resolve(%s) = %v", spec, err)
		}
		if k.Name != spec {
			t.Errorf("Resolve(%s).Name = %s", spec, k.Name)
		}
		return filepath.Base(filepath.Dir(k.Image))
	}
	for _, spec := range []string{"6.1.192", "6.1.0-57", "6.1"} {
		if got := resolve(spec); got != newest {
			t.Errorf("Resolve(%s) = %s, want %s", spec, got, newest)
		}
	}
	// A series keeps its answer for a while …
	if err := c.setSeries("6.12", old); err != nil {
		t.Fatal(err)
	}
	newer := put(t, c, "linux-image-6.12.118+deb12-amd64", "6.12.118-1")
	if got := resolve("6.12"); got != old {
		t.Errorf("Resolve(6.12), asked again soon = %s, want %s", got, old)
	}
	// … then it is looked up again.
	past := time.Now().Add(-2 * seriesFresh)
	if err := os.Chtimes(filepath.Join(c.dir, "series", "6.12"), past, past); err != nil {
		t.Fatal(err)
	}
	if got := resolve("6.12"); got != newer {
		t.Errorf("Resolve(6.12), asked again late = %s, want %s", got, newer)
	}
}
