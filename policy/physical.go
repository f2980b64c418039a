package policy

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// maxLinks is the kernel's own limit (MAXSYMLINKS).
const maxLinks = 40

// Physical returns the absolute path of a name without symbolic links, as far as it
// exists. It refuses a name that leads through a link which an earlier jail may have left:
// links that are followed are root's, such as a moved /home, in directories that no jail can
// write. What changes after this look is met by rules that follow no link (Rule.Direct).
func Physical(name string) (string, error) {
	abs := filepath.Clean(name)
	if !filepath.IsAbs(name) {
		dir, err := workingDir() // os.Getwd believes $PWD
		if err != nil {
			return "", err
		}
		abs = filepath.Join(dir, name)
	}
	real, refused, err := follow(abs, trusted)
	if refused != "" {
		return "", refuse(name, refused)
	}
	return real, err
}

// Follows reports whether a link in a directory, whose path has none in it, may be followed
// on the way to the rule's path.
func (r Rule) Follows(dir string) bool {
	return !r.Direct && (r.Links == nil || slices.Contains(r.Links, dir) ||
		slices.Contains(systemDirs, dir))
}

// Target returns the rule's path without the symbolic links that it follows. The error is
// [syscall.ELOOP] where it meets another.
func (r Rule) Target() (string, error) {
	real, refused, err := follow(r.Path, func(link string, _ fs.FileInfo) bool {
		return r.Follows(filepath.Dir(link))
	})
	if refused != "" {
		err = fmt.Errorf("a symbolic link has come into the path, %s: %w", refused, syscall.ELOOP)
	}
	return real, err
}

// follow returns an absolute path without symbolic links, as far as it exists, or the first
// link that may not be followed.
func follow(path string, may func(link string, info fs.FileInfo) bool) (real, refused string,
	err error) {
	names, at := strings.Split(path, "/"), "/"
	for links := 0; len(names) > 0; {
		next := filepath.Join(at, names[0]) // of ".." as well: what is above is no link
		names = names[1:]
		info, err := os.Lstat(next)
		if err != nil { // whoever needs it reports it
			return filepath.Join(append([]string{next}, names...)...), "", nil
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", "", err
		}
		if links++; !may(next, info) || links > maxLinks {
			return "", next, nil
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		names = append(strings.Split(target, "/"), names...)
	}
	return at, "", nil
}

// trusted reports whether a link cannot be a jail's: it is root's, and lies where no jail
// can make one, whoever it ran as.
func trusted(path string, info fs.FileInfo) bool {
	owner, ok := info.Sys().(*syscall.Stat_t)
	dir := filepath.Dir(path)
	programs := within(dir, "/usr") && !within(dir, "/usr/local") && !within(dir, "/usr/src")
	return ok && owner.Uid == 0 &&
		(slices.Contains(systemDirs, dir) || programs || dir == "/etc/alternatives")
}

func refuse(name, link string) error {
	target, err := filepath.EvalSymlinks(link)
	if err != nil {
		return fmt.Errorf("%s leads through the symbolic link %s: %w", name, link, err)
	}
	return fmt.Errorf("%s leads through the symbolic link %s, which a jail could have "+
		"made; if you mean where it points, name that: %s", name, link, target)
}

func workingDir() (string, error) {
	buf := make([]byte, 4096)
	n, err := syscall.Getcwd(buf)
	if err != nil {
		return "", fmt.Errorf("find the current directory: %w", err)
	}
	return strings.TrimRight(string(buf[:n]), "\x00"), nil
}
