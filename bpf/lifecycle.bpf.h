/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Beginning and end of a jail. Both ends are noticed here, so that neither
 * hangs on a supervisor that may be killed.
 */
#ifndef AGENT_LOCK_LIFECYCLE_BPF_H
#define AGENT_LOCK_LIFECYCLE_BPF_H

#include "jail.bpf.h"
#include "network.bpf.h"

static __noinline int write_descriptor(struct seq_file *seq, struct descriptor *d)
{
	return bpf_seq_write(seq, d, sizeof(*d));
}

/*
 * Tells the reader where the inodes of its own and its children's open
 * descriptors live. An open descriptor pins its inode, so the address stays
 * true while the supervisor holds it.
 */
SEC("iter/task_file")
int descriptors(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task, *parent;
	struct file *file = ctx->file;
	__u32 self = bpf_get_current_pid_tgid() >> 32;
	struct nsproxy *nsproxy;
	struct descriptor d = {};

	if (!task || !file)
		return 0;
	parent = task->real_parent;
	if (task->tgid != self && (!parent || parent->tgid != self))
		return 0;
	nsproxy = task->nsproxy;
	if (!nsproxy)
		return 0;
	d.inode = (__u64)file->f_inode;
	d.dentry = (__u64)file->f_path.dentry;
	d.parent = (__u64)file->f_path.dentry->d_parent;
	d.tgid = task->tgid;
	d.pidns = nsproxy->pid_ns_for_children->ns.inum;
	d.fd = ctx->fd;
	d.child = task->tgid != self;
	if (!d.child)
		tell_overlays(d.overlays, BPF_CORE_READ(file, f_inode, i_sb));
	write_descriptor(ctx->meta->seq, &d);
	return 0;
}

/* The entry at a place, if it is still the jail's. */
static __always_inline struct entry *own_namespace(const struct place *place)
{
	struct entry *ns = bpf_map_lookup_elem(&namespaces, &place->index);

	return ns && ns->cookie == place->cookie ? ns : NULL;
}

/*
 * The last thread of a supervisor: before exit_files() lets go of the inodes
 * whose addresses the labels name, its jail loses all rights.
 */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(supervisor_exit, struct task_struct *task)
{
	__u32 tgid = task->tgid;
	struct entry *ns;
	struct place *place;

	if (task->signal->live.counter != 0)
		return 0;
	place = bpf_map_lookup_elem(&supervisors, &tgid);
	if (!place)
		return 0;
	ns = own_namespace(place);
	if (ns)
		ns->slot = NO_RIGHTS;
	bpf_map_delete_elem(&supervisors, &tgid);
	return 0;
}

/*
 * Pid 1 is freed after everything in its namespace is gone. The entry goes with
 * it, since the next namespace of the host's may get the same inode number.
 */
SEC("lsm/task_free")
int BPF_PROG(task_free, struct task_struct *task)
{
	__u32 tgid = task->tgid;
	struct entry *ns;
	struct place *place;

	if (task->pid != task->tgid)
		return 0;
	place = bpf_map_lookup_elem(&inits, &tgid);
	if (!place)
		return 0;
	ns = own_namespace(place);
	if (ns)
		ns->inum = 0;
	bpf_map_delete_elem(&inits, &tgid);
	return 0;
}

/* The memory may be the host's next socket. */
SEC("lsm/sk_free_security")
int BPF_PROG(sk_free_security, struct sock *sk)
{
	if (is_inet(sk->__sk_common.skc_family))
		forget_socket((__u64)sk);
	return 0;
}

#endif
