package kernels

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestResolveDeb(t *testing.T) {
	dir := t.TempDir()
	image := string(tinyImage(compressAs(t, ".gz", tinyELF(t, noteTypePVH))))
	for name, m := range map[string]member{
		"good.deb":  {name: "./boot/vmlinuz-6.1", body: image},
		"empty.deb": {name: "./usr/share/doc/linux-image", body: "see linux-binary"},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), makeDeb(t, ".zst", m), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	opts := Options{Cache: filepath.Join(dir, "cache")}
	spec := "deb:" + filepath.Join(dir, "good.deb")
	k, err := Resolve(t.Context(), spec, opts)
	if err != nil || k.Name != spec || k.Version != "6.1.192" || k.VMLinux == "" {
		t.Errorf("Resolve(good) = %+v, %v", k, err)
	}
	_, err = Resolve(t.Context(), "deb:"+filepath.Join(dir, "empty.deb"), opts)
	if err == nil || !strings.Contains(err.Error(), "linux-binary") {
		t.Errorf("Resolve(empty) = %v, want it to say where the image is", err)
	}
	_, err = Resolve(t.Context(), "deb:"+filepath.Join(dir, "none.deb"), opts)
	if !errors.Is(err, ErrMissing) {
		t.Errorf("Resolve(none) = %v, want an ErrMissing", err)
	}
}

func TestResolveDir(t *testing.T) {
	image := string(tinyImage(compressAs(t, ".gz", tinyELF(t, noteTypePVH))))
	for name, tt := range map[string]struct {
		files         []string // empty files but for the images
		image, config string
	}{
		"boot": {[]string{"boot/vmlinuz-6.1.9", "boot/vmlinuz-6.1.10", "boot/config-6.1.10",
			"boot/vmlinuz-6.1.11.old", "boot/vmlinuz-0-rescue-9"},
			"boot/vmlinuz-6.1.10", "boot/config-6.1.10"},
		"itself": {[]string{"vmlinuz", "config"}, "vmlinuz", "config"},
		"modules": {[]string{"lib/modules/6.9/vmlinuz", "lib/modules/6.10/vmlinuz"},
			"lib/modules/6.10/vmlinuz", ""},
		"build [1]": {[]string{"arch/x86/boot/bzImage", ".config", "boot/loader"},
			"arch/x86/boot/bzImage", ".config"},
		"nothing": {[]string{"boot/initrd.img"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), name)
			for _, file := range tt.files {
				path, text := filepath.Join(dir, file), ""
				if strings.Contains(file, "vmlinuz") || strings.Contains(file, "bzImage") {
					text = image
				}
				err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700),
					os.WriteFile(path, []byte(text), 0o600))
				if err != nil {
					t.Fatal(err)
				}
			}
			k, err := Resolve(t.Context(), "dir:"+dir, Options{Cache: t.TempDir()})
			if tt.image == "" {
				if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "boot/vmlinuz*") {
					t.Errorf("Resolve = %v, want an ErrMissing that says what was looked for", err)
				}
				return
			}
			if err != nil || k.Image != filepath.Join(dir, tt.image) || k.VMLinux == "" {
				t.Errorf("Resolve = %+v, %v, want %s", k, err, tt.image)
			}
			if want := filepath.Join(dir, tt.config); tt.config != "" && k.Config != want {
				t.Errorf("Config = %q, want %q", k.Config, want)
			}
		})
	}
}

// The running kernel, or an error with the file that it should be in.
func TestResolveHost(t *testing.T) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	release := unix.ByteSliceToString(u.Release[:])
	k, err := Resolve(t.Context(), "host", Options{Cache: t.TempDir()})
	switch {
	case err == nil && k.Release != release:
		t.Errorf("Resolve = %+v, want release %s", k, release)
	case err != nil && !strings.Contains(err.Error(), "/boot/vmlinuz-"+release):
		t.Errorf("Resolve = %v, want the file in it", err)
	}
}
