package adversary

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

const metadataSource = "D32 nono"

// metadata: what can be learned about outside objects without opening them.
// Whether a name exists is not counted: see the threat model.
var metadata = []Case{
	{
		Name: "metadata_stat_size", Family: "metadata", Source: "D31 nono",
		What: "learns the size of a file", Hooks: []string{"inode_getattr"},
		Calls: "newfstatat",
		Setup: hideSize, Attack: attackStat, Judge: secretRead("size"),
	},
	{
		Name: "metadata_stat_time", Family: "metadata", Source: "D31 nono",
		What: "learns when a file was changed", Hooks: []string{"inode_getattr"},
		Calls: "newfstatat",
		Setup: hideTime, Attack: attackStat, Judge: secretRead("time"),
	},
	{
		Name: "metadata_statx", Family: "metadata", Source: "D31 nono",
		What: "learns the size of a file by statx", Hooks: []string{"inode_getattr"},
		Calls: "statx",
		Setup: hideSize,
		Attack: func(t *Target) ([]byte, error) {
			var st unix.Statx_t
			err := unix.Statx(unix.AT_FDCWD, t.Secret, unix.AT_STATX_DONT_SYNC,
				unix.STATX_SIZE, &st)
			return fmt.Append(nil, st.Size), call("statx", err)
		},
		Judge: secretRead("size"),
	},
	{
		Name: "metadata_fstat_o_path", Family: "metadata", Source: "D19",
		What:  "learns the size of a file by fstat of an O_PATH descriptor",
		Calls: "openat(O_PATH), fstat",
		Hooks: []string{"inode_getattr"}, Setup: hideSize,
		Attack: func(t *Target) ([]byte, error) {
			fd, err := openPath(t.Secret)
			if err != nil {
				return nil, err
			}
			var st unix.Stat_t
			err = unix.Fstat(fd, &st)
			return fmt.Append(nil, st.Size), call("fstat", err)
		},
		Judge: secretRead("size"),
	},
	{
		Name: "metadata_file_getattr", Family: "metadata", Source: flagSource,
		What:  "learns the flags of a file (nodump)",
		Calls: "file_getattr", Since: "6.17", Needs: needsFlags,
		Hooks: []string{"inode_file_getattr"}, Setup: hideFlags,
		Attack: func(t *Target) ([]byte, error) {
			flags, err := xflagsOf(t.Secret)
			return fmt.Appendf(nil, "%#x", flags), err
		},
		Judge: secretRead("flags"),
	},
	{
		Name: "metadata_readlink", Family: "metadata", Source: metadataSource,
		What: "reads the target of a symbolic link", Hooks: []string{"inode_readlink"},
		Calls: "readlinkat",
		Setup: func(s *Scene) error { return os.Symlink("/"+s.Token, s.Out("link")) },
		Attack: func(t *Target) ([]byte, error) {
			target, err := os.Readlink(t.out("link"))
			return []byte(target), err
		},
		Judge: tokenRead,
	},
	{
		Name: "metadata_readlink_o_path", Family: "metadata", Source: "D19",
		What:  "the same through an O_PATH descriptor of the link",
		Calls: "openat(O_PATH), readlinkat",
		Hooks: []string{"inode_readlink"},
		Setup: func(s *Scene) error { return os.Symlink("/"+s.Token, s.Out("link")) },
		Attack: func(t *Target) ([]byte, error) {
			fd, err := unix.Open(t.out("link"), unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if err != nil {
				return nil, call("open O_PATH", err)
			}
			buf := make([]byte, 256)
			n, err := unix.Readlinkat(fd, "", buf)
			return buf[:max(n, 0)], call("readlinkat", err)
		},
		Judge: tokenRead,
	},
	{
		Name: "metadata_getxattr", Family: "metadata", Source: metadataSource,
		What: "reads an extended attribute", Hooks: []string{"inode_getxattr"},
		Calls: "getxattr", Needs: needsUserXattr,
		Setup: func(s *Scene) error {
			return call("setxattr",
				unix.Setxattr(s.Target.Secret, "user.note", []byte(s.Token), 0))
		},
		Attack: func(t *Target) ([]byte, error) {
			buf := make([]byte, 256)
			n, err := unix.Getxattr(t.Secret, "user.note", buf)
			return buf[:max(n, 0)], call("getxattr", err)
		},
		Judge: tokenRead,
	},
	{
		Name: "metadata_listxattr", Family: "metadata", Source: metadataSource,
		What: "lists the names of extended attributes", Hooks: []string{"inode_listxattr"},
		Calls: "listxattr", Needs: needsUserXattr,
		Setup: func(s *Scene) error {
			return call("setxattr",
				unix.Setxattr(s.Target.Secret, "user."+s.Token, []byte("x"), 0))
		},
		Attack: func(t *Target) ([]byte, error) {
			buf := make([]byte, 4096)
			n, err := unix.Listxattr(t.Secret, buf)
			return buf[:max(n, 0)], call("listxattr", err)
		},
		Judge: tokenRead,
	},
	{
		Name: "metadata_get_acl", Family: "metadata", Source: metadataSource,
		What:  "reads an ACL, which names users",
		Calls: "getxattr", Needs: needsACL,
		Hooks: []string{"inode_get_acl", "inode_getxattr"}, Setup: hideACL,
		Attack: func(t *Target) ([]byte, error) {
			buf := make([]byte, 4096)
			n, err := unix.Getxattr(t.Secret, aclName, buf)
			return buf[:max(n, 0)], call("getxattr", err)
		},
		Judge: secretRead("ACL"),
	},
}

// hideACL gives the secret file an ACL for a random user.
func hideACL(s *Scene) error {
	id := uint32(randomInt(1 << 31))
	s.secrets["ACL"] = string(binary.LittleEndian.AppendUint32(nil, id))
	return call("setxattr", unix.Setxattr(s.Target.Secret, aclName, userACL(id), 0))
}

// hideSize gives the secret file a random size of 10 or 11 digits. It is sparse.
func hideSize(s *Scene) error {
	size := int64(1)<<34 + randomInt(1<<34)
	s.secrets["size"] = strconv.FormatInt(size, 10)
	return os.Truncate(s.Target.Secret, size)
}

// hideTime gives the secret file a random time of change, to the nanosecond.
func hideTime(s *Scene) error {
	ts := unix.Timespec{Sec: 1e9 + randomInt(1<<28), Nsec: 1e8 + randomInt(1<<29)}
	s.secrets["time"] = fmt.Sprintf("%d.%d", ts.Sec, ts.Nsec)
	return unix.UtimesNanoAt(unix.AT_FDCWD, s.Target.Secret, []unix.Timespec{ts, ts}, 0)
}

// randomInt returns a random number below limit, a power of two.
func randomInt(limit int64) int64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // does not return errors
	return int64(binary.NativeEndian.Uint64(b[:]) & uint64(limit-1))
}

func attackStat(t *Target) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Stat(t.Secret, &st); err != nil {
		return nil, call("stat", err)
	}
	return fmt.Appendf(nil, "%d %d.%d", st.Size, st.Mtim.Sec, st.Mtim.Nsec), nil
}
