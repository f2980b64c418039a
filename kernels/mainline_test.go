package kernels

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"sort"
	"strings"
	"sync"
	"testing"
)

// archiveServer serves files by their paths, with index pages as the archive's
// own server writes them.
type archiveServer struct {
	*httptest.Server
	files map[string]string // path: content
	moved map[string]string // path: where to
	mu    sync.Mutex
	asked []string
}

func newArchive(t *testing.T) *archiveServer {
	t.Helper()
	a := &archiveServer{files: map[string]string{}, moved: map[string]string{}}
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	t.Setenv("AGENT_LOCK_MAINLINE", a.URL+"/mainline")
	return a
}

func (a *archiveServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.asked = append(a.asked, r.URL.Path)
	a.mu.Unlock()
	for from, to := range a.moved {
		if rest, ok := strings.CutPrefix(r.URL.Path, from); ok {
			http.Redirect(w, r, to+rest, http.StatusMovedPermanently)
			return
		}
	}
	if text, ok := a.files[r.URL.Path]; ok {
		fmt.Fprint(w, text)
		return
	}
	children := map[string]bool{}
	for name := range a.files {
		rest, ok := strings.CutPrefix(name, r.URL.Path)
		if ok && strings.HasSuffix(r.URL.Path, "/") {
			first, _, folder := strings.Cut(rest, "/")
			children[first+map[bool]string{true: "/"}[folder]] = true
		}
	}
	if len(children) == 0 {
		http.NotFound(w, r)
		return
	}
	fmt.Fprint(w, `<table><tr><th><a href="?C=N;O=D">Name</a></th></tr>`+
		`<tr><td><a href="`+path.Dir(path.Clean(r.URL.Path))+`/">Parent Directory</a></td></tr>`)
	for _, name := range sorted(children) {
		fmt.Fprintf(w, `<tr><td><img src="/icons/x.gif" alt="[DIR]"></td><td><a href="%s">%s</a>`+
			"</td><td align=\"right\">2024-05-02 14:51  </td><td>  - </td></tr>\n", name, name)
	}
}

func sorted(set map[string]bool) []string {
	var names []string
	for name := range set {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// release publishes a whole release: image, headers with the configuration,
// modules, checksums. It returns the folder.
func (a *archiveServer) release(t *testing.T, version, stamp string) string {
	t.Helper()
	var major, minor, patch int // the last stays 0 in 6.18
	_, _ = fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch)
	abi := fmt.Sprintf("%d.%d.%d-%02d%02d%02d", major, minor, patch, major, minor, patch)
	revision := abi + "." + stamp
	folder := "/mainline/v" + version + "/" + arch() + "/"
	image := tinyImage(compressAs(t, ".gz", tinyELF(t, noteTypePVH)))
	packages := map[string][]byte{
		"linux-image-unsigned-" + abi + "-generic": makeDeb(t, ".zst",
			member{name: "./boot/vmlinuz-" + abi + "-generic", body: string(image)}),
		"linux-headers-" + abi + "-generic": makeDeb(t, ".zst", member{
			name: "./usr/src/linux-headers-" + abi + "-generic/.config",
			body: "CONFIG_BPF_LSM=y\n# " + revision + "\n"}),
		"linux-modules-" + abi + "-generic": makeDeb(t, ".zst",
			member{name: "./boot/config-" + abi + "-generic", body: "CONFIG_BPF_LSM=y\n"}),
	}
	sums := "# sha1\n0000000000000000000000000000000000000000  x.deb\n"
	for name, deb := range packages {
		file := name + "_" + revision + "_" + arch() + ".deb"
		a.files[folder+file] = string(deb)
		sums += fmt.Sprintf("%x  %s\n", sha256.Sum256(deb), file)
	}
	a.files[folder+"CHECKSUMS"] += sums
	return folder
}

func (a *archiveServer) remove(folder, part string) {
	for name := range a.files {
		if strings.HasPrefix(name, folder) && strings.Contains(path.Base(name), part) {
			delete(a.files, name)
		}
	}
}

func (a *archiveServer) resolve(t *testing.T, spec string) (Kernel, error) {
	t.Helper()
	return Resolve(t.Context(), spec, Options{Cache: t.TempDir(), Logf: t.Logf})
}

// The newest release that is whole: those that are half there, in each way in
// which they can be, are passed over.
func TestMainlineNewestWhole(t *testing.T) {
	a := newArchive(t)
	a.release(t, "6.6", "202310300000")
	a.release(t, "6.6.9", "202401010000")
	want := a.release(t, "6.6.30", "202405020000")
	a.release(t, "6.6.30", "202405030000") // built again
	a.remove(a.release(t, "6.6.31", "202405170000"), "CHECKSUMS")
	a.remove(a.release(t, "6.6.32", "202405250000"), "linux-image")
	a.files["/mainline/v6.6.33/"+arch()+"/log"] = "FAILED"
	a.files["/mainline/v6.6.34/CHANGES"] = "not built yet"
	folder := a.release(t, "6.6.35", "202406270000")
	for name := range a.files {
		if strings.HasPrefix(name, folder) && strings.Contains(name, "linux-image") {
			a.files[name] += "changed after the checksum"
		}
	}
	a.release(t, "6.60.1", "202001010000")
	a.release(t, "6.6-rc7", "202001010000")
	k, err := a.resolve(t, "ubuntu-mainline:6.6")
	if err != nil {
		t.Fatal(err)
	}
	if k.Version != "6.6.30" || !strings.HasSuffix(k.Source, ".202405030000") || k.VMLinux == "" {
		t.Errorf("Resolve = %+v, want the second build of %s", k, want)
	}
	if v, err := k.ConfigValue("CONFIG_BPF_LSM"); v != "y" {
		t.Errorf("ConfigValue = %q, %v, want the configuration of the headers", v, err)
	}
	for _, name := range a.asked {
		if strings.Contains(name, "linux-modules") {
			t.Errorf("asked for %s, want not: the headers are a tenth of it", name)
		}
	}
}

func TestMainlineVersion(t *testing.T) {
	a := newArchive(t)
	a.release(t, "6.6.8", "202312200000")
	a.release(t, "6.6.9", "202401010000")
	a.release(t, "6.18", "202511300000")
	for spec, want := range map[string]string{
		"ubuntu-mainline:6.6.8":                "6.6.8",
		"ubuntu-mainline:6.6.8-060608":         "6.6.8",
		"ubuntu-mainline:6.6.8-060608-generic": "6.6.8",
		"ubuntu-mainline:6.18.0":               "6.18",
		"ubuntu-mainline:6.18":                 "6.18",
		"ubuntu-mainline:6.6.7":                "", // not there
		"ubuntu-mainline:6.6.8-57":             "", // a distribution's
		"ubuntu-mainline:6.6.8+deb13-amd64":    "",
		"ubuntu-mainline:6.7":                  "",
	} {
		k, err := a.resolve(t, spec)
		if k.Version != want || (want == "") != errors.Is(err, ErrMissing) {
			t.Errorf("Resolve(%s) = %q, %v, want %q", spec, k.Version, err, want)
		}
	}
}

// A package that is not what CHECKSUMS says is no missing kernel.
func TestMainlineChanged(t *testing.T) {
	a := newArchive(t)
	a.release(t, "6.6.9", "202401010000")
	for name := range a.files {
		if strings.Contains(name, "linux-image") {
			a.files[name] += "changed"
		}
	}
	_, err := a.resolve(t, "ubuntu-mainline:6.6")
	if !errors.Is(err, errRefused) || errors.Is(err, ErrMissing) {
		t.Errorf("Resolve = %v, want it refused and not missing", err)
	}
}

// The archive and its releases move; what is fetched is then relative to where.
func TestMainlineMoved(t *testing.T) {
	a := newArchive(t)
	folder := a.release(t, "6.6.9", "202401010000")
	a.moved["/mainline/v6.6.9/"] = "/old/mainline/v6.6.9/"
	a.moved["/~kernel-ppa/"] = "/"
	for name, text := range a.files {
		a.files["/old"+name] = text
	}
	t.Setenv("AGENT_LOCK_MAINLINE", a.URL+"/~kernel-ppa/mainline")
	k, err := a.resolve(t, "ubuntu-mainline:6.6")
	if err != nil || k.Version != "6.6.9" {
		t.Errorf("Resolve = %+v, %v, want 6.6.9 from below /old%s", k, err, folder)
	}
}

// Ten releases are tried, not more, and each is in the error.
func TestMainlineGivesUp(t *testing.T) {
	a := newArchive(t)
	a.release(t, "6.6.1", "202401010000")
	for i := 2; i < 20; i++ {
		a.files[fmt.Sprintf("/mainline/v6.6.%d/CHANGES", i)] = "not built"
	}
	_, err := a.resolve(t, "ubuntu-mainline:6.6")
	var missing *MissingError
	if !errors.As(err, &missing) {
		t.Fatalf("Resolve = %v, want a MissingError", err)
	}
	if n := len(missing.Tried.Errors); n != 1+mainlineTries {
		t.Errorf("%d errors, want one for the cache and %d: %v", n, mainlineTries, err)
	}
	if !strings.Contains(err.Error(), "v6.6.19/"+arch()+"/: 404") {
		t.Errorf("Resolve = %v, want the newest release in it", err)
	}
}

// Without a network: nothing of it but the error, and at once.
func TestMainlineOffline(t *testing.T) {
	a := newArchive(t)
	a.Close()
	withoutTool(t)
	_, err := a.resolve(t, "6.6")
	var missing *MissingError
	if !errors.As(err, &missing) {
		t.Fatalf("Resolve = %v, want a MissingError", err)
	}
	var got []string
	for _, err := range missing.Tried.Errors {
		first, _, _ := strings.Cut(err.Error(), " ")
		got = append(got, strings.TrimSuffix(first, ":"))
	}
	if s := strings.Join(got, " "); s != "cache apt ubuntu-mainline debian" {
		t.Errorf("tried %s, want cache apt ubuntu-mainline debian: %v", s, err)
	}
	for _, want := range []string{a.URL, "connection refused"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Resolve = %v, want %q in it", err, want)
		}
	}
}

// A busy server is asked again, a redirect to plain text is not followed.
func TestWebClient(t *testing.T) {
	n := 0
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n++; n < tries {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer busy.Close()
	if _, _, err := page(t.Context(), busy.URL); err != nil || n != tries {
		t.Errorf("page of a busy server = %v after %d tries, want success after %d", err, n, tries)
	}
	from, err := http.NewRequest(http.MethodGet, "https://a.example/", nil)
	if err != nil {
		t.Fatal(err)
	}
	to, err := http.NewRequest(http.MethodGet, "http://a.example/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if webClient.CheckRedirect(to, []*http.Request{from}) == nil {
		t.Error("a redirect from https to http is followed")
	}
}

func TestCatalogue(t *testing.T) {
	all := Catalogue()
	for i, s := range all {
		if !seriesRE().MatchString(s.Name) || s.Note == "" ||
			s.Prefer != schemeDebian && s.Prefer != schemeMainline {
			t.Errorf("catalogue: %+v", s)
		}
		if i > 0 && compareVersions(all[i-1].Name, s.Name) >= 0 {
			t.Errorf("catalogue: %s comes after %s", s.Name, all[i-1].Name)
		}
	}
	for _, s := range catalogue().Suites {
		from := aptSource{"", s.Name, []string{"main"}, ""}
		if from.archive() != s.Archive {
			t.Errorf("catalogue: suite %+v is of the archive %q", s, from.archive())
		}
	}
}
