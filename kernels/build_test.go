package kernels

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseFragment(t *testing.T) {
	for _, tt := range []struct{ text, want, wantErr string }{
		{text: "# why\n\nCONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C=n\nCONFIG_D=\"bpf\"\n",
			want: `[CONFIG_A=y CONFIG_B off CONFIG_C off CONFIG_D="bpf"]`},
		{text: "# CONFIG_A is a fine thing\n# set nothing\n", wantErr: "it sets nothing"},
		{text: "CONFIG_A=y\nCONFIG_B", wantErr: `line 2: "CONFIG_B" is not CONFIG_NAME=value`},
		{text: "CONFIG_A=", wantErr: `line 1: "CONFIG_A=" is not CONFIG_NAME=value`},
		{text: "A=y", wantErr: `line 1: "A=y" is not CONFIG_NAME=value`},
		{text: "CONFIG_A=y\n# CONFIG_A is not set", wantErr: "line 2: CONFIG_A comes twice"},
	} {
		got, err := parseFragment(tt.text)
		if tt.wantErr != "" {
			if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("parseFragment(%q) = %v, want error %s", tt.text, err, tt.wantErr)
			}
			continue
		}
		if err != nil || fmt.Sprint(got) != tt.want {
			t.Errorf("parseFragment(%q) = %v, %v, want %s", tt.text, got, err, tt.want)
		}
	}
}

// Our own configurations can be read, and the one without path_* hooks says so.
func TestConfigs(t *testing.T) {
	for _, config := range configNames() {
		name, text, err := readFragment(config)
		if err != nil || name != config {
			t.Fatalf("readFragment(%s) = %s, %v", config, name, err)
		}
		if _, err := parseFragment(text); err != nil {
			t.Errorf("%s: %v", config, err)
		}
	}
	_, text, _ := readFragment("no-security-path")
	if !strings.Contains(text, "\n# CONFIG_SECURITY_PATH is not set\n") {
		t.Error("no-security-path does not turn CONFIG_SECURITY_PATH off")
	}
}

// kernelTree is a source tree whose make turns one option off, as kconfig does with
// what depends on something that is off, and has an image ready.
func kernelTree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	image := tinyImage(compressAs(t, ".gz", tinyELF(t, noteTypePVH)))
	for name, text := range map[string]string{
		"Kconfig": "", "scripts/kconfig/Makefile": "", "image": string(image),
		"Makefile": "allnoconfig:\n" +
			"\tgrep -v CONFIG_DROPPED $(KCONFIG_ALLCONFIG) >$(O)/.config\n" +
			"bzImage:\n\tmkdir -p $(O)/arch/x86/boot\n\tcp image $(O)/arch/x86/boot/bzImage\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestBuild(t *testing.T) {
	if err := checkTools([]option{{"CONFIG_DEBUG_INFO_BTF", "y"}}); err != nil {
		t.Skip(err)
	}
	cache, tree := t.TempDir(), t.TempDir()
	config := filepath.Join(tree, "small.config")
	opts := Options{Cache: cache}
	b := Building{Config: config, Source: kernelTree(t), Output: io.Discard}
	build := func(text string) (Kernel, error) {
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return Build(t.Context(), opts, b)
	}

	_, err := build("CONFIG_A=y\nCONFIG_DROPPED=y\n# CONFIG_B is not set\n")
	want := "1 options had no effect: CONFIG_DROPPED=y wanted, CONFIG_DROPPED off made of it"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Build = %v, want %s", err, want)
	}
	if _, err := Resolve(t.Context(), "built:small", opts); err == nil {
		t.Error("built:small names what could not be built")
	}

	if _, err := build("CONFIG_A=y\n# CONFIG_B is not set\n"); err != nil {
		t.Fatal(err)
	}
	k, err := Resolve(t.Context(), "built:small", opts)
	if err != nil {
		t.Fatal(err)
	}
	if a, err := k.ConfigValue("CONFIG_A"); a != "y" || err != nil || k.VMLinux == "" {
		t.Errorf("built:small = %+v, CONFIG_A %q, %v", k, a, err)
	}
	left, err := filepath.Glob(filepath.Join(cache, "kernels", ".new-*"))
	if len(left) > 0 || err != nil {
		t.Errorf("Build leaves %q, %v", left, err)
	}

	b.Source = t.TempDir()
	if _, err := build("CONFIG_A=y\n"); err == nil ||
		!strings.Contains(err.Error(), "is no kernel's source tree") {
		t.Errorf("Build of an empty folder = %v", err)
	}
}

func TestCheckTools(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	btf := []option{{"CONFIG_DEBUG_INFO_BTF", "y"}}
	err := checkTools(btf)
	if err == nil || !strings.Contains(err.Error(), "bison, bc, pahole not found") {
		t.Errorf("checkTools(%v) = %v, want all to be named", btf, err)
	}
	if err := checkTools(nil); err == nil || strings.Contains(err.Error(), "pahole") {
		t.Errorf("checkTools without types = %v, want no pahole in it", err)
	}
}
