package jail

import (
	"slices"

	"github.com/agent-lock/agent-lock/policy"
	"golang.org/x/sys/unix"
)

// Parts of the second layers that a test may leave out, to show that something
// leaks then.
const (
	DropFiles   = "landlock_files"
	DropScopes  = "landlock_scopes"
	DropSeccomp = "seccomp"
	// These help out where there is no BPF layer.
	DropMounts       = "mounts"
	DropCapabilities = "capabilities" // their dropping: root keeps them
)

// secondLayer is Landlock and seccomp, ready to be put over the command's process.
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
	second.ruleset, err = landlockRules(rules, handled, s.Layers.BPF, string(s.Network), s.FDs)
	return second, err
}

// close lets go of the ruleset, which the command's process has.
func (l secondLayer) close() error {
	if l.ruleset == nil {
		return nil
	}
	return unix.Close(l.ruleset.fd)
}

// lay puts the layers over a script's process, which has the ruleset as a descriptor.
// The filter comes last: it need not let through what it takes to apply Landlock.
func (l secondLayer) lay(s *script, ruleset uintptr) error {
	if l.ruleset != nil {
		s.do("enforce the Landlock ruleset", unix.SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0)
	}
	if l.seccomp {
		return s.laySeccomp(l.withBPF)
	}
	return nil
}
