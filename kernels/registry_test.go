package kernels

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// registryServer is a registry with one repository, x/kernels. Like the public
// ones it wants a token, which it gives to anybody, and sends blobs from another
// server.
type registryServer struct {
	*httptest.Server
	blobs    *httptest.Server
	content  map[string][]byte // tag or digest: manifest; digest: blob
	types    map[string]string
	leaked   bool // the blob server was shown the token
	requests int
}

func newRegistry(t *testing.T) *registryServer {
	t.Helper()
	r := &registryServer{content: map[string][]byte{}, types: map[string]string{}}
	r.blobs = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.leaked = r.leaked || req.Header.Get("Authorization") != ""
		_, _ = w.Write(r.content[strings.TrimPrefix(req.URL.Path, "/")])
	}))
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	t.Cleanup(r.blobs.Close)
	return r
}

func (r *registryServer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.requests++
	const scope = "repository:x/kernels:pull"
	if req.URL.Path == "/token" {
		if req.URL.Query().Get("scope") != scope || req.URL.Query().Get("service") != "test" {
			http.Error(w, "scope", http.StatusBadRequest)
			return
		}
		fmt.Fprint(w, `{"token": "for-anybody"}`)
		return
	}
	if req.Header.Get("Authorization") != "Bearer for-anybody" {
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(
			`Bearer realm="%s/token",service="test",scope="%s"`, r.URL, scope))
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if digest, ok := strings.CutPrefix(req.URL.Path, "/v2/x/kernels/blobs/"); ok {
		// Not the host of the registry, or the client would keep the token.
		to := strings.Replace(r.blobs.URL, "127.0.0.1", "localhost", 1)
		http.Redirect(w, req, to+"/"+digest, http.StatusTemporaryRedirect)
		return
	}
	name := strings.TrimPrefix(req.URL.Path, "/v2/x/kernels/manifests/")
	text, ok := r.content[name]
	if !ok || !strings.Contains(req.Header.Get("Accept"), r.types[name]) {
		http.NotFound(w, req)
		return
	}
	w.Header().Set("Content-Type", r.types[name])
	_, _ = w.Write(text)
}

// put stores content and describes it.
func (r *registryServer) put(mediaType string, data []byte) map[string]any {
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(data))
	r.content[digest], r.types[digest] = data, mediaType
	return map[string]any{"mediaType": mediaType, "digest": digest, "size": len(data)}
}

func (r *registryServer) putJSON(t *testing.T, mediaType string, value any) map[string]any {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return r.put(mediaType, text)
}

const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar"
)

// push makes layers the image of a tag, for one architecture.
func (r *registryServer) push(t *testing.T, tag, arch string, layers ...map[string]any) string {
	t.Helper()
	m := r.putJSON(t, typeManifest, map[string]any{"layers": layers})
	m["platform"] = map[string]string{"os": "linux", "architecture": arch}
	other := r.putJSON(t, typeManifest, map[string]any{"layers": []any{}})
	other["platform"] = map[string]string{"os": "linux", "architecture": "riscv64"}
	index := r.putJSON(t, typeIndex, map[string]any{"manifests": []any{other, m}})
	digest := index["digest"].(string)
	r.content[tag], r.types[tag] = r.content[digest], typeIndex
	return digest
}

func (r *registryServer) layer(t *testing.T, ending string, members ...member) map[string]any {
	t.Helper()
	suffix := map[string]string{"": "", ".gz": "+gzip", ".zst": "+zstd"}[ending]
	return r.put(typeLayer+suffix, compressAs(t, ending, makeTar(t, members...)))
}

func (r *registryServer) spec(tag string) string {
	return "oci:" + strings.TrimPrefix(r.URL, "http://") + "/x/kernels" + tag
}

// kernelWithConfig is an image such as those of ci-kernels: the configuration is inside.
func kernelWithConfig(t *testing.T, config string) string {
	t.Helper()
	vmlinux := append(tinyELF(t, noteTypePVH), ikconfigStart...)
	vmlinux = append(vmlinux, compressAs(t, ".gz", []byte(config))...)
	vmlinux = append(vmlinux, ikconfigEnd...)
	return string(tinyImage(compressAs(t, ".gz", vmlinux)))
}

func TestImage(t *testing.T) {
	r := newRegistry(t)
	image := kernelWithConfig(t,
		"CONFIG_BPF_LSM=y\nCONFIG_DEBUG_INFO_BTF=y\nCONFIG_SECURITY_NETWORK=y\n")
	index := r.push(t, "6.6", arch(),
		r.layer(t, ".zst", member{name: "boot/vmlinuz", body: "of a lower layer"}),
		r.layer(t, ".gz", member{name: "boot/"}, member{name: "boot/vmlinuz", body: image},
			member{name: "lib", link: "usr/lib"}),
		r.layer(t, "", member{name: "usr/lib/modules/6.6/modules.order", body: "x"}))
	cache := t.TempDir()
	for _, tag := range []string{":6.6", ":6.6@" + index, "@" + index} {
		k, err := Resolve(t.Context(), r.spec(tag), Options{Cache: cache})
		if err != nil {
			t.Fatalf("Resolve(%s) = %v", tag, err)
		}
		if got, err := os.ReadFile(k.Image); err != nil || string(got) != image {
			t.Errorf("Resolve(%s) has %d bytes, %v, want the upper layer's %d", tag, len(got), err,
				len(image))
		}
		if got := fmt.Sprint(k.Lacks()); k.VMLinux == "" || got != "[CONFIG_PID_NS]" {
			t.Errorf("Resolve(%s) = %+v, lacks %s", tag, k, got)
		}
		if !strings.Contains(k.Source, "/x/kernels@sha256:") {
			t.Errorf("Source = %s, want the digest in it", k.Source)
		}
	}
	if r.leaked {
		t.Error("the token was sent to another server")
	}
}

// A tag moves: it is asked for again a day later, and when that fails the old
// answer is better than none.
func TestImageTagMoves(t *testing.T) {
	r := newRegistry(t)
	dir := t.TempDir()
	resolve := func() string {
		t.Helper()
		k, err := Resolve(t.Context(), r.spec(":6.6"), Options{Cache: dir, Logf: t.Logf})
		if err != nil {
			t.Fatalf("Resolve = %v", err)
		}
		return k.SHA256
	}
	later := func() {
		past := time.Now().Add(-2 * seriesFresh)
		c := cache{filepath.Join(dir, "kernels")}
		path := filepath.Join(c.dir, "series", seriesFile(r.spec(":6.6")))
		if err := os.Chtimes(path, past, past); err != nil {
			t.Fatal(err)
		}
	}
	push := func(config string) {
		r.push(t, "6.6", arch(), r.layer(t, ".gz",
			member{name: "boot/vmlinuz", body: kernelWithConfig(t, config)}))
	}
	push("CONFIG_A=y\n")
	first := resolve()
	push("CONFIG_B=y\n")
	before := r.requests
	if got := resolve(); got != first || r.requests != before {
		t.Errorf("Resolve, again soon = %s after %d requests, want %s without one", got,
			r.requests-before, first)
	}
	later()
	second := resolve()
	if second == first {
		t.Error("Resolve, again late = the old image, want the new one")
	}
	later()
	r.Close()
	if got := resolve(); got != second {
		t.Errorf("Resolve, offline = %s, want %s", got, second)
	}
}

func TestImageRefuses(t *testing.T) {
	good := func(t *testing.T, r *registryServer) map[string]any {
		return r.layer(t, ".gz", member{name: "boot/vmlinuz", body: "image"})
	}
	for name, tt := range map[string]struct {
		push func(t *testing.T, r *registryServer)
		want string
	}{
		"other_platform": {func(t *testing.T, r *registryServer) {
			r.push(t, "6.6", "s390x", good(t, r))
		}, "image is for linux/riscv64, linux/s390x"},
		"no_kernel": {func(t *testing.T, r *registryServer) {
			r.push(t, "6.6", arch(), r.layer(t, ".gz", member{name: "etc/x"}))
		}, "no boot/vmlinuz"},
		"changed_layer": {func(t *testing.T, r *registryServer) {
			d := good(t, r)
			r.push(t, "6.6", arch(), d)
			r.content[d["digest"].(string)] = compressAs(t, ".gz",
				makeTar(t, member{name: "boot/vmlinuz", body: "spoof"}))
		}, "refused"},
		"changed_manifest": {func(t *testing.T, r *registryServer) {
			r.push(t, "6.6", arch(), good(t, r))
			for digest, text := range r.content {
				if bytes.Contains(text, []byte(`"layers":[{`)) {
					r.content[digest] = append(text, ' ')
				}
			}
		}, "manifest: sha256 is"},
		"longer_layer": {func(t *testing.T, r *registryServer) {
			d := good(t, r)
			d["size"] = 20
			r.push(t, "6.6", arch(), d)
		}, "refused"},
		"dots": {func(t *testing.T, r *registryServer) {
			r.push(t, "6.6", arch(), r.layer(t, ".zst", member{name: "boot/../../vmlinuz"}))
		}, ".. in it; refused"},
		"link": {func(t *testing.T, r *registryServer) {
			r.push(t, "6.6", arch(), r.layer(t, ".gz", member{name: "boot/vmlinuz", link: "/x"}))
		}, "want a file; refused"},
		"no_tar": {func(t *testing.T, r *registryServer) {
			r.push(t, "6.6", arch(), r.put("application/vnd.foreign", []byte("x")))
		}, "want a tar archive"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(t)
			tt.push(t, r)
			_, err := Resolve(t.Context(), r.spec(":6.6"), Options{Cache: t.TempDir()})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("Resolve = %v, want %q in it", err, tt.want)
			}
			// --allow-missing must not hide what is hostile.
			refused := strings.HasPrefix(err.Error(), "kernel refused: ")
			if errors.Is(err, ErrMissing) == refused || refused != errors.Is(err, errRefused) {
				t.Errorf("Resolve = %v, an ErrMissing: %t", err, !refused)
			}
		})
	}
}

// What is not in the registry is missing; a digest is never taken for a path.
func TestImageMissing(t *testing.T) {
	r := newRegistry(t)
	r.push(t, "bad", arch(), map[string]any{"digest": "sha256:../../x"})
	for tag, want := range map[string]string{":none": "404", ":bad": "want a SHA-256"} {
		_, err := Resolve(t.Context(), r.spec(tag), Options{Cache: t.TempDir()})
		if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), want) {
			t.Errorf("Resolve(%s) = %v, want an ErrMissing with %q", tag, err, want)
		}
	}
}

// Whoever asks for a password, or sends us elsewhere for a token, gets nothing.
func TestImageLogin(t *testing.T) {
	for challenge, want := range map[string]string{
		`Basic realm="x"`:                       "wants a login",
		`Bearer realm="ftp://x"`:                "unsupported protocol scheme",
		`Bearer service="x"`:                    "no https address",
		`Bearer realm="http://127.0.0.1:1/tok"`: "connection refused",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", challenge)
			w.WriteHeader(http.StatusUnauthorized)
		}))
		spec := "oci:" + strings.TrimPrefix(server.URL, "http://") + "/x:1"
		_, err := Resolve(t.Context(), spec, Options{Cache: t.TempDir()})
		server.Close()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: Resolve = %v, want %q in it", challenge, err, want)
		}
	}
	g := registry{ref: imageRef{registry: "ghcr.io", repository: "x"}}
	err := g.authorize(t.Context(), `Bearer realm="http://ghcr.io/token"`)
	if err == nil || !strings.Contains(err.Error(), "no https address") {
		t.Errorf("authorize = %v, want plain text refused", err)
	}
}

func TestParseImage(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	for text, want := range map[string]imageRef{
		"ghcr.io/cilium/ci-kernels:6.6":         {"ghcr.io", "cilium/ci-kernels", "6.6", ""},
		"localhost:5000/a":                      {"localhost:5000", "a", "latest", ""},
		"quay.io/a/b-c/d_e@" + digest:           {"quay.io", "a/b-c/d_e", "latest", digest},
		"quay.io/a:1@" + digest:                 {"quay.io", "a", "1", digest},
		"cilium/ci-kernels:6.6":                 {},
		"ghcr.io":                               {},
		"ghcr.io/../a":                          {},
		"ghcr.io/a:b/c":                         {},
		"ghcr.io/A":                             {},
		"ghcr.io/a@sha256:short":                {},
		"ghcr.io/a@md5:00000000":                {},
		"ghcr.io/a:" + strings.Repeat("x", 129): {},
	} {
		got, err := parseImage(text)
		if (err != nil) != (want == imageRef{}) || err == nil && got != want {
			t.Errorf("parseImage(%q) = %+v, %v, want %+v", text, got, err, want)
		}
	}
}
