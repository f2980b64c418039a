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

// enterNames puts the names' rules of a slot in place of those that were there.
func (s *Set) enterNames(slot uint32, names []Name) error {
	if err := s.forgetNames(slot); err != nil {
		return err
	}
	for _, n := range names {
		key, err := n.key(slot)
		if err != nil {
			return err
		}
		rule := jailNameRule{Kind: jailNameKind(n.Kind), Rights: jailRight(n.Rights)}
		if err := s.maps.Names.Put(key, rule); err != nil {
			return fmt.Errorf("enter the rule for the name %q: %w", n.Name, err)
		}
	}
	return nil
}

// forgetNames removes the rules of a slot.
func (s *Set) forgetNames(slot uint32) error {
	var gone []jailNameKey
	var key jailNameKey
	var rule jailNameRule
	it := s.maps.Names.Iterate()
	for it.Next(&key, &rule) {
		if key.Slot == slot {
			gone = append(gone, key)
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("read rules for names: %w", err)
	}
	for _, key := range gone {
		if err := s.maps.Names.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("remove a rule for a name: %w", err)
		}
	}
	return nil
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
