package bpf

import (
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// beforeLandlock are the hooks that Landlock has too. Most kernels ask Landlock
// before the BPF LSM, and its refusal would be the last word: EACCES where git and
// npm want ENOENT, and no denial record. So a twin of each of these programs runs
// before the function that asks the security modules one after the other.
//
// The program itself stays: the kernel may leave a twin out when it was preempted
// in the middle of it. Then Landlock or the program refuses, without a record or
// with one. Twins cannot use socket storage, so the hooks of Unix sockets have none.
var beforeLandlock = []string{
	"file_open", "file_ioctl", "file_ioctl_compat",
	"path_unlink", "path_rmdir", "path_mkdir", "path_mknod", "path_symlink", "path_link",
	"path_rename", "path_truncate",
	"ptrace_access_check", "task_kill",
	"sb_mount", "sb_umount", "sb_pivotroot", "sb_remount", "move_mount",
}

// addTwin adds the twin of a hook's program to spec and returns its name; "" where
// the hook needs none or the kernel has no place for it.
func addTwin(spec *ebpf.CollectionSpec, kernel *btf.Spec, hook Hook, program string) string {
	if program == "" || !slices.Contains(beforeLandlock, hook.Name) {
		return ""
	}
	caller := "security_" + hook.Name
	var fn, lsm *btf.Func
	if kernel.TypeByName(caller, &fn) != nil ||
		kernel.TypeByName("bpf_lsm_"+hook.Name, &lsm) != nil ||
		len(fn.Type.(*btf.FuncProto).Params) != len(lsm.Type.(*btf.FuncProto).Params) {
		return ""
	}
	twin := spec.Programs[program].Copy()
	twin.Name = "first_" + program
	twin.Type, twin.AttachType, twin.AttachTo = ebpf.Tracing, ebpf.AttachModifyReturn, caller
	spec.Programs[twin.Name] = twin
	return twin.Name
}
