package vmtest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// record keeps what a guest sent, byte for byte, for whoever has to find out
// what went wrong in it.
type record struct {
	console, frames io.WriteCloser
}

// newRecord makes the files of a cell in dir; none when dir is empty.
func newRecord(dir, label string, spec machineSpec) (*record, error) {
	if dir == "" {
		return &record{nopCloser{}, nopCloser{}}, nil
	}
	name := filepath.Join(dir, strings.ReplaceAll(label, "/", "_"))
	cmdline := spec.qemu + " \"" + strings.Join(spec.args(), "\" \"") + "\"\n"
	if err := os.WriteFile(name+".qemu", []byte(cmdline), 0o644); err != nil {
		return nil, fmt.Errorf("keep record: %w", err)
	}
	console, err := os.Create(name + ".console")
	if err != nil {
		return nil, fmt.Errorf("keep record: %w", err)
	}
	frames, err := os.Create(name + ".frames")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("keep record: %w", err), console.Close())
	}
	return &record{console, frames}, nil
}

func (r *record) close() error { return errors.Join(r.console.Close(), r.frames.Close()) }

// nopCloser is a file that is not kept.
type nopCloser struct{}

func (nopCloser) Write(p []byte) (int, error) { return len(p), nil }
func (nopCloser) Close() error                { return nil }
