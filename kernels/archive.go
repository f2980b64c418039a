package kernels

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
)

// walkTar reads a tar archive to its end and shows visit every entry. Names and
// sizes that no package needs are refused. The reader is the entry's content.
func walkTar(r io.Reader, max limits, visit func(h *tar.Header, r io.Reader) error) error {
	r = &cappedReader{r: r, left: max.total}
	tr := tar.NewReader(r)
	for n := 0; ; n++ {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read archive: %w", err)
		}
		if n >= max.entries {
			return fmt.Errorf("archive has more than %d files: %w", max.entries, errTooLarge)
		}
		if err := checkName(h.Name); err != nil {
			return err
		}
		if h.Size > max.file {
			return fmt.Errorf("archive has %q with %d bytes: %w", h.Name, h.Size, errTooLarge)
		}
		if err := visit(h, tr); err != nil {
			return err
		}
	}
	_, err := io.Copy(io.Discard, r) // padding; whoever checks a digest needs all of it
	return err
}
