package adversary

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The judges look for proof that an attack succeeded. They see the scene only
// from outside, as the user, and never ask the attacker.

// tokenRead finds the scene's canary in what the attacker sent out.
func tokenRead(s *Scene) string {
	if s.leaked(s.Token) {
		return "the canary was sent out"
	}
	return ""
}

// changed finds that something outside is not as it was after Setup.
func changed(s *Scene) string { return difference(s.before, snapshot(s.roots)) }

// heard finds that something arrived at a socket outside.
func heard(s *Scene) string {
	for _, l := range s.listeners {
		if proof := l.heard(); proof != "" {
			return proof
		}
	}
	return ""
}

// seen finds what Meanwhile wrote down.
func seen(s *Scene) string { return s.Evidence }

// victimRead finds the canary of a victim in what the attacker sent out: that
// of the scene's own victim, or that of the shared one.
func victimRead(s *Scene) string {
	for _, v := range []*victim{s.victim, s.shared} {
		if v != nil && s.leaked(v.token) {
			return "the canary of another process was sent out"
		}
	}
	return ""
}

// victimDead finds that the scene's victim no longer lives. A signal that was
// sent has been delivered to the victim, but its death may take a moment.
func victimDead(s *Scene) string {
	if s.victim.dead(50 * time.Millisecond) {
		return "the process outside is dead"
	}
	return ""
}

// victimLimited finds that the victim's limits are not what they were.
func victimLimited(s *Scene) string {
	now, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", s.victim.pid))
	if err != nil || string(now) == s.victim.limits {
		return ""
	}
	return "a limit of the process outside changed"
}

// victimReniced finds that the victim's priority is not what it was.
func victimReniced(s *Scene) string {
	now, err := unix.Getpriority(unix.PRIO_PROCESS, s.victim.pid)
	if err != nil || now == s.victim.nice {
		return ""
	}
	return "the priority of the process outside changed"
}

// sessionRead finds one of the canaries that were planted when the jail was
// started: in its environment, or behind a descriptor it inherited.
func sessionRead(name string) func(*Scene) string {
	return func(s *Scene) string {
		if token := s.session.tokens[name]; token != "" && s.leaked(token) {
			return "the canary in " + name + " was sent out"
		}
		return ""
	}
}

// secretRead finds a secret that Setup kept under a name in the loot. It is for
// secrets that are not the canary itself, such as a random file size.
func secretRead(name string) func(*Scene) string {
	return func(s *Scene) string {
		if v := s.secrets[name]; v != "" && strings.Contains(string(s.Loot), v) {
			return name + " " + v + " was sent out"
		}
		return ""
	}
}

// anyOf joins judges.
func anyOf(judges ...func(*Scene) string) func(*Scene) string {
	return func(s *Scene) string {
		for _, judge := range judges {
			if proof := judge(s); proof != "" {
				return proof
			}
		}
		return ""
	}
}
