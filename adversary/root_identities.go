package adversary

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const identitySource = "D69"

const fsImmutable = 0x10 // FS_IMMUTABLE_FL

// identities: files in the project that give root to whoever runs them outside.
var identities = []Case{
	{
		Name: "identity_chmod", Family: "identities", Source: identitySource, Root: true,
		What: "sets the set-user-ID bit of a file in the project", Hooks: []string{"path_chmod"},
		Calls: "fchmodat",
		Attack: func(t *Target) ([]byte, error) {
			path, err := t.own("tool")
			if err != nil {
				return nil, err
			}
			return nil, call("chmod", unix.Chmod(path, 0o4755))
		},
		Judge: runsAsRoot,
	},
	{
		Name: "identity_fchmod", Family: "identities", Source: identitySource, Root: true,
		What: "sets its set-group-ID bit by descriptor", Hooks: []string{"path_chmod"},
		Calls: "fchmod",
		Attack: func(t *Target) ([]byte, error) {
			path, err := t.own("tool")
			if err != nil {
				return nil, err
			}
			f, err := os.Open(path)
			if err != nil {
				return nil, need(err)
			}
			defer f.Close()
			return nil, call("fchmod", unix.Fchmod(int(f.Fd()), 0o2755))
		},
		Judge: runsAsRoot,
	},
	{
		Name: "identity_create", Family: "identities", Source: identitySource, Root: true,
		What: "creates a file with the set-user-ID bit", Hooks: []string{"path_mknod"},
		Calls: "openat(O_CREAT)",
		Attack: func(t *Target) ([]byte, error) {
			fd, err := unix.Open(t.in("tool"), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o4755)
			if err != nil {
				return nil, call("open", err)
			}
			return nil, unix.Close(fd)
		},
		Judge: runsAsRoot,
	},
	{
		Name: "identity_tmpfile", Family: "identities", Source: identitySource, Root: true,
		What: "names a file that O_TMPFILE made with the set-user-ID bit", Hooks: opens,
		Calls: "openat(O_TMPFILE), linkat", Needs: needsTmpfile,
		Attack: func(t *Target) ([]byte, error) {
			fd, err := unix.Open(t.Work, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o4755)
			if err != nil {
				return nil, call("open", err)
			}
			defer unix.Close(fd)
			err = unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD,
				t.in("tool"), unix.AT_SYMLINK_FOLLOW)
			return nil, call("linkat", err)
		},
		Judge: runsAsRoot,
	},
	{
		Name: "identity_overwrite", Family: "identities", Source: identitySource, Root: true,
		What:  "overwrites a set-user-ID file that was in the project",
		Calls: "openat, write",
		Hooks: []string{"file_open", "capable"},
		Setup: func(s *Scene) error {
			if err := os.WriteFile(s.In("tool"), []byte("before"), 0o755); err != nil {
				return err
			}
			return unix.Chmod(s.In("tool"), 0o4755)
		},
		Attack: func(t *Target) ([]byte, error) { return nil, scribble(t.in("tool"), 0) },
		Judge: Judge{"the changed tool in the project is still set-ID root", func(s *Scene) string {
			if data, err := os.ReadFile(s.In("tool")); err != nil || string(data) == "before" {
				return ""
			}
			return runsAsRoot.find(s)
		}},
	},
	{
		Name: "identity_capability", Family: "identities", Source: identitySource, Root: true,
		What: "gives a file in the project capabilities", Hooks: capability,
		Calls: "setxattr", Needs: "a file system with security attributes",
		Attack: func(t *Target) ([]byte, error) {
			path, err := t.own("tool")
			if err != nil {
				return nil, err
			}
			// struct vfs_cap_data: revision 2, effective, CAP_CHOWN permitted.
			data := make([]byte, 20)
			binary.LittleEndian.PutUint32(data, 0x02000001)
			binary.LittleEndian.PutUint32(data[4:], 1)
			return nil, call("setxattr", unix.Setxattr(path, "security.capability", data, 0))
		},
		Judge: Judge{"a file in the project has capabilities", func(s *Scene) string {
			n, err := unix.Getxattr(s.In("tool"), "security.capability", nil)
			if err != nil || n == 0 {
				return ""
			}
			return "a file in the project has capabilities"
		}},
	},
	{
		Name: "identity_immutable", Family: "identities", Source: identitySource, Root: true,
		What: "makes a file in the project that its owner cannot remove", Hooks: capability,
		Calls: "ioctl(FS_IOC_SETFLAGS)", Needs: "a file system with FS_IMMUTABLE_FL",
		Attack: func(t *Target) ([]byte, error) {
			path, err := t.own("stuck")
			if err != nil {
				return nil, err
			}
			return nil, setImmutable(path, fsImmutable)
		},
		Judge: Judge{"a file in the project cannot be renamed", func(s *Scene) string {
			path := s.In("stuck")
			if _, err := os.Stat(path); err != nil || os.Rename(path, path+"2") == nil {
				return ""
			}
			_ = setImmutable(path, 0)
			return "a file in the project cannot be renamed"
		}},
	},
}

// runsAsRoot is a judge: the file tool in the project is root's and has a bit by
// which others run as root.
var runsAsRoot = Judge{"tool in the project is root's and has a set-ID bit", func(s *Scene) string {
	var st unix.Stat_t
	err := unix.Stat(s.In("tool"), &st)
	if err != nil || st.Uid != 0 || st.Mode&(unix.S_ISUID|unix.S_ISGID) == 0 {
		return ""
	}
	return fmt.Sprintf("root's file in the project has mode %o", st.Mode&0o7777)
}}

func setImmutable(path string, flags int) error {
	f, err := os.Open(path)
	if err != nil {
		return need(err)
	}
	defer f.Close()
	return call("ioctl", unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags))
}
