/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Mounts, namespaces, other processes, keys, BPF and other doors into the
 * kernel: what a jail never does, whatever its policy says.
 */
#ifndef AGENT_LOCK_PROCESS_BPF_H
#define AGENT_LOCK_PROCESS_BPF_H

#include "jail.bpf.h"

static __always_inline int never(__u32 hook, int ret)
{
	struct current_jail c;

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
int BPF_PROG(bpf, int cmd, void *attr, unsigned int size, bool kernel, int ret)
{
	return never(HOOK_BPF, ret);
}

/* 6.12 does not say whether the kernel itself asks; 6.16 does. */
SEC("lsm/bpf")
int BPF_PROG(bpf_nokernel, int cmd, void *attr, unsigned int size, int ret)
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
	__u32 self = bpf_get_current_pid_tgid() >> 32;
	struct nsproxy *nsproxy = task->nsproxy;
	struct pid_namespace *ns;
	struct task_struct *init;

	if (task->tgid == self)
		return true;
	if (!c->ns)
		return false;
	init = c->ns->child_reaper;
	if (!init || init->tgid == task->tgid)
		return false;
	if (!nsproxy) /* dead, perhaps a child that nobody has waited for */
		return exiting_task_jail(task) == c->ns->ns.inum;
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

static __always_inline int only_peers(struct task_struct *task, __u32 hook, int ret)
{
	struct current_jail c;

	if (ret || !jailed(&c, hook) || is_peer(&c, task))
		return ret;
	return refuse_always(&c);
}

SEC("lsm/ptrace_access_check")
int BPF_PROG(ptrace_access_check, struct task_struct *child, unsigned int mode, int ret)
{
	return only_peers(child, HOOK_PTRACE_ACCESS_CHECK, ret);
}

/* kill(0) reaches the process group of the caller, which others outside may be in. */
SEC("lsm/task_kill")
int BPF_PROG(task_kill, struct task_struct *target, void *info, int sig, const struct cred *cred,
	     int ret)
{
	return only_peers(target, HOOK_TASK_KILL, ret);
}

SEC("lsm/task_setnice")
int BPF_PROG(task_setnice, struct task_struct *task, int nice, int ret)
{
	return only_peers(task, HOOK_TASK_SETNICE, ret);
}

SEC("lsm/task_setioprio")
int BPF_PROG(task_setioprio, struct task_struct *task, int ioprio, int ret)
{
	return only_peers(task, HOOK_TASK_SETIOPRIO, ret);
}

/* ---- Keys ---- */

/* The kernel makes the user's keyrings (_uid.N, _uid_ses.N) when they are first asked for. */
static __always_inline bool is_users_keyring(struct key *key)
{
	char name[5] = {};

	bpf_probe_read_kernel_str(name, sizeof(name), key->description);
	return name[0] == '_' && name[1] == 'u' && name[2] == 'i' && name[3] == 'd';
}

/* An address that is used again belongs to whoever uses it now. */
SEC("lsm/key_alloc")
int BPF_PROG(key_alloc, struct key *key, const struct cred *cred, unsigned long flags, int ret)
{
	struct current_jail c;
	__u64 address = (__u64)key, cookie;

	if (ret)
		return ret;
	if (!jailed(&c, 0) || is_users_keyring(key)) {
		bpf_map_delete_elem(&keys, &address);
		return 0;
	}
	cookie = c.jail->cookie;
	bpf_map_update_elem(&keys, &address, &cookie, BPF_ANY);
	return 0;
}

/* The keyrings of the user are the host's; those made in the jail are its own. */
SEC("lsm/key_permission")
int BPF_PROG(key_permission, void *key_ref, const struct cred *cred, unsigned int need_perm,
	     int ret)
{
	struct current_jail c;
	__u64 address, *owner;

	if (ret || !jailed(&c, HOOK_KEY_PERMISSION))
		return ret;
	/* A pointer to a struct that is nowhere defined: only the helper reads it. */
	if (bpf_get_func_arg(ctx, 0, &address))
		return refuse_always(&c);
	address &= ~1ULL; /* bit 0: possessed */
	owner = bpf_map_lookup_elem(&keys, &address);
	if (owner && *owner && *owner == c.jail->cookie)
		return 0;
	return refuse(&c, NULL, 0, 0, ERROR(EACCES));
}

/* ---- Doors into the kernel ---- */

SEC("lsm/perf_event_open")
int BPF_PROG(perf_event_open, int type, int ret)
{
	return never(HOOK_PERF_EVENT_OPEN, ret);
}

/* 6.1 and 6.6 pass the attributes too. */
SEC("lsm/perf_event_open")
int BPF_PROG(perf_event_open_attr, void *attr, int type, int ret)
{
	return never(HOOK_PERF_EVENT_OPEN, ret);
}

SEC("lsm/kernel_module_request")
int BPF_PROG(kernel_module_request, char *kmod_name, int ret)
{
	return never(HOOK_KERNEL_MODULE_REQUEST, ret);
}

SEC("lsm/kernel_load_data")
int BPF_PROG(kernel_load_data, int id, bool contents, int ret)
{
	return never(HOOK_KERNEL_LOAD_DATA, ret);
}

SEC("lsm/kernel_read_file")
int BPF_PROG(kernel_read_file, struct file *file, int id, bool contents, int ret)
{
	return never(HOOK_KERNEL_READ_FILE, ret);
}

SEC("lsm/syslog")
int BPF_PROG(syslog, int type, int ret)
{
	return never(HOOK_SYSLOG, ret);
}

/* Threads and identities of io_uring; its other requests meet the hooks above. */
SEC("lsm/uring_sqpoll")
int BPF_PROG(uring_sqpoll, int ret)
{
	return never(HOOK_URING_SQPOLL, ret);
}

SEC("lsm/uring_override_creds")
int BPF_PROG(uring_override_creds, const struct cred *new, int ret)
{
	return never(HOOK_URING_OVERRIDE_CREDS, ret);
}

SEC("lsm/uring_cmd")
int BPF_PROG(uring_cmd, void *cmd, int ret)
{
	return never(HOOK_URING_CMD, ret);
}

SEC("lsm/quotactl")
int BPF_PROG(quotactl, int cmds, int type, int id, struct super_block *sb, int ret)
{
	return never(HOOK_QUOTACTL, ret);
}

SEC("lsm/settime")
int BPF_PROG(settime, const void *ts, const void *tz, int ret)
{
	return never(HOOK_SETTIME, ret);
}

#endif
