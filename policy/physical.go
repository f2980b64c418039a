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

// physical returns the absolute path of a name without symbolic links, as far as it
// exists. It refuses a name that leads through a link which an earlier jail may have left:
// links that are followed are root's, such as a moved /home, in directories that no jail can
// write. What changes after this look is met by rules that follow no link (Rule.Direct).
func physical(name string) (string, error) {
	abs := filepath.Clean(name)
	if !filepath.IsAbs(name) {
		dir, err := workingDir() // os.Getwd believes $PWD
		if err != nil {
			return "", err
		}
		abs = filepath.Join(dir, name)
	}
	names, at := strings.Split(abs, "/"), "/"
	for links := 0; len(names) > 0; {
		next := filepath.Join(at, names[0]) // of ".." as well: what is above is no link
		names = names[1:]
		info, err := os.Lstat(next)
		if err != nil { // whoever needs it reports it
			return filepath.Join(append([]string{next}, names...)...), nil
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", err
		}
		if links++; !trusted(next, info) || links > maxLinks {
			return "", refuse(name, next)
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		names = append(strings.Split(target, "/"), names...)
	}
	return at, nil
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
