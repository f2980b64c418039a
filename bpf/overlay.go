package bpf

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cilium/ebpf/btf"
)

// Overlay is an overlay file system, as addresses in the kernel of what it works
// with on its layers. They hold as long as it is mounted.
type Overlay struct {
	cred, groups, userNS, sb uint64
}

// MaxOverlays is how many of them one jail's labels can be on. As in overlay.bpf.h.
const MaxOverlays = len(jailSlotOverlays{}.Of)

func overlaysOf(d jailDescriptor) []Overlay {
	var found []Overlay
	for _, o := range d.Overlays {
		if o.Cred != 0 {
			found = append(found, Overlay{o.Cred, o.Groups, o.UserNs, o.Sb})
		}
	}
	return found
}

// ExpectOverlays makes [Slot.Look] tell which overlays descriptors are on. On a kernel
// that does not describe its overlayfs it has no effect: then what that does on
// its layers is refused.
func (s *Slot) ExpectOverlays() error {
	layout, err := overlayLayout()
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, btf.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the types of overlayfs: %w", err)
	}
	if err := s.set.maps.Layout.Put(uint32(0), &layout); err != nil {
		return fmt.Errorf("enter the types of overlayfs: %w", err)
	}
	return nil
}

// overlayLayout finds where the fields are that the programs read: in the types of
// the module, or of the kernel that has overlayfs built in.
func overlayLayout() (jailOverlayLayout, error) {
	layout := jailOverlayLayout{Known: 1}
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return layout, err
	}
	if _, err := typesNamed(spec, "ovl_fs"); err != nil {
		if spec, err = btf.LoadKernelModuleSpec("overlay"); err != nil {
			return layout, err
		}
	}
	ovl, err := typesNamed(spec, "ovl_fs")
	if err != nil {
		return layout, err
	}
	layer, err := typesNamed(spec, "ovl_layer")
	if err != nil {
		return layout, err
	}
	layout.LayerSize = layer[0].Size
	for _, field := range []struct {
		in   []*btf.Struct
		name string
		at   *uint32
	}{
		{ovl, "creator_cred", &layout.CreatorCred},
		{ovl, "layers", &layout.Layers},
		{ovl, "numlayer", &layout.Numlayer},
		{layer, "mnt", &layout.Mnt},
	} {
		if *field.at, err = offsetOf(field.in, field.name); err != nil {
			return layout, err
		}
	}
	return layout, nil
}

// typesNamed returns the types of a name. A module can describe one several times, when
// what it refers to was seen in different ways; they must not differ in size.
func typesNamed(spec *btf.Spec, name string) ([]*btf.Struct, error) {
	types, err := spec.AnyTypesByName(name)
	if err != nil {
		return nil, err
	}
	var found []*btf.Struct
	for _, t := range types {
		if s, ok := t.(*btf.Struct); ok {
			found = append(found, s)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("struct %s: %w", name, btf.ErrNotFound)
	}
	for _, s := range found {
		if s.Size != found[0].Size {
			return nil, fmt.Errorf("struct %s has two sizes: %w", name, btf.ErrNotFound)
		}
	}
	return found, nil
}

// offsetOf is where the types of one name agree that a field is.
func offsetOf(same []*btf.Struct, name string) (uint32, error) {
	offsets := map[uint32]bool{}
	var offset uint32
	for _, s := range same {
		for _, m := range s.Members {
			if m.Name == name {
				offset = m.Offset.Bytes()
				offsets[offset] = true
			}
		}
	}
	if len(offsets) != 1 {
		return 0, fmt.Errorf("struct %s has %d places for %s: %w", same[0].Name, len(offsets), name,
			btf.ErrNotFound)
	}
	return offset, nil
}

// enterOverlays tells the programs which overlays may work for the jail.
func (s *Slot) enterOverlays(cookie uint64, overlays []Overlay) error {
	if len(overlays) > MaxOverlays {
		return fmt.Errorf("rules name files on %d overlay file systems: a jail can have %d",
			len(overlays), MaxOverlays)
	}
	value := &jailSlotOverlays{Cookie: cookie}
	for i, o := range overlays {
		value.Of[i] = jailOverlay{Cred: o.cred, Groups: o.groups, UserNs: o.userNS, Sb: o.sb}
	}
	if err := s.set.maps.Overlays.Put(s.number, value); err != nil {
		return fmt.Errorf("enter overlays: %w", err)
	}
	return nil
}
