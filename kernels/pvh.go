package kernels

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// noteTypePVH is XEN_ELFNOTE_PHYS32_ENTRY: the note that holds the 32-bit
// address at which QEMU starts a PVH kernel (CONFIG_PVH, since Linux 4.21).
const noteTypePVH = 18

// errNoPVH means that a vmlinux can only be booted as a bzImage.
var errNoPVH = errors.New("vmlinux has no PVH entry (CONFIG_PVH)")

// checkPVH reports whether QEMU can start the ELF kernel in r.
func checkPVH(r io.ReaderAt) error {
	f, err := elf.NewFile(r)
	if err != nil {
		return fmt.Errorf("read vmlinux: %w", err)
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_NOTE {
			continue
		}
		notes, err := io.ReadAll(p.Open())
		if err != nil {
			return fmt.Errorf("read vmlinux notes: %w", err)
		}
		if hasNote(notes, f.ByteOrder, "Xen", noteTypePVH) {
			return nil
		}
	}
	return errNoPVH
}

// hasNote looks for a note in the contents of a PT_NOTE segment. Name and
// descriptor are each padded to four bytes.
func hasNote(notes []byte, order binary.ByteOrder, name string, typ uint32) bool {
	for len(notes) >= 12 {
		nameLen, descLen := order.Uint32(notes), order.Uint32(notes[4:])
		nameEnd := uint64(12) + uint64(nameLen+3)&^3
		end := nameEnd + uint64(descLen+3)&^3
		if nameEnd < 12+uint64(nameLen) || end > uint64(len(notes)) {
			return false
		}
		got := bytes.TrimRight(notes[12:12+nameLen], "\x00")
		if order.Uint32(notes[8:]) == typ && string(got) == name && descLen >= 4 {
			return true
		}
		notes = notes[end:]
	}
	return false
}
