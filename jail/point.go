package jail

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/agent-lock/agent-lock/policy"
	"golang.org/x/sys/unix"
)

// Mount points are made as root, in directories of the jail's own that may have the host's
// mounted in them. So whatever is opened on the way is neither reached by a link nor on
// another mount: there, nothing may be made.
const ownOnly = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV

// openOwn opens what lies at a path below an open directory, on the same mount. (With
// O_NOFOLLOW it would open a link at the end.)
func openOwn(root int, path string, flags uint64) (int, error) {
	return unix.Openat2(root, relative(path), &unix.OpenHow{
		Flags: flags | unix.O_CLOEXEC, Resolve: ownOnly,
	})
}

func relative(path string) string {
	if path = filepath.Clean("/" + path); path == "/" {
		return "."
	}
	return path[1:]
}

// makePoint makes an empty directory or file below an open directory, with the
// directories that lead there, unless there is one, and opens it.
func makePoint(root int, path string, dir bool) (int, error) {
	parent, base := filepath.Split(relative(path))
	above, err := openOwn(root, parent, unix.O_PATH|unix.O_DIRECTORY)
	if errors.Is(err, unix.ENOENT) {
		above, err = makePoint(root, parent, true)
	}
	if err != nil {
		return -1, err
	}
	defer unix.Close(above)
	if dir {
		if err := unix.Mkdirat(above, base, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
			return -1, err
		}
		return openOwn(above, base, unix.O_PATH|unix.O_DIRECTORY)
	}
	err = unix.Mknodat(above, base, unix.S_IFREG|0o644, 0)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, err
	}
	return openOwn(above, base, unix.O_PATH)
}

// makePrivate makes a directory in one of the jail's own places.
func makePrivate(pattern string) (dir string, err error) {
	err = unix.ENOENT
	for _, place := range policy.Private {
		if dir, err = os.MkdirTemp(place, pattern); err == nil {
			break
		}
	}
	return dir, err
}

// cloneMounts returns a detached copy of what a name in an open directory, or "" for itself,
// is, with what is mounted below it.
func cloneMounts(dir int, name string) (tree int, err error) {
	return unix.OpenTree(dir, name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|
		unix.AT_RECURSIVE|unix.AT_EMPTY_PATH)
}

// mountOn mounts a detached tree on what is open.
func mountOn(tree, point int) error {
	return unix.MoveMount(tree, "", point, "",
		unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}
