package adversary

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// canary returns 32 random bytes in hexadecimal, so that they also fit into a
// file name, an environment variable or a command line.
func canary() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // does not return errors
	return hex.EncodeToString(b[:])
}

// An arena is the directory in the user's home in which a run takes place. The
// project and everything outside that is attacked share its file system.
type arena struct {
	user     User
	root     string
	project  string // what the jail allows
	outside  string // what it must not
	attacker string // copy of this program, in the project: the jail need not show ours
}

// siblingNames are directories whose names begin like the project's.
var siblingNames = []string{"proj2", "proj-backup", "proj."}

// oldDir is in the outside directory before a jail starts, so that rules can name it.
const oldDir = "old-dir"

// newArena makes an arena, in the user's home if dir is empty. The caller removes it.
func newArena(u User, program, dir string) (*arena, error) {
	dir = cmp.Or(dir, u.Home)
	a := &arena{user: u}
	err := u.do(func() error {
		root, err := os.MkdirTemp(dir, ".agent-lock-adversary-")
		if err != nil {
			return err
		}
		a.root = root
		a.project = filepath.Join(root, "proj")
		a.outside = filepath.Join(root, "outside")
		dirs := append([]string{"proj", "outside", "outside/" + oldDir}, siblingNames...)
		for _, dir := range dirs {
			if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		a.attacker = filepath.Join(a.project, ".attacker")
		err = a.copyProgram(program)
	}
	if err != nil {
		a.remove()
		return nil, fmt.Errorf("make arena in %s: %w; --arena names another directory", dir, err)
	}
	return a, nil
}

func (a *arena) oldDir() string { return filepath.Join(a.outside, oldDir) }

// sweep kills what is left of both sessions and has cleared its environment, by which a
// session knows its own: it runs a program of the project or is in there.
func (a *arena) sweep() {
	killAll(func(dir string) bool {
		for _, link := range []string{"/exe", "/cwd"} {
			to, err := os.Readlink(dir + link)
			if err == nil && strings.HasPrefix(to+"/", a.project+"/") {
				return true
			}
		}
		return false
	})
}

// copyProgram copies this program into the project. It is opened as ourselves
// (the user may not be able to read it) and written as the user.
func (a *arena) copyProgram(program string) error {
	src, err := os.Open(program)
	if err != nil {
		return err
	}
	defer src.Close()
	return a.user.do(func() error {
		dst, err := os.OpenFile(a.attacker, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
		if err != nil {
			return err
		}
		if _, err := io.Copy(dst, src); err != nil {
			dst.Close()
			return err
		}
		return dst.Close()
	})
}

// remove deletes the arena, as the user and then as ourselves: a jail may have
// left files of other owners.
func (a *arena) remove() {
	if a.root == "" {
		return
	}
	if a.user.do(func() error { return os.RemoveAll(a.root) }) != nil {
		os.RemoveAll(a.root)
	}
}
