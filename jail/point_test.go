package jail

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A mount point is made where its path says or nowhere: what was there stays.
func TestMakePoint(t *testing.T) {
	top := tree(t, "root/dir/", "host/", "root/old", "host/file", "root/out -> TOP/host",
		"root/file -> TOP/host/file")
	for _, kept := range []string{"root/old", "host/file"} {
		if err := os.WriteFile(filepath.Join(top, kept), []byte("kept"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	root, err := unix.Open(filepath.Join(top, "root"), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(root)
	for _, tt := range []struct {
		path string
		dir  bool
		want error
	}{
		{"/a/b/c", true, nil},
		{"/a/b/f", false, nil},
		{"/old", false, nil},
		{"/dir", true, nil},
		{"/old", true, unix.ENOTDIR},
		{"/out/made", true, unix.ELOOP},
		{"/out/made", false, unix.ELOOP},
		{"/file", false, unix.ELOOP},
		{"/out", true, unix.ELOOP},
		{"/../up", true, nil}, // there is nothing above
	} {
		fd, err := makePoint(root, tt.path, tt.dir)
		if err == nil {
			unix.Close(fd)
		}
		if !errors.Is(err, tt.want) {
			t.Errorf("makePoint(%q, dir %v) = %v, want %v", tt.path, tt.dir, err, tt.want)
		}
	}
	for _, kept := range []string{"root/old", "host/file"} {
		if data, err := os.ReadFile(filepath.Join(top, kept)); string(data) != "kept" {
			t.Errorf("%s holds %q, %v; want what it held", kept, data, err)
		}
	}
	for path, want := range map[string]bool{"root/a/b/c": true, "root/a/b/f": true,
		"root/up": true, "up": false, "host/made": false} {
		if _, err := os.Lstat(filepath.Join(top, path)); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %v", path, err, want)
		}
	}
}
