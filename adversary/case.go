package adversary

import (
	"regexp"
	"slices"
	"time"
)

// A Case is one attack on a jail, with everything that is needed to tell
// whether it succeeded.
type Case struct {
	// Name is unique, in lower_snake, and begins with a word for the family.
	Name string
	// Family groups cases in tables and in docs/adversary.md.
	Family string
	// Source names the public report or the class of reports the attack is
	// taken from: a row of the attack catalogue ("D03"), then public ids.
	Source string
	// What says in a few words what the attacker does.
	What string
	// Calls are the system calls that matter, in order, by their names on x86-64:
	// "open_tree, move_mount". A command or a flag of weight is in parentheses, as in
	// "fcntl(F_SETLEASE)"; io_uring(OPENAT) is an operation of a ring, open (32-bit)
	// a call by int 0x80.
	Calls string
	// Needs is what the attack takes besides an ordinary user on x86-64 or arm64 with
	// both directories on one file system, and what Root and Guest say. Empty: nothing.
	Needs string
	// Since is the series of kernels, such as "6.6", that first lets an ordinary user
	// make the calls (root if Root is set), where it is later than 5.10.
	Since string
	// Hooks are the LSM hooks of which any one is expected to stop the attack, and
	// pid_namespace where a jail that has one of its own stops it as well, or seccomp
	// where there is no hook and a filter of system calls has to.
	// They inform a mutation test and the documentation; no verdict uses them.
	Hooks []string
	// Root says that only root can make the attack, and Guest that it changes the
	// whole machine: it is made in a guest of vmtest and nowhere else.
	Root, Guest bool
	// Setup prepares the outside. It runs as the user, once for the control
	// and once for the jail. Nil: the canary file that every scene has is enough.
	Setup func(*Scene) error
	// Attack runs in an attacker's process, unjailed and then jailed. It returns
	// what it got hold of and the error of the call that stopped it.
	Attack func(*Target) ([]byte, error)
	// Fresh gives Attack a process of its own: it changes the process for good
	// (its keyrings, tracees), or must not see another case's descriptors. The working
	// directory is set back after each case.
	Fresh bool
	// Meanwhile runs outside, as the user, when Attack calls [Target.Sync]; pid
	// is the process that called it, as seen from outside.
	Meanwhile func(s *Scene, pid int) error
	// Judge looks, outside, for proof that the attack succeeded.
	Judge Judge
}

// needing adds to what a case needs.
func (c Case) needing(what string) Case {
	if c.Needs != "" {
		what = c.Needs + ", " + what
	}
	c.Needs = what
	return c
}

// since says which series of kernels made a case possible.
func (c Case) since(series string) Case {
	c.Since = series
	return c
}

// What several cases need.
const (
	needsACL       = "a file system with ACLs"
	needsExchange  = "a file system with RENAME_EXCHANGE"
	needsRing      = "CONFIG_IO_URING"
	needsScope     = "no Yama, or kernel.yama.ptrace_scope 0"
	needsTerminal  = "a pseudoterminal"
	needsTmpfile   = "a file system with O_TMPFILE"
	needsUserXattr = "a file system with user attributes"
)

// A Target is what an attacker is told: where things are, never what they hold.
type Target struct {
	Case    string            `json:"case"`
	Project string            `json:"project"` // the directory that the jail allows
	Work    string            `json:"work"`    // fresh directory in it, for this attempt
	Outside string            `json:"outside"` // fresh directory outside
	Secret  string            `json:"secret"`  // file in Outside that holds the canary
	PID     int               `json:"pid,omitempty"`
	Args    map[string]string `json:"args,omitempty"` // what else Setup wants to tell
	// Limit is how long the attack may take before it is killed.
	Limit time.Duration `json:"limit"`
	Fresh bool          `json:"fresh,omitempty"` // as in the case
}

// Families lists the families in the order of the table.
func Families() []string {
	var names []string
	for _, c := range Cases() {
		if !slices.Contains(names, c.Family) {
			names = append(names, c.Family)
		}
	}
	return names
}

// Cases returns every case, grouped by family.
func Cases() []Case {
	return slices.Concat(
		traversal, entrances, symlinks, races, procroot, environ, siblings, hardlinks, crowds,
		changes, startup, planted, metadata, handles, watching, descriptors, passed, rings, compat,
		sockets, peers, buses, network, kinds, names, namespaces, terminal, injections, processes,
		signals, keys, lifecycle, clones, supervision, floods, execution, devices, kernelDoors,
		machine, identities, rootSpaces, layers,
	)
}

// For returns those of the cases that a user with the id can make.
func For(uid int, cases []Case) []Case {
	return slices.DeleteFunc(slices.Clone(cases), func(c Case) bool { return c.Root && uid != 0 })
}

// Select returns the cases whose name matches re. A nil re selects all.
func Select(re *regexp.Regexp) []Case {
	all := Cases()
	if re == nil {
		return all
	}
	return slices.DeleteFunc(all, func(c Case) bool { return !re.MatchString(c.Name) })
}

func findCase(name string) (Case, bool) {
	all := Cases()
	i := slices.IndexFunc(all, func(c Case) bool { return c.Name == name })
	if i < 0 {
		return Case{}, false
	}
	return all[i], true
}
