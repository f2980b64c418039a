package kernels

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseList(t *testing.T) {
	for _, tt := range []struct {
		list string
		want []string // nil: an error
	}{
		{"6.1", []string{"6.1"}},
		{"6.1, 6.12.117,6.1.0-57", []string{"6.1", "6.12.117", "6.1.0-57"}},
		{"file:bzImage,./vmlinuz,/boot/x", []string{"file:bzImage", "./vmlinuz", "/boot/x"}},
		{"6.12.117+deb12-cloud-amd64", []string{"6.12.117+deb12-cloud-amd64"}},
		{"debian:6.1,ubuntu-mainline:6.6.10", []string{"debian:6.1", "ubuntu-mainline:6.6.10"}},
		{"6.12,arm64:6.12", []string{"6.12", "arm64:6.12"}},
		{"arm64:x", nil},
		{"riscv64:6.12", nil},
		{"deb:x.deb,dir:.,host,./a:b", []string{"deb:x.deb", "dir:.", "host", "./a:b"}},
		{"debian:", nil},
		{"debian:trixie", nil},
		{"fedora:6.1", nil},
		{"deb:", nil},
		{"host:", nil},
		{"", nil},
		{"6.1,", nil},
		{"6.1,6.1", nil},
		{"6", nil},
		{"latest", nil},
		{"file:", nil},
		{"v6.1", nil},
		{"6.1.x y", nil},
	} {
		got, err := ParseList(tt.list)
		if (err != nil) != (tt.want == nil) || !cmp.Equal(got, tt.want) {
			t.Errorf("ParseList(%q) = %q, %v, want %q", tt.list, got, err, tt.want)
		}
	}
}

func mustRef(t *testing.T, spec string) ref {
	t.Helper()
	r, err := parseRef(spec)
	if err != nil {
		t.Fatalf("parseRef(%q) = %v", spec, err)
	}
	return r
}

// The texts are what apt-cache show prints on Debian 12 and, abridged, Ubuntu 24.04.
func TestChoose(t *testing.T) {
	for _, tt := range []struct {
		text, spec string
		want       string // the best one, without "linux-image-"
		upstream   string
		n          int // how many match
	}{
		{"debian12", "amd64:6.1", "6.1.0-57-cloud-amd64=6.1.192-3", "6.1.192", 4},
		{"debian12", "amd64:6.12", "6.12.117+deb12-cloud-amd64=6.12.117-1~deb12u1", "6.12.117", 4},
		{"debian12", "amd64:6.12.115", "6.12.115+deb12-cloud-amd64=6.12.115-2~deb12u1",
			"6.12.115", 2},
		{"debian12", "amd64:6.1.0-56", "6.1.0-56-cloud-amd64=6.1.192-2", "6.1.192", 2},
		{"debian12", "amd64:6.1.192", "6.1.0-57-cloud-amd64=6.1.192-3", "6.1.192", 4},
		{"debian12", "amd64:6.1.0-57-amd64", "6.1.0-57-amd64=6.1.192-3", "6.1.192", 1},
		{"debian12", "amd64:6.6", "", "", 0},
		{"debian12", "amd64:6.1.19", "", "", 0},
		{"debian12", "arm64:6.1", "", "", 0},
		{"ubuntu2404", "6.8", "unsigned-6.8.0-102-generic=6.8.0-102.102", "6.8.0-102", 4},
		{"ubuntu2404", "6.8.0-101", "6.8.0-101-generic=6.8.0-101.101", "6.8.0-101", 2},
	} {
		t.Run(tt.text+"_"+tt.spec, func(t *testing.T) {
			text, err := os.ReadFile("testdata/" + tt.text + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			found := choose(parsePackages(text), mustRef(t, tt.spec))
			if len(found) != tt.n {
				t.Fatalf("choose found %d packages, want %d: %v", len(found), tt.n, found)
			}
			if tt.n == 0 {
				return
			}
			name := strings.TrimPrefix(found[0].name, "linux-image-")
			if got := name + "=" + found[0].version; got != tt.want {
				t.Errorf("choose = %s, want %s", got, tt.want)
			}
			if got := found[0].upstream(); got != tt.upstream {
				t.Errorf("upstream = %s, want %s", got, tt.upstream)
			}
		})
	}
}

// A series must not take in another one that starts like it.
func TestSeriesIsNotAPrefix(t *testing.T) {
	p := pkg{name: "linux-image-6.12.1-amd64", version: "6.12.1-1", abi: "6.12.1", flavour: "amd64"}
	if mustRef(t, "6.1").matches(p) {
		t.Error("6.1 matches 6.12.1, want it not to")
	}
}

// Ascending; neighbours are compared both ways, and with dpkg where it exists.
var ascending = []string{
	"0.1~~", "0.1~rc1-1", "0.1", "0.1-1", "0.1-1+b1", "0.1-1.1", "0.1a-1", "0.1+x-1",
	"6.1.9-1", "6.1.10-1", "6.1.192-3", "6.12.99-1", "6.12.117-1~deb12u1", "6.12.117-1",
	"6.12.117-1+deb12u1", "1:0.1",
}

func TestCompareVersions(t *testing.T) {
	dpkg, _ := exec.LookPath("dpkg")
	for i := 1; i < len(ascending); i++ {
		a, b := ascending[i-1], ascending[i]
		if compareVersions(a, b) >= 0 || compareVersions(b, a) <= 0 || compareVersions(a, a) != 0 {
			t.Errorf("compareVersions(%s, %s) = %d, want it negative, and its reverse positive",
				a, b, compareVersions(a, b))
		}
		if dpkg != "" {
			if err := exec.Command(dpkg, "--compare-versions", a, "lt", b).Run(); err != nil {
				t.Errorf("dpkg disagrees with the test: %s lt %s: %v", a, b, err)
			}
		}
	}
	if compareVersions("1.0", "1.00") != 0 {
		t.Error("compareVersions(1.0, 1.00) is not 0")
	}
}

// Without a package manager the error says so, and that there is another way.
func TestMissingKernelSaysWhatWasTried(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	cache := t.TempDir()
	_, err := Resolve(t.Context(), "6.6", Options{Cache: cache})
	if !errors.Is(err, ErrMissing) {
		t.Fatalf("Resolve = %v, want an ErrMissing", err)
	}
	for _, want := range []string{"6.6", cache, "apt-cache", "file:"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Resolve = %v, want %q in it", err, want)
		}
	}
	_, err = Resolve(t.Context(), filepath.Join(cache, "none"), Options{Cache: cache})
	if !errors.Is(err, ErrMissing) {
		t.Errorf("Resolve of a file that is not there = %v, want an ErrMissing", err)
	}
}

func TestConfigValue(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	text := "CONFIG_BPF_LSM=y\n# CONFIG_IKCONFIG is not set\n" +
		"CONFIG_LSM=\"yama,bpf\"\nCONFIG_HZ=250\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	k := Kernel{Config: path}
	for option, want := range map[string]string{
		"CONFIG_BPF_LSM":  "y",
		"CONFIG_LSM":      "yama,bpf",
		"CONFIG_HZ":       "250",
		"CONFIG_BPF":      "",
		"CONFIG_IKCONFIG": "",
	} {
		if got, err := k.ConfigValue(option); got != want || err != nil {
			t.Errorf("ConfigValue(%s) = %q, %v, want %q", option, got, err, want)
		}
	}
	if _, err := (Kernel{}).ConfigValue("CONFIG_BPF"); err == nil {
		t.Error("ConfigValue without a configuration = nil error")
	}
}
