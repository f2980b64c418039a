package bpf

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/hashicorp/go-multierror"
)

// Hook is one LSM hook that the jail uses. docs/hooks.md is written from the
// table of them.
type Hook struct {
	// Name is the hook's name in the kernel (include/linux/lsm_hook_defs.h).
	Name string
	// Programs are tried in order: the first whose prototype the kernel's
	// BTF matches is attached.
	Programs []Program
	// Closes says what the jail would leak without it.
	Closes string
	// Since is the first kernel series at or after 6.1 that has the hook.
	Since string
	// Required hooks must exist, or no jail is built. Any hook that exists
	// must load and attach.
	Required bool
	// Without says what is lost on a kernel that lacks an optional hook.
	Without string
}

// Program is a BPF program for a hook.
type Program struct {
	Name string
	// Params is the number of the hook's parameters that it is written for;
	// 0 fits any.
	Params int
}

func one(name string) []Program { return []Program{{Name: name}} }

// Hooks returns the table of hooks, grouped as the C files are.
func Hooks() []Hook {
	return slices.Concat(fileHooks(), lookHooks(), socketHooks(), processHooks())
}

func required(name, closes string) Hook {
	return Hook{Name: name, Programs: one(name), Closes: closes, Since: "6.1", Required: true}
}

func fileHooks() []Hook {
	setattr := required("inode_setattr", "changing times outside")
	setattr.Programs = []Program{{"inode_setattr", 3}, {"inode_setattr_noidmap", 2}}
	return []Hook{
		required("file_open", "opening to read, write or execute"),
		required("file_receive", "descriptors of outside files passed over a socket"),
		required("path_unlink", "removing outside files"),
		required("path_rmdir", "removing outside directories"),
		required("path_mkdir", "making directories outside"),
		required("path_mknod", "making files, fifos, sockets and devices outside"),
		required("path_symlink", "making symbolic links outside"),
		required("path_link", "an inside name for an outside file"),
		required("path_rename", "moving files in, out, over or against each other"),
		required("path_truncate", "truncate(2) outside"),
		required("path_chmod", "changing modes outside"),
		required("path_chown", "changing owners outside"),
		setattr,
		required("inode_setxattr", "setting extended attributes outside; ACLs up to 6.1"),
		required("inode_removexattr", "removing extended attributes outside"),
		{
			Name: "inode_set_acl", Programs: one("inode_set_acl"), Since: "6.6",
			Closes:  "setting ACLs outside",
			Without: "nothing: such kernels set ACLs through inode_setxattr",
		},
		{
			Name: "inode_remove_acl", Programs: one("inode_remove_acl"), Since: "6.6",
			Closes:  "removing ACLs outside",
			Without: "nothing: such kernels remove ACLs through inode_removexattr",
		},
	}
}

func lookHooks() []Hook {
	return []Hook{
		required("inode_getattr", "size, times and owner of outside files"),
		required("inode_readlink", "targets of outside symbolic links"),
		required("inode_getxattr", "values of outside extended attributes"),
		required("inode_listxattr", "names of outside extended attributes"),
		{
			Name: "inode_get_acl", Programs: one("inode_get_acl"), Since: "6.6",
			Closes:  "reading outside ACLs",
			Without: "nothing: such kernels read ACLs through inode_getxattr",
		},
		required("sb_statfs", "free space of outside file systems"),
		required("path_notify", "watching outside directories"),
		required("file_ioctl", "typing into the terminal (TIOCSTI, TIOCLINUX)"),
		{
			Name: "file_ioctl_compat", Programs: one("file_ioctl_compat"), Since: "6.1",
			Closes:  "typing into the terminal from a 32-bit process",
			Without: "TIOCSTI by 32-bit processes, where the kernel still allows it",
		},
	}
}

func socketHooks() []Hook {
	return []Hook{
		required("socket_post_create", "nothing itself: it marks the jail's own sockets"),
		required("unix_stream_connect", "connecting to the host's Unix sockets"),
		required("unix_may_send", "datagrams to the host's Unix sockets"),
	}
}

func processHooks() []Hook {
	return []Hook{
		required("ptrace_access_check", "tracing and reading processes outside, and pid 1"),
		required("ptrace_traceme", "being traced from outside"),
		required("userns_create", "new user namespaces, and the capabilities in them"),
		required("sb_mount", "mounting"),
		required("sb_umount", "unmounting what hides something"),
		required("sb_pivotroot", "changing the root mount"),
		required("sb_remount", "remounting with other options"),
		required("move_mount", "attaching mounts of the new mount interface"),
		required("path_chroot", "changing the root directory"),
		required("bpf", "bpf(2), and so the jail's own programs"),
		required("bpf_map", "descriptors of BPF maps"),
		required("bpf_prog", "descriptors of BPF programs"),
		required("task_free", "nothing itself: it ends the jail after its last process"),
	}
}

// helpers are the programs that are not LSM hooks.
var helpers = []string{jailProgDescriptors, jailProgSupervisorExit}

// fit removes from spec the programs that are not for this kernel: twins with
// another prototype and optional hooks that it lacks. The returned hooks are
// those that are missing. A missing required hook is an error.
func fit(spec *ebpf.CollectionSpec, kernel *btf.Spec, drop []string) ([]Hook, error) {
	var missing []Hook
	var lacks *multierror.Error
	keep := map[string]bool{}
	for _, name := range helpers {
		keep[name] = true
	}
	for _, hook := range Hooks() {
		program, err := choose(hook, kernel)
		switch {
		case slices.Contains(drop, hook.Name):
		case err == nil:
			keep[program] = true
		case hook.Required:
			lacks = multierror.Append(lacks, fmt.Errorf("%w (it closes %s)", err, hook.Closes))
		default:
			missing = append(missing, hook)
		}
	}
	for name := range spec.Programs {
		if !keep[name] {
			delete(spec.Programs, name)
		}
	}
	return missing, lacks.ErrorOrNil()
}

// choose returns the name of the hook's program for this kernel.
func choose(hook Hook, kernel *btf.Spec) (string, error) {
	var fn *btf.Func
	err := kernel.TypeByName("bpf_lsm_"+hook.Name, &fn)
	if errors.Is(err, btf.ErrNotFound) {
		return "", fmt.Errorf("kernel has no LSM hook %s", hook.Name)
	}
	if err != nil {
		return "", fmt.Errorf("look up LSM hook %s: %w", hook.Name, err)
	}
	params := len(fn.Type.(*btf.FuncProto).Params)
	for _, p := range hook.Programs {
		if p.Params == 0 || p.Params == params {
			return p.Name, nil
		}
	}
	return "", fmt.Errorf("LSM hook %s has %d parameters, no program is written for that",
		hook.Name, params)
}
