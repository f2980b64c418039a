package adversary

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	passedSource    = "D20"
	inheritedSource = "D17 firejail#4845 cplt#329 singularity#589 nsjail#328"
)

var received = []string{"file_receive", "file_open"}

// descriptors: open files that the attacker is handed instead of opening them.
var descriptors = []Case{
	{
		Name: "fd_passed_file", Family: "descriptors", Source: passedSource,
		What: "is passed a descriptor of an outside file over a socket", Hooks: received,
		Calls: "recvmsg, read",
		Setup: func(s *Scene) error { return s.Pass(s.Target.Secret, unix.O_RDONLY) },
		Attack: func(*Target) ([]byte, error) {
			fd, err := receiveFD(0)
			if err != nil {
				return nil, err
			}
			return slurp(fd)
		},
		Judge: tokenRead,
	},
	{
		Name: "fd_passed_writable", Family: "descriptors", Source: passedSource,
		What: "is passed a writable descriptor of an outside file", Hooks: received,
		Calls: "recvmsg, write",
		Setup: func(s *Scene) error { return s.Pass(s.Target.Secret, unix.O_WRONLY) },
		Attack: func(*Target) ([]byte, error) {
			fd, err := receiveFD(0)
			if err != nil {
				return nil, err
			}
			_, err = unix.Write(fd, []byte(mark))
			return nil, call("write", err)
		},
		Judge: changed,
	},
	{
		Name: "fd_passed_dir", Family: "descriptors", Source: passedSource,
		What: "is passed an O_PATH descriptor of an outside directory", Hooks: received,
		Calls: "recvmsg, openat",
		Setup: func(s *Scene) error {
			return s.Pass(s.Target.Outside, unix.O_PATH|unix.O_DIRECTORY)
		},
		Attack: func(*Target) ([]byte, error) {
			fd, err := receiveFD(0)
			if err != nil {
				return nil, err
			}
			return readAt(fd, "secret")
		},
		Judge: tokenRead,
	},
	{
		Name: "fd_passed_o_path", Family: "descriptors", Source: passedSource,
		What:  "is passed an O_PATH descriptor of the file and opens it anew",
		Calls: "recvmsg, openat",
		Hooks: received,
		Setup: func(s *Scene) error { return s.Pass(s.Target.Secret, unix.O_PATH) },
		Attack: func(*Target) ([]byte, error) {
			fd, err := receiveFD(0)
			if err != nil {
				return nil, err
			}
			return read(fmt.Sprintf("/proc/self/fd/%d", fd))
		},
		Judge: tokenRead,
	},
	{
		Name: "fd_inherited_file", Fresh: true, Family: "descriptors", Source: inheritedSource,
		What:   "reads every descriptor that the jail's parent left open",
		Calls:  "pread64",
		Attack: attackInheritedFiles, Judge: sessionRead("inherited descriptor"),
	},
	{
		Name: "fd_inherited_dir", Fresh: true, Family: "descriptors", Source: inheritedSource,
		What:  "opens a file below every directory descriptor left open",
		Calls: "openat",
		Hooks: opens, Attack: attackInheritedDirs, Judge: sessionRead("inherited descriptor"),
	},
	{
		Name: "fd_inherited_cwd", Fresh: true, Family: "descriptors", Source: "D18",
		What:  "goes to an inherited directory and opens a relative name",
		Calls: "fchdir, openat",
		Hooks: opens, Attack: attackInheritedCwd, Judge: sessionRead("inherited descriptor"),
	},
	{
		Name: "fd_by_handle", Family: "descriptors", Source: "D21",
		What:  "opens the file by its handle (open_by_handle_at)",
		Calls: "name_to_handle_at, open_by_handle_at", Needs: "CAP_DAC_READ_SEARCH",
		Hooks: opens, Attack: attackByHandle, Judge: tokenRead,
	},
}

// receiveFD takes the first descriptor from a packet on a socket.
func receiveFD(socket int) (int, error) {
	kind, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind == 0 {
		return -1, errNoSocket
	}
	buf, oob := make([]byte, 64), make([]byte, unix.CmsgSpace(4*16))
	_, n, flags, _, err := unix.Recvmsg(socket, buf, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return -1, call("recvmsg", err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil {
		return -1, call("recvmsg", err)
	}
	for i := range messages {
		if fds, err := unix.ParseUnixRights(&messages[i]); err == nil && len(fds) > 0 {
			return fds[0], nil
		}
	}
	if flags&unix.MSG_CTRUNC != 0 {
		// The kernel does not say why: it sets the flag when a hook refuses.
		return -1, errors.New("recvmsg: descriptor withheld (MSG_CTRUNC)")
	}
	return -1, errors.New("recvmsg: no descriptor came")
}

// openFDs lists the descriptors above the standard streams that were open when
// the process started or since. Ours among them do no harm.
func openFDs() []int {
	var fds []int
	names, err := filepath.Glob("/proc/self/fd/*")
	if err != nil || len(names) == 0 {
		for fd := 3; fd < 4096; fd++ {
			fds = append(fds, fd)
		}
		return fds
	}
	for _, name := range names {
		if fd, err := strconv.Atoi(filepath.Base(name)); err == nil && fd > 2 {
			fds = append(fds, fd)
		}
	}
	return fds
}

// eachFD tries something on every open descriptor and joins what it yields.
func eachFD(try func(fd int) ([]byte, error)) ([]byte, error) {
	var loot []byte
	last := errors.New("no descriptor above 2 is of use")
	for _, fd := range openFDs() {
		data, err := try(fd)
		loot = append(loot, data...)
		// Our own descriptors (epoll, pipes) are no files: not worth a word.
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ESPIPE) &&
			!errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.EISDIR) &&
			!errors.Is(err, unix.EBADF) {
			last = err
		}
	}
	return loot, last
}

func attackInheritedFiles(*Target) ([]byte, error) {
	return eachFD(func(fd int) ([]byte, error) {
		buf := make([]byte, 256)
		n, err := unix.Pread(fd, buf, 0)
		return buf[:max(n, 0)], call("pread", err)
	})
}

func attackInheritedDirs(*Target) ([]byte, error) {
	return eachFD(func(fd int) ([]byte, error) { return readAt(fd, "secret") })
}

func attackInheritedCwd(*Target) ([]byte, error) {
	return eachFD(func(fd int) ([]byte, error) {
		if err := unix.Fchdir(fd); err != nil {
			return nil, call("fchdir", err)
		}
		return read("secret")
	})
}

func attackByHandle(t *Target) ([]byte, error) {
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, t.Secret, 0)
	if err != nil {
		return nil, call("name_to_handle_at", err)
	}
	mount, err := os.Open(t.Project)
	if err != nil {
		return nil, need(err)
	}
	defer mount.Close()
	fd, err := unix.OpenByHandleAt(int(mount.Fd()), handle, unix.O_RDONLY)
	if err != nil {
		return nil, call("open_by_handle_at", err)
	}
	return slurp(fd)
}

// agentRequest asks an ssh-agent for its keys: length, SSH2_AGENTC_REQUEST_IDENTITIES.
var agentRequest = append(binary.BigEndian.AppendUint32(nil, 1), 11)
