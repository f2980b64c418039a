package bpf

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"
)

// Name is a rule for a name, or with Prefix for all names that begin so.
type Name struct {
	Name   string
	Prefix bool
	// Directory is the address of the dentry of the directory in which the rule
	// holds, or a group.
	Directory uint64
	Kind      NameKind
	Rights    Rights // with NameRights: of the entry and of all below it
}

// The groups of names that belong to no single directory. What is in them is
// compared without regard to case.
const (
	Anywhere     uint64 = iota // below a label that is Guarded
	InRepository               // in .git
	InModules                  // at any depth in .git/modules and .git/worktrees
)

// NameKind says what a rule does.
type NameKind uint32

// The kinds. Names of the group Anywhere are protected, denied, or repositories, and
// free of all that in a repository that the jail itself has cloned.
const (
	NameRights     = NameKind(jailNameKindNAME_RIGHTS)
	NameProtected  = NameKind(jailNameKindNAME_PROTECTED)  // not changed
	NameDenied     = NameKind(jailNameKindNAME_DENIED)     // not opened; directories are
	NameRepository = NameKind(jailNameKindNAME_REPOSITORY) // InRepository holds in it
	NameModules    = NameKind(jailNameKindNAME_MODULES)    // InModules holds in it
	NameFree       = NameKind(jailNameKindNAME_FREE)       // nothing below it is protected
)

// MaxName is the length of the longest name with a rule, in bytes.
const MaxName = len(jailNameKey{}.Name) - 2

// key is the rule's place in the trie.
func (n Name) key(slot uint32) (jailNameKey, error) {
	key := jailNameKey{Slot: slot, Within: n.Directory}
	name := n.Name
	if n.Directory <= InModules {
		name = strings.ToLower(name)
	}
	if len(name) > MaxName {
		return key, fmt.Errorf("the name %q is longer than %d bytes", n.Name, MaxName)
	}
	for i := range len(name) {
		key.Name[i] = int8(name[i])
	}
	length := len(name)
	if !n.Prefix {
		length++ // the zero byte after a whole name
	}
	before := unsafe.Offsetof(key.Name) - unsafe.Offsetof(key.Slot)
	key.Bits = 8 * (uint32(before) + uint32(length))
	return key, nil
}

// enterNames puts rules for names into a slot that has none.
func (s *Slot) enterNames(names []Name) error {
	var rules []jailNameRule
	at := map[jailNameKey]int{}
	for _, n := range names {
		key, err := n.key(s.number)
		if err != nil {
			return err
		}
		rule := jailNameRule{Kind: jailNameKind(n.Kind), Rights: jailRight(n.Rights)}
		if i, twice := at[key]; twice {
			rules[i] = rule // the last one holds
			continue
		}
		at[key] = len(rules)
		s.names, rules = append(s.names, key), append(rules, rule)
	}
	if len(rules) == 0 {
		return nil
	}
	if _, err := s.set.maps.Names.BatchUpdate(s.names, rules, nil); err != nil {
		return fmt.Errorf("enter %d rules for names: %w", len(rules), err)
	}
	return nil
}

// removeNames removes the rules that the slot has entered.
func (s *Slot) removeNames() error {
	for left := s.names; len(left) > 0; {
		n, err := s.set.maps.Names.BatchDelete(left, nil)
		if errors.Is(err, ebpf.ErrKeyNotExist) && n < len(left) {
			n++ // it was not entered
		} else if err != nil {
			return fmt.Errorf("remove rules for names: %w", err)
		}
		left = left[n:]
	}
	s.names = nil
	return nil
}

// namesOf finds the rules that an earlier supervisor has left in a slot.
func (s *Set) namesOf(slot uint32) ([]jailNameKey, error) {
	var keys []jailNameKey
	var key jailNameKey
	var rule jailNameRule
	it := s.maps.Names.Iterate()
	for it.Next(&key, &rule) {
		if key.Slot == slot {
			keys = append(keys, key)
		}
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("read rules for names: %w", err)
	}
	return keys, nil
}

// initials marks the first bytes of the names of the group Anywhere, in both cases.
func initials(names []Name) (marked [256]uint8) {
	for _, n := range names {
		if n.Directory == Anywhere && n.Name != "" {
			marked[strings.ToLower(n.Name)[0]] = 1
			marked[strings.ToUpper(n.Name)[0]] = 1
		}
	}
	return marked
}
