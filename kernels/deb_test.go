package kernels

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// member is one file of a tar archive; a link when it has a target.
type member struct{ name, body, link string }

func makeTar(t testing.TB, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		h := &tar.Header{Name: m.name, Mode: 0o644, Size: int64(len(m.body))}
		switch {
		case m.link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, m.link
		case strings.HasSuffix(m.name, "/"):
			h.Typeflag, h.Mode = tar.TypeDir, 0o755
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(m.body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// makeAr packs an ar archive of name, content pairs.
func makeAr(pairs ...string) []byte {
	out := []byte("!<arch>\n")
	for i := 0; i < len(pairs); i += 2 {
		out = fmt.Appendf(out, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", pairs[i], 0, 0, 0, "100644",
			len(pairs[i+1]))
		out = append(out, pairs[i+1]...)
		if len(pairs[i+1])%2 == 1 {
			out = append(out, '\n')
		}
	}
	return out
}

// compressAs compresses by the ending of a file name.
func compressAs(t testing.TB, ending string, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	switch ending {
	case "":
		return data
	case ".gz":
		w := gzip.NewWriter(&b)
		_, err := w.Write(data)
		if err := errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
	case ".zst":
		w, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		return w.EncodeAll(data, nil)
	case ".xz":
		cmd := exec.Command("xz", "--stdout")
		cmd.Stdin, cmd.Stdout = bytes.NewReader(data), &b
		if err := cmd.Run(); errors.Is(err, exec.ErrNotFound) {
			t.Skip("xz is not installed")
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// makeDeb packs a Debian package.
func makeDeb(t testing.TB, ending string, members ...member) []byte {
	t.Helper()
	control := compressAs(t, ".gz", makeTar(t, member{name: "./control", body: "Package: x\n"}))
	return makeAr("debian-binary", "2.0\n", "control.tar.gz", string(control),
		"data.tar"+ending, string(compressAs(t, ending, makeTar(t, members...))))
}

// withoutTool hides every command but those named.
func withoutTool(t *testing.T, except ...string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range except {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Skipf("%s is not installed", name)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
}

// files reads a folder of small files.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, n := range names {
		text, err := os.ReadFile(filepath.Join(dir, n.Name()))
		if err != nil {
			t.Fatal(err)
		}
		got[n.Name()] = string(text)
	}
	return got
}

// With dpkg-deb and without it, of every compression.
func TestUnpackDeb(t *testing.T) {
	for _, ending := range []string{"", ".gz", ".zst", ".xz"} {
		deb := makeDeb(t, ending, member{name: "./boot/"},
			member{name: "./boot/vmlinuz-6.1", body: "image"},
			member{name: "./boot/config-6.1", body: "CONFIG_X=y"},
			member{name: "./usr/share/doc/x", link: "../y"})
		path := filepath.Join(t.TempDir(), "x.deb")
		if err := os.WriteFile(path, deb, 0o600); err != nil {
			t.Fatal(err)
		}
		check := func(t *testing.T) {
			dir := t.TempDir()
			if err := unpackDeb(t.Context(), path, dir); err != nil {
				t.Fatalf("unpackDeb = %v", err)
			}
			got := files(t, dir)
			if len(got) != 2 || got["vmlinuz"] != "image" || got["config"] != "CONFIG_X=y" {
				t.Errorf("unpackDeb left %q", got)
			}
		}
		t.Run("own"+ending, func(t *testing.T) {
			withoutTool(t, "xz")
			check(t)
		})
		t.Run("dpkg"+ending, func(t *testing.T) {
			if _, err := exec.LookPath("dpkg-deb"); err != nil {
				t.Skip("dpkg-deb is not installed")
			}
			check(t)
		})
	}
}

func TestUnpackDebRefuses(t *testing.T) {
	good := makeDeb(t, ".gz", member{name: "./boot/vmlinuz-6.1", body: "image"})
	changed := func(old, new string) []byte {
		return bytes.Replace(good, []byte(old), []byte(new), 1)
	}
	for name, tt := range map[string]struct {
		deb  []byte
		want string
	}{
		"no_ar":       {[]byte("PK\x03\x04 something else"), "no ar archive"},
		"cut_off":     {good[:len(good)-40], "unexpected EOF"},
		"cut_early":   {good[:100], "cut off"},
		"no_data":     {makeAr("debian-binary", "2.0\n"), "no data.tar"},
		"no_version":  {makeAr("data.tar", ""), "out of place"},
		"bad_size":    {changed("4         `", "-4        `"), `"-4"`},
		"bad_header":  {changed("`\n", "'\n"), "damaged"},
		"compression": {makeAr("debian-binary", "2.0\n", "data.tar.lzma", "x"), ".lzma"},
		"dots": {makeDeb(t, "", member{name: "./boot/../../vmlinuz-6.1", body: "x"}),
			".. in it; refused"},
		"absolute": {makeDeb(t, "", member{name: "/boot/vmlinuz", body: "x"}), "absolute path"},
		"link": {makeDeb(t, "", member{name: "./boot/vmlinuz-6.1", link: "/etc/shadow"}),
			"want a file"},
	} {
		t.Run(name, func(t *testing.T) {
			withoutTool(t)
			dir := t.TempDir()
			path := filepath.Join(dir, "x.deb")
			if err := os.WriteFile(path, tt.deb, 0o600); err != nil {
				t.Fatal(err)
			}
			err := unpackDeb(t.Context(), path, dir)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("unpackDeb = %v, want %q in it", err, tt.want)
			}
		})
	}
}

// Bombs: many files, one large file, much in files that nobody wants. The last
// one is also small when compressed, which is the point of it.
func TestPickBootLimits(t *testing.T) {
	image := member{name: "boot/vmlinuz", body: strings.Repeat("x", 4096)}
	many := make([]member, 40)
	for i := range many {
		many[i] = member{name: fmt.Sprint("f", i)}
	}
	big := member{name: "big", body: strings.Repeat("\x00", 1<<20)}
	for name, tt := range map[string]struct {
		archive []byte
		limits  limits
		ok      bool
	}{
		"fits":  {makeTar(t, image), limits{1, 1 << 20, 4096}, true},
		"file":  {makeTar(t, image), limits{1, 1 << 20, 4095}, false},
		"files": {makeTar(t, many...), limits{39, 1 << 20, 4096}, false},
		"total": {makeTar(t, image, big), limits{9, 1 << 20, 4096}, false},
	} {
		packed := compressAs(t, ".gz", tt.archive)
		r, err := decompress(t.Context(), ".gz", bytes.NewReader(packed))
		if err != nil {
			t.Fatal(err)
		}
		err = pickBoot(r, t.TempDir(), tt.limits)
		if tt.ok && err != nil || !tt.ok && !errors.Is(err, errTooLarge) {
			t.Errorf("%s: pickBoot = %v, want success: %t", name, err, tt.ok)
		}
	}
}

func TestBootPart(t *testing.T) {
	for name, want := range map[string]string{
		"./boot/vmlinuz-6.1.0-57-cloud-amd64":                  "vmlinuz",
		"boot/vmlinuz":                                         "vmlinuz",
		"boot/config-6.6.6-060606-generic":                     "config",
		"data/kernels/6.6/boot/vmlinuz-6.6.1":                  "vmlinuz",
		"./usr/lib/modules/7.3.4+deb13-cloud-amd64/config":     "config",
		"./usr/lib/modules/7.3.4+deb13-cloud-amd64/vmlinuz":    "vmlinuz",
		"./usr/src/linux-headers-6.6.6-060606-generic/.config": "config",
		"./usr/src/linux-headers-6.6.6/include/config":         "",
		"./boot/System.map-6.1":                                "",
		"./boot/vmlinux":                                       "",
		"./etc/vmlinuz":                                        "",
		"./usr/share/boot/config":                              "config",
	} {
		if got := bootPart(name); got != want {
			t.Errorf("bootPart(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestIKConfig(t *testing.T) {
	want := "CONFIG_BPF_LSM=y\n"
	packed := string(compressAs(t, ".gz", []byte(want)))
	for name, tt := range map[string]struct{ vmlinux, want string }{
		"there":     {"code IKCFG_ST" + packed + "IKCFG_ED more", want},
		"mentioned": {"a IKCFG_ST IKCFG_ED b IKCFG_ST" + packed + "IKCFG_ED", want},
		"cut":       {"IKCFG_ST" + packed[:20] + "IKCFG_ED", ""},
		"no_end":    {"IKCFG_ST" + packed, ""},
		"none":      {"code", ""},
	} {
		if got := string(ikconfig([]byte(tt.vmlinux))); got != tt.want {
			t.Errorf("%s: ikconfig = %q, want %q", name, got, tt.want)
		}
	}
}

// A configuration in the image serves as well as one beside it.
func TestLacks(t *testing.T) {
	dir := t.TempDir()
	config := "CONFIG_BPF_LSM=y\nCONFIG_DEBUG_INFO_BTF=y\nCONFIG_PID_NS=y\n" +
		"# CONFIG_SECURITY_NETWORK is not set\n# CONFIG_SECURITY_PATH is not set\n"
	vmlinux := append(tinyELF(t, noteTypePVH), ikconfigStart...)
	vmlinux = append(vmlinux, compressAs(t, ".gz", []byte(config))...)
	vmlinux = append(vmlinux, ikconfigEnd...)
	image := filepath.Join(dir, "bzImage")
	data := tinyImage(compressAs(t, ".gz", vmlinux))
	if err := os.WriteFile(image, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := extract(t.Context(), image, dir); err != nil {
		t.Fatal(err)
	}
	k := Kernel{Config: filepath.Join(dir, "config")}
	if got := fmt.Sprint(k.Lacks()); got != "[CONFIG_SECURITY_NETWORK]" {
		t.Errorf("Lacks() = %s, want [CONFIG_SECURITY_NETWORK]", got)
	}
	if got := (Kernel{}).Lacks(); got != nil {
		t.Errorf("Lacks() without a configuration = %v, want none", got)
	}
}

func FuzzDeb(f *testing.F) {
	f.Add(makeDeb(f, "", member{name: "./boot/vmlinuz-6.1", body: "image"}))
	f.Add(makeAr("debian-binary", "2.0\n", "data.tar.gz", "\x1f\x8b"))
	f.Fuzz(func(t *testing.T, deb []byte) {
		name, data, err := debData(bytes.NewReader(deb))
		if err != nil {
			return
		}
		if !strings.HasPrefix(name, "data.tar") || data == nil {
			t.Errorf("debData = %q, %v", name, data)
		}
	})
}

// Whatever the archive, nothing but the two files appears, and only in the folder.
func FuzzPickBoot(f *testing.F) {
	f.Add(makeTar(f, member{name: "./boot/vmlinuz-6.1", body: "image"}))
	f.Add(makeTar(f, member{name: "boot/../../vmlinuz", body: "x"},
		member{name: "boot/config", link: "../../x"}))
	f.Fuzz(func(t *testing.T, archive []byte) {
		top := t.TempDir()
		dir := filepath.Join(top, "a", "b")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		_ = pickBoot(bytes.NewReader(archive), dir, limits{64, 1 << 20, 1 << 16})
		err := filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
			rel, _ := filepath.Rel(dir, path)
			if err == nil && !d.IsDir() && rel != "vmlinuz" && rel != "config" {
				t.Errorf("pickBoot wrote %s", rel)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzExtract(f *testing.F) {
	f.Add(tinyImage(compressAs(f, ".gz", tinyELF(f, noteTypePVH))))
	f.Fuzz(func(t *testing.T, image []byte) {
		dir := t.TempDir()
		path := filepath.Join(dir, "bzImage")
		if err := os.WriteFile(path, image, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", dir) // the xz command is not what is tried here
		err := extract(t.Context(), path, dir)
		if _, statErr := os.Stat(filepath.Join(dir, "vmlinux")); (err == nil) != (statErr == nil) {
			t.Errorf("extract = %v, and its vmlinux: %v", err, statErr)
		}
	})
}

func FuzzIKConfig(f *testing.F) {
	f.Add([]byte("IKCFG_ST\x1f\x8bIKCFG_ED"))
	f.Add(append([]byte("IKCFG_ST"), compressAs(f, ".gz", []byte("CONFIG_X=y"))...))
	f.Fuzz(func(_ *testing.T, data []byte) { ikconfig(data) })
}
