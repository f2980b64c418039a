package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
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
	reader *ringbuf.Reader
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
	LinksReadonly = Links(jailJailFlagJAIL_LINKS_READONLY)
	LinksDeny     = Links(jailJailFlagJAIL_LINKS_DENY)
)

// SlotOptions are what applies to the whole jail.
type SlotOptions struct {
	Links Links
	// ShowOutside gives EACCES where the jail otherwise sees ENOENT.
	ShowOutside bool
	// Root says that the command runs as root: capabilities and file modes are
	// the jail's to decide on.
	Root bool
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
		return nil, err
	}
	slot, err := set.take()
	if err != nil {
		set.close()
		return nil, err
	}
	return slot, nil
}

// As in jail.bpf.h; a test compares them.
const (
	// MaxJails is how many jails one attach set serves at a time.
	MaxJails        = 64
	namespacePlaces = 4096
)

func (s *Set) lockFile(number uint32) string {
	return filepath.Join(lockRoot, fmt.Sprintf("%s.%d", s.name, number))
}

// take finds a slot that no living supervisor holds and no namespace is in.
func (s *Set) take() (*Slot, error) {
	inUse, err := s.slotsWithNamespace()
	if err != nil {
		return nil, err
	}
	for number := range uint32(MaxJails) {
		if inUse[number] {
			continue
		}
		held, err := tryLock(s.lockFile(number))
		if errors.Is(err, unix.EWOULDBLOCK) {
			continue
		}
		if err != nil {
			return nil, err
		}
		slot := &Slot{set: s, number: number, held: held}
		if err := slot.reset(); err != nil {
			held.Close()
			return nil, err
		}
		return slot, nil
	}
	return nil, fmt.Errorf("start a jail: %d are running, which is the most; end one", MaxJails)
}

// slotsWithNamespace returns the slots whose namespace still exists; the
// programs remove an entry when the last process of its jail is gone.
func (s *Set) slotsWithNamespace() (map[uint32]bool, error) {
	inUse := map[uint32]bool{}
	var place uint32
	var ns jailEntry
	it := s.maps.Namespaces.Iterate()
	for it.Next(&place, &ns) {
		if ns.Inum != 0 {
			inUse[ns.Slot] = true
		}
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("read running jails: %w", err)
	}
	return inUse, nil
}

// errPlaceTaken says that another jail's namespace has the same place.
var errPlaceTaken = errors.New("its place is taken by another jail; start again")

// freePlace returns where a namespace is entered.
func (s *Set) freePlace(inum uint32) (uint32, error) {
	place := inum % namespacePlaces
	var ns jailEntry
	if err := s.maps.Namespaces.Lookup(place, &ns); err != nil {
		return 0, fmt.Errorf("read running jails: %w", err)
	}
	if ns.Inum != 0 && ns.Inum != inum {
		return 0, fmt.Errorf("enter pid namespace %d: %w", inum, errPlaceTaken)
	}
	return place, nil
}

// reset gives the slot a fresh state and a ring buffer of its own.
func (s *Slot) reset() error {
	if err := s.set.maps.Lost.Put(s.number, uint64(0)); err != nil {
		return fmt.Errorf("reset slot %d: %w", s.number, err)
	}
	if err := s.resetNetwork(); err != nil {
		return err
	}
	spec, err := loadJail()
	if err != nil {
		return fmt.Errorf("read BPF object: %w", err)
	}
	ring, err := ebpf.NewMap(spec.Maps[jailMapRings].InnerMap)
	if err != nil {
		return fmt.Errorf("make ring buffer: %w", err)
	}
	defer ring.Close()
	if err := s.set.maps.Rings.Put(s.number, ring); err != nil {
		return fmt.Errorf("enter ring buffer of slot %d: %w", s.number, err)
	}
	if s.reader, err = ringbuf.NewReader(ring); err != nil {
		return fmt.Errorf("open ring buffer: %w", err)
	}
	return nil
}

// Descriptor tells where what an open descriptor leads to lives in the kernel.
type Descriptor struct {
	FD            int
	Inode, Dentry uint64
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
			fds = append(fds, Descriptor{FD: int(d.Fd), Inode: d.Inode, Dentry: d.Dentry})
		} else if !seen[p] {
			seen[p] = true
			children = append(children, p)
		}
	}
	return fds, self, children, nil
}

// Arm puts the labels, by address, and the rules for names in force, for the pid
// namespace of init and all below it, from this moment on. It is called once.
func (s *Slot) Arm(
	labels map[uint64]Rights, names []Name, opts SlotOptions, self, init Process,
) error {
	value := &jailJail{Cookie: rand.Uint64() | 1, Flags: jailJailFlag(opts.Links),
		Slot: s.number, Initials: initials(names)}
	if opts.ShowOutside {
		value.Flags |= jailJailFlagJAIL_SHOW_OUTSIDE
	}
	if opts.Root {
		value.Flags |= jailJailFlagJAIL_ROOT
	}
	if err := fillLabels(value, labels); err != nil {
		return err
	}
	if err := s.set.enterNames(s.number, names); err != nil {
		return err
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

// ReadRecord returns the next denial. It waits until deadline at most and then
// returns os.ErrDeadlineExceeded; the zero time waits for ever. After Release
// it returns os.ErrClosed.
func (s *Slot) ReadRecord(deadline time.Time) (Record, error) {
	s.reader.SetDeadline(deadline)
	raw, err := s.reader.Read()
	if err != nil {
		return Record{}, err
	}
	return decodeRecord(raw.RawSample)
}

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
	check(s.set.forgetNames(s.number))
	check(maps.Rings.Delete(s.number))
	check(s.reader.Close())
	check(os.Remove(s.held.Name()))
	check(s.held.Close())
	idle, err := s.set.idle()
	check(err)
	if idle {
		check(s.set.unpin())
	}
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

// idle reports whether no namespace is in the set and nobody holds a slot.
func (s *Set) idle() (bool, error) {
	inUse, err := s.slotsWithNamespace()
	if err != nil || len(inUse) > 0 {
		return false, err
	}
	held, err := filepath.Glob(filepath.Join(lockRoot, s.name+".*"))
	if err != nil {
		return false, err
	}
	for _, path := range held {
		f, err := tryLock(path)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		os.Remove(path) // of a supervisor that was killed
		f.Close()
	}
	return true, nil
}

// lockSets takes the lock that serialises starts and ends.
func lockSets() (unlock func(), err error) {
	if err := os.MkdirAll(lockRoot, 0o700); err != nil {
		return nil, fmt.Errorf("make %s: %w", lockRoot, err)
	}
	f, err := os.OpenFile(filepath.Join(lockRoot, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock attach sets: %w", err)
	}
	if err := flock(f, unix.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// tryLock opens and locks a slot's lock file, which lasts until it is closed
// or the process dies. Someone else's lock is unix.EWOULDBLOCK.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock slot: %w", err)
	}
	if err := flock(f, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
}
