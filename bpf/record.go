package bpf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// Record is one denial, as the kernel half reports it.
type Record struct {
	// Since is the time since boot, on CLOCK_MONOTONIC.
	Since time.Duration
	// Hook is the LSM hook that denied.
	Hook string
	// Want is what was asked for; Given is what the nearest label gives.
	// Both are 0 for operations that no label can allow.
	Want, Given Rights
	Errno       syscall.Errno
	// PID is the thread group in the initial pid namespace, Comm its name.
	PID  int
	Comm string
	// Dev is the object's file system (major<<20 | minor); 0: no object.
	Dev uint32
	// Path is the object's path within its file system, "" without an object.
	// Cut means that it is longer than the record: names are missing in front.
	Path string
	Cut  bool
	// Why says what decided; Peer is set where that is about a socket.
	Why  Why
	Peer *Peer
	// Capability is the number of the capability that "capable" denied.
	Capability int
}

// Why says what decided, see enum why.
type Why uint32

// The reasons. From WhyMode on they are about a socket.
const (
	WhyRights    = Why(jailWhyWHY_RIGHTS)
	WhyLinks     = Why(jailWhyWHY_LINKS)
	WhyProtected = Why(jailWhyWHY_PROTECTED)
	WhyDenied    = Why(jailWhyWHY_DENIED)
	WhyMode      = Why(jailWhyWHY_MODE)
	WhyLocal     = Why(jailWhyWHY_LOCAL)
	WhyForbidden = Why(jailWhyWHY_FORBIDDEN)
	WhyKind      = Why(jailWhyWHY_KIND)
	WhyRoute     = Why(jailWhyWHY_ROUTE)
	WhyPort      = Why(jailWhyWHY_PORT)
	WhyOption    = Why(jailWhyWHY_OPTION)
	WhyNetlink   = Why(jailWhyWHY_NETLINK)
)

// decodeRecord reads a struct event of jail.bpf.h.
func decodeRecord(raw []byte) (Record, error) {
	var e jailEvent
	if len(raw) < int(unsafe.Sizeof(e)) {
		return Record{}, fmt.Errorf("decode denial: %d bytes, want %d", len(raw), unsafe.Sizeof(e))
	}
	if _, err := binary.Decode(raw, binary.NativeEndian, &e); err != nil {
		return Record{}, fmt.Errorf("decode denial: %w", err)
	}
	r := Record{
		Since: time.Duration(e.TimeNs),
		Hook:  hookName(e.Hook),
		Want:  Rights(e.Want),
		Given: Rights(e.Given),
		Errno: syscall.Errno(-e.Error),
		PID:   int(e.Pid),
		Comm:  text(e.Comm[:]),
		Dev:   e.Dev,

		Capability: int(e.Number),
	}
	r.Why = Why(e.Why)
	if r.Why >= WhyMode {
		r.Peer = decodePeer(e.Peer)
	}
	if e.Dev == 0 {
		return r, nil
	}
	depth := min(int(e.Depth), len(e.Names))
	var path strings.Builder
	for i := depth - 1; i >= 0; i-- {
		path.WriteByte('/')
		path.WriteString(text(e.Names[i][:]))
	}
	if depth == 0 {
		path.WriteByte('/')
	}
	r.Path = path.String()
	r.Cut = depth == len(e.Names)
	return r, nil
}

func text(chars []int8) string {
	b := make([]byte, len(chars))
	for i, c := range chars {
		b[i] = byte(c)
	}
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}

// hookName maps the C enum to the kernel's names.
func hookName(h jailHook) string {
	if int(h) < len(hookNames) {
		return hookNames[h]
	}
	return fmt.Sprintf("hook %d", h)
}

// hookNames is in the order of enum hook; a test compares them.
var hookNames = [...]string{
	jailHookHOOK_FILE_OPEN:             "file_open",
	jailHookHOOK_FILE_RECEIVE:          "file_receive",
	jailHookHOOK_FILE_IOCTL:            "file_ioctl",
	jailHookHOOK_FILE_FCNTL:            "file_fcntl",
	jailHookHOOK_PATH_UNLINK:           "path_unlink",
	jailHookHOOK_PATH_RMDIR:            "path_rmdir",
	jailHookHOOK_PATH_MKDIR:            "path_mkdir",
	jailHookHOOK_PATH_MKNOD:            "path_mknod",
	jailHookHOOK_PATH_SYMLINK:          "path_symlink",
	jailHookHOOK_PATH_LINK:             "path_link",
	jailHookHOOK_PATH_RENAME:           "path_rename",
	jailHookHOOK_PATH_TRUNCATE:         "path_truncate",
	jailHookHOOK_PATH_CHMOD:            "path_chmod",
	jailHookHOOK_PATH_CHOWN:            "path_chown",
	jailHookHOOK_PATH_CHROOT:           "path_chroot",
	jailHookHOOK_PATH_NOTIFY:           "path_notify",
	jailHookHOOK_INODE_GETATTR:         "inode_getattr",
	jailHookHOOK_INODE_FILE_GETATTR:    "inode_file_getattr",
	jailHookHOOK_INODE_FILE_SETATTR:    "inode_file_setattr",
	jailHookHOOK_INODE_SETATTR:         "inode_setattr",
	jailHookHOOK_INODE_READLINK:        "inode_readlink",
	jailHookHOOK_INODE_GETXATTR:        "inode_getxattr",
	jailHookHOOK_INODE_LISTXATTR:       "inode_listxattr",
	jailHookHOOK_INODE_SETXATTR:        "inode_setxattr",
	jailHookHOOK_INODE_REMOVEXATTR:     "inode_removexattr",
	jailHookHOOK_INODE_SET_ACL:         "inode_set_acl",
	jailHookHOOK_INODE_GET_ACL:         "inode_get_acl",
	jailHookHOOK_INODE_REMOVE_ACL:      "inode_remove_acl",
	jailHookHOOK_SB_STATFS:             "sb_statfs",
	jailHookHOOK_SB_MOUNT:              "sb_mount",
	jailHookHOOK_SB_UMOUNT:             "sb_umount",
	jailHookHOOK_SB_PIVOTROOT:          "sb_pivotroot",
	jailHookHOOK_SB_REMOUNT:            "sb_remount",
	jailHookHOOK_MOVE_MOUNT:            "move_mount",
	jailHookHOOK_USERNS_CREATE:         "userns_create",
	jailHookHOOK_PTRACE_ACCESS_CHECK:   "ptrace_access_check",
	jailHookHOOK_UNIX_STREAM_CONNECT:   "unix_stream_connect",
	jailHookHOOK_UNIX_MAY_SEND:         "unix_may_send",
	jailHookHOOK_BPF:                   "bpf",
	jailHookHOOK_BPF_MAP:               "bpf_map",
	jailHookHOOK_BPF_PROG:              "bpf_prog",
	jailHookHOOK_TASK_KILL:             "task_kill",
	jailHookHOOK_TASK_SETNICE:          "task_setnice",
	jailHookHOOK_TASK_SETIOPRIO:        "task_setioprio",
	jailHookHOOK_KEY_PERMISSION:        "key_permission",
	jailHookHOOK_PERF_EVENT_OPEN:       "perf_event_open",
	jailHookHOOK_KERNEL_MODULE_REQUEST: "kernel_module_request",
	jailHookHOOK_KERNEL_LOAD_DATA:      "kernel_load_data",
	jailHookHOOK_KERNEL_READ_FILE:      "kernel_read_file",
	jailHookHOOK_SYSLOG:                "syslog",
	jailHookHOOK_URING_SQPOLL:          "uring_sqpoll",
	jailHookHOOK_URING_OVERRIDE_CREDS:  "uring_override_creds",
	jailHookHOOK_URING_CMD:             "uring_cmd",
	jailHookHOOK_QUOTACTL:              "quotactl",
	jailHookHOOK_SETTIME:               "settime",
	jailHookHOOK_SOCKET_CREATE:         "socket_create",
	jailHookHOOK_SOCKET_CONNECT:        "socket_connect",
	jailHookHOOK_SOCKET_SENDMSG:        "socket_sendmsg",
	jailHookHOOK_SOCKET_SETSOCKOPT:     "socket_setsockopt",
	jailHookHOOK_NETLINK_SEND:          "netlink_send",
	jailHookHOOK_CAPABLE:               "capable",
}
