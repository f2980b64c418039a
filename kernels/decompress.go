package kernels

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	"github.com/klauspost/compress/zstd"
)

// maxWindow bounds the memory that a zstd stream may ask for; zstd's own tool
// unpacks no more than that without being asked either.
const maxWindow = 128 << 20

// errNoXZ says what to do on the rare machine without xz.
var errNoXZ = errors.New("xz is not installed; install it with apt-get install xz-utils")

// decompress reads a stream by the ending that names its format: "", ".gz",
// ".zst", ".xz".
func decompress(ctx context.Context, ending string, r io.Reader) (io.ReadCloser, error) {
	switch ending {
	case "":
		return io.NopCloser(r), nil
	case ".gz":
		return gzip.NewReader(r)
	case ".zst":
		zr, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		return zr.IOReadCloser(), nil
	case ".xz":
		path, err := exec.LookPath("xz")
		if err != nil {
			return nil, errNoXZ
		}
		cmd := exec.CommandContext(ctx, path, "--decompress", "--stdout")
		cmd.Stdin = r
		return pipeFrom(cmd)
	}
	return nil, fmt.Errorf("unknown compression %q", ending)
}

// pipe is the output of a command. Close waits for it, and tells its error.
type pipe struct {
	io.ReadCloser
	cmd    *exec.Cmd
	stderr bytes.Buffer
}

func pipeFrom(cmd *exec.Cmd) (*pipe, error) {
	p := &pipe{cmd: cmd}
	cmd.Stderr = &p.stderr
	cmd.WaitDelay = time.Second // when killed while its input stalls
	var err error
	if p.ReadCloser, err = cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	return p, cmd.Start()
}

// Close must be called after the end was read, or the command's context ended.
func (p *pipe) Close() error {
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", p.cmd.Args[0], err, lastLine(p.stderr.Bytes()))
	}
	return nil
}

// closers is a reader with things to close.
type closers struct {
	io.Reader
	all []io.Closer
}

func (c closers) Close() error {
	var errs []error
	for _, each := range c.all {
		errs = append(errs, each.Close())
	}
	return errors.Join(errs...)
}
