package kernels

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadSources(t *testing.T) {
	dir := t.TempDir()
	key := "\n -----BEGIN\n .\n key"
	for name, text := range map[string]string{
		"sources.list": "# comment\ndeb http://a.example/debian bookworm main contrib # more\n" +
			"deb-src http://a.example/debian bookworm main\ndebris http://x y main\n" +
			"deb [arch=amd64 signed-by=/k/debian.gpg] http://b.example/s bookworm-security main\n",
		"d/x.sources": "Types: deb deb-src\n# comment\nURIs: http://c.example/debian\n" +
			"Suites: trixie trixie-updates\nComponents: main\nSigned-By:" + key + "\n\n" +
			"Types: deb\nEnabled: no\nURIs: http://d.example/\nSuites: sid\nComponents: main\n",
		"d/x.sources.disabled": "Types: deb\nURIs: http://e.example/\nSuites: sid\n" +
			"Components: main\n",
		"d/y.list": "deb http://f.example/docker bookworm stable\n",
	} {
		path := filepath.Join(dir, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700),
			os.WriteFile(path, []byte(text), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	main := []string{"main"}
	want := []aptSource{
		{"http://a.example/debian", "bookworm", []string{"main", "contrib"}, ""},
		{"http://b.example/s", "bookworm-security", main, "/k/debian.gpg"},
		{"http://c.example/debian", "trixie", main, key},
		{"http://c.example/debian", "trixie-updates", main, key},
		{"http://f.example/docker", "bookworm", []string{"stable"}, ""},
	}
	got := readSources(filepath.Join(dir, "sources.list"), filepath.Join(dir, "d"))
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(aptSource{})); diff != "" {
		t.Errorf("readSources differs (-want +got):\n%s", diff)
	}
	again := parseDeb822(got[2].deb822(arch()))
	if len(again) != 1 || again[0].signedBy != key {
		t.Errorf("parseDeb822(deb822()) = %q, want the key back", again)
	}
}

// Which archive a source belongs to: strangers also call their suites stable.
func TestArchive(t *testing.T) {
	for _, tt := range []struct {
		suite, component, signedBy, want string
	}{
		{"bookworm", "main", "", "main"},
		{"stable-updates", "main", "/usr/share/keyrings/debian-archive-keyring.gpg", "main"},
		{"bookworm-security", "main", "", "security"},
		{"bookworm-pgdg", "main", "", ""},
		{"stable", "main", "/usr/share/keyrings/browser.gpg", ""},
		{"bookworm", "stable", "", ""},
		{"noble", "main", "", ""},
	} {
		s := aptSource{"http://x.example/debian", tt.suite, []string{tt.component}, tt.signedBy}
		if got := s.archive(); got != tt.want {
			t.Errorf("%v.archive() = %q, want %q", s, got, tt.want)
		}
	}
	usual := aptSource{"http://x.example/debian/", "sid", []string{"main"}, ""}
	other := aptSource{"http://x.example/browser", "stable", []string{"main"}, ""}
	for _, order := range [][]aptSource{{usual, other}, {other, usual}} {
		if got, _ := debianArchives(order); got["main"].uri != usual.uri {
			t.Errorf("debianArchives(%v) = %v, want %s", order, got, usual.uri)
		}
	}
}

// tool skips the test where a command is missing.
func tool(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("%s is not installed", name)
	}
}

// repository is a signed archive in a folder, with one kernel in trixie-backports.
type repository struct {
	dir, home, keyring string
	deb                []byte
}

func (r repository) write(t *testing.T, name string, data []byte) {
	t.Helper()
	path := filepath.Join(r.dir, "debian", name)
	err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o644))
	if err != nil {
		t.Fatal(err)
	}
}

func (r repository) gpg(t *testing.T, stdin string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("gpg", append([]string{"--batch", "--homedir", r.home}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("gpg %v: %v", args, err)
	}
	return out
}

func newRepository(t *testing.T) repository {
	t.Helper()
	// A short name: gpg-agent's socket is in it.
	home, err := os.MkdirTemp("", "gpg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = exec.Command("gpgconf", "--homedir", home, "--kill", "all").Run()
		os.RemoveAll(home)
	})
	r := repository{dir: t.TempDir(), home: home}
	r.gpg(t, "", "--passphrase", "", "--quick-gen-key", "test@example.invalid", "ed25519")
	r.keyring = filepath.Join(r.dir, "debian-test.gpg")
	if err := os.WriteFile(r.keyring, r.gpg(t, "", "--export"), 0o644); err != nil {
		t.Fatal(err)
	}
	image := tinyImage(compressAs(t, ".gz", tinyELF(t, noteTypePVH)))
	r.deb = makeDeb(t, ".gz", member{name: "./boot/vmlinuz-6.18.5", body: string(image)},
		member{name: "./boot/config-6.18.5", body: "CONFIG_BPF_LSM=y\n"})
	r.write(t, "pool/kernel.deb", r.deb)
	packages := fmt.Appendf(nil, "Package: linux-image-6.18.5+deb13-cloud-%s\n"+
		"Version: 6.18.5-1~bpo13+1\nArchitecture: %s\nMaintainer: x\nDescription: x\n"+
		"Filename: pool/kernel.deb\nSize: %d\nSHA256: %x\n",
		arch(), arch(), len(r.deb), sha256.Sum256(r.deb))
	r.write(t, "dists/trixie-backports/main/binary-"+arch()+"/Packages", packages)
	release := fmt.Sprintf("Origin: Debian Backports\nSuite: trixie-backports\n"+
		"Codename: trixie-backports\nDate: Sat, 01 Nov 2025 00:00:00 UTC\nArchitectures: %s\n"+
		"Components: main\nSHA256:\n %x %d main/binary-%s/Packages\n",
		arch(), sha256.Sum256(packages), len(packages), arch())
	r.write(t, "dists/trixie-backports/InRelease", r.gpg(t, release, "--clearsign"))
	return r
}

// serve serves the repository, and configures it as bookworm.
func (r repository) serve(t *testing.T) {
	t.Helper()
	server := httptest.NewServer(http.FileServer(http.Dir(r.dir)))
	t.Cleanup(server.Close)
	r.configure(t, server.URL)
}

// configure makes the repository at an address the machine's only source.
func (r repository) configure(t *testing.T, address string) {
	t.Helper()
	etc := t.TempDir()
	for name, text := range map[string]string{
		"sources.list": "deb [signed-by=" + r.keyring + "] " + address +
			"/debian bookworm main\n",
		"conf": fmt.Sprintf("Dir::Etc %q;\nDir::State %q;\nDir::Cache %q;\n"+
			"Acquire::Retries \"0\";\n",
			etc, filepath.Join(etc, "state"), filepath.Join(etc, "cache")),
	} {
		if err := os.WriteFile(filepath.Join(etc, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(etc, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("APT_CONFIG", filepath.Join(etc, "conf"))
	t.Setenv("AGENT_LOCK_MAINLINE", address+"/mainline")
}

// Without a network no suite is waited for twice, and each is in the error.
func TestOtherSuitesOffline(t *testing.T) {
	tool(t, "apt-get")
	server := httptest.NewServer(http.NotFoundHandler())
	repository{dir: t.TempDir(), keyring: "/none/debian.gpg"}.configure(t, server.URL)
	server.Close()
	_, err := Resolve(t.Context(), "debian:6.18", Options{Cache: t.TempDir(), Logf: t.Logf})
	var missing *MissingError
	if !errors.As(err, &missing) {
		t.Fatalf("Resolve = %v, want a MissingError", err)
	}
	connects, away := 0, 0
	for _, err := range missing.Tried.Errors {
		if text := err.Error(); strings.Contains(text, "ould not connect") {
			connects++
		} else if strings.Contains(text, "not tried at "+server.URL) {
			away++
		}
	}
	if connects == 0 || connects > 2 || away < 3 { // one may be the machine's own apt
		t.Errorf("Resolve tried %d times, %d suites not: %v", connects, away, err)
	}
}

// The machine's apt, its real verification included, reads a suite that it is not
// configured for. What is not signed by the key of the configured one is refused.
func TestOtherSuites(t *testing.T) {
	for _, name := range []string{"apt-get", "gpg", "gpgv"} {
		tool(t, name)
	}
	for name, tt := range map[string]struct {
		spoil func(t *testing.T, r repository)
		want  string // in the error; empty: success
	}{
		"good": {func(*testing.T, repository) {}, ""},
		"unsigned": {func(t *testing.T, r repository) {
			suite := filepath.Join(r.dir, "debian/dists/trixie-backports")
			signed, err := os.ReadFile(filepath.Join(suite, "InRelease"))
			if err != nil {
				t.Fatal(err)
			}
			_, text, _ := bytes.Cut(signed, []byte("\n\n"))
			text, _, _ = bytes.Cut(text, []byte("-----BEGIN"))
			r.write(t, "dists/trixie-backports/Release", text)
			if err := os.Remove(filepath.Join(suite, "InRelease")); err != nil {
				t.Fatal(err)
			}
		}, "not signed"},
		"other_key": {func(t *testing.T, r repository) {
			r.gpg(t, "", "--passphrase", "", "--quick-gen-key", "b@example.invalid", "ed25519")
			old, err := os.ReadFile(filepath.Join(r.dir, "debian/dists/trixie-backports/InRelease"))
			if err != nil {
				t.Fatal(err)
			}
			_, text, _ := bytes.Cut(old, []byte("\n\n"))
			text, _, _ = bytes.Cut(text, []byte("-----BEGIN"))
			r.write(t, "dists/trixie-backports/InRelease",
				r.gpg(t, string(text), "--local-user", "b@example.invalid", "--clearsign"))
		}, "is not signed"},
		"changed_package": {func(t *testing.T, r repository) {
			r.deb[len(r.deb)-1] ^= 1
			r.write(t, "pool/kernel.deb", r.deb)
		}, "Hash Sum mismatch"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRepository(t)
			tt.spoil(t, r)
			r.serve(t)
			k, err := Resolve(t.Context(), "debian:6.18", Options{Cache: t.TempDir(), Logf: t.Logf})
			switch {
			case tt.want == "" && err != nil:
				t.Fatalf("Resolve = %v", err)
			case tt.want == "":
				if k.Version != "6.18.5" || k.Config == "" || k.VMLinux == "" ||
					!strings.HasPrefix(k.Source, "debian trixie-backports linux-image-6.18.5") {
					t.Errorf("Resolve = %+v", k)
				}
			case !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), tt.want):
				t.Errorf("Resolve = %v, want an ErrMissing with %q", err, tt.want)
			}
		})
	}
}
