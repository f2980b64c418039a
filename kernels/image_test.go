package kernels

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// tinyELF returns an ELF file whose only segment is a note of the given type,
// owner "Xen".
func tinyELF(t testing.TB, noteType uint32) []byte {
	t.Helper()
	var note, out bytes.Buffer
	write := func(b *bytes.Buffer, v any) {
		if err := binary.Write(b, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	write(&note, []uint32{4, 8, noteType})
	note.WriteString("Xen\x00")
	write(&note, uint64(0x1000000))
	h := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1,
	}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS] = byte(elf.ELFCLASS64)
	h.Ident[elf.EI_DATA] = byte(elf.ELFDATA2LSB)
	h.Ident[elf.EI_VERSION] = byte(elf.EV_CURRENT)
	write(&out, h)
	write(&out, elf.Prog64{
		Type: uint32(elf.PT_NOTE), Align: 4,
		Off: 120, Filesz: uint64(note.Len()), Memsz: uint64(note.Len()),
	})
	out.Write(note.Bytes())
	return out.Bytes()
}

const tinyBanner = "6.1.0-57-cloud-amd64 (someone) #1 SMP Debian 6.1.192-3 (2026-11-20)"

// tinyImage wraps a payload into a bzImage with nothing else in it.
func tinyImage(packed []byte) []byte {
	const sects, offset = 1, 0x40
	image := make([]byte, (sects+1)*512+offset)
	image[offSetupSects] = sects
	copy(image[offHeaderMagic:], "HdrS")
	le := binary.LittleEndian
	le.PutUint16(image[offProtocol:], 0x20f)
	le.PutUint16(image[offKernelVersion:], 0x100)
	copy(image[0x300:], tinyBanner)
	le.PutUint32(image[offPayloadOffset:], offset)
	le.PutUint32(image[offPayloadLength:], uint32(len(packed)))
	return append(append(image, packed...), "what follows the payload"...)
}

// packers compress as the kernel's build does: all but gzip add the size.
func packers(t *testing.T) map[string]func(data []byte) []byte {
	sized := func(packed, data []byte) []byte {
		return binary.LittleEndian.AppendUint32(packed, uint32(len(data)))
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	return map[string]func([]byte) []byte{
		"gzip": func(data []byte) []byte {
			var b bytes.Buffer
			w := gzip.NewWriter(&b)
			_, err := w.Write(data)
			check(errors.Join(err, w.Close()))
			return b.Bytes()
		},
		"lz4": func(data []byte) []byte {
			var b bytes.Buffer
			w := lz4.NewWriter(&b)
			check(w.Apply(lz4.LegacyOption(true)))
			_, err := w.Write(data)
			check(errors.Join(err, w.Close()))
			return sized(b.Bytes(), data)
		},
		"zstd": func(data []byte) []byte {
			w, err := zstd.NewWriter(nil)
			check(err)
			return sized(w.EncodeAll(data, nil), data)
		},
		"xz": func(data []byte) []byte {
			cmd := exec.Command("xz", "--x86", "--lzma2", "--stdout")
			cmd.Stdin = bytes.NewReader(data)
			out, err := cmd.Output()
			if errors.Is(err, exec.ErrNotFound) {
				t.Skip("xz is not installed")
			}
			check(err)
			return sized(out, data)
		},
	}
}

func TestExtract(t *testing.T) {
	vmlinux := tinyELF(t, noteTypePVH)
	for name, pack := range packers(t) {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			image, out := filepath.Join(dir, "bzImage"), filepath.Join(dir, "vmlinux")
			if err := os.WriteFile(image, tinyImage(pack(vmlinux)), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := extract(t.Context(), image, dir); err != nil {
				t.Fatalf("extract = %v", err)
			}
			if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, vmlinux) {
				t.Errorf("extract wrote %d bytes, %v, want %d", len(got), err, len(vmlinux))
			}
		})
	}
}

func TestExtractRefuses(t *testing.T) {
	gz := packers(t)["gzip"]
	good := tinyImage(gz(tinyELF(t, noteTypePVH)))
	changed := func(at int, b byte) []byte {
		image := bytes.Clone(good)
		image[at] = b
		return image
	}
	for _, tt := range []struct {
		name  string
		image []byte
		want  string
	}{
		{"no_image", []byte("short"), "no bzImage"},
		{"old_protocol", changed(offProtocol+1, 1), "boot protocol 0x10f"},
		{"payload_outside", changed(offPayloadLength+2, 0xff), "outside the image"},
		{"unknown_format", tinyImage([]byte("no compression")), "unknown format"},
		{"cut_payload", tinyImage(gz(tinyELF(t, noteTypePVH))[:60]), "unpack kernel payload"},
		{"no_pvh", tinyImage(gz(tinyELF(t, noteTypePVH-1))), "CONFIG_PVH"},
		{"no_elf", tinyImage(gz([]byte("text, not ELF"))), "read vmlinux"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			image, out := filepath.Join(dir, "bzImage"), filepath.Join(dir, "vmlinux")
			if err := os.WriteFile(image, tt.image, 0o600); err != nil {
				t.Fatal(err)
			}
			err := extract(t.Context(), image, dir)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("extract = %v, want %q in it", err, tt.want)
			}
			if _, err := os.Stat(out); err == nil {
				t.Error("extract left a file behind")
			}
		})
	}
}

// A user's own image: its banner is read, its vmlinux is cached, its config is
// found, and without a PVH entry it is still bootable.
func TestResolveFile(t *testing.T) {
	for name, note := range map[string]uint32{"pvh": noteTypePVH, "no_pvh": noteTypePVH - 1} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			image, config := filepath.Join(dir, "vmlinuz-mine"), filepath.Join(dir, "config-mine")
			data := tinyImage(packers(t)["gzip"](tinyELF(t, note)))
			for path, data := range map[string][]byte{image: data, config: nil} {
				if err := os.WriteFile(path, data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			k, err := Resolve(t.Context(), image, Options{Cache: filepath.Join(dir, "cache")})
			if err != nil {
				t.Fatalf("Resolve = %v", err)
			}
			if k.Release != "6.1.0-57-cloud-amd64" || k.Version != "6.1.192" {
				t.Errorf("Resolve = release %q, version %q", k.Release, k.Version)
			}
			if k.Image != image || k.Config != config || len(k.SHA256) != 64 {
				t.Errorf("Resolve = %+v", k)
			}
			if pvh := note == noteTypePVH; pvh != (k.Boot() != image) || pvh != (k.Note == "") {
				t.Errorf("Boot() = %s, note %q, want the image only without PVH", k.Boot(), k.Note)
			}
		})
	}
}

func TestResolveVMLinux(t *testing.T) {
	dir := t.TempDir()
	for name, note := range map[string]uint32{"good": noteTypePVH, "bad": 1} {
		data := append(tinyELF(t, note), "\x00Linux version 6.9.1 (x) #1\x00"...)
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k, err := Resolve(t.Context(), filepath.Join(dir, "good"), Options{Cache: dir})
	if err != nil || k.Boot() != filepath.Join(dir, "good") || k.Version != "6.9.1" {
		t.Errorf("Resolve(good) = %+v, %v, want it to boot as it is", k, err)
	}
	_, err = Resolve(t.Context(), filepath.Join(dir, "bad"), Options{Cache: dir})
	if !errors.Is(err, errNoPVH) {
		t.Errorf("Resolve(bad) = %v, want %v", err, errNoPVH)
	}
}

// The real kernels of the cache, where there are some.
func TestExtractRealKernels(t *testing.T) {
	cacheDir, err := CacheDir()
	if err != nil {
		t.Skip(err)
	}
	images, err := filepath.Glob(filepath.Join(cacheDir, "kernels", "linux-image-*", "vmlinuz"))
	if err != nil || len(images) == 0 {
		t.Skipf("no kernel in %s/kernels; run agent-lock vmtest --kernels 6.1,6.12 once", cacheDir)
	}
	for _, path := range images {
		t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) {
			img, err := inspect(path)
			if err != nil || img.release == "" || img.version == "" {
				t.Errorf("inspect = %+v, %v, want release and version", img, err)
			}
			if err := extract(t.Context(), path, t.TempDir()); err != nil {
				t.Errorf("extract = %v", err)
			}
		})
	}
}

func TestParseBanner(t *testing.T) {
	for _, tt := range []struct{ banner, release, version string }{
		{tinyBanner, "6.1.0-57-cloud-amd64", "6.1.192"},
		{"6.8.0-51-generic (buildd@x) #52-Ubuntu SMP", "6.8.0-51-generic", "6.8.0-51-generic"},
		{"6.12.9 (me) #1", "6.12.9", "6.12.9"},
		{"", "", ""},
		{"%s (%s)", "", ""},
	} {
		release, version := parseBanner(tt.banner)
		if release != tt.release || version != tt.version {
			t.Errorf("parseBanner(%q) = %q, %q, want %q, %q", tt.banner, release, version,
				tt.release, tt.version)
		}
	}
}

func FuzzPayload(f *testing.F) {
	f.Add(tinyImage([]byte("\x1f\x8b payload")))
	f.Add(tinyImage(tinyELF(f, noteTypePVH)))
	f.Fuzz(func(t *testing.T, data []byte) {
		packed, err := payload(data)
		if err == nil && len(packed) < 4 {
			t.Errorf("payload = %d bytes, want at least 4", len(packed))
		}
	})
}

func FuzzNotes(f *testing.F) {
	f.Add(tinyELF(f, noteTypePVH)[120:])
	f.Fuzz(func(_ *testing.T, notes []byte) {
		hasNote(notes, binary.LittleEndian, "Xen", noteTypePVH)
	})
}
