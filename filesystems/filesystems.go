// Package filesystems tries what programs do with files, on a file system of every
// kind that the kernel has, and compares two runs: what one saw, another must see.
//
// It knows no jail. The caller runs [Try] twice, in the jail and outside, in two
// directories that [Populate] filled alike, and [Compare] tells them apart.
package filesystems

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/agent-lock/agent-lock/report"
	"golang.org/x/sys/unix"
)

// A check is one thing that programs do.
type check struct {
	name string
	what string
	// do works in a fresh directory of its own; before is what [Populate] made. It
	// returns what it saw, which must not depend on time, inode numbers or names above dir.
	do      func(dir, before string) (string, error)
	differs []difference
}

// A difference is how a check fails in a jail by design.
type difference struct {
	on     string // a file system; "": any
	failed string
	why    string
}

// A Finding is what one check came to.
type Finding struct {
	Name string `json:"name"`
	Saw  string `json:"saw,omitempty"`
	// Failed is the operation and the error that ended it, as in "setxattr: EOPNOTSUPP".
	Failed string `json:"failed,omitempty"`
}

// The names of what a project directory has in it before it is tried.
const (
	beforeDir = "before"
	workDir   = "work"
)

// checks returns every check, in the order in which they run.
func checks() []check {
	var all []check
	for _, group := range [][]check{plain, names, attributes, contents, locks, copyUp, git} {
		all = append(all, group...)
	}
	return all
}

// Names returns the names of all checks, with what each does.
func Names() (names, what []string) {
	for _, c := range checks() {
		names, what = append(names, c.name), append(what, c.what)
	}
	return names, what
}

// Populate makes the files that a project has before its file system is mounted
// over them: on an overlay they are in a lower layer.
func Populate(project string) error {
	before := filepath.Join(project, beforeDir)
	for _, dir := range []string{"", "dir", "dir/deep", "gone", "full", "moved"} {
		if err := os.MkdirAll(filepath.Join(before, dir), 0o755); err != nil {
			return err
		}
	}
	for _, name := range []string{"read", "append", "truncate", "chmod", "times", "over", "gone/a",
		"removed", "linked", "mapped", "locked", "renamed", "dir/a", "dir/b", "dir/deep/c",
		"full/x", "moved/y", "attr"} {
		if err := os.WriteFile(filepath.Join(before, name), []byte("before\n"), 0o644); err != nil {
			return err
		}
	}
	return os.Symlink("dir/a", filepath.Join(before, "link"))
}

// Try makes every check in a project directory and tells what each came to.
func Try(project string, tell func(Finding) error) error {
	work := filepath.Join(project, workDir)
	if err := os.Mkdir(work, 0o755); err != nil {
		return err
	}
	for _, c := range checks() {
		dir := filepath.Join(work, c.name)
		f := Finding{Name: c.name}
		if err := os.Mkdir(dir, 0o755); err != nil {
			f.Failed = "mkdir: " + errorName(err)
		} else {
			var err error
			if f.Saw, err = c.do(dir, filepath.Join(project, beforeDir)); err != nil {
				f.Failed = err.Error()
			}
		}
		if err := tell(f); err != nil {
			return err
		}
	}
	return nil
}

// Compare judges two runs on one file system. A check that failed alike in both is
// unsupported there: the file system lacks it.
func Compare(fs string, outside, inside []Finding) []report.Result {
	in := map[string]Finding{}
	for _, f := range inside {
		in[f.Name] = f
	}
	out := map[string]Finding{}
	for _, f := range outside {
		out[f.Name] = f
	}
	var results []report.Result
	for _, c := range checks() {
		a, okA := out[c.name]
		b, okB := in[c.name]
		r := report.Result{Kind: report.FileSystem, Name: fs + "/" + c.name, Family: fs}
		switch {
		case !okA || !okB:
			r.Outcome, r.Detail = report.Broken, fmt.Sprintf(
				"reported outside: %v, in the jail: %v", okA, okB)
		case a == b && a.Failed == "":
			r.Outcome = report.OK
		case a == b:
			r.Outcome, r.Detail = report.Unsupported, "in the jail as outside: "+a.Failed
		case c.by(fs, b.Failed) != nil:
			r.Outcome = report.Known
			r.Detail = "in the jail: " + b.Failed + "; " + c.by(fs, b.Failed).why
		default:
			r.Outcome = report.Failed
			r.Detail = fmt.Sprintf("outside: %s; in the jail: %s", a.text(), b.text())
		}
		results = append(results, r)
	}
	return results
}

// by returns the difference that a failure on a file system shows, or nil. Outside it
// may fail too, in another way.
func (c check) by(fs, failed string) *difference {
	for _, d := range c.differs {
		if d.failed == failed && (d.on == "" || d.on == fs) {
			return &d
		}
	}
	return nil
}

func (f Finding) text() string {
	if f.Failed != "" {
		return fmt.Sprintf("%s (after %q)", f.Failed, f.Saw)
	}
	return fmt.Sprintf("%q", f.Saw)
}

// Lacking are the results for a file system that the kernel does not have.
func Lacking(fs, reason string) []report.Result {
	var results []report.Result
	for _, c := range checks() {
		results = append(results, report.Result{Kind: report.FileSystem, Name: fs + "/" + c.name,
			Family: fs, Outcome: report.Unsupported, Detail: reason})
	}
	return results
}

// failed names the operation that an error ended, without what differs by run.
func failed(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %s", what, errorName(err))
}

func errorName(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		if name := unix.ErrnoName(errno); name != "" {
			return name
		}
	}
	return err.Error()
}

// seq runs operations until one fails.
type seq struct{ err error }

func (s *seq) do(what string, err error) bool {
	if s.err == nil {
		s.err = failed(what, err)
	}
	return s.err == nil
}
