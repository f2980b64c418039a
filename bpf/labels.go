package bpf

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strings"
)

// Rights are what a label gives for its inode and all below it.
type Rights uint32

// The rights. Self is for the labelled object alone: it exists and can be looked
// at. Connect is for the host's Unix sockets.
const (
	Read    = Rights(jailRightRIGHT_READ)
	Write   = Rights(jailRightRIGHT_WRITE)
	Execute = Rights(jailRightRIGHT_EXECUTE)
	Self    = Rights(jailRightRIGHT_SELF)
	Connect = Rights(jailRightRIGHT_CONNECT)
)

// What else a label can say. Linked marks a place where names of outside files may
// be; see Links. Fixed keeps the object's own name from being changed. Way marks a
// directory that only leads to a rule, with the rights of what is around it. Names
// says that there are rules for names in the directory, Files that files below may
// have labels. Guarded puts the rules for names anywhere in force. Public keeps a jail
// of root to what everyone may use.
const (
	Linked  = Rights(jailRightRIGHT_LINKED)
	Fixed   = Rights(jailRightRIGHT_FIXED)
	Way     = Rights(jailRightRIGHT_WAY)
	Names   = Rights(jailRightRIGHT_NAMES)
	Files   = Rights(jailRightRIGHT_FILES)
	Guarded = Rights(jailRightRIGHT_GUARDED)
	Public  = Rights(jailRightRIGHT_PUBLIC)
)

// String returns the rights as words, e.g. "read write".
func (r Rights) String() string {
	names := []string{"read", "write", "execute", "self", "connect", "linked", "fixed", "way",
		"names", "files", "guarded", "public", "links-readonly", "links-deny"}
	var words []string
	for i, name := range names {
		if r&(1<<i) != 0 {
			words = append(words, name)
		}
	}
	return strings.Join(words, " ")
}

// MaxLabels is how many labels a jail can have: a quarter of the table, so that
// two probes always find a place.
const MaxLabels = len(jailJail{}.Labels) / 4

// labelBits is the logarithm of the table's size.
var labelBits = bits.Len(uint(len(jailJail{}.Labels))) - 1

// errCrowded means that a pair of multipliers left no place for some label.
var errCrowded = errors.New("label table is crowded")

// fillLabels enters the labels, address to rights, into the slot's table
// (a cuckoo hash with two probes) and sets the multipliers that find them.
func fillLabels(slot *jailJail, labels map[uint64]Rights, links Links) error {
	if len(labels) > MaxLabels {
		return fmt.Errorf("label %d objects: a jail can have %d; "+
			"name directories instead of the files in them", len(labels), MaxLabels)
	}
	for range 16 {
		slot.Multipliers = [2]uint32{rand.Uint32() | 1, rand.Uint32() | 1}
		if err := placeLabels(slot, labels, links); err == nil {
			return nil
		}
	}
	return fmt.Errorf("label %d objects: %w (a bug: please report it)", len(labels), errCrowded)
}

func placeLabels(slot *jailJail, labels map[uint64]Rights, links Links) error {
	clear(slot.Labels[:])
	for object, rights := range labels {
		if rights&Linked != 0 {
			rights |= Rights(links)
		}
		label := jailLabel{Object: object, Rights: jailRight(rights)}
		for kicks, probe := 0, 0; ; kicks++ {
			if kicks == 64 {
				return errCrowded
			}
			place := &slot.Labels[labelIndex(label.Object, slot.Multipliers[probe])]
			*place, label = label, *place
			if label.Object == 0 {
				break
			}
			// What was here goes to its other place.
			probe = 0
			if place == &slot.Labels[labelIndex(label.Object, slot.Multipliers[0])] {
				probe = 1
			}
		}
	}
	return nil
}

// labelIndex is place_of() of label.bpf.h.
func labelIndex(object uint64, multiplier uint32) uint32 {
	return (uint32(object) * multiplier) >> (32 - labelBits)
}
