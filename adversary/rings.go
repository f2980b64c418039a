package adversary

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

const ringSource = "D64 codex#10814 birdcage#32"

// rings: what io_uring does in other ways than a single request from a ring of
// one's own, and the requests on names that the other families do not make.
var rings = []Case{
	ringRead("thread", "reads the file through a kernel thread that takes requests (SQPOLL)",
		"io_uring_setup(IORING_SETUP_SQPOLL), io_uring(OPENAT)",
		[]string{"uring_sqpoll", "file_open"}, func(t *Target) ([]byte, error) {
			const sqpoll = 2
			r, err := newRing(sqpoll)
			if err != nil {
				return nil, err
			}
			return r.open(t.Secret, nil)
		}).since("5.13"),
	ringRead("worker", "reads it in a worker of the ring (IOSQE_ASYNC)", "io_uring(OPENAT)", opens,
		func(t *Target) ([]byte, error) {
			r, err := newRing(0)
			if err != nil {
				return nil, err
			}
			const async = 1 << 4
			return r.open(t.Secret, func(sqe []byte) { sqe[1] = async })
		}),
	ringRead("slot", "opens it in the ring's table, without a descriptor, and reads it there",
		"io_uring_register(IORING_REGISTER_FILES), io_uring(OPENAT), io_uring(READ)",
		opens, attackRingSlot).since("5.15"),
	ringRead("personality", "reads it under a registered identity",
		"io_uring_register(IORING_REGISTER_PERSONALITY), io_uring(OPENAT)",
		[]string{"uring_override_creds", "file_open"}, attackRingPersonality),
	ringRead("openat2", "reads it by openat2 through a ring", "io_uring(OPENAT2)", opens,
		attackRingOpenat2),
	{
		Name: "ring_passed", Family: "rings", Source: "D20 D64", Fresh: true,
		What:  "is passed a ring that holds the file in its table, and reads it there",
		Calls: "recvmsg, io_uring(READ)",
		Needs: "CONFIG_IO_URING, a kernel that lets a ring into a message (before 6.7)",
		Hooks: []string{"file_receive"}, Setup: passRing, Attack: attackRingPassed,
		Judge: tokenRead,
	},
	{
		Name: "ring_statx", Family: "rings", Source: ringSource,
		What: "learns the size of a file by statx through a ring", Hooks: []string{"inode_getattr"},
		Calls: "io_uring(STATX)", Needs: needsRing,
		Setup: hideSize, Attack: attackRingStatx, Judge: secretRead("size"),
	},
	{
		Name: "ring_getxattr", Family: "rings", Source: ringSource,
		What:  "reads an extended attribute through a ring",
		Calls: "io_uring(GETXATTR)", Needs: needsRing + ", " + needsUserXattr, Since: "5.19",
		Hooks: []string{"inode_getxattr"},
		Setup: func(s *Scene) error {
			return call("setxattr",
				unix.Setxattr(s.Target.Secret, "user.secret", []byte(s.Token), 0))
		},
		Attack: func(t *Target) ([]byte, error) {
			buf := make([]byte, 256)
			n, err := uringRequest(func(sqe []byte) {
				fillNames(sqe, uringGetxattr, "user.secret", "", uint32(len(buf)), 0)
				binary.NativeEndian.PutUint64(sqe[8:], address(&buf[0]))
				binary.NativeEndian.PutUint64(sqe[48:], uint64(cstring(t.Secret)))
			})
			return buf[:max(min(n, len(buf)), 0)], err
		},
		Judge: tokenRead,
	},
	ringChange("rename", "moves an outside file into the project", "RENAMEAT", "5.11",
		[]string{"path_rename"},
		func(t *Target, sqe []byte) {
			fillNames(sqe, uringRenameat, t.Secret, t.in("stolen"), here, 0)
		}),
	ringChange("rename_out", "moves a file of the project outside", "RENAMEAT", "5.11",
		[]string{"path_rename"},
		func(t *Target, sqe []byte) {
			fillNames(sqe, uringRenameat, t.in("own"), t.out("new"), here, 0)
		}),
	ringChange("rmdir", "removes an outside directory", "UNLINKAT", "5.11", []string{"path_rmdir"},
		func(t *Target, sqe []byte) {
			fillNames(sqe, uringUnlinkat, t.out("dir"), "", 0, unix.AT_REMOVEDIR)
		}),
	ringChange("mkdir", "makes an outside directory", "MKDIRAT", "5.15", []string{"path_mkdir"},
		func(t *Target, sqe []byte) {
			fillNames(sqe, uringMkdirat, t.out("new"), "", 0o700, 0)
		}),
	ringChange("symlink", "makes a symbolic link outside", "SYMLINKAT", "5.15",
		[]string{"path_symlink"},
		func(t *Target, sqe []byte) {
			fillNames(sqe, uringSymlinkat, "x", t.out("new"), 0, 0)
		}),
	ringChange("link", "links an outside file into the project", "LINKAT", "5.15",
		[]string{"path_link"},
		func(t *Target, sqe []byte) {
			fillNames(sqe, uringLinkat, t.Secret, t.in("linked"), here, 0)
		}),
	ringChange("link_out", "gives a file of the project a name outside", "LINKAT", "5.15",
		[]string{"path_link"},
		func(t *Target, sqe []byte) {
			fillNames(sqe, uringLinkat, t.in("own"), t.out("new"), here, 0)
		}),
	ringChange("setxattr", "sets an extended attribute of an outside file", "SETXATTR", "5.19",
		[]string{"inode_setxattr"}, func(t *Target, sqe []byte) {
			fillNames(sqe, uringSetxattr, "user.attacker", mark, uint32(len(mark)), 0)
			binary.NativeEndian.PutUint64(sqe[48:], uint64(cstring(t.Secret)))
		}).needing(needsUserXattr),
	ringChange("bind", "binds a socket to a name outside", "BIND", "6.11", []string{"path_mknod"},
		nil),
}

// here is AT_FDCWD where a request has a second directory.
var here = func() uint32 { at := int32(unix.AT_FDCWD); return uint32(at) }()

func ringRead(verb, what, calls string, hooks []string,
	attack func(*Target) ([]byte, error)) Case {
	return Case{Name: "ring_" + verb, Family: "rings", Source: ringSource, What: what,
		Calls: calls, Needs: needsRing, Hooks: hooks, Fresh: true, Attack: attack,
		Judge: tokenRead}
}

// ringChange is a case of one request that is judged by the state of the outside; its
// operation is there since a series of kernels. There are a directory "dir" outside and
// a file "own" in the project.
func ringChange(verb, what, operation, since string, hooks []string,
	fill func(*Target, []byte)) Case {
	return Case{
		Name: "ring_" + verb, Family: "rings", Source: ringSource, What: what + ", through a ring",
		Calls: "io_uring(" + operation + ")", Needs: needsRing, Since: since,
		Hooks: hooks, Judge: changed,
		Setup: func(s *Scene) error {
			if err := waitTick(s); err != nil { // a link changes a time alone
				return err
			}
			return plantDir(s)
		},
		Attack: func(t *Target) ([]byte, error) {
			if fill == nil {
				return nil, attackRingBind(t)
			}
			if _, err := t.own("own"); err != nil {
				return nil, err
			}
			_, err := uringRequest(func(sqe []byte) { fill(t, sqe) })
			return nil, err
		},
	}
}

// fillNames fills a request with one name or two, a length and flags.
func fillNames(sqe []byte, op byte, from, to string, length, flags uint32) {
	order := binary.NativeEndian
	sqe[0] = op
	order.PutUint32(sqe[4:], here)
	if to != "" {
		order.PutUint64(sqe[8:], uint64(cstring(to)))
	}
	order.PutUint64(sqe[16:], uint64(cstring(from)))
	order.PutUint32(sqe[24:], length)
	order.PutUint32(sqe[28:], flags)
}

// open opens a file by a request that more changes, and reads it by a descriptor.
func (r *ring) open(path string, more func(sqe []byte)) ([]byte, error) {
	fd, err := r.request(func(sqe []byte) {
		fillNames(sqe, uringOpenat, path, "", 0, unix.O_RDONLY|unix.O_CLOEXEC)
		if more != nil {
			more(sqe)
		}
	})
	if err != nil {
		return nil, err
	}
	return slurp(fd)
}

func attackRingSlot(t *Target) ([]byte, error) {
	r, err := newRing(0)
	if err != nil {
		return nil, err
	}
	if err := r.registerFiles(-1); err != nil {
		return nil, err
	}
	_, err = r.request(func(sqe []byte) {
		fillNames(sqe, uringOpenat, t.Secret, "", 0, unix.O_RDONLY)
		binary.NativeEndian.PutUint32(sqe[44:], 1) // the first slot
	})
	if err != nil {
		return nil, err
	}
	return r.readSlot()
}

func attackRingPersonality(t *Target) ([]byte, error) {
	r, err := newRing(0)
	if err != nil {
		return nil, err
	}
	const registerPersonality = 9
	id, err := r.register(registerPersonality, nil, 0)
	if err != nil {
		return nil, err
	}
	return r.open(t.Secret, func(sqe []byte) {
		binary.NativeEndian.PutUint16(sqe[42:], uint16(id))
	})
}

func attackRingOpenat2(t *Target) ([]byte, error) {
	how := &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC}
	fd, err := uringRequest(func(sqe []byte) {
		fillNames(sqe, uringOpenat2, t.Secret, "", uint32(unsafe.Sizeof(*how)), 0)
		binary.NativeEndian.PutUint64(sqe[8:], address(how))
	})
	if err != nil {
		return nil, err
	}
	return slurp(fd)
}

func attackRingStatx(t *Target) ([]byte, error) {
	var st unix.Statx_t
	_, err := uringRequest(func(sqe []byte) {
		fillNames(sqe, uringStatx, t.Secret, "", unix.STATX_SIZE, 0)
		binary.NativeEndian.PutUint64(sqe[8:], address(&st))
	})
	return fmt.Append(nil, st.Size), err
}

func attackRingBind(t *Target) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return call("socket", err)
	}
	defer unix.Close(fd)
	// The address of a Unix socket is short, that of our directory may be longer.
	if err := os.Chdir(filepath.Dir(t.Secret)); err != nil {
		return err
	}
	at := &unix.RawSockaddrUnix{Family: unix.AF_UNIX}
	at.Path[0] = 's'
	_, err = uringRequest(func(sqe []byte) {
		sqe[0] = uringBind
		binary.NativeEndian.PutUint32(sqe[4:], uint32(fd))
		binary.NativeEndian.PutUint64(sqe[8:], 4)
		binary.NativeEndian.PutUint64(sqe[16:], address(at))
	})
	return err
}

// passRing makes a ring with the file in its table. Kernels since 6.7 let no ring
// into a message.
func passRing(s *Scene) error {
	r, err := newRing(0)
	if err != nil {
		return err
	}
	s.onClose(func() { unix.Close(r.fd) })
	fd, err := unix.Open(s.Target.Secret, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := r.registerFiles(fd); err != nil {
		return err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	if err := unix.Sendmsg(pair[0], []byte("x"), unix.UnixRights(r.fd), nil, 0); err != nil {
		return fmt.Errorf("pass a ring: %w", err)
	}
	p := (*[unsafe.Sizeof(r.params)]byte)(unsafe.Pointer(&r.params))
	s.Arg("params", hex.EncodeToString(p[:]))
	s.pass = append(s.pass, r.fd)
	return nil
}

func attackRingPassed(t *Target) ([]byte, error) {
	fd, err := receiveFD(0)
	if err != nil {
		return nil, err
	}
	var p uringParams
	raw, err := hex.DecodeString(t.Args["params"])
	if err != nil || len(raw) != int(unsafe.Sizeof(p)) {
		return nil, need(fmt.Errorf("parameters of the ring: %q", t.Args["params"]))
	}
	copy((*[unsafe.Sizeof(p)]byte)(unsafe.Pointer(&p))[:], raw)
	r, err := mapRing(fd, p)
	if err != nil {
		return nil, err
	}
	return r.readSlot()
}
