package kernels

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// age makes a path look older.
func age(t *testing.T, path string, by time.Duration) {
	t.Helper()
	past := time.Now().Add(-by)
	if err := os.Chtimes(path, past, past); err != nil {
		t.Fatal(err)
	}
}

const day = 24 * time.Hour

// What is resolved is used; what nothing used for long goes, with package lists
// and leftovers of its age. What is locked stays.
func TestPrune(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	dir := t.TempDir()
	opts := Options{Cache: dir}
	c, err := openCache(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, revision := range map[string]string{
		"linux-image-6.1.0-1-amd64": "6.1.9-1", "linux-image-6.1.0-2-amd64": "6.1.10-1",
		"linux-image-6.1.0-3-amd64": "6.1.11-1",
	} {
		entry := put(t, c, name, revision)
		age(t, filepath.Join(c.dir, entry, "entry.json"), 40*day)
	}
	for path, by := range map[string]time.Duration{
		"kernels/.new-old": 40 * day, "kernels/.new-now": 0, "apt/old": 40 * day, "apt/now": 0,
	} {
		if err := os.MkdirAll(filepath.Join(dir, path), 0o700); err != nil {
			t.Fatal(err)
		}
		age(t, filepath.Join(dir, path), by)
	}
	if _, err := Resolve(t.Context(), "6.1.10", opts); err != nil {
		t.Fatal(err)
	}
	unlock, err := c.lock(t.Context(), "linux-image-6.1.0-3-amd64_6.1.11-1")
	if err != nil {
		t.Fatal(err)
	}
	prune := func(p Pruning) []string {
		t.Helper()
		gone, err := Prune(t.Context(), opts, p)
		if err != nil {
			t.Fatalf("Prune(%+v) = %v", p, err)
		}
		var names []string
		for _, s := range gone {
			names = append(names, s.Entry)
		}
		slices.Sort(names)
		return names
	}
	old := []string{"../apt/old", ".new-old", "linux-image-6.1.0-1-amd64_6.1.9-1"}
	held := append(slices.Clone(old), "linux-image-6.1.0-3-amd64_6.1.11-1")
	if got := prune(Pruning{Unused: 30 * day, DryRun: true}); !slices.Equal(got, held) {
		t.Errorf("Prune, dry = %q, want %q", got, held)
	}
	if got := prune(Pruning{Unused: 30 * day}); !slices.Equal(got, old) {
		t.Errorf("Prune = %q, want %q", got, old)
	}
	unlock()
	all, err := List(opts)
	if err != nil || len(all) != 2 || all[0].Version != "6.1.11" || all[1].Version != "6.1.10" {
		t.Errorf("List = %+v, %v, want 6.1.11, 6.1.10", all, err)
	}
	if got := prune(Pruning{}); len(got) != 3 || got[0] != "../apt/now" {
		t.Errorf("Prune of everything = %q, want both kernels and the package lists", got)
	}
}

// An image that changed under its name is refused, by a file or by what is built in.
func TestLock(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lock.json")
	k := Kernel{Name: "6.1", Pin: "linux-image-x=1", SHA256: "aa"}
	if err := (Options{Lock: path}).checkLock(k); err != nil {
		t.Errorf("checkLock without a file = %v", err)
	}
	if err := UpdateLock(path, k, Kernel{Name: "./mine", SHA256: "cc"}); err != nil {
		t.Fatal(err)
	}
	if err := UpdateLock(path, Kernel{Pin: "linux-image-y=1", SHA256: "bb"}); err != nil {
		t.Fatal(err)
	}
	if err := (Options{Lock: path}).checkLock(k); err != nil {
		t.Errorf("checkLock of the same image = %v", err)
	}
	k.SHA256 = "ab"
	err := (Options{Lock: path}).checkLock(k)
	if err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("checkLock of another image = %v, want it refused", err)
	}
	if err := (Options{}).checkLock(k); err != nil {
		t.Errorf("checkLock without the file = %v", err)
	}
	all, own, err := readLock(path)
	if err != nil || len(own.Images) != 2 || len(all.Images) < 3 {
		t.Errorf("readLock = %d and %d sums, %v, want 2 over those built in",
			len(all.Images), len(own.Images), err)
	}
	for pin, sum := range all.Images {
		if _, ok := own.Images[pin]; !ok && len(sum) != 64 {
			t.Errorf("lock.json: %s has the sum %q", pin, sum)
		}
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (Options{Lock: path}).checkLock(k); err == nil {
		t.Error("checkLock with a damaged file = nil, want an error")
	}
}
