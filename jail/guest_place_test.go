//go:build guest

package jail_test

import (
	"encoding/binary"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// places is the size of the map of namespaces.
const places = 4096

// Where the numbers of new pid namespaces lead to places of other jails, a start makes
// further ones, some times.
func TestPlaceIsTaken(t *testing.T) {
	for _, tt := range []struct {
		name   string
		taken  uint32
		starts bool
	}{
		{"some", 3, true},
		{"many", 200, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, m := project(t), namespaces(t)
			next := nextNamespace(t)
			before := inums(t, m)
			for i := range tt.taken {
				// Around it: namespaces that are just ending give numbers back.
				place := (next - tt.taken/2 + i) % places
				if _, used := before[place]; used {
					continue
				}
				// Nobody's, but not free.
				entry := make([]byte, m.ValueSize())
				binary.NativeEndian.PutUint32(entry, 1)
				binary.NativeEndian.PutUint32(entry[4:], 63)
				if err := m.Put(place, entry); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { m.Put(place, make([]byte, m.ValueSize())) })
			}
			cmd := jailed(dir, []string{"--denials", "off"}, "sleep")
			if !tt.starts {
				_, stderr, status := run(t, cmd)
				if status != 125 || !strings.Contains(stderr, "place is taken") {
					t.Errorf("status %d, %q, want 125 since every place is taken", status, stderr)
				}
				return
			}
			start(t, cmd)
			for place, inum := range inums(t, m) {
				if _, was := before[place]; was || inum == 1 {
					continue
				}
				if inum == next {
					t.Errorf("the jail's namespace is %d, whose place was taken", inum)
				}
				return
			}
			t.Error("the jail is not in the map")
		})
	}
}

func namespaces(t *testing.T) *ebpf.Map {
	t.Helper()
	sets := attachSets(t)
	if len(sets) != 1 {
		t.Fatalf("attach sets: %v, want one", sets)
	}
	m, err := ebpf.LoadPinnedMap(filepath.Join(sets[0], "map-namespaces"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// inums are the numbers of the namespaces in the map, by place.
func inums(t *testing.T, m *ebpf.Map) map[uint32]uint32 {
	t.Helper()
	found := map[uint32]uint32{}
	var place uint32
	value := make([]byte, m.ValueSize())
	it := m.Iterate()
	for it.Next(&place, &value) {
		if inum := binary.NativeEndian.Uint32(value); inum != 0 {
			found[place] = inum
		}
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

// nextNamespace is the number that the next jail's pid namespace gets: the lowest free
// one, after those of the namespaces made with it.
func nextNamespace(t *testing.T) uint32 {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "sleep")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS |
		unix.CLONE_NEWUTS | unix.CLONE_NEWIPC}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/ns/pid", cmd.Process.Pid), &st); err != nil {
		t.Fatal(err)
	}
	return uint32(st.Ino)
}
