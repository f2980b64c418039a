package kernels

import (
	_ "embed" // the lock is a data file
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
)

// lockJSON has the sums of images that we have booted ourselves.
//
//go:embed lock.json
var lockJSON []byte

// lockFile is the content of a lock file: which image a package version has.
type lockFile struct {
	Images map[string]string `json:"images"` // Kernel.Pin: SHA-256
}

// readLock reads the built-in sums, and over them those of a file. A file that
// does not exist has none.
func readLock(path string) (all, own lockFile, err error) {
	if err := json.Unmarshal(lockJSON, &all); err != nil {
		return all, own, fmt.Errorf("kernels: lock.json: %w", err)
	}
	own.Images = map[string]string{}
	if path == "" {
		return all, own, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return all, own, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &own)
	}
	if err != nil {
		return all, own, fmt.Errorf("read lock %s: %w", path, err)
	}
	maps.Copy(all.Images, own.Images)
	return all, own, nil
}

// checkLock refuses an image that is not the one that was seen before.
func (o Options) checkLock(k Kernel) error {
	all, _, err := readLock(o.Lock)
	if err != nil {
		return err
	}
	if want := all.Images[k.Pin]; k.Pin != "" && want != "" && want != k.SHA256 {
		return fmt.Errorf("kernel %s: the image of %s has sha256 %s, but %s is locked; refused",
			k.Name, k.Pin, k.SHA256, want)
	}
	return nil
}

// UpdateLock adds the sums of kernels to a lock file, which is made when there is
// none. A kernel that is a file of the user's has no name to lock it by.
func UpdateLock(path string, ks ...Kernel) error {
	_, own, err := readLock(path)
	if err != nil {
		return err
	}
	if own.Images == nil {
		own.Images = map[string]string{}
	}
	for _, k := range ks {
		if k.Pin != "" {
			own.Images[k.Pin] = k.SHA256
		}
	}
	text, err := json.MarshalIndent(own, "", "\t")
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".lock-")
	if err != nil {
		return fmt.Errorf("write lock: %w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(append(text, '\n'))
	if err := errors.Join(err, tmp.Chmod(0o644), tmp.Close()); err != nil {
		return fmt.Errorf("write lock: %w", err)
	}
	return os.Rename(tmp.Name(), path)
}
