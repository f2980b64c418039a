package kernels

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const arm64Banner = "Linux version 6.12.95+deb12-cloud-arm64 (x) #1 SMP Debian 6.12.95-1 (2026)"

// tinyImage64 is an Image that says which kernel it is.
func tinyImage64() []byte {
	image := make([]byte, 128)
	copy(image[offImageMagic:], "ARM\x64")
	return append(append(image, arm64Banner...), 0)
}

// tinyZboot is an EFI program with a payload that is said to be of a size.
func tinyZboot(payload []byte, size int) []byte {
	image := make([]byte, 96)
	copy(image, "MZ\x00\x00zimg")
	binary.LittleEndian.PutUint32(image[offZbootOffset:], uint32(len(image)))
	binary.LittleEndian.PutUint32(image[offZbootLength:], uint32(size))
	return append(image, payload...)
}

func gzipped(t testing.TB, data []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestInspectArm64(t *testing.T) {
	packed := gzipped(t, tinyImage64())
	for _, tt := range []struct {
		name    string
		data    []byte
		unpacks bool
		wantErr string
	}{
		{"image", tinyImage64(), false, ""},
		{"zboot", tinyZboot(packed, len(packed)), true, ""},
		{"zboot_with_size", tinyZboot(append(packed, 1, 2, 3, 4), len(packed)), true, ""},
		{"cut", tinyZboot(packed[:len(packed)/2], len(packed)), false, "outside the image"},
		{"damaged", tinyZboot(packed[:len(packed)/2], len(packed)/2), false, "unexpected EOF"},
		{"another", tinyZboot(gzipped(t, []byte("no kernel")), 33), false, "no Image for arm64"},
		{"empty", tinyZboot(nil, 0), false, "outside the image"},
		{"unknown", tinyZboot([]byte("????????"), 8), false, "unknown format"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "vmlinuz")
			if err := os.WriteFile(path, tt.data, 0o600); err != nil {
				t.Fatal(err)
			}
			img, err := inspect(path)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Errorf("inspect = %v, want an error with %q", err, tt.wantErr)
				}
				return
			}
			if err != nil || img.arch != ARM64 || img.version != "6.12.95" ||
				img.release != "6.12.95+deb12-cloud-arm64" {
				t.Fatalf("inspect = %+v, %v", img, err)
			}
			if err := extract(t.Context(), path, dir); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(dir, "vmlinux"))
			if (err == nil) != tt.unpacks || tt.unpacks && !bytes.Equal(got, tinyImage64()) {
				t.Errorf("extract left %d bytes, %v; want an Image: %v", len(got), err, tt.unpacks)
			}
		})
	}
}

func FuzzUnpackImage(f *testing.F) {
	packed := gzipped(f, tinyImage64())
	f.Add(tinyImage64())
	f.Add(tinyZboot(packed, len(packed)))
	f.Fuzz(func(t *testing.T, data []byte) {
		if image, err := unpackImage(t.Context(), data); err == nil && !isImage(image) {
			t.Error("unpackImage returned what is no Image")
		}
	})
}

func TestLacksOnArm64(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config")
	text := strings.Join(needed, "=y\n") + "=y\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for arch, want := range map[string]int{AMD64: 0, ARM64: 1} {
		if lacks := (Kernel{Arch: arch, Config: config}).Lacks(); len(lacks) != want {
			t.Errorf("a kernel of %s lacks %v, want %d options", arch, lacks, want)
		}
	}
}
