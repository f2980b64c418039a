package bpf

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Where the attach set lives. Links and maps are pinned in a directory of pins
// named after the object, so that another version of agent-lock has its own.
const (
	pinRoot  = "/sys/fs/bpf/agent-lock"
	lockRoot = "/run/agent-lock"
)

// Set is the attach set: the programs, attached once for all jails, and the
// maps that they share. It outlives the process that attached it.
type Set struct {
	name        string
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
}

// name is the hash of everything that decides what the set does.
func (o SetOptions) name() string {
	h := sha256.New()
	h.Write(_JailBytes)
	for _, hook := range slices.Sorted(slices.Values(o.Drop)) {
		fmt.Fprintf(h, "-%s", hook)
	}
	if o.NoPathHooks {
		fmt.Fprint(h, "-path_*")
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// openSet opens the attach set, attaching it first if no jail is using it. The
// caller holds the lock of the sets.
func openSet(opts SetOptions) (*Set, error) {
	name := opts.name()
	dir := filepath.Join(pinRoot, name)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := attach(dir, opts); err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, fmt.Errorf("open attach set: %w (is bpffs mounted on /sys/fs/bpf? "+
			"mount -t bpf bpf /sys/fs/bpf)", err)
	}
	s := &Set{name: name}
	if err := s.load(dir); err != nil {
		s.close()
		return nil, fmt.Errorf("open attach set: %w", err)
	}
	return s, nil
}

// attach loads the programs, attaches them and pins everything. The directory
// gets its name when it is complete: a killed start leaves nothing that
// looks like a set.
func attach(dir string, opts SetOptions) error {
	if err := mountBPFFS(); err != nil {
		return err
	}
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
	if errors.Is(err, unix.EPERM) {
		return errors.New("load BPF programs: the kernel refuses them even to root, as in a " +
			"container or under lockdown; a guest shows the jail: " +
			"agent-lock vmtest --kernels 6.12 --demo")
	}
	if err != nil {
		return fmt.Errorf("load BPF programs: %w", err)
	}
	defer coll.Close()

	unfinished := dir + "-new" // bpffs allows no dots
	if err := os.RemoveAll(unfinished); err != nil {
		return fmt.Errorf("remove an unfinished attach set: %w", err)
	}
	if err := os.MkdirAll(unfinished, 0o700); err != nil {
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
		jailMapNames:       &s.maps.Names,
		jailMapLocalRanges: &s.maps.LocalRanges,
		jailMapNamespaces:  &s.maps.Namespaces,
		jailMapNetworks:    &s.maps.Networks,
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

// unpin takes the set away: the last links to its programs go with the pins.
func (s *Set) unpin() error {
	return os.RemoveAll(filepath.Join(pinRoot, s.name))
}

// mountBPFFS mounts bpffs where everyone expects it, if nobody has.
func mountBPFFS() error {
	const where = "/sys/fs/bpf"
	var st unix.Statfs_t
	if err := unix.Statfs(where, &st); err != nil {
		return fmt.Errorf("find bpffs: %s: %w (the kernel needs CONFIG_BPF_SYSCALL)", where, err)
	}
	if st.Type == unix.BPF_FS_MAGIC {
		return nil
	}
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if err := unix.Mount("bpf", where, "bpf", flags, "mode=700"); err != nil {
		return fmt.Errorf("mount bpffs on %s: %w", where, err)
	}
	return nil
}
