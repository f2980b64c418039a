package adversary

import (
	"fmt"
	"strings"
	"time"
)

// A Judge looks for proof that an attack succeeded. It sees the scene only from
// outside, as the user, and never asks the attacker.
type Judge struct {
	// Proof says what counts as proof. It is the same in every run.
	Proof string
	// find returns in words what it found in this run, or "" when there is no proof.
	find func(*Scene) string
}

// as is the same judge where the proof has a better name.
func (j Judge) as(proof string) Judge {
	j.Proof = proof
	return j
}

// tokenRead finds the scene's canary in what the attacker sent out.
var tokenRead = Judge{"the canary is in what the attacker sent out", func(s *Scene) string {
	if s.leaked(s.Token) {
		return "the canary was sent out"
	}
	return ""
}}

// changed finds that something outside is not as it was after Setup.
var changed = Judge{
	"an object in the outside directory was made, removed or changed",
	func(s *Scene) string { return difference(s.before, snapshot(s.roots)) },
}

// heard finds that something arrived at a socket outside.
var heard = Judge{
	"a connection or a datagram arrived at a socket outside",
	func(s *Scene) string {
		for _, l := range s.listeners {
			if proof := l.heard(); proof != "" {
				return proof
			}
		}
		return ""
	},
}

// seen finds what Meanwhile wrote down.
func seen(proof string) Judge {
	return Judge{proof, func(s *Scene) string { return s.Evidence }}
}

// victimRead finds the canary of the process outside in what the attacker sent out.
var victimRead = Judge{
	"the canary of a process outside is in what the attacker sent out",
	func(s *Scene) string {
		if s.leaked(s.victim.token) {
			return "the canary of another process was sent out"
		}
		return ""
	},
}

// victimDead finds that the process outside no longer lives. Its death may take
// a moment: how long we are ready to wait, but nothing else, depends on whether
// the attacker was refused.
var victimDead = Judge{"the process outside has ended", func(s *Scene) string {
	grace := 5 * time.Second
	if s.refused {
		grace = 20 * time.Millisecond
	}
	if s.victim.dead(grace) {
		return "the process outside is dead"
	}
	return ""
}}

var victimLimited = Judge{
	"a limit of the process outside is not what it was",
	func(s *Scene) string { return s.victim.limited() },
}

var victimReniced = Judge{
	"the priority of the process outside is not what it was",
	func(s *Scene) string { return s.victim.reniced() },
}

// sessionRead finds one of the canaries that were planted when the jail was
// started: in its environment, or behind a descriptor it inherited.
func sessionRead(name string) Judge {
	proof := "the canary in " + name + " is in what the attacker sent out"
	return Judge{proof, func(s *Scene) string {
		if token := s.session.tokens[name]; token != "" && s.leaked(token) {
			return "the canary in " + name + " was sent out"
		}
		return ""
	}}
}

// secretRead finds a secret that Setup kept under a name in the loot. It is for
// secrets that are not the canary itself, such as a random file size.
func secretRead(name string) Judge {
	proof := "the " + name + ", as it is outside, is in what the attacker sent out"
	return Judge{proof, func(s *Scene) string {
		if v := s.secrets[name]; v != "" && strings.Contains(string(s.Loot), v) {
			return fmt.Sprintf("%s %q was sent out", name, v)
		}
		return ""
	}}
}

// anyOf joins judges.
func anyOf(judges ...Judge) Judge {
	var proofs []string
	for _, judge := range judges {
		proofs = append(proofs, judge.Proof)
	}
	return Judge{strings.Join(proofs, ", or "), func(s *Scene) string {
		for _, judge := range judges {
			if proof := judge.find(s); proof != "" {
				return proof
			}
		}
		return ""
	}}
}
