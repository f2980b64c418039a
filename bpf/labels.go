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

// The rights. Self is for the labelled inode alone: it exists and can be
// looked at. Connect is for the host's Unix sockets. Linked marks a place where
// names of outside files may be; see Links.
const (
	Read    = Rights(jailRightRIGHT_READ)
	Write   = Rights(jailRightRIGHT_WRITE)
	Execute = Rights(jailRightRIGHT_EXECUTE)
	Self    = Rights(jailRightRIGHT_SELF)
	Connect = Rights(jailRightRIGHT_CONNECT)
	Linked  = Rights(jailRightRIGHT_LINKED)
)

// String returns the rights as words, e.g. "read write".
func (r Rights) String() string {
	names := []string{"read", "write", "execute", "self", "connect", "linked"}
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

// fillLabels enters the labels, inode address to rights, into the slot's table
// (a cuckoo hash with two probes) and sets the multipliers that find them.
func fillLabels(slot *jailJail, labels map[uint64]Rights) error {
	if len(labels) > MaxLabels {
		return fmt.Errorf("label %d inodes: a jail can have %d; "+
			"name directories instead of the files in them", len(labels), MaxLabels)
	}
	for range 16 {
		slot.Multipliers = [2]uint32{rand.Uint32() | 1, rand.Uint32() | 1}
		if err := placeLabels(slot, labels); err == nil {
			return nil
		}
	}
	return fmt.Errorf("label %d inodes: %w (a bug: please report it)", len(labels), errCrowded)
}

func placeLabels(slot *jailJail, labels map[uint64]Rights) error {
	clear(slot.Labels[:])
	for inode, rights := range labels {
		label := jailLabel{Inode: inode, Rights: jailRight(rights)}
		for kicks, probe := 0, 0; ; kicks++ {
			if kicks == 64 {
				return errCrowded
			}
			place := &slot.Labels[labelIndex(label.Inode, slot.Multipliers[probe])]
			*place, label = label, *place
			if label.Inode == 0 {
				break
			}
			// What was here goes to its other place.
			probe = 0
			if place == &slot.Labels[labelIndex(label.Inode, slot.Multipliers[0])] {
				probe = 1
			}
		}
	}
	return nil
}

// labelIndex is find_label() of jail.bpf.h.
func labelIndex(inode uint64, multiplier uint32) uint32 {
	return (uint32(inode) * multiplier) >> (32 - labelBits)
}
