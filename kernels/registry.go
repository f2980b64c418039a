package kernels

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// imageRef is the name of an image in a registry.
type imageRef struct {
	registry   string // host, and port unless it is the usual one
	repository string
	tag        string
	digest     string // "sha256:…"; wins over the tag
}

var (
	repositoryRE = lazily(
		`^[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$`)
	tagRE    = lazily(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
	digestRE = lazily(`^sha256:[0-9a-f]{64}$`)
)

// parseImage reads REGISTRY/NAME[:TAG][@DIGEST]. No registry is implied.
func parseImage(text string) (imageRef, error) {
	bad := func(what string) (imageRef, error) {
		return imageRef{}, fmt.Errorf("image %q %s; give it as ghcr.io/cilium/ci-kernels:6.6",
			text, what)
	}
	var ref imageRef
	var ok bool
	if ref.registry, ref.repository, ok = strings.Cut(text, "/"); !ok ||
		!strings.ContainsAny(ref.registry, ".:") && ref.registry != "localhost" {
		return bad("does not begin with a registry")
	}
	ref.repository, ref.digest, ok = strings.Cut(ref.repository, "@")
	if ok && !digestRE().MatchString(ref.digest) {
		return bad("has a digest that is no SHA-256")
	}
	ref.repository, ref.tag, ok = strings.Cut(ref.repository, ":")
	if !ok {
		ref.tag = "latest"
	}
	if !repositoryRE().MatchString(ref.repository) || !tagRE().MatchString(ref.tag) {
		return bad("is no image name")
	}
	return ref, nil
}

func (r imageRef) loopback() bool {
	host := r.registry
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return host == "localhost" || net.ParseIP(strings.Trim(host, "[]")).IsLoopback()
}

// registry talks to one repository of a registry, as anybody may.
type registry struct {
	ref   imageRef
	token string
}

// manifest is what we read of an image's manifest, or of an index of manifests
// for several platforms.
type manifest struct {
	Manifests []descriptor `json:"manifests"`
	Layers    []descriptor `json:"layers"`
}

type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
	Platform  struct {
		OS           string `json:"os"`
		Architecture string `json:"architecture"`
	} `json:"platform"`
}

const manifestTypes = "application/vnd.oci.image.index.v1+json," +
	"application/vnd.oci.image.manifest.v1+json," +
	"application/vnd.docker.distribution.manifest.list.v2+json," +
	"application/vnd.docker.distribution.manifest.v2+json"

// get asks for something below the repository. A registry that wants a token is
// asked for one, which it gives to anybody for a public image.
func (g *registry) get(ctx context.Context, path, accept string) (*http.Response, error) {
	scheme := "https"
	if g.ref.loopback() { // as other clients do
		scheme = "http"
	}
	address := scheme + "://" + g.ref.registry + "/v2/" + g.ref.repository + "/" + path
	for {
		header := http.Header{}
		if accept != "" {
			header.Set("Accept", accept)
		}
		if g.token != "" {
			header.Set("Authorization", "Bearer "+g.token)
		}
		resp, err := request(ctx, address, header)
		if err != nil || resp.StatusCode == http.StatusOK {
			return resp, err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized || g.token != "" {
			return nil, statusError{address, resp.StatusCode}
		}
		if err := g.authorize(ctx, resp.Header.Get("WWW-Authenticate")); err != nil {
			return nil, fmt.Errorf("%s: %w", address, err)
		}
	}
}

var challengeRE = lazily(`(\w+)="([^"]*)"`)

// authorize answers a challenge: Bearer realm="…",service="…",scope="…".
func (g *registry) authorize(ctx context.Context, challenge string) error {
	if !strings.HasPrefix(strings.ToLower(challenge), "bearer ") {
		return errors.New("the registry wants a login; only public images can be had")
	}
	params := map[string]string{"scope": "repository:" + g.ref.repository + ":pull"}
	for _, m := range challengeRE().FindAllStringSubmatch(challenge, -1) {
		params[m[1]] = m[2]
	}
	realm, err := url.Parse(params["realm"])
	if err != nil || realm.Host == "" || realm.Scheme != "https" && !g.ref.loopback() {
		return fmt.Errorf("the registry's token service %q has no https address", params["realm"])
	}
	query := realm.Query()
	for _, name := range []string{"service", "scope"} {
		if params[name] != "" {
			query.Set(name, params[name])
		}
	}
	realm.RawQuery = query.Encode()
	text, _, err := page(ctx, realm.String())
	if err != nil {
		return fmt.Errorf("get a token: %w", err)
	}
	var answer struct {
		Token       string `json:"token"`
		AccessToken string `json:"access_token"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("get a token: %w", err)
	}
	if g.token = answer.Token; g.token == "" {
		g.token = answer.AccessToken
	}
	if g.token == "" {
		return errors.New("the registry's token service gave no token")
	}
	return nil
}

// manifest reads the manifest of a tag or a digest, and tells its digest.
func (g *registry) manifest(ctx context.Context, name string) (manifest, string, error) {
	var m manifest
	resp, err := g.get(ctx, "manifests/"+name, manifestTypes)
	if err != nil {
		return m, "", err
	}
	defer resp.Body.Close()
	body := newDigestReader(resp.Body, maxPage)
	text, err := io.ReadAll(body)
	if err != nil {
		return m, "", fmt.Errorf("read manifest %s: %w", name, err)
	}
	if strings.HasPrefix(name, "sha256:") {
		if err := body.check(strings.TrimPrefix(name, "sha256:")); err != nil {
			return m, "", fmt.Errorf("manifest: %w", err)
		}
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, "", fmt.Errorf("read manifest %s: %w", name, err)
	}
	for _, d := range append(append([]descriptor(nil), m.Manifests...), m.Layers...) {
		if !digestRE().MatchString(d.Digest) {
			return m, "", fmt.Errorf("manifest %s names %q, want a SHA-256", name, d.Digest)
		}
	}
	return m, "sha256:" + body.sum(), nil
}

// image reads the manifest of our platform.
func (g *registry) image(ctx context.Context) (m manifest, digest string, err error) {
	name := g.ref.digest
	if name == "" {
		name = g.ref.tag
	}
	m, digest, err = g.manifest(ctx, name)
	if err != nil || len(m.Manifests) == 0 {
		return m, digest, err
	}
	var platforms []string
	for _, d := range m.Manifests {
		if d.Platform.OS == "linux" && d.Platform.Architecture == arch() {
			m, digest, err = g.manifest(ctx, d.Digest)
			if err == nil && len(m.Manifests) > 0 {
				err = errors.New("index names an index")
			}
			return m, digest, err
		}
		platforms = append(platforms, d.Platform.OS+"/"+d.Platform.Architecture)
	}
	return m, "", fmt.Errorf("image is for %s, not linux/%s", strings.Join(platforms, ", "), arch())
}

// layer unpacks one layer: what it has of a kernel goes to dir.
func (g *registry) layer(ctx context.Context, d descriptor, dir string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ending, err := d.ending()
	if err != nil {
		return err
	}
	resp, err := g.get(ctx, "blobs/"+d.Digest, "")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body := newDigestReader(resp.Body, min(d.Size, maxDownload))
	archive, err := decompress(ctx, ending, body)
	if err != nil {
		return fmt.Errorf("layer %s: %w", d.Digest, err)
	}
	defer archive.Close()
	err = pickBoot(archive, dir, archiveLimits)
	if err == nil {
		_, err = io.Copy(io.Discard, body) // what follows the compressed stream
	}
	if err == nil {
		err = body.check(strings.TrimPrefix(d.Digest, "sha256:"))
	}
	if err != nil {
		return fmt.Errorf("layer %s: %w", d.Digest, err)
	}
	return nil
}

// ending is the compression of a layer, as a file's ending would tell it.
func (d descriptor) ending() (string, error) {
	switch t := d.MediaType; {
	case strings.HasSuffix(t, ".tar"):
		return "", nil
	case strings.HasSuffix(t, ".tar+gzip"), strings.HasSuffix(t, ".tar.gzip"):
		return ".gz", nil
	case strings.HasSuffix(t, ".tar+zstd"):
		return ".zst", nil
	}
	return "", fmt.Errorf("layer of the type %q, want a tar archive", d.MediaType)
}
