package jail

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/agent-lock/agent-lock/bpf"
	"github.com/agent-lock/agent-lock/policy"
	"golang.org/x/sys/unix"
)

// rules are a policy's rules as objects: descriptors that stay open as long as
// the jail lives, since they keep the labelled objects where they are.
type rules struct {
	policy *policy.Policy
	root   int // of the jail's mount namespace
	mounts []mount
	open   []int
	steps  map[entry]*step // that were taken already
	seen   map[int]identity
	labels map[object]*label
	names  []nameRule
}

// object identifies an inode for this process.
type object struct {
	dev, ino uint64
}

// label is what a labelled object will be labelled with.
type label struct {
	fd     int
	dir    bool
	rights bpf.Rights
	ruled  bool   // a rule names the object itself
	around *label // of the nearest rule above it, on the way to some rule
}

// nameRule is a rule for a name in a directory.
type nameRule struct {
	entry
	prefix bool
	rights bpf.Rights
}

// resolve opens the policy's paths in the mount namespace of the process whose
// directory in /proc is given.
func resolve(p *policy.Policy, proc string) (*rules, error) {
	root, err := unix.Open(proc+"/root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the jail's root directory: %w", err)
	}
	r := &rules{policy: p, root: root, labels: map[object]*label{},
		steps: map[entry]*step{}, seen: map[int]identity{}}
	if r.mounts, err = readMounts(proc + "/mountinfo"); err == nil {
		err = r.resolveAll()
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Close lets go of the objects: from then on the labels mean nothing.
func (r *rules) Close() error {
	for _, fd := range append(r.open, r.root) {
		unix.Close(fd)
	}
	return nil
}

// resolveAll labels the rules' objects first and then what leads to them: a
// directory on the way is shown only where no rule shows it already.
func (r *rules) resolveAll() error {
	ends := make([]found, len(r.policy.Rules))
	for i, rule := range r.policy.Rules {
		end, err := r.find(rule)
		if err != nil {
			return fmt.Errorf("find %s (%s): %w", rule.Path, rule.Origin, err)
		}
		ends[i] = end
		if end.fd < 0 {
			continue // its links and names are labelled all the same
		}
		if err := r.label(end.fd, rightsOf(rule)); err != nil {
			return err
		}
	}
	for i, rule := range r.policy.Rules {
		if err := r.showWay(rule, ends[i]); err != nil {
			return fmt.Errorf("find %s (%s): %w", rule.Path, rule.Origin, err)
		}
	}
	return r.labelMounts()
}

// find walks to what a rule names. What may be missing is no error.
func (r *rules) find(rule policy.Rule) (found, error) {
	path := rule.Path
	if rule.Prefix {
		path = filepath.Dir(path)
	}
	end, err := r.walk(path, rule.Follows, nil)
	switch {
	case errors.Is(err, errLink) && rule.Optional:
		return end, nil
	case rule.Prefix && err == nil:
		return found{fd: -1, entries: []entry{{end.fd, filepath.Base(rule.Path)}}}, nil
	case errors.Is(err, unix.ENOENT) && rule.Optional:
		return end, nil
	case errors.Is(err, unix.ENOENT) && rule.New && !errors.Is(err, errNoDirectory):
		return end, nil
	}
	return end, err
}

func rightsOf(rule policy.Rule) bpf.Rights {
	var rights bpf.Rights
	for _, pair := range []struct {
		from policy.Rights
		to   bpf.Rights
	}{
		{policy.Read, bpf.Read},
		{policy.Write, bpf.Write},
		{policy.Execute, bpf.Execute},
		{policy.Connect, bpf.Connect | bpf.Self},
	} {
		if rule.Rights&pair.from != 0 {
			rights |= pair.to
		}
	}
	if rule.Linked {
		rights |= bpf.Linked
	}
	if rule.Guarded {
		rights |= bpf.Guarded
	}
	if rule.Public {
		rights |= bpf.Public
	}
	return rights
}

// label gives a rule's object its rights; of two rules for one object the last
// holds. A directory keeps its name: what takes its place would be another.
func (r *rules) label(fd int, rights bpf.Rights) error {
	obj, mode, err := r.identify(fd)
	if err != nil {
		return err
	}
	dir := mode&unix.S_IFMT == unix.S_IFDIR
	if dir {
		rights |= bpf.Fixed
	}
	r.labels[obj] = &label{fd: fd, dir: dir, rights: rights, ruled: true}
	return nil
}

// identity is what one of our open descriptors leads to.
type identity struct {
	object
	mode uint32
}

func (r *rules) identify(fd int) (object, uint32, error) {
	id, ok := r.seen[fd]
	if !ok {
		var err error
		if id.object, id.mode, err = identify(fd); err != nil {
			return object{}, 0, err
		}
		r.seen[fd] = id
	}
	return id.object, id.mode, nil
}

func identify(fd int) (object, uint32, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return object{}, 0, fmt.Errorf("look at a rule's path: %w", err)
	}
	return object{uint64(st.Dev), st.Ino}, st.Mode, nil
}

// showWay labels what leads to a rule's path: outside it becomes visible, inside
// another rule it keeps that one's rights and, if it could be changed, its name.
func (r *rules) showWay(rule policy.Rule, end found) error {
	path := rule.Path
	if rule.Prefix {
		path = filepath.Dir(path)
	}
	var around *label // of the nearest rule so far
	_, err := r.walk(path, rule.Follows, func(fd int, last bool) error {
		l, err := r.at(fd)
		if err != nil {
			return err
		}
		if last && l.ruled && !rule.Prefix {
			return nil
		}
		l.around = around
		if l.ruled {
			around = l
		} else if !last || rule.Prefix {
			l.lead()
		}
		return nil
	})
	if err != nil && !errors.Is(err, unix.ENOENT) && !(rule.Optional && errors.Is(err, errLink)) {
		return err
	}
	return r.markEntries(rule, end)
}

// given is what a label gives to all below it.
func (l *label) given() bpf.Rights {
	if l == nil {
		return 0
	}
	return l.rights &^ (bpf.Self | bpf.Fixed | bpf.Names | bpf.Files)
}

// lead makes an object show the way to a rule.
func (l *label) lead() {
	around := l.around.given()
	switch {
	case around&bpf.Read == 0:
		l.rights |= bpf.Self
	case around&bpf.Write != 0 && l.dir:
		l.rights |= around | bpf.Way | bpf.Fixed
	}
}

// markEntries tells the directories of a rule's path that there are labels of files
// or rules for names in them.
func (r *rules) markEntries(rule policy.Rule, end found) error {
	for _, e := range end.entries {
		dir, err := r.at(e.dir)
		if err != nil {
			return err
		}
		around := dir
		if !dir.ruled {
			around = dir.around
		}
		rights := rightsOf(rule)
		var says bpf.Rights
		if end.fd >= 0 && !r.isDir(end.fd) {
			says |= bpf.Files
			if around.given()&^rights != 0 {
				around.rights |= bpf.Files // the file may be moved to elsewhere in it
			}
		}
		if rule.Keep {
			says |= bpf.Names
			r.names = append(r.names, nameRule{e, rule.Prefix, rights})
		}
		if says != 0 && dir.rights == 0 && !dir.ruled {
			says |= around.given() | bpf.Way
		}
		dir.rights |= says
	}
	return nil
}

func (r *rules) isDir(fd int) bool {
	l, err := r.at(fd)
	return err == nil && l.dir
}

// at returns the label of an object, making an empty one.
func (r *rules) at(fd int) (*label, error) {
	obj, mode, err := r.identify(fd)
	if err != nil {
		return nil, err
	}
	l, ok := r.labels[obj]
	if !ok {
		l = &label{fd: fd, dir: mode&unix.S_IFMT == unix.S_IFDIR}
		r.labels[obj] = l
	}
	return l, nil
}

// labelMounts lets the roots of file systems mounted below a rule's path
// inherit its rights: walking up ends at them.
func (r *rules) labelMounts() error {
	for _, m := range r.mounts {
		rule, ok := r.policy.Nearest(m.point)
		if !ok || !rule.Mounts || filepath.Clean(rule.Path) == m.point {
			continue
		}
		end, err := r.walk(m.point, func(string) bool { return false }, nil)
		if errors.Is(err, errLink) {
			return fmt.Errorf("find what is mounted on %s: %w", m.point, err)
		}
		if err != nil || !m.is(end.fd) {
			continue // hidden by a later mount
		}
		l, err := r.at(end.fd)
		if err != nil {
			return err
		}
		// A bind mount of a directory that leads to the project would open
		// all that is in it.
		if l.ruled || l.rights&bpf.Self != 0 {
			continue
		}
		if err := r.label(end.fd, rightsOf(rule)); err != nil {
			return err
		}
	}
	return nil
}

// addresses returns the rules as the kernel half wants them, by the addresses that it
// told: a directory's is that of its dentry, of which it has one, anything else's
// that of its inode.
func (r *rules) addresses(fds []bpf.Descriptor) (map[uint64]bpf.Rights, []bpf.Name, error) {
	descriptors := map[int]bpf.Descriptor{}
	for _, d := range fds {
		descriptors[d.FD] = d
	}
	labels := map[uint64]bpf.Rights{}
	for _, l := range r.labels {
		if l.rights == 0 && !l.ruled {
			continue
		}
		if l.around != nil && !l.ruled {
			l.rights |= l.around.rights & bpf.Files
		}
		at := descriptors[l.fd].Inode
		if l.dir {
			at = descriptors[l.fd].Dentry
		}
		if at == 0 {
			return nil, nil, fmt.Errorf("label a rule's path: the kernel did not tell the address "+
				"of one (descriptor %d)", l.fd)
		}
		labels[at] = l.rights
	}
	r.showMounted(labels, descriptors)
	names := nameRules(r.policy.Names)
	for _, n := range r.names {
		at := descriptors[n.dir].Dentry
		if at == 0 {
			return nil, nil, fmt.Errorf("enter the rule for %s: the kernel did not tell the "+
				"address of its directory (descriptor %d)", n.name, n.dir)
		}
		if len(n.name) > bpf.MaxName {
			if n.rights&(bpf.Read|bpf.Write|bpf.Execute|bpf.Connect) != 0 {
				continue // the rule holds for the object that is there now
			}
			n.name, n.prefix = n.name[:bpf.MaxName], true // hides more rather than less
		}
		names = append(names, bpf.Name{Name: n.name, Prefix: n.prefix, Directory: at,
			Kind: bpf.NameRights, Rights: n.rights})
	}
	return labels, names, nil
}

// showMounted has the labels of files found that are mounted by themselves, in a view for
// one: what is above those in their own file system is nowhere in the jail.
func (r *rules) showMounted(labels map[uint64]bpf.Rights, descriptors map[int]bpf.Descriptor) {
	for _, l := range r.labels {
		parent := descriptors[l.fd].Parent
		if _, ok := labels[parent]; !ok && !l.dir && l.ruled {
			labels[parent] = bpf.Files | bpf.Way
		}
	}
}

// nameRules are the rules for names that hold anywhere in the project.
func nameRules(n policy.Names) []bpf.Name {
	var rules []bpf.Name
	add := func(group uint64, kind bpf.NameKind, names ...string) {
		for _, name := range names {
			plain, prefix := strings.CutSuffix(name, "*")
			rules = append(rules, bpf.Name{
				Name: plain, Prefix: prefix, Directory: group, Kind: kind,
			})
		}
	}
	add(bpf.Anywhere, bpf.NameProtected, n.Protected...)
	add(bpf.Anywhere, bpf.NameDenied, n.Denied...)
	add(bpf.Anywhere, bpf.NameRights, n.Allowed...)
	add(bpf.Anywhere, bpf.NameRepository, ".git")
	add(bpf.Anywhere, bpf.NameFree, n.Free...)
	add(bpf.InRepository, bpf.NameProtected, n.InGit...)
	add(bpf.InRepository, bpf.NameModules, "modules", "worktrees")
	add(bpf.InModules, bpf.NameProtected, n.InModules...)
	return rules
}
