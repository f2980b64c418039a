package adversary

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	crowdSource = "D10 KiroCrew#1161"
	crowdPrefix = "hardlink_crowd_"
	crowdNames  = 20_000
	crowdDepth  = 12
)

// crowds: a second name of an outside file that was in the project before the jail
// started, where a search that gives up early does not come.
var crowds = []Case{
	{
		Name: crowdPrefix + "read", Family: "hardlinks", Source: crowdSource,
		What: "reads an outside file by a hard link that was there before the jail, behind " +
			"20,000 names and 12 directories",
		Calls: "openat, read",
		Hooks: opens, Setup: fillCrowd, Judge: tokenRead,
		Attack: func(t *Target) ([]byte, error) { return read(t.Args["link"]) },
	},
	{
		Name: crowdPrefix + "write", Family: "hardlinks", Source: crowdSource,
		What:  "overwrites an outside file by such a link",
		Calls: "openat, write", Hooks: opens,
		Setup: fillCrowd,
		Attack: func(t *Target) ([]byte, error) {
			return nil, scribble(t.Args["link"], 0)
		},
		Judge: Judge{"the file outside holds the mark", func(s *Scene) string {
			return fileHas(s.arena.crowdFile(s.session.label)).find(s)
		}},
	},
}

// crowdFile is the outside file with another name in the crowd, one for each session.
func (a *arena) crowdFile(label string) string { return filepath.Join(a.outside, "crowd-"+label) }

// crowdLink is its name in the project, which sorts after all the others.
func (a *arena) crowdLink(label string) string {
	return filepath.Join(a.project, "crowd", strings.Repeat("d/", crowdDepth), "z-"+label)
}

// plantCrowd makes the files before a jail starts, if one of the cases is about them.
func (a *arena) plantCrowd(cases []Case) error {
	if !slices.ContainsFunc(cases, func(c Case) bool {
		return strings.HasPrefix(c.Name, crowdPrefix)
	}) {
		return nil
	}
	return a.user.do(func() error {
		dir := filepath.Join(a.project, "crowd")
		for range crowdDepth {
			if err := os.Mkdir(dir, 0o700); err != nil {
				return err
			}
			if err := makeMany(dir, crowdNames/crowdDepth+1); err != nil {
				return err
			}
			dir = filepath.Join(dir, "d")
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		for _, label := range []string{controlLabel, jailLabel} {
			if err := os.WriteFile(a.crowdFile(label), nil, 0o600); err != nil {
				return err
			}
			if err := os.Link(a.crowdFile(label), a.crowdLink(label)); err != nil {
				return err
			}
		}
		return nil
	})
}

// makeMany makes many names, of one empty file: that is less work than as many files, and
// a search has to look at each.
func makeMany(dir string, n int) error {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return call("open "+dir, err)
	}
	defer unix.Close(fd)
	if err := unix.Mknodat(fd, "a", unix.S_IFREG|0o600, 0); err != nil {
		return call("mknodat in "+dir, err)
	}
	for i := range n {
		if err := unix.Linkat(fd, "a", fd, fmt.Sprintf("a%05d", i), 0); err != nil {
			return call("linkat in "+dir, err)
		}
	}
	return nil
}

// fillCrowd writes a fresh canary into the file, which keeps its names.
func fillCrowd(s *Scene) error {
	s.Arg("link", s.arena.crowdLink(s.session.label))
	return os.WriteFile(s.arena.crowdFile(s.session.label), []byte(s.Token), 0o600)
}
