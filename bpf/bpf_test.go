package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"
)

// find is find_label() of label.bpf.h.
func find(slot *jailJail, inode uint64) Rights {
	for _, m := range slot.Multipliers {
		if label := slot.Labels[labelIndex(inode, m)]; label.Object == inode {
			return Rights(label.Rights)
		}
	}
	return 0
}

func TestEveryLabelIsFoundInTwoProbes(t *testing.T) {
	for _, n := range []int{0, 1, 60, 400, MaxLabels} {
		labels := map[uint64]Rights{}
		for len(labels) < n {
			// As the kernel's allocator gives them: neighbours, 8-byte aligned.
			labels[0xffff888000000000|rand.Uint64N(1<<30)<<3] = Rights(rand.IntN(64))
		}
		var slot jailJail
		if err := fillLabels(&slot, labels, LinksAllow); err != nil {
			t.Fatalf("fillLabels(%d labels) = %v", n, err)
		}
		got := map[uint64]Rights{}
		for inode := range labels {
			got[inode] = find(&slot, inode)
		}
		if diff := cmp.Diff(labels, got); diff != "" {
			t.Errorf("%d labels (-entered +found):\n%s", n, diff)
		}
		// find_label() takes an empty first place for the end of the search.
		for inode := range labels {
			if slot.Labels[labelIndex(inode, slot.Multipliers[0])].Object == 0 {
				t.Errorf("%d labels: the first place of inode %x is empty", n, inode)
			}
		}
		if r := find(&slot, 0xffff888012345671); r != 0 {
			t.Errorf("find(an unlabelled inode) = %v, want nothing", r)
		}
	}
}

func TestTooManyLabels(t *testing.T) {
	labels := map[uint64]Rights{}
	for i := range MaxLabels + 1 {
		labels[uint64(i+1)<<6] = Read
	}
	if err := fillLabels(&jailJail{}, labels, LinksAllow); err == nil {
		t.Errorf("fillLabels(%d labels) = nil, want an error", len(labels))
	}
}

// The table, the C enum and the object name the same hooks.
func TestHooksAgree(t *testing.T) {
	spec, err := loadJail()
	if err != nil {
		t.Fatal(err)
	}
	inObject := map[string]string{}
	for name, p := range spec.Programs {
		if p.Type == ebpf.LSM {
			inObject[name] = p.AttachTo
		}
	}
	inTable := map[string]string{}
	for _, hook := range Hooks() {
		for _, p := range hook.Programs {
			inTable[p.Name] = hook.Name
		}
	}
	if diff := cmp.Diff(inTable, inObject); diff != "" {
		t.Errorf("programs (-table +object):\n%s", diff)
	}
	var enum *btf.Enum
	if err := spec.Types.TypeByName("hook", &enum); err != nil {
		t.Fatal(err)
	}
	for _, v := range enum.Values {
		want := strings.ToLower(strings.TrimPrefix(v.Name, "HOOK_"))
		if got := hookName(jailHook(v.Value)); got != want {
			t.Errorf("hookName(%d) = %q, want %q", v.Value, got, want)
		}
	}
	if len(enum.Values) != len(hookNames) {
		t.Errorf("enum hook has %d values, hookNames %d", len(enum.Values), len(hookNames))
	}
}

func TestSizesAgree(t *testing.T) {
	spec, err := loadJail()
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("jail.bpf.h")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		fmt.Sprintf("#define MAX_JAILS %d", MaxJails),
		fmt.Sprintf("#define NAMESPACE_PLACES %d", namespacePlaces),
	} {
		words := strings.ReplaceAll(line, " ", `\s+`)
		if !regexp.MustCompile(`(?m)^` + words + `$`).Match(source) {
			t.Errorf("jail.bpf.h has no line %q", line)
		}
	}
	// One slot more than jails: the one that gives no rights.
	if got := spec.Maps[jailMapJails].MaxEntries; got != MaxJails+1 {
		t.Errorf("map jails has %d entries, want %d", got, MaxJails+1)
	}
	if got := spec.Maps[jailMapRings].InnerMap.MaxEntries; got != ringSize {
		t.Errorf("struct ring has %d bytes, want %d", got, ringSize)
	}
}

// A hook that records under a name of its own is one that is in the table.
func TestRecordedHooksAreInTheTable(t *testing.T) {
	var names []string
	for _, hook := range Hooks() {
		names = append(names, hook.Name)
	}
	for _, name := range hookNames {
		if !slices.Contains(names, name) {
			t.Errorf("enum hook has %s, the table has not", name)
		}
	}
}

// Every program keeps an earlier refusal and asks whether the task is jailed.
func TestEveryHookAsksWhoIsThere(t *testing.T) {
	asking := regexp.MustCompile(
		`jailed\(&c|(inode|times|entry|attributes)_changed\(|(node_made|entry_removed)\(|` +
			`(looked_at|never|only_peers|controlled)\(`)
	program := regexp.MustCompile(`(?s)SEC\("lsm/(\w+)"\)\nint BPF_PROG.*?\n}\n`)
	for _, file := range []string{
		"file.bpf.h", "inode.bpf.h", "root.bpf.h", "socket.bpf.h", "network.bpf.h", "process.bpf.h",
	} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range program.FindAllStringSubmatch(string(source), -1) {
			body := m[0]
			keeps := strings.Contains(body, "if (ret") || strings.Contains(body, ", ret);") ||
				m[1] == "sock_graft" // it returns nothing
			if asks := asking.MatchString(body); !keeps || !asks {
				t.Errorf("%s: hook %s: keeps ret: %v, asks who is there: %v",
					file, m[1], keeps, asks)
			}
		}
	}
}

// A program reads the earlier verdict behind as many parameters as the table says
// that it is written for.
func TestPrototypesAgree(t *testing.T) {
	params := map[string]int{}
	for _, hook := range Hooks() {
		for _, p := range hook.Programs {
			params[p.Name] = p.Params
		}
	}
	program := regexp.MustCompile(`(?s)SEC\("lsm/\w+"\)\nint BPF_PROG\((\w+)(.*?)\)\n\{`)
	found := 0
	for _, file := range []string{
		"file.bpf.h", "inode.bpf.h", "root.bpf.h", "socket.bpf.h", "network.bpf.h", "process.bpf.h",
		"lifecycle.bpf.h",
	} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range program.FindAllStringSubmatch(string(source), -1) {
			args := strings.TrimSuffix(m[2], ", int ret")
			args = strings.TrimSuffix(args, ",\n\t     int ret")
			if got := strings.Count(args, ","); got != params[m[1]] {
				t.Errorf("%s takes %d parameters, the table says %d", m[1], got, params[m[1]])
			}
			found++
		}
	}
	if found != len(params) {
		t.Errorf("found %d programs in the sources, the table has %d", found, len(params))
	}
}

// Shared structs have no implicit padding: bytes nobody writes would leak.
func TestSharedStructsHaveNoHoles(t *testing.T) {
	spec, err := loadJail()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"label", "jail", "event", "descriptor", "entry", "place",
		"peer", "network", "local_range", "own_place", "owner"} {
		var s *btf.Struct
		if err := spec.Types.TypeByName(name, &s); err != nil {
			t.Fatal(err)
		}
		end := uint32(0)
		for _, m := range s.Members {
			if at := m.Offset.Bytes(); at != end {
				t.Errorf("struct %s: %d unused bytes before %s", name, at-end, m.Name)
			}
			size, err := btf.Sizeof(m.Type)
			if err != nil {
				t.Fatal(err)
			}
			end = m.Offset.Bytes() + uint32(size)
		}
		if end != s.Size {
			t.Errorf("struct %s: %d unused bytes at its end", name, s.Size-end)
		}
	}
}

func chars[T ~[]int8](to T, s string) {
	for i := range s {
		to[i] = int8(s[i])
	}
}

func TestDecodeRecord(t *testing.T) {
	e := jailEvent{
		TimeNs: 1500, Hook: jailHookHOOK_FILE_OPEN, Want: jailRightRIGHT_READ,
		Error: -int32(syscall.ENOENT), Pid: 7, Dev: 3, Depth: 2,
	}
	chars(e.Comm[:], "cat")
	chars(e.Names[0][:], "id")
	chars(e.Names[1][:], ".ssh")
	raw, err := binary.Append(nil, binary.NativeEndian, e)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeRecord(raw)
	want := Record{Since: 1500 * time.Nanosecond, Hook: "file_open", Want: Read,
		Errno: syscall.ENOENT, PID: 7, Comm: "cat", Dev: 3, Path: "/.ssh/id"}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("decodeRecord: error %v, (-want +got):\n%s", err, diff)
	}
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add(make([]byte, 1344))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := decodeRecord(raw)
		if err == nil && r.Dev != 0 && !strings.HasPrefix(r.Path, "/") {
			t.Errorf("decodeRecord(%x).Path = %q, want it absolute", raw, r.Path)
		}
	})
}

// Attach sets are kept where nobody but root can change them.
func TestCheckOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	dir := t.TempDir()
	for _, tt := range []struct {
		name string
		uid  int
		mode os.FileMode
		ok   bool
	}{
		{"private", 0, 0o700, true},
		{"readable", 0, 0o755, true},
		{"of_another", 12345, 0o700, false},
		{"group_writes", 0, 0o770, false},
		{"all_write", 0, 0o777, false},
	} {
		path := filepath.Join(dir, tt.name)
		err := errors.Join(os.Mkdir(path, 0o700), os.Chown(path, tt.uid, 0),
			os.Chmod(path, tt.mode))
		if err != nil {
			t.Fatal(err)
		}
		if err := checkOwner(path); (err == nil) != tt.ok {
			t.Errorf("%s: %v, want it accepted: %v", tt.name, err, tt.ok)
		}
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("private", link); err != nil {
		t.Fatal(err)
	}
	if err := checkOwner(link); err == nil {
		t.Error("a link was accepted")
	}
}
