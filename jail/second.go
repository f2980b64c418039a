package jail

import (
	"slices"

	"github.com/agent-lock/agent-lock/policy"
)

// Parts of the second layers that a test may leave out, to show that something
// leaks then.
const (
	DropFiles   = "landlock_files"
	DropScopes  = "landlock_scopes"
	DropSeccomp = "seccomp"
	DropMounts  = "mounts" // those that help out where there is no BPF layer
)

// secondLayer is Landlock and seccomp, ready to be put over the thread that execs.
type secondLayer struct {
	ruleset *ruleset // nil: no Landlock
	seccomp bool
	withBPF bool
}

// prepareSecond makes what needs root.
func prepareSecond(s setup) (secondLayer, error) {
	second := secondLayer{
		seccomp: s.Layers.Seccomp && !slices.Contains(s.Drop, DropSeccomp), withBPF: s.Layers.BPF,
	}
	if !s.Layers.Landlock {
		return second, nil
	}
	handled := landlockHandles(s.Layers.BPF, string(s.Network))
	if slices.Contains(s.Drop, DropFiles) {
		handled.HandledAccessFS = 0
	}
	if slices.Contains(s.Drop, DropScopes) {
		handled.Scoped = 0
	}
	rules := s.Rules
	if !s.Layers.BPF && s.User.UID == 0 {
		// Root owns /proc/sys, and Landlock cannot leave it out of /proc.
		rules = slices.Clone(rules)
		for i := range rules {
			if rules[i].Path == "/proc" {
				rules[i].Rights &^= policy.Write
			}
		}
	}
	var err error
	second.ruleset, err = landlockRules(rules, handled, s.Layers.BPF, string(s.Network))
	return second, err
}

// enforce puts the layers over the calling thread. The filter comes last: it need
// not let through what it takes to apply Landlock.
func (l secondLayer) enforce() error {
	if l.ruleset != nil {
		if err := l.ruleset.enforce(); err != nil {
			return err
		}
	}
	if l.seccomp {
		return enforceSeccomp(l.withBPF)
	}
	return nil
}
