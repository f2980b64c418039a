// Package event turns denials into words: what was tried, on which object, by
// which process, why it was refused and which flag would allow it.
package event

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Event is one denial. Its JSON form is a line of the denial log.
type Event struct {
	Time time.Time `json:"time"`
	// Hook is the LSM hook that denied, as in "file_open".
	Hook string `json:"hook"`
	// Tried is the operation in words, as in "read".
	Tried string `json:"tried"`
	// Path is the object as the jail's mounts show it; "" when there is none.
	Path string `json:"path,omitempty"`
	// Address is whom a socket was to talk to, or what kind of socket it was.
	Address string `json:"address,omitempty"`
	// Errno is what the process was told, as in "ENOENT".
	Errno string `json:"errno"`
	PID   int    `json:"pid"`
	Comm  string `json:"comm"`
	// Rule says which rule decided, or that none did.
	Rule string `json:"rule"`
	// Remedy is the flag that would allow it, "" when nothing does.
	Remedy string `json:"remedy,omitempty"`
}

// Key is the same for denials that one line on the terminal serves.
func (e Event) Key() string { return e.Hook + "\x00" + e.Tried + "\x00" + e.Path + e.Address }

// String returns the denial as one line that is safe to show on a terminal: names
// of files and processes are the jail's to choose.
func (e Event) String() string {
	object := ""
	if e.Path != "" {
		object = " " + e.Path
	}
	if e.Address != "" {
		object += " " + e.Address
	}
	remedy := "; no flag allows this"
	if e.Remedy != "" {
		remedy = "; allow it with " + e.Remedy
	}
	return printable(fmt.Sprintf("denied: %s%s (%s) by %s[%d]: %s%s",
		e.Tried, object, e.Errno, e.Comm, e.PID, e.Rule, remedy))
}

// unquoted undoes what strconv.Quote escapes for the sake of Go alone.
var unquoted = strings.NewReplacer(`\"`, `"`, `\\`, `\`)

// printable replaces what a terminal would act on, or show as something else, by
// its escape in Go's notation.
func printable(s string) string {
	quoted := strconv.Quote(s)
	return unquoted.Replace(quoted[1 : len(quoted)-1])
}

// tried says in words what a hook guards.
var tried = map[string]string{
	"file_open":           "open",
	"file_receive":        "receive a descriptor of",
	"file_ioctl":          "control (ioctl)",
	"file_fcntl":          "control (fcntl)",
	"path_unlink":         "remove",
	"path_rmdir":          "remove directory",
	"path_mkdir":          "make directory",
	"path_mknod":          "create",
	"path_symlink":        "make symbolic link",
	"path_link":           "make hard link of or to",
	"path_rename":         "rename",
	"path_truncate":       "truncate",
	"path_chmod":          "change the mode of",
	"path_chown":          "change the owner of",
	"path_chroot":         "change the root directory",
	"path_notify":         "watch",
	"inode_getattr":       "look at",
	"inode_file_getattr":  "read the flags of",
	"inode_file_setattr":  "set the flags of",
	"inode_setattr":       "change times or attributes of",
	"inode_readlink":      "read the link",
	"inode_getxattr":      "read an extended attribute of",
	"inode_listxattr":     "list the extended attributes of",
	"inode_setxattr":      "set an extended attribute of",
	"inode_removexattr":   "remove an extended attribute of",
	"inode_get_acl":       "read the ACL of",
	"inode_set_acl":       "set the ACL of",
	"inode_remove_acl":    "remove the ACL of",
	"sb_statfs":           "ask for the free space of",
	"sb_mount":            "mount",
	"sb_umount":           "unmount",
	"sb_pivotroot":        "change the root mount",
	"sb_remount":          "remount",
	"move_mount":          "move a mount",
	"userns_create":       "create a user namespace",
	"ptrace_access_check": "trace or inspect a process outside the jail",
	"unix_stream_connect": "connect to the socket",
	"unix_may_send":       "send to the socket",
	"bpf":                 "use bpf(2)",
	"bpf_map":             "use a BPF map",
	"bpf_prog":            "use a BPF program",

	"task_kill":             "signal a process outside the jail",
	"task_setnice":          "change the priority of a process outside the jail",
	"task_setioprio":        "change the disk priority of a process outside the jail",
	"key_permission":        "use a key that is not the jail's own",
	"perf_event_open":       "use performance counters",
	"kernel_module_request": "make the kernel load a module",
	"kernel_load_data":      "load code into the kernel",
	"kernel_read_file":      "make the kernel read a file",
	"syslog":                "read the kernel's log",
	"uring_sqpoll":          "start an io_uring kernel thread",
	"uring_override_creds":  "use io_uring under another identity",
	"uring_cmd":             "send an io_uring command",
	"quotactl":              "use quotas",
	"settime":               "set the clock",
	"socket_create":         "make a socket",
	"socket_connect":        "connect to",
	"socket_sendmsg":        "send to",
	"socket_setsockopt":     "set an option of the socket",
	"netlink_send":          "change the host's network",
	"capable":               "use a capability",
}

// Tried returns the operation that a hook guards in words, with the way in
// which a file was opened.
func Tried(hook string, read, write, execute bool) string {
	words, ok := tried[hook]
	switch {
	case !ok:
		return hook
	case hook != "file_open":
		return words
	case execute:
		return "execute"
	case write && read:
		return "open for reading and writing"
	case write:
		return "open for writing"
	}
	return "open for reading"
}
