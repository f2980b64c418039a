package jail

import (
	"fmt"
	"slices"

	"github.com/agent-lock/agent-lock/bpf"
	"golang.org/x/sys/unix"
)

// expectOverlays prepares the kernel's answer where a rule's object is on an overlay.
func (r *rules) expectOverlays(slot *bpf.Slot) error {
	for _, fd := range append(r.open, r.root) {
		var st unix.Statfs_t
		if err := unix.Fstatfs(fd, &st); err != nil {
			return fmt.Errorf("look at the file system of a rule's path: %w", err)
		}
		if st.Type == unix.OVERLAYFS_SUPER_MAGIC {
			return slot.ExpectOverlays()
		}
	}
	return nil
}

// overlays are those that the rules' objects, and what leads to them, are on: what the
// jail may use there, an overlay may do on its layers. They stay mounted, since the
// descriptors are open.
func (r *rules) overlays(fds []bpf.Descriptor) []bpf.Overlay {
	var found []bpf.Overlay
	for _, d := range fds {
		if d.FD != r.root && !slices.Contains(r.open, d.FD) {
			continue
		}
		for _, o := range d.Overlays {
			if !slices.Contains(found, o) {
				found = append(found, o)
			}
		}
	}
	return found
}
