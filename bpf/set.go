package bpf

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Where the attach set lives. Links and maps are pinned in a directory of pins
// named after the object, so that another version of agent-lock has its own.
const pinRoot = "/sys/fs/bpf/agent-lock"

// What is being made or removed has another name than what is complete, so that a
// start or an end that was killed leaves nothing that looks like a set. bpffs allows
// no dots.
const (
	unfinishedSuffix = "-new"
	removedSuffix    = "-old"
)

// Set is the attach set: the programs, attached once for all jails, and the
// maps that they share. It outlives the process that attached it.
type Set struct {
	dir         string
	maps        jailMaps
	descriptors *link.Iter
}

// SetOptions change which programs are attached.
type SetOptions struct {
	// Drop names hooks that are left out, to show that something leaks then.
	// A set with dropped hooks is a set of its own.
	Drop []string
	// NoPathHooks takes the kernel for one without CONFIG_SECURITY_PATH, to test
	// what then does the work of the path_* hooks.
	NoPathHooks bool
	// First makes the programs decide before Landlock, for jails that have it as a
	// second layer.
	First bool
}

// name is the hash of everything that decides what the set does. It tells versions
// apart, and it must not cost the time of a start: that of the object is a constant.
func (o SetOptions) name() string {
	name := objectSum()
	if len(o.Drop) == 0 && !o.NoPathHooks && !o.First {
		return name
	}
	h := fnv.New64a()
	for _, hook := range slices.Sorted(slices.Values(o.Drop)) {
		fmt.Fprintf(h, "-%s", hook)
	}
	if o.NoPathHooks {
		fmt.Fprint(h, "-path_*")
	}
	if o.First {
		fmt.Fprint(h, "first")
	}
	return fmt.Sprintf("%s-%016x", name, h.Sum64())
}

// openSet opens the attach set, attaching it first if no jail is using it. The
// caller holds the lock of the sets.
func openSet(opts SetOptions) (*Set, error) {
	if err := removeHalves(); err != nil {
		return nil, err
	}
	dir := filepath.Join(pinRoot, opts.name())
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := attach(dir, opts); err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, fmt.Errorf("open attach set: %w", err)
	}
	s := &Set{dir: dir}
	if err := s.load(dir); err != nil {
		s.close()
		return nil, fmt.Errorf("open attach set: %w", orRefused(err))
	}
	return s, nil
}

// ErrUnattached says that the kernel has no way to call BPF programs at its functions.
var ErrUnattached = errors.New("the kernel attaches no BPF programs to functions; on arm64 " +
	"Linux 6.4 and later do")

// ErrRefused says that root may not load BPF programs here.
var ErrRefused = errors.New("the kernel refuses it even to root, as in a container without " +
	"privileges or under lockdown; a guest shows the jail: " +
	"agent-lock vmtest --kernels 6.12 --demo")

// orRefused says why root is refused something.
func orRefused(err error) error {
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	return ErrRefused
}

// removeHalves removes what starts and ends that were killed have left.
func removeHalves() error {
	if old, err := filepath.Glob(filepath.Join(pinRoot, "*"+removedSuffix)); err != nil {
		return err
	} else if len(old) > 0 {
		if err := startRemover(); err != nil {
			return err
		}
	}
	return removeSets(unfinishedSuffix)
}

// removeSets removes those whose names end so: the last links to their programs go with the
// pins. Several processes may be at it.
func removeSets(suffix string) error {
	sets, err := filepath.Glob(filepath.Join(pinRoot, "*"+suffix))
	if err != nil {
		return err
	}
	for _, dir := range sets {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove attach set: %w", err)
		}
	}
	return nil
}

// attach loads the programs, attaches them and pins everything. The directory
// gets its name when it is complete.
func attach(dir string, opts SetOptions) error {
	spec, kernel, err := readObject()
	if err != nil {
		return err
	}
	if err := fit(spec, kernel, opts); err != nil {
		return err
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		Cache: btf.NewCache(),
	})
	if err != nil {
		return fmt.Errorf("load BPF programs: %w", orRefused(err))
	}
	defer coll.Close()

	unfinished := dir + unfinishedSuffix
	if err := os.Mkdir(unfinished, 0o700); err != nil {
		return fmt.Errorf("make attach set: %w", err)
	}
	if err := pinAll(coll, unfinished); err != nil {
		os.RemoveAll(unfinished)
		return err
	}
	if err := os.Rename(unfinished, dir); err != nil {
		os.RemoveAll(unfinished)
		return fmt.Errorf("finish attach set: %w", err)
	}
	return nil
}

func pinAll(coll *ebpf.Collection, dir string) error {
	for name, m := range coll.Maps {
		if strings.HasPrefix(name, ".") {
			continue // .rodata: the programs hold it
		}
		if err := m.Pin(filepath.Join(dir, "map-"+name)); err != nil {
			return fmt.Errorf("pin map %s: %w", name, err)
		}
	}
	for name, p := range coll.Programs {
		l, err := attachProgram(p, name)
		if err != nil {
			return err
		}
		err = l.Pin(filepath.Join(dir, "link-"+name))
		l.Close()
		if err != nil {
			return fmt.Errorf("pin %s: %w", name, err)
		}
	}
	return nil
}

// attachProgram attaches a program to what its section names.
func attachProgram(p *ebpf.Program, name string) (link.Link, error) {
	var l link.Link
	var err error
	switch {
	case name == jailProgDescriptors:
		l, err = link.AttachIter(link.IterOptions{Program: p})
	case p.Type() == ebpf.LSM:
		l, err = link.AttachLSM(link.LSMOptions{Program: p})
	default:
		l, err = link.AttachTracing(link.TracingOptions{Program: p})
	}
	if errors.Is(err, ebpf.ErrNotSupported) {
		err = ErrUnattached
	}
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w", name, err)
	}
	return l, nil
}

// load opens the pinned maps and the iterator.
func (s *Set) load(dir string) error {
	for name, m := range map[string]**ebpf.Map{
		jailMapInits:       &s.maps.Inits,
		jailMapJails:       &s.maps.Jails,
		jailMapLayout:      &s.maps.Layout,
		jailMapNames:       &s.maps.Names,
		jailMapLocalRanges: &s.maps.LocalRanges,
		jailMapNamespaces:  &s.maps.Namespaces,
		jailMapNetworks:    &s.maps.Networks,
		jailMapOverlays:    &s.maps.Overlays,
		jailMapRings:       &s.maps.Rings,
		jailMapLost:        &s.maps.Lost,
		jailMapSupervisors: &s.maps.Supervisors,
	} {
		var err error
		if *m, err = ebpf.LoadPinnedMap(filepath.Join(dir, "map-"+name), nil); err != nil {
			return fmt.Errorf("map %s: %w", name, err)
		}
	}
	l, err := link.LoadPinnedLink(filepath.Join(dir, "link-"+jailProgDescriptors), nil)
	if err != nil {
		return err
	}
	iter, ok := l.(*link.Iter)
	if !ok {
		l.Close()
		return fmt.Errorf("link-%s is a %T", jailProgDescriptors, l)
	}
	s.descriptors = iter
	return nil
}

// close closes the process's descriptors; the set stays attached.
func (s *Set) close() {
	s.maps.Close()
	if s.descriptors != nil {
		s.descriptors.Close()
	}
}

// removeIdle has every set taken away that no jail uses. Another version's is among them
// when its last supervisor was killed. The caller holds the lock of the sets.
func removeIdle() error {
	sets, err := filepath.Glob(filepath.Join(pinRoot, "*"))
	if err != nil {
		return err
	}
	for _, dir := range sets {
		if strings.HasSuffix(dir, removedSuffix) {
			continue
		}
		idle, err := isIdle(dir)
		if err != nil {
			return err
		}
		if !idle {
			continue
		}
		// Its removal may still go on when the next one of the same name ends.
		removed := fmt.Sprintf("%s-%d%s", dir, time.Now().UnixNano(), removedSuffix)
		if err := os.Rename(dir, removed); err != nil {
			return fmt.Errorf("remove attach set: %w", err)
		}
		if err := startRemover(); err != nil {
			return err
		}
	}
	return nil
}

// isIdle reports whether nobody holds a slot of a set and no namespace is in it. A
// set whose namespaces we cannot read is left alone.
func isIdle(dir string) (bool, error) {
	if held, err := anyHeld(dir); held || err != nil {
		return false, err
	}
	m, err := ebpf.LoadPinnedMap(filepath.Join(dir, "map-"+jailMapNamespaces), nil)
	if err != nil {
		return false, nil
	}
	defer m.Close()
	if m.Type() != ebpf.Array || m.ValueSize() != uint32(unsafe.Sizeof(jailEntry{})) {
		return false, nil
	}
	inUse, err := slotsWithNamespace(m)
	return err == nil && len(inUse) == 0, err
}
