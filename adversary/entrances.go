package adversary

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// entrances: objects outside that are no files, and calls that few programs make.
var entrances = []Case{
	{
		Name: "traversal_creat", Family: "traversal", Source: "D06",
		What:  "empties an outside file",
		Calls: "creat", Hooks: []string{"file_open", "path_truncate"},
		Attack: func(t *Target) ([]byte, error) {
			fd, err := creat(t.Secret)
			if err != nil {
				return nil, call("creat", err)
			}
			return nil, unix.Close(fd)
		},
		Judge: changed,
	},
	{
		Name: "traversal_fifo_write", Family: "traversal", Source: "D06",
		What:  "writes to a fifo that an outside process reads",
		Calls: "openat", Hooks: opens,
		Setup: func(s *Scene) error {
			fd, err := holdFifo(s)
			s.conn = fd
			return err
		},
		Attack: func(t *Target) ([]byte, error) {
			return nil, scribble(t.out("fifo"), unix.O_NONBLOCK)
		},
		Judge: Judge{"data has arrived at the fifo outside", func(s *Scene) string {
			buf := make([]byte, 256)
			if n, err := unix.Read(s.conn, buf); err == nil && n > 0 {
				return "data arrived at the fifo outside"
			}
			return ""
		}},
	},
}

// holdFifo makes a fifo and opens both of its ends.
func holdFifo(s *Scene) (int, error) {
	if err := unix.Mkfifo(s.Out("fifo"), 0o600); err != nil {
		return -1, call("mkfifo", err)
	}
	fd, err := unix.Open(s.Out("fifo"), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		s.onClose(func() { unix.Close(fd) })
	}
	return fd, call("open fifo", err)
}

// handles: what a handle tells of a file that is not opened by it.
var handles = []Case{
	{
		Name: "metadata_handle", Family: "metadata", Source: "D21 D31",
		What:  "learns an outside file's number and generation",
		Calls: "name_to_handle_at",
		Hooks: []string{"seccomp"}, Setup: hideHandle,
		Attack: func(t *Target) ([]byte, error) {
			h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, t.Secret, 0)
			if err != nil {
				return nil, call("name_to_handle_at", err)
			}
			return h.Bytes(), nil
		},
		Judge: Judge{"the file's handle is in what the attacker sent out", func(s *Scene) string {
			if v := s.secrets["handle"]; v != "" && s.leaked(v) {
				return "the file's handle was sent out"
			}
			return ""
		}},
	},
}

func hideHandle(s *Scene) error {
	h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, s.Target.Secret, 0)
	if err != nil {
		return call("name_to_handle_at", err)
	}
	s.secrets["handle"] = string(h.Bytes())
	return nil
}

// peers: sockets outside that are addressed in other ways, or of another type.
var peers = []Case{
	{
		Name: "socket_seqpacket", Family: "sockets", Source: "D49 greywall#55",
		What:  "connects to a socket outside that keeps packets apart",
		Calls: "connect, write",
		Hooks: streamHooks, Setup: listenOutside(unix.SOCK_SEQPACKET, "s"), Judge: heard,
		Attack: func(t *Target) ([]byte, error) {
			fd, err := openSocket(unix.AF_UNIX, unix.SOCK_SEQPACKET)
			if err != nil {
				return nil, err
			}
			defer unix.Close(fd)
			return nil, connectAndWrite(fd, &unix.SockaddrUnix{Name: t.Args["socket"]})
		},
	},
	{
		Name: "socket_proc_fd", Family: "sockets", Source: "D49 D19",
		What:  "connects to a socket outside by an O_PATH descriptor of it",
		Calls: "open(O_PATH), connect",
		Hooks: streamHooks, Setup: listenOutside(unix.SOCK_STREAM, "s"), Judge: heard,
		Attack: func(t *Target) ([]byte, error) {
			fd, err := openPath(t.Args["socket"])
			if err != nil {
				return nil, err
			}
			defer unix.Close(fd)
			t.Args["socket"] = fmt.Sprintf("/proc/self/fd/%d", fd)
			return attackConnect(mark)(t)
		},
	},
	{
		Name: "socket_ring", Family: "sockets", Source: "D49 D64", Fresh: true,
		What:  "connects to a socket outside through a ring",
		Calls: "io_uring(CONNECT)", Needs: needsRing, Hooks: streamHooks,
		Setup: listenOutside(unix.SOCK_STREAM, "s"), Attack: attackRingPeer, Judge: heard,
	},
	{
		Name: "socket_agent_guessed", Family: "sockets", Source: "D52",
		What:  "looks for an ssh-agent in /tmp and asks it for its keys",
		Calls: "getdents, connect",
		Hooks: streamHooks, Judge: heard,
		Setup: func(s *Scene) error {
			dir := "/tmp/ssh-" + canary()[:12]
			if err := os.Mkdir(dir, 0o700); err != nil {
				return err
			}
			s.roots = append(s.roots, dir) // to be removed
			s.Arg("suffix", strings.TrimPrefix(dir, "/tmp/ssh-")[:6])
			return s.Listen("ours", unix.SOCK_STREAM, filepath.Join(dir, "agent.1"))
		},
		Attack: func(t *Target) ([]byte, error) {
			// Of the user's own agents, if there are any, none is asked.
			found, err := filepath.Glob("/tmp/ssh-" + t.Args["suffix"] + "*/agent.*")
			if err == nil && len(found) == 0 {
				err = errors.New("no agent is in /tmp")
			}
			if err != nil {
				return nil, err
			}
			t.Args["socket"] = found[0]
			return attackConnect(string(agentRequest))(t)
		},
	},
}

func attackRingPeer(t *Target) ([]byte, error) {
	fd, err := openSocket(unix.AF_UNIX, unix.SOCK_STREAM)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	at := &unix.RawSockaddrUnix{Family: unix.AF_UNIX}
	for i := range len(t.Args["socket"]) {
		at.Path[i] = int8(t.Args["socket"][i])
	}
	_, err = uringRequest(func(sqe []byte) {
		sqe[0] = uringConnect
		binary.NativeEndian.PutUint32(sqe[4:], uint32(fd))
		binary.NativeEndian.PutUint64(sqe[8:], uint64(unix.SizeofSockaddrUnix))
		binary.NativeEndian.PutUint64(sqe[16:], address(at))
	})
	return nil, err
}
