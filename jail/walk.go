package jail

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// found is where a path ends in the jail's mounts.
type found struct {
	fd int // O_PATH; -1: the last name is missing
	// entries are the path's last name, and if it is a link what it leads to, and so
	// on: where something else may be put in the path's place.
	entries []entry
}

// entry is a name in a directory.
type entry struct {
	dir  int
	name string
}

// maxLinks is the kernel's own limit (MAXSYMLINKS).
const maxLinks = 40

// errLink says that a path has a link where none is followed.
var errLink = fmt.Errorf("a symbolic link has come into the path: %w", unix.ELOOP)

// walk goes along a path in the jail's mounts, link by link, and follows those in
// directories that it may (nil: all). visit sees every object on the way. When only the
// last name is missing, the error is unix.ENOENT and found says where it would be.
func (r *rules) walk(path string, follows func(dir string) bool,
	visit func(fd int, last bool) error) (found, error) {
	names := split(path)
	dirs, way := []int{r.root}, []string{"/"} // with their names
	end := found{fd: -1}
	see := func(fd int, last bool) error {
		if visit == nil {
			return nil
		}
		return visit(fd, last)
	}
	if err := see(r.root, len(names) == 0); err != nil {
		return end, err
	}
	for links := 0; len(names) > 0; {
		name := names[0]
		names = names[1:]
		if name == ".." {
			dirs = dirs[:max(1, len(dirs)-1)]
			way = way[:len(dirs)]
			continue
		}
		dir := dirs[len(dirs)-1]
		if len(names) == 0 {
			end.entries = append(end.entries, entry{dir, name})
		}
		next := r.step(entry{dir, name})
		if next.err != nil {
			return end, missing(next.err, len(names) > 0)
		}
		if err := see(next.fd, len(names) == 0 && !next.isLink); err != nil {
			return end, err
		}
		if !next.isLink {
			dirs, way = append(dirs, next.fd), append(way, name)
			continue
		}
		if follows != nil && !follows(filepath.Join(way...)) {
			return end, errLink
		}
		if links++; links > maxLinks {
			return end, unix.ELOOP
		}
		if strings.HasPrefix(next.target, "/") {
			dirs, way = dirs[:1], way[:1]
		}
		names = append(split(next.target), names...)
	}
	end.fd = dirs[len(dirs)-1]
	return end, nil
}

// step is where a name in a directory leads. It is looked up once, however many
// rules go that way: all of them then mean the same object.
type step struct {
	fd     int
	isLink bool
	target string // of the link
	err    error
}

func (r *rules) step(at entry) *step {
	s, ok := r.steps[at]
	if ok {
		return s
	}
	s = &step{fd: -1}
	r.steps[at] = s
	fd, err := unix.Openat(at.dir, at.name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		s.err = err
		return s
	}
	r.open = append(r.open, fd)
	s.fd = fd
	_, mode, err := r.identify(fd)
	if err == nil && mode&unix.S_IFMT == unix.S_IFLNK {
		s.isLink = true
		s.target, err = readlink(fd)
	}
	s.err = err
	return s
}

// errNoDirectory is unix.ENOENT for a name before the last.
var errNoDirectory = errors.New("a directory on the way is missing")

func missing(err error, before bool) error {
	if before && errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%w: %w", errNoDirectory, err)
	}
	return err
}

// split returns the names of a path, keeping "..".
func split(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(name string) bool {
		return name == "" || name == "."
	})
}

// readlink reads the link that an O_PATH descriptor is.
func readlink(fd int) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}
