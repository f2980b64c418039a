package adversary

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

// Numbers of i386, which a 64-bit process of x86-64 can call as well (int 0x80).
const (
	openI386       = 5
	linkI386       = 9
	unlinkI386     = 10
	chmodI386      = 15
	killI386       = 37
	renameI386     = 38
	mkdirI386      = 39
	ioctlI386      = 54
	symlinkI386    = 83
	socketcallI386 = 102
)

const needsCompat = "x86-64, CONFIG_IA32_EMULATION"

var errAMD64 = errors.New("this attack is written for x86-64 only")

// compat: the same by 32-bit system calls, which have other numbers and partly
// other ways into the kernel.
var compat = []Case{
	{
		Name: "compat_open", Family: "compat", Source: "D06", Hooks: opens,
		What:  "reads an outside file that a 32-bit system call opens",
		Calls: "open (32-bit)", Needs: needsCompat,
		Attack: func(t *Target) ([]byte, error) {
			fd, err := names32(openI386, unix.O_RDONLY, t.Secret)
			if err != nil {
				return nil, err
			}
			return slurp(fd)
		},
		Judge: tokenRead,
	},
	compatChange("create", "creates an outside file", "open", []string{"path_mknod", "file_open"},
		func(t *Target) error {
			_, err := names32(openI386, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, t.out("new"))
			return err
		}),
	compatChange("unlink", "deletes an outside file", "unlink", []string{"path_unlink"},
		func(t *Target) error { _, err := names32(unlinkI386, 0, t.Secret); return err }),
	compatChange("chmod", "changes the mode of an outside file", "chmod",
		[]string{"path_chmod", "inode_setattr"},
		func(t *Target) error { _, err := names32(chmodI386, 0o777, t.Secret); return err }),
	compatChange("mkdir", "makes an outside directory", "mkdir", []string{"path_mkdir"},
		func(t *Target) error { _, err := names32(mkdirI386, 0o700, t.out("new")); return err }),
	compatChange("symlink", "makes a symbolic link outside", "symlink", []string{"path_symlink"},
		func(t *Target) error { _, err := names32(symlinkI386, 0, "x", t.out("new")); return err }),
	compatChange("link", "links an outside file into the project", "link", []string{"path_link"},
		func(t *Target) error {
			_, err := names32(linkI386, 0, t.Secret, t.in("linked"))
			return err
		}),
	compatChange("rename", "moves an outside file into the project", "rename",
		[]string{"path_rename"},
		func(t *Target) error {
			_, err := names32(renameI386, 0, t.Secret, t.in("stolen"))
			return err
		}),
	{
		Name: "compat_connect", Family: "compat", Source: "D49 greywall#55",
		What:  "connects to a socket outside by a 32-bit socketcall",
		Calls: "socketcall(SYS_CONNECT) (32-bit)", Needs: needsCompat,
		Hooks: []string{"unix_stream_connect"},
		Setup: func(s *Scene) error { return s.Listen("socket", unix.SOCK_STREAM, s.Out("s")) },
		Attack: func(t *Target) ([]byte, error) {
			return nil, connect32(t.Args["socket"])
		},
		Judge: heard,
	},
	{
		Name: "compat_kill", Family: "compat", Source: signalSource,
		What: "kills a process outside by a 32-bit system call", Hooks: signalled,
		Calls: "kill (32-bit)", Needs: needsCompat,
		Setup: (*Scene).Victim,
		Attack: onVictim(func(t *Target) ([]byte, error) {
			_, err := call32(killI386, uint32(t.PID), uint32(unix.SIGKILL), 0)
			return nil, err
		}),
		Judge: victimDead,
	},
	{
		Name: "compat_tiocsti", Family: "compat", Source: "D53 bwrap#142", Fresh: true,
		What:  "pushes input into the terminal by a 32-bit system call",
		Calls: "ioctl(TIOCSTI) (32-bit)", Needs: needsCompat + ", " + needsInjection,
		Hooks: []string{"file_ioctl_compat", "file_ioctl"}, Setup: ownTerminal,
		Attack: func(*Target) ([]byte, error) {
			at, err := low([]byte("i"))
			if err == nil {
				_, err = call32(ioctlI386, 2, unix.TIOCSTI, at)
			}
			return nil, err
		},
		Judge: pushed("i"),
	},
}

func compatChange(verb, what, name string, hooks []string, attack func(*Target) error) Case {
	return Case{
		Name: "compat_" + verb, Family: "compat", Source: changeSource, Hooks: hooks,
		What: what + " by a 32-bit system call", Calls: name + " (32-bit)", Needs: needsCompat,
		Setup: waitTick, Judge: changed,
		Attack: func(t *Target) ([]byte, error) { return nil, attack(t) },
	}
}

// names32 makes a call that takes names and then a number.
func names32(number int, flags uint32, names ...string) (int, error) {
	args := []uint32{0, 0, 0}
	for i, name := range names {
		at, err := low([]byte(name))
		if err != nil {
			return -1, err
		}
		args[i] = at
	}
	args[len(names)] = flags
	return call32(number, args[0], args[1], args[2])
}

// connect32 connects to a Unix socket.
func connect32(path string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return call("socket", err)
	}
	defer unix.Close(fd)
	address := append(binary.NativeEndian.AppendUint16(nil, unix.AF_UNIX), path...)
	at, err := low(address)
	if err != nil {
		return err
	}
	var args []byte
	for _, word := range []uint32{uint32(fd), at, uint32(len(address) + 1)} {
		args = binary.NativeEndian.AppendUint32(args, word)
	}
	list, err := low(args)
	if err != nil {
		return err
	}
	const connect = 3
	_, err = call32(socketcallI386, connect, list, 0)
	return err
}
