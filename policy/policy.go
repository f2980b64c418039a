// Package policy holds the policy value: which paths a jail may use and how.
// It knows no kernel; the only thing it asks of the machine is whether a path
// exists.
package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Rights are what a rule gives for its path and everything below it.
type Rights uint8

// The rights. Connect is for a Unix socket of the host's.
const (
	Read Rights = 1 << iota
	Write
	Execute
	Connect
)

// String returns the rights as words, e.g. "read, write"; none is "nothing".
func (r Rights) String() string {
	var words []string
	for i, word := range []string{"read", "write", "execute", "connect"} {
		if r&(1<<i) != 0 {
			words = append(words, word)
		}
	}
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, ", ")
}

// Rule gives rights on a path. Of several rules the one nearest to an object
// decides alone: a rule with no rights hides what a wider one shows.
type Rule struct {
	// Path is absolute. It may lead through symbolic links, unless Direct is set:
	// then a link on the way means that somebody changed it since it was checked.
	Path   string
	Direct bool
	// Links are the directories, without links in their paths, whose links are followed
	// besides those of system directories. Nil: links of all directories, unless Direct.
	Links  []string
	Rights Rights
	// Prefix extends the rule to all names in the path's directory that begin like
	// its last one.
	Prefix bool
	// Keep lets the rule hold for what takes the path's place later, or is made there.
	Keep bool
	// New lets the path's last name be missing: it may be made.
	New bool
	// Guarded puts the rules for names in force below the path.
	Guarded bool
	// Origin says where the rule comes from: "default" or the flag.
	Origin string
	// Optional rules are left out where the path does not exist.
	Optional bool
	// Mounts extends the rule to file systems mounted below the path.
	Mounts bool
	// Linked marks a place where a file may be an outside file under another
	// name; Policy.Hardlinks decides about those.
	Linked bool
	// Public keeps root to what everyone may use: a jail of root has the file modes
	// of nobody where the rule is for programs and their configuration.
	Public bool
}

// Hardlinks says what happens to a file with several names, one of which may
// be outside.
type Hardlinks string

// The ways to treat such files.
const (
	HardlinksAllow    Hardlinks = "allow"
	HardlinksReadonly Hardlinks = "readonly" // it may be read
	HardlinksDeny     Hardlinks = "deny"     // it may not be opened
)

// Outside says how what is outside looks to the jail.
type Outside string

// The looks.
const (
	OutsideHide Outside = "hide" // as if it did not exist: ENOENT
	OutsideDeny Outside = "deny" // EACCES
)

// Policy is everything that decides about a jail.
type Policy struct {
	// Project is the absolute, symlink-free path of the project directory.
	Project   string
	Rules     []Rule
	Hardlinks Hardlinks
	Outside   Outside
	Names     Names
	Network   Network
	// Env lists further variables that are passed on, NAME or NAME=VALUE.
	Env []string
}

// CheckProject returns the absolute path of a project directory without
// symbolic links. The root directory and a home directory are refused: a jail
// that holds everything holds nothing.
func CheckProject(dir, home string) (string, error) {
	if dir == "" {
		return "", errors.New("the project directory is empty; is a variable unset? " +
			"(. is the current directory)")
	}
	abs, err := Physical(dir)
	if err != nil {
		return "", fmt.Errorf("find project directory: %w", err)
	}
	info, err := os.Lstat(abs)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("find project directory: %w (make it first; "+
			"agent-lock --help lists verbs and flags)", err)
	}
	if err != nil {
		return "", fmt.Errorf("find project directory: %w", err)
	}
	if !info.IsDir() {
		return "", fmt.Errorf("project %s is not a directory; name the one it is in", abs)
	}
	return abs, checkWritable("project", abs, home)
}

// checkWritable refuses to give a jail what would leave nothing to keep from it.
func checkWritable(what, abs, home string) error {
	if home, err := filepath.EvalSymlinks(home); err == nil && within(home, abs) {
		where := "the home directory"
		if home != abs {
			where = "above the home directory"
		}
		return fmt.Errorf("%s %s is %s, so nothing would be kept from the jail; "+
			"name a directory below it", what, abs, where)
	}
	if slices.Contains(systemDirs, abs) {
		return fmt.Errorf("%s %s is a system directory; name one of your own", what, abs)
	}
	return nil
}

var systemDirs = []string{
	"/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/media", "/mnt", "/opt",
	"/proc", "/root", "/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/var", "/var/tmp",
}

// within reports whether path is dir or below it. Both are clean.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// Nearest returns the rule that decides about path, which is absolute and
// clean, by names alone. It serves explanations, never verdicts.
func (p *Policy) Nearest(path string) (Rule, bool) {
	var best Rule
	found := false
	for _, r := range p.Rules {
		if within(path, r.Path) && len(r.Path) >= len(best.Path) {
			best, found = r, true
		}
	}
	return best, found
}

// Remedy returns the flag that would give rights on path, "" if none does.
func Remedy(path string, want Rights) string {
	if path == "" || path == "/" {
		return ""
	}
	if want&Connect != 0 {
		return "--socket " + quote(path)
	}
	flag := "--ro "
	switch {
	case want&Write != 0:
		flag = "--rw "
	case want&Execute != 0:
		flag = "--exec "
	}
	return flag + quote(path)
}

// quote makes a path safe to paste into a shell: names are the jail's to choose.
func quote(path string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("/._-+@%:,=", r)
	}
	if strings.IndexFunc(path, func(r rune) bool { return !plain(r) }) < 0 {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
