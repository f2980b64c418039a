package kernels

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWantedFiles(t *testing.T) {
	w, err := parsePackageNames([]string{"dash", "git:usr/bin/git", "git:usr/lib/git-core",
		"e2fsprogs:sbin/mke2fs"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, file string
		want       bool
	}{
		{"dash", "usr/bin/dash", true},
		{"dash", "usr/share/doc/dash/copyright", false},
		{"git", "usr/bin/git", true},
		{"git", "usr/bin/git-shell", false},
		{"git", "usr/lib/git-core/git", true},
		{"git", "usr/lib/git-corex", false},
		{"e2fsprogs", "usr/sbin/mke2fs", true},
		{"libc6", "usr/bin/ldd", false},
	} {
		if got := w.keep(tt.name, tt.file); got != tt.want {
			t.Errorf("keep(%s, %s) = %v, want %v", tt.name, tt.file, got, tt.want)
		}
	}
	for _, bad := range []string{"", "-o", "Git", "git:", "git:/usr/bin", "a b"} {
		if _, err := parsePackageNames([]string{bad}); err == nil {
			t.Errorf("parsePackageNames(%q) = nil, want an error", bad)
		}
	}
}

func TestLibraries(t *testing.T) {
	for name, want := range map[string]bool{
		"usr/lib64/ld-linux-x86-64.so.2":        true,
		"usr/lib/x86_64-linux-gnu/libc.so.6":    true,
		"usr/lib/x86_64-linux-gnu/gconv/UTF.so": false,
		"usr/bin/x.so":                          false,
		"usr/lib/x86_64-linux-gnu/libc.a":       false,
	} {
		if got := isLibrary(name); got != want {
			t.Errorf("isLibrary(%s) = %v, want %v", name, got, want)
		}
	}
}

// A package may not write through a link that it, or another one, brought.
func TestUnpackStaysInTheTree(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	all := func(string) bool { return true }
	link := &tar.Header{Name: "./usr/out", Typeflag: tar.TypeSymlink, Linkname: outside}
	if err := unpackEntry(root, link, nil, all); err != nil {
		t.Fatal(err)
	}
	file := &tar.Header{Name: "./usr/out/file", Typeflag: tar.TypeReg, Mode: 0o644}
	if err := unpackEntry(root, file, strings.NewReader("x"), all); err == nil {
		t.Error("unpackEntry wrote through a link out of the tree, want an error")
	}
	if names, _ := os.ReadDir(outside); len(names) > 0 {
		t.Errorf("outside the tree there is %v", names)
	}
	bin := &tar.Header{Name: "./bin/sh", Typeflag: tar.TypeReg, Mode: 0o4755}
	if err := unpackEntry(root, bin, strings.NewReader("x"), all); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "usr/bin/sh"))
	if err != nil || info.Mode() != 0o755 {
		t.Errorf("bin/sh = %v, %v, want it in usr/bin without its set-user-ID bit", info, err)
	}
}

func TestModuleName(t *testing.T) {
	for file, want := range map[string]string{
		"kernel/fs/overlayfs/overlay.ko": "overlay", "a/virtio-pci.ko.xz": "virtio_pci",
		"x.ko.zst": "x", "modules.builtin": "", "x.ko.bz2": "",
	} {
		if got := moduleName(file); got != want {
			t.Errorf("moduleName(%s) = %q, want %q", file, got, want)
		}
	}
}

func TestModulesBuiltIn(t *testing.T) {
	dir := t.TempDir()
	list := []byte("kernel/fs/ext4/ext4.ko\n")
	if err := os.WriteFile(filepath.Join(dir, builtinList), list, 0o644); err != nil {
		t.Fatal(err)
	}
	set, err := readModuleSet(dir)
	if err != nil {
		t.Fatal(err)
	}
	order, lacks, err := set.Order(t.Context(), []string{"ext4", "9p"})
	if err != nil || len(order) != 0 || len(lacks) != 1 || lacks[0] != "9p" {
		t.Errorf("Order(ext4, 9p) = %v, %v, %v, want only 9p lacking", order, lacks, err)
	}
}

func TestNoModule(t *testing.T) {
	if _, _, err := moduleNeeds(bytes.Repeat([]byte("x"), 99)); err == nil {
		t.Error("moduleNeeds(no ELF) = nil, want an error")
	}
}
