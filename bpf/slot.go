package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/hashicorp/go-multierror"
	"golang.org/x/sys/unix"
)

// Slot is one jail's place in the attach set. The process that takes it is the
// jail's supervisor: when that dies, the slot gives no rights any more.
type Slot struct {
	set    *Set
	number uint32
	held   *os.File // locked while the slot is taken
	names  []jailNameKey
	local  map[jailLocalRange]bool // the addresses entered
	reader *ringbuf.Reader
	// entered waits until the ring buffer is where the programs look for it.
	entered func() error
	// Set by Arm.
	self, init uint32    // thread groups of the supervisor and of pid 1
	place      jailPlace // of the namespace
	armed      bool
}

// Links says what happens to a file with several names in a place marked
// Linked: one of its other names may be outside.
type Links uint32

// The ways to treat such files.
const (
	LinksAllow    = Links(0)
	LinksReadonly = Links(jailRightRIGHT_LINKS_READONLY)
	LinksDeny     = Links(jailRightRIGHT_LINKS_READONLY | jailRightRIGHT_LINKS_DENY)
)

// SlotOptions are what applies to the whole jail.
type SlotOptions struct {
	Links Links
	// ShowOutside gives EACCES where the jail otherwise sees ENOENT.
	ShowOutside bool
	// Root says that the command runs as root: capabilities and file modes are
	// the jail's to decide on.
	Root     bool
	Overlays []Overlay // that labelled files are on
}

// Take opens the attach set, attaching it if this is the first jail, and takes
// a free slot in it. It fails when MaxJails jails are running.
func Take(opts SetOptions) (*Slot, error) {
	unlock, err := lockSets()
	if err != nil {
		return nil, err
	}
	defer unlock()
	set, err := openSet(opts)
	if err != nil {
		return nil, errors.Join(err, removeIdle())
	}
	slot, err := set.take()
	if err != nil {
		set.close()
		return nil, errors.Join(err, removeIdle())
	}
	return slot, nil
}

// As in jail.bpf.h; a test compares them.
const (
	// MaxJails is how many jails one attach set serves at a time.
	MaxJails        = 64
	namespacePlaces = 4096
)

// take finds a slot that no living supervisor holds and no namespace is in. One
// without a directory is in no use: what its last jail entered, that has removed.
func (s *Set) take() (*Slot, error) {
	var inUse map[uint32]bool // read when it is needed
	for number := range uint32(MaxJails) {
		held, clean, err := trySlot(s.dir, number)
		if errors.Is(err, unix.EWOULDBLOCK) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if !clean && inUse == nil {
			if inUse, err = slotsWithNamespace(s.maps.Namespaces); err != nil {
				held.Close()
				return nil, err
			}
		}
		if inUse[number] {
			held.Close()
			continue
		}
		slot := &Slot{set: s, number: number, held: held}
		if err := slot.reset(clean); err != nil {
			held.Close()
			return nil, err
		}
		return slot, nil
	}
	return nil, fmt.Errorf("start a jail: %d are running, which is the most; end one", MaxJails)
}

// slotsWithNamespace returns the slots whose namespace still exists; the
// programs remove an entry when the last process of its jail is gone.
func slotsWithNamespace(namespaces *ebpf.Map) (map[uint32]bool, error) {
	inUse := map[uint32]bool{}
	places := make([]uint32, namespaces.MaxEntries())
	entries := make([]jailEntry, len(places))
	var cursor ebpf.MapBatchCursor
	for {
		n, err := namespaces.BatchLookup(&cursor, places, entries, nil)
		for _, ns := range entries[:n] {
			if ns.Inum != 0 {
				inUse[ns.Slot] = true
			}
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) { // that was the last
			return inUse, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read running jails: %w", err)
		}
	}
}

// ErrPlaceTaken says that another jail's namespace has the same place: Arm may be
// called again with another namespace.
var ErrPlaceTaken = errors.New("its place is taken by another jail; start again")

// freePlace returns where a namespace is entered.
func (s *Set) freePlace(inum uint32) (uint32, error) {
	place := inum % namespacePlaces
	var ns jailEntry
	if err := s.maps.Namespaces.Lookup(place, &ns); err != nil {
		return 0, fmt.Errorf("read running jails: %w", err)
	}
	if ns.Inum != 0 && ns.Inum != inum {
		return 0, fmt.Errorf("enter pid namespace %d: %w", inum, ErrPlaceTaken)
	}
	return place, nil
}

// ringSize is that of struct ring in jail.bpf.h; a test compares them.
const ringSize = 1 << 18

// reset gives the slot a fresh state and a ring buffer, the one of its last jail if there
// is one: to enter another makes the kernel wait for all processors. It has a pin, since on
// 6.1 looking for it in the map waits too (bpf_map_copy_value, maybe_wait_bpf_programs).
func (s *Slot) reset(clean bool) error {
	if err := s.set.maps.Lost.Put(s.number, uint64(0)); err != nil {
		return fmt.Errorf("reset slot %d: %w", s.number, err)
	}
	if !clean {
		var err error
		if s.names, err = s.set.namesOf(s.number); err != nil {
			return err
		}
		if s.local, err = s.localRanges(); err != nil {
			return err
		}
	}
	if err := s.removeNames(); err != nil {
		return err
	}
	if err := s.resetNetwork(); err != nil {
		return err
	}
	s.entered = func() error { return nil }
	pin := filepath.Join(s.set.dir, fmt.Sprint("ring-", s.number))
	if ring, err := ebpf.LoadPinnedMap(pin, nil); err == nil {
		defer ring.Close()
		reader, err := ringbuf.NewReader(ring)
		if err == nil {
			if err = drain(reader); err == nil {
				s.reader = reader
				return nil
			}
			reader.Close()
		}
	}
	if err := os.Remove(pin); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove ring buffer: %w", err)
	}
	ring, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "ring", Type: ebpf.RingBuf, MaxEntries: ringSize,
	})
	if err != nil {
		return fmt.Errorf("make ring buffer: %w", orRefused(err))
	}
	if s.reader, err = ringbuf.NewReader(ring); err != nil {
		ring.Close()
		return fmt.Errorf("open ring buffer: %w", err)
	}
	// The kernel waits until no program can see the old one: as long as all the
	// rest of a start takes. Arm is the first that needs it done.
	done := make(chan error, 1)
	go func() {
		defer ring.Close()
		err := s.set.maps.Rings.Put(s.number, ring)
		if err == nil {
			err = ring.Pin(pin)
		}
		done <- err
	}()
	s.entered = sync.OnceValue(func() error { return <-done })
	return nil
}

// drain reads what the slot's last jail has left, of which nobody writes any more.
func drain(r *ringbuf.Reader) error {
	r.SetDeadline(time.Now())
	var left ringbuf.Record
	for r.AvailableBytes() > 0 {
		if err := r.ReadInto(&left); err != nil {
			return err
		}
	}
	r.SetDeadline(time.Time{})
	return nil
}

// Descriptor tells where what an open descriptor leads to lives in the kernel.
type Descriptor struct {
	FD            int
	Inode, Dentry uint64
	Parent        uint64    // the dentry above it in its file system
	Overlays      []Overlay // that it is on, when [Slot.ExpectOverlays] was called
}

// Process is a process as the kernel half sees it.
type Process struct {
	TGID  uint32 // thread group in the initial pid namespace
	PIDNS uint32 // inode number of its pid namespace
}

// Look asks the kernel about this process's open descriptors, about itself and
// about its children, by their pid namespace. The addresses hold as long as the
// descriptors stay open.
func (s *Slot) Look() (fds []Descriptor, self Process, children []Process, err error) {
	r, err := s.set.descriptors.Open()
	if err != nil {
		return nil, self, nil, fmt.Errorf("read inode addresses: %w", err)
	}
	defer r.Close()
	raw, err := io.ReadAll(r)
	if err != nil {
		return nil, self, nil, fmt.Errorf("read inode addresses: %w", err)
	}
	seen := map[Process]bool{}
	const size = int(unsafe.Sizeof(jailDescriptor{}))
	for ; len(raw) >= size; raw = raw[size:] {
		var d jailDescriptor
		if _, err := binary.Decode(raw, binary.NativeEndian, &d); err != nil {
			return nil, self, nil, fmt.Errorf("read inode addresses: %w", err)
		}
		p := Process{TGID: d.Tgid, PIDNS: d.Pidns}
		if d.Child == 0 {
			self = p
			fds = append(fds, Descriptor{int(d.Fd), d.Inode, d.Dentry, d.Parent, overlaysOf(d)})
		} else if !seen[p] {
			seen[p] = true
			children = append(children, p)
		}
	}
	return fds, self, children, nil
}

// Arm puts the labels, by address, and the rules for names in force, for the pid
// namespace of init and all below it, from this moment on. It succeeds once.
func (s *Slot) Arm(
	labels map[uint64]Rights, names []Name, opts SlotOptions, self, init Process,
) error {
	value := &jailJail{Cookie: rand.Uint64() | 1, Slot: s.number, Initials: initials(names)}
	if opts.ShowOutside {
		value.Flags |= jailJailFlagJAIL_SHOW_OUTSIDE
	}
	if opts.Root {
		value.Flags |= jailJailFlagJAIL_ROOT
	}
	if err := fillLabels(value, labels, opts.Links); err != nil {
		return err
	}
	if err := s.removeNames(); err != nil {
		return err
	}
	if err := s.enterNames(names); err != nil {
		return err
	}
	if err := s.entered(); err != nil {
		return fmt.Errorf("enter ring buffer of slot %d: %w", s.number, err)
	}
	// Two starts must not choose the same place, nor an end empty it meanwhile.
	unlock, err := lockSets()
	if err != nil {
		return err
	}
	defer unlock()
	index, err := s.set.freePlace(init.PIDNS)
	if err != nil {
		return err
	}
	place := jailPlace{Index: index, Cookie: value.Cookie}
	s.self, s.init, s.place, s.armed = self.TGID, init.TGID, place, true
	maps := s.set.maps
	if err := maps.Jails.Put(s.number, value); err != nil {
		return fmt.Errorf("enter labels: %w", err)
	}
	if err := s.enterOverlays(value.Cookie, opts.Overlays); err != nil {
		return err
	}
	if err := maps.Supervisors.Put(self.TGID, place); err != nil {
		return fmt.Errorf("enter supervisor: %w", err)
	}
	if err := maps.Inits.Put(init.TGID, place); err != nil {
		return fmt.Errorf("enter pid 1: %w", err)
	}
	err = maps.Namespaces.Put(index, jailEntry{
		Inum: init.PIDNS, Slot: s.number, Cookie: value.Cookie,
	})
	if err != nil {
		return fmt.Errorf("enter pid namespace: %w", err)
	}
	return nil
}

// ReadRecord waits for the next denial. After Flush it returns what is there and
// then an error, after Release os.ErrClosed.
func (s *Slot) ReadRecord() (Record, error) {
	raw, err := s.reader.Read()
	if err != nil {
		return Record{}, err
	}
	return decodeRecord(raw.RawSample)
}

// Flush ends ReadRecord's waiting.
func (s *Slot) Flush() error { return s.reader.Flush() }

// Lost returns how many denials did not fit into the ring buffer.
func (s *Slot) Lost() (uint64, error) {
	var n uint64
	if err := s.set.maps.Lost.Lookup(s.number, &n); err != nil {
		return 0, fmt.Errorf("read lost denials: %w", err)
	}
	return n, nil
}

// Release gives the slot back after the jail's last process is gone, while the
// caller still holds the jail's pid namespace: its inode number must not come to
// another jail before. The last one out takes the attach set with it.
func (s *Slot) Release() error {
	unlock, err := lockSets()
	if err != nil {
		return err
	}
	defer unlock()
	defer s.set.close()
	var failed *multierror.Error
	check := func(err error) {
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			failed = multierror.Append(failed, fmt.Errorf("release slot: %w", err))
		}
	}
	maps := s.set.maps
	if s.armed {
		check(maps.Supervisors.Delete(s.self))
		check(maps.Inits.Delete(s.init))
		check(s.leave())
	}
	check(s.removeNames())
	check(s.resetNetwork())
	check(s.entered())
	check(s.reader.Close())
	if failed.ErrorOrNil() == nil {
		check(os.Remove(s.held.Name())) // nothing is left to be removed
	}
	check(s.held.Close())
	check(removeIdle())
	return failed.ErrorOrNil()
}

// leave empties the namespace's place, unless it is another jail's by now.
func (s *Slot) leave() error {
	var ns jailEntry
	if err := s.set.maps.Namespaces.Lookup(s.place.Index, &ns); err != nil {
		return err
	}
	if ns.Cookie != s.place.Cookie {
		return nil
	}
	return s.set.maps.Namespaces.Put(s.place.Index, jailEntry{})
}
