package vmtest

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTree(t *testing.T) {
	from := t.TempDir()
	for _, dir := range []string{"bin", "usr/bin", "etc"} {
		if err := os.MkdirAll(filepath.Join(from, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]os.FileMode{
		"bin/sh": 0o755, "usr/bin/x": 0o700, "etc/f": 0o644,
	} {
		if err := os.WriteFile(filepath.Join(from, name), []byte(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("sh", filepath.Join(from, "bin/dash")); err != nil {
		t.Fatal(err)
	}
	recs, err := Tree{Host: from}.records()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range recs {
		names = append(names, r.Name)
	}
	for _, want := range []string{"tree/bin/sh", "tree/bin/dash", "tree/usr/bin/x"} {
		if !slices.Contains(names, want) {
			t.Errorf("records = %v, want %s among them", names, want)
		}
	}
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "usr"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range mergedDirs {
		if err := os.MkdirAll(filepath.Join(root, "usr", dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("usr"+dir, root+dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := moveTree(from, root); err != nil {
		t.Fatalf("moveTree = %v", err)
	}
	for _, name := range []string{"usr/bin/sh", "bin/dash", "usr/bin/x", "etc/f"} {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Errorf("after moveTree: %v", err)
		}
	}
	if _, err := os.Stat(from); !os.IsNotExist(err) {
		t.Errorf("after moveTree the archive's folder is there: %v", err)
	}
}

// A tree for a folder brings the way to it, and what everybody may read.
func TestTreeInAFolder(t *testing.T) {
	from := filepath.Join(t.TempDir(), "private")
	if err := os.Mkdir(from, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(from, "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(from, link); err != nil {
		t.Fatal(err)
	}
	for readable, want := range map[bool]uint64{false: 0o600, true: 0o604} {
		recs, err := Tree{Host: link, Guest: "/home/x", Readable: readable}.records()
		if err != nil {
			t.Fatal(err)
		}
		modes := map[string]uint64{}
		for _, r := range recs {
			modes[r.Name] = r.Mode & 0o777
		}
		wanted := map[string]uint64{"tree": 0o700, "tree/home": 0o755, "tree/home/x": 0o755,
			"tree/home/x/f": want}
		if diff := cmp.Diff(wanted, modes); diff != "" {
			t.Errorf("readable %v: modes (-want +got):\n%s", readable, diff)
		}
	}
}

func TestShareArgs(t *testing.T) {
	args := shareArgs([]Share{{"/a,b", "tag"}, {"/c", "/mnt"}})
	if len(args) != 8 {
		t.Fatalf("shareArgs = %q, want 8 words", args)
	}
	if want := "virtio-9p-pci,fsdev=share0,mount_tag=tag"; args[3] != want {
		t.Errorf("shareArgs()[3] = %q, want %q", args[3], want)
	}
	if want := "virtio-9p-pci,fsdev=share1,mount_tag=share1"; args[7] != want {
		t.Errorf("shareArgs()[7] = %q, want %q", args[7], want)
	}
}
