package filesystems

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A fuseServer serves a directory through FUSE and has the kernel read and write its
// files by itself (passthrough, since 6.9). It refuses to read and write in the
// kernel's place, so that nothing passes for passthrough that is none.
type fuseServer struct {
	dev     int
	nodes   map[uint64]*fuseNode
	numbers map[fuseFile]uint64      // of the nodes
	listed  map[uint64][]os.DirEntry // by handle
	last    uint64
	tell    func(passthrough bool)
}

// fuseFile is what makes a file the same one.
type fuseFile struct{ dev, ino uint64 }

// A fuseNode is a file that the kernel knows.
type fuseNode struct {
	file    fuseFile
	fd      int // O_PATH
	lookups uint64
	// Of one that is open: what the kernel works on, and its number there.
	data    *os.File
	backing int32
	opens   int
}

func (n *fuseNode) path() string { return fmt.Sprint("/proc/self/fd/", n.fd) }

// The requests of <linux/fuse.h> that are served.
const (
	fuseLookup      = 1
	fuseForget      = 2
	fuseGetattr     = 3
	fuseSetattr     = 4
	fuseReadlink    = 5
	fuseSymlink     = 6
	fuseMknod       = 8
	fuseMkdir       = 9
	fuseUnlink      = 10
	fuseRmdir       = 11
	fuseRename      = 12
	fuseLink        = 13
	fuseOpen        = 14
	fuseRead        = 15
	fuseWrite       = 16
	fuseStatfs      = 17
	fuseRelease     = 18
	fuseSetxattr    = 21
	fuseGetxattr    = 22
	fuseListxattr   = 23
	fuseRemovexattr = 24
	fuseInit        = 26
	fuseOpendir     = 27
	fuseReaddir     = 28
	fuseReleasedir  = 29
	fuseCreate      = 35
	fuseInterrupt   = 36
	fuseBatchForget = 42
	fuseFallocate   = 43
	fuseRename2     = 45
	fuseLseek       = 46
)

// What the two agree on, and how a file is opened.
const (
	fuseMinor       = 40
	fuseInitExt     = 1 << 30 // there are flags2
	fusePassthrough = 1 << 5  // in flags2
	fopenPassthru   = 1 << 7
	fuseMaxWrite    = 1 << 17

	backingOpen  = 0x4010e501 // FUSE_DEV_IOC_BACKING_OPEN
	backingClose = 0x4004e502
)

type fuseIn struct {
	Len, Opcode       uint32
	Unique, Node      uint64
	UID, GID, PID     uint32
	Extensions, Spare uint16
}

type fuseOut struct {
	Len    uint32
	Error  int32
	Unique uint64
}

type fuseInitIn struct {
	Major, Minor, Readahead, Flags, Flags2 uint32
}

type fuseInitOut struct {
	Major, Minor, Readahead, Flags  uint32
	Background, Congestion          uint16
	MaxWrite, Granularity           uint32
	MaxPages, Alignment             uint16
	Flags2, MaxStackDepth, Reserved uint32
	_                               [5]uint32
}

// ServeFUSE answers the kernel on /dev/fuse, which descriptor dev leads to, until it is
// unmounted. It first tells whether the kernel has passthrough.
func ServeFUSE(dev int, source string, tell func(passthrough bool)) error {
	unix.Umask(0) // the kernel has taken the caller's into account
	root, err := unix.Open(source, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", source, err)
	}
	s := &fuseServer{dev: dev, last: 1, tell: tell, nodes: map[uint64]*fuseNode{},
		numbers: map[fuseFile]uint64{}, listed: map[uint64][]os.DirEntry{}}
	s.nodes[1] = &fuseNode{fd: root, lookups: 1}
	request := make([]byte, 2*fuseMaxWrite)
	for {
		n, err := unix.Read(dev, request)
		switch {
		case errors.Is(err, unix.ENODEV):
			return nil
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOENT):
			continue
		case err != nil:
			return fmt.Errorf("read request: %w", err)
		}
		if err := s.answer(request[:n]); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
}

// answer serves one request.
func (s *fuseServer) answer(request []byte) error {
	in, body := take[fuseIn](request)
	switch in.Opcode {
	case fuseForget:
		lookups, _ := take[uint64](body)
		s.forget(in.Node, lookups)
		return nil
	case fuseBatchForget:
		count, rest := take[[2]uint32](body)
		for range count[0] {
			var one [2]uint64
			one, rest = take[[2]uint64](rest)
			s.forget(one[0], one[1])
		}
		return nil
	case fuseInterrupt:
		return nil
	}
	out, err := s.serve(in, body)
	var errno unix.Errno
	if err != nil && !errors.As(err, &errno) {
		return err
	}
	if errno != 0 {
		out = nil
	}
	head := fuseOut{Len: uint32(16 + len(out)), Error: -int32(errno), Unique: in.Unique}
	_, err = unix.Write(s.dev, append(encode(head), out...))
	if errors.Is(err, unix.ENOENT) { // whoever asked is gone
		return nil
	}
	return err
}

// take reads a value from the beginning of a request; what is missing is zero.
func take[T any](b []byte) (T, []byte) {
	var v T
	size := int(unsafe.Sizeof(v))
	if len(b) < size {
		b = append(b[:len(b):len(b)], make([]byte, size-len(b))...)
	}
	_, _ = binary.Decode(b, binary.NativeEndian, &v)
	return v, b[size:]
}

func encode(values ...any) []byte {
	var b []byte
	for _, v := range values {
		b, _ = binary.Append(b, binary.NativeEndian, v)
	}
	return b
}

func (s *fuseServer) start(body []byte) []byte {
	in, _ := take[fuseInitIn](body)
	has := in.Flags&fuseInitExt != 0 && in.Flags2&fusePassthrough != 0
	s.tell(has)
	out := fuseInitOut{Major: 7, Minor: min(in.Minor, fuseMinor), Readahead: in.Readahead,
		MaxWrite: fuseMaxWrite, Granularity: 1}
	if has {
		out.Flags, out.Flags2, out.MaxStackDepth = fuseInitExt, fusePassthrough, 1
	}
	return encode(out)
}

// know makes a node of what an O_PATH descriptor leads to, or finds it.
func (s *fuseServer) know(fd int) (uint64, *fuseNode, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return 0, nil, err
	}
	file := fuseFile{st.Dev, st.Ino}
	if number, ok := s.numbers[file]; ok {
		unix.Close(fd)
		s.nodes[number].lookups++
		return number, s.nodes[number], nil
	}
	s.last++
	n := &fuseNode{file: file, fd: fd, lookups: 1}
	s.nodes[s.last], s.numbers[file] = n, s.last
	return s.last, n, nil
}

func (s *fuseServer) forget(number, lookups uint64) {
	n, ok := s.nodes[number]
	if !ok || number == 1 {
		return
	}
	if n.lookups -= min(lookups, n.lookups); n.lookups == 0 && n.opens == 0 {
		unix.Close(n.fd)
		delete(s.nodes, number)
		delete(s.numbers, n.file)
	}
}

// open has the kernel work on the file itself. All who have it open share that.
func (s *fuseServer) open(n *fuseNode) ([]byte, error) {
	if n.opens == 0 {
		f, err := os.OpenFile(n.path(), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		args := encode(int32(f.Fd()), uint32(0), uint64(0))
		number, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s.dev), backingOpen,
			uintptr(unsafe.Pointer(&args[0])))
		if errno != 0 {
			f.Close()
			return nil, errno
		}
		n.data, n.backing = f, int32(number)
	}
	n.opens++
	return encode(uint64(0), uint32(fopenPassthru), n.backing), nil
}

func (s *fuseServer) release(number uint64, n *fuseNode) {
	if n.opens--; n.opens > 0 {
		return
	}
	args := encode(n.backing)
	unix.Syscall(unix.SYS_IOCTL, uintptr(s.dev), backingClose, uintptr(unsafe.Pointer(&args[0])))
	n.data.Close()
	n.data = nil
	s.forget(number, 0)
}
