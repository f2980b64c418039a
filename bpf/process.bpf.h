/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Mounts, namespaces, other processes and BPF itself: what a jail never does,
 * whatever its policy says.
 */
#ifndef AGENT_LOCK_PROCESS_BPF_H
#define AGENT_LOCK_PROCESS_BPF_H

#include "jail.bpf.h"

static __always_inline int never(__u32 hook, int ret)
{
	struct current_jail c = {};

	if (ret || !jailed(&c, hook))
		return ret;
	return refuse_always(&c);
}

SEC("lsm/sb_mount")
int BPF_PROG(sb_mount, const char *dev_name, const struct path *path, const char *type,
	     unsigned long flags, void *data, int ret)
{
	return never(HOOK_SB_MOUNT, ret);
}

SEC("lsm/sb_umount")
int BPF_PROG(sb_umount, struct vfsmount *mnt, int flags, int ret)
{
	return never(HOOK_SB_UMOUNT, ret);
}

SEC("lsm/sb_pivotroot")
int BPF_PROG(sb_pivotroot, const struct path *old_path, const struct path *new_path, int ret)
{
	return never(HOOK_SB_PIVOTROOT, ret);
}

SEC("lsm/sb_remount")
int BPF_PROG(sb_remount, struct super_block *sb, void *mnt_opts, int ret)
{
	return never(HOOK_SB_REMOUNT, ret);
}

SEC("lsm/move_mount")
int BPF_PROG(move_mount, const struct path *from_path, const struct path *to_path, int ret)
{
	return never(HOOK_MOVE_MOUNT, ret);
}

SEC("lsm/path_chroot")
int BPF_PROG(path_chroot, const struct path *path, int ret)
{
	return never(HOOK_PATH_CHROOT, ret);
}

SEC("lsm/userns_create")
int BPF_PROG(userns_create, const struct cred *cred, int ret)
{
	return never(HOOK_USERNS_CREATE, ret);
}

SEC("lsm/bpf")
int BPF_PROG(bpf, int cmd, void *attr, unsigned int size, int ret)
{
	return never(HOOK_BPF, ret);
}

SEC("lsm/bpf_map")
int BPF_PROG(bpf_map, void *map, unsigned int fmode, int ret)
{
	return never(HOOK_BPF_MAP, ret);
}

SEC("lsm/bpf_prog")
int BPF_PROG(bpf_prog, void *prog, int ret)
{
	return never(HOOK_BPF_PROG, ret);
}

/* In the same jail, and not its pid 1, which holds what the jail must not have. */
static __always_inline bool is_peer(struct current_jail *c, struct task_struct *task)
{
	struct nsproxy *nsproxy = task->nsproxy;
	struct pid_namespace *ns;
	struct task_struct *init;

	if (!nsproxy || !c->ns)
		return false;
	init = c->ns->child_reaper;
	if (!init || init->tgid == task->tgid)
		return false;
	ns = nsproxy->pid_ns_for_children;
	for (int i = 0; i < MAX_PIDNS_LEVEL; i++) {
		if (!ns)
			return false;
		if (ns == c->ns)
			return true;
		ns = ns->parent;
	}
	return false;
}

SEC("lsm/ptrace_access_check")
int BPF_PROG(ptrace_access_check, struct task_struct *child, unsigned int mode, int ret)
{
	struct current_jail c = {};

	if (ret || !jailed(&c, HOOK_PTRACE_ACCESS_CHECK) || is_peer(&c, child))
		return ret;
	return refuse_always(&c);
}

SEC("lsm/ptrace_traceme")
int BPF_PROG(ptrace_traceme, struct task_struct *parent, int ret)
{
	struct current_jail c = {};

	if (ret || !jailed(&c, HOOK_PTRACE_TRACEME) || is_peer(&c, parent))
		return ret;
	return refuse_always(&c);
}

#endif
