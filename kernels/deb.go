package kernels

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// unpackDeb takes the kernel image and the configuration out of a .deb.
func unpackDeb(ctx context.Context, deb, dir string) error {
	return readDeb(ctx, deb, func(data io.Reader) error {
		return pickBoot(data, dir, archiveLimits)
	})
}

// readDeb shows read the tar archive in a .deb. It uses dpkg-deb where there is
// one, and reads the package by itself where not.
func readDeb(ctx context.Context, deb string, read func(data io.Reader) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("unpack %s: %w", filepath.Base(deb), err)
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	data, err := openDeb(ctx, deb)
	if err != nil {
		return err
	}
	err = read(data)
	if err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.Join(data.Close(), err)
	}
	cancel() // so that Close does not wait for a command that waits for us
	data.Close()
	return err
}

// openDeb opens the tar archive in a .deb.
func openDeb(ctx context.Context, deb string) (io.ReadCloser, error) {
	if path, err := exec.LookPath("dpkg-deb"); err == nil {
		return pipeFrom(exec.CommandContext(ctx, path, "--fsys-tarfile", deb))
	}
	f, err := os.Open(deb)
	if err != nil {
		return nil, err
	}
	name, data, err := debData(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	tarball, err := decompress(ctx, strings.TrimPrefix(name, "data.tar"), data)
	if err != nil {
		f.Close()
		return nil, err
	}
	return closers{tarball, []io.Closer{tarball, f}}, nil
}

// arHeader is the size of the header of an ar member.
const arHeader = 60

// debData finds the member data.tar.* of a .deb, an ar archive.
func debData(r io.Reader) (name string, data io.Reader, err error) {
	magic := make([]byte, 8)
	if _, err := io.ReadFull(r, magic); err != nil || string(magic) != "!<arch>\n" {
		return "", nil, errors.New("no Debian package: it is no ar archive")
	}
	for first := true; ; first = false {
		name, size, err := nextMember(r)
		if errors.Is(err, io.EOF) {
			return "", nil, errors.New("no Debian package: it has no data.tar")
		}
		if err != nil {
			return "", nil, err
		}
		if first != (name == "debian-binary") {
			return "", nil, fmt.Errorf("no Debian package: member %q is out of place", name)
		}
		if strings.HasPrefix(name, "data.tar") {
			return name, io.LimitReader(r, size), nil
		}
		if _, err := io.CopyN(io.Discard, r, size+size%2); err != nil {
			return "", nil, fmt.Errorf("package is cut off in its member %q", name)
		}
	}
}

// nextMember reads the header of an ar member. At the end it returns io.EOF.
func nextMember(r io.Reader) (name string, size int64, err error) {
	h := make([]byte, arHeader)
	switch _, err := io.ReadFull(r, h); {
	case errors.Is(err, io.EOF):
		return "", 0, io.EOF
	case err != nil:
		return "", 0, errors.New("package is cut off in the header of a member")
	case !bytes.HasSuffix(h, []byte("`\n")):
		return "", 0, errors.New("package has a damaged member header")
	}
	name = strings.TrimSuffix(strings.TrimRight(string(h[:16]), " "), "/")
	text := strings.TrimRight(string(h[48:58]), " ")
	size, err = strconv.ParseInt(text, 10, 64)
	if err != nil || size < 0 {
		return "", 0, fmt.Errorf("package has a member of %q bytes", text)
	}
	return name, size, nil
}
