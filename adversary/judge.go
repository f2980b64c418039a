package adversary

import (
	"fmt"
	"strings"
	"time"
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

// victimRead finds the canary of the process outside in what the attacker sent out.
func victimRead(s *Scene) string {
	if s.leaked(s.victim.token) {
		return "the canary of another process was sent out"
	}
	return ""
}

// victimDead finds that the process outside no longer lives. Its death may take
// a moment: how long we are ready to wait, but nothing else, depends on whether
// the attacker was refused.
func victimDead(s *Scene) string {
	grace := 5 * time.Second
	if s.refused {
		grace = 20 * time.Millisecond
	}
	if s.victim.dead(grace) {
		return "the process outside is dead"
	}
	return ""
}

func victimLimited(s *Scene) string { return s.victim.limited() }
func victimReniced(s *Scene) string { return s.victim.reniced() }

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
			return fmt.Sprintf("%s %q was sent out", name, v)
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
