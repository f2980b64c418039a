package kernels

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// maxPage bounds pages and manifests, maxDownload packages and layers: the
// modules of Ubuntu's kernels have 200 MiB.
const (
	maxPage     = 16 << 20
	maxDownload = 2 << 30
)

// webClient waits long for a slow server and not at all for one that is not there.
var webClient = &http.Client{
	Transport: &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: 30 * time.Second,
		ForceAttemptHTTP2:     true,
	},
	CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if len(via) >= 10 {
			return errors.New("ten redirects in a row")
		}
		if via[0].URL.Scheme == "https" && r.URL.Scheme != "https" {
			return fmt.Errorf("redirect to %s, which is not encrypted", r.URL)
		}
		return nil
	},
}

// statusError is an answer of a server that is not the thing asked for.
type statusError struct {
	url    string
	status int
}

func (e statusError) Error() string {
	return fmt.Sprintf("%s: %d %s", e.url, e.status, http.StatusText(e.status))
}

// busy reports whether the server may answer better soon.
func (e statusError) busy() bool {
	return e.status >= 500 || e.status == http.StatusTooManyRequests
}

// tries is how often a busy server is asked.
const tries = 3

// request sends a GET request. A busy server is asked again after a while.
func request(ctx context.Context, address string, header http.Header) (*http.Response, error) {
	for try := 1; ; try++ {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return nil, err
		}
		for name, values := range header {
			req.Header[name] = values
		}
		req.Header.Set("User-Agent", "agent-lock")
		resp, err := webClient.Do(req)
		if err != nil {
			return nil, err
		}
		bad := statusError{address, resp.StatusCode}
		if !bad.busy() || try == tries {
			return resp, nil
		}
		resp.Body.Close()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Duration(try) * 500 * time.Millisecond):
		}
	}
}

// page reads a small resource, and where redirects led to.
func page(ctx context.Context, address string) ([]byte, *url.URL, error) {
	resp, err := request(ctx, address, nil)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, nil, statusError{address, resp.StatusCode}
	}
	text, err := io.ReadAll(&cappedReader{resp.Body, maxPage})
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", address, err)
	}
	return text, resp.Request.URL, nil
}

// download writes a resource with a known SHA-256 to a new file.
func download(ctx context.Context, address, path, sum string) error {
	resp, err := request(ctx, address, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return statusError{address, resp.StatusCode}
	}
	body := newDigestReader(resp.Body, maxDownload)
	if err := writeFile(path, body); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", address, err), os.Remove(path))
	}
	if err := body.check(sum); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", filepath.Base(path), err), os.Remove(path))
	}
	return nil
}

// digestReader computes the SHA-256 of what passes through.
type digestReader struct {
	io.Reader
	hash hash.Hash
}

func newDigestReader(r io.Reader, max int64) *digestReader {
	hash := sha256.New()
	return &digestReader{io.TeeReader(&cappedReader{r, max}, hash), hash}
}

// sum is the digest in hexadecimal, after the end was read.
func (d *digestReader) sum() string { return hex.EncodeToString(d.hash.Sum(nil)) }

// check compares the digest with one in hexadecimal.
func (d *digestReader) check(want string) error {
	if got := d.sum(); got != want {
		return fmt.Errorf("sha256 is %s, want %s; %w", got, want, errRefused)
	}
	return nil
}
