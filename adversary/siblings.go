package adversary

import (
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

const siblingSource = "D02 CVE-2025-53110"

// siblings: directories beside the project whose names begin like its name.
var siblings = []Case{
	siblingRead("sibling_digit_read", "proj2"),
	siblingRead("sibling_dash_read", "proj-backup"),
	siblingRead("sibling_dot_read", "proj."),
	sibling("sibling_digit_create", "proj2", "creates a file in", "openat(O_CREAT), write",
		"path_mknod",
		func(dir string) error { return scribble(filepath.Join(dir, "new"), unix.O_CREAT) }),
	sibling("sibling_dash_mkdir", "proj-backup", "makes a directory in", "mkdirat", "path_mkdir",
		func(dir string) error {
			return call("mkdir", unix.Mkdir(filepath.Join(dir, "new"), 0o700))
		}),
	sibling("sibling_dot_write", "proj.", "overwrites a file in", "openat, write", "file_open",
		func(dir string) error { return scribble(filepath.Join(dir, "secret"), 0) }),
}

// siblingRead is a case that reads the secret in a sibling.
func siblingRead(name, dir string) Case {
	return Case{
		Name: name, Family: "siblings", Source: siblingSource,
		What: "reads a file in " + dir + ", next to proj", Calls: "openat", Hooks: opens,
		Setup: func(s *Scene) error { return s.Sibling(dir) },
		Attack: func(t *Target) ([]byte, error) {
			return read(filepath.Join(t.Args["sibling"], "secret"))
		},
		Judge: tokenRead,
	}
}

// sibling is a case that changes something in a sibling.
func sibling(name, dir, what, calls, hook string, change func(dir string) error) Case {
	return Case{
		Name: name, Family: "siblings", Source: siblingSource,
		What:   what + " " + dir + ", next to proj",
		Calls:  calls,
		Hooks:  slices.Compact([]string{hook, "file_open"}),
		Setup:  func(s *Scene) error { return s.Sibling(dir) },
		Attack: func(t *Target) ([]byte, error) { return nil, change(t.Args["sibling"]) },
		Judge:  changed.as("an object in " + dir + " was made, removed or changed"),
	}
}
