package filesystems

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// rootProjects is where the projects are in a root directory of its own.
const rootProjects = "/srv/projects"

// makeRoot mounts an overlay of the machine's own root directory, with the projects
// below it in a lower layer.
func makeRoot(at string, fill func(string) error) error {
	layers := at + ".layers"
	if err := os.MkdirAll(layers, 0o755); err != nil {
		return err
	}
	return makeTmpfs(layers, func(layers string) error {
		lower := filepath.Join(layers, "lower")
		projects := filepath.Join(lower, rootProjects)
		if err := os.MkdirAll(projects, 0o755); err != nil {
			return err
		}
		if err := fill(projects); err != nil {
			return err
		}
		return overlay(at, lower+":/", layers)
	})
}

// EnterRoot moves the calling goroutine's thread, for good, to a mount namespace of
// its own in which a directory is the root. What it starts is there too.
func EnterRoot(root string) error {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, dir := range []string{"/proc", "/sys", "/dev"} {
		to := filepath.Join(root, dir)
		if err := unix.Mount(dir, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("bind %s: %w", dir, err)
		}
	}
	old := filepath.Join(root, "mnt")
	if err := unix.PivotRoot(root, old); err != nil {
		return fmt.Errorf("change the root to %s: %w", root, err)
	}
	if err := unix.Unmount("/mnt", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the old root: %w", err)
	}
	return os.Chdir("/")
}
