/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A jail whose command runs as root (JAIL_ROOT). File modes stop nothing there
 * and capabilities reach beyond the jail, so what other jails are kept from by
 * the kernel's own checks is decided here.
 */
#ifndef AGENT_LOCK_ROOT_BPF_H
#define AGENT_LOCK_ROOT_BPF_H

#include "label.bpf.h"

/* ---- Capabilities ---- */

/*
 * Those that reach no further than the labels and the namespaces do. All others
 * are refused, as are those that a later kernel adds:
 *
 *   DAC_READ_SEARCH    opens by handle; DAC_OVERRIDE does the rest of its work
 *   FSETID             keeps set-id bits on a file that is written to
 *   SETFCAP            a file that gives capabilities to who runs it outside
 *   MKNOD, SYS_RAWIO   disks, memory, ports
 *   SYS_ADMIN          mounts, namespaces, swap, quotas, terminals of others …
 *   SYS_MODULE, SYS_BOOT, SYS_CHROOT, SYS_PACCT, SYS_TIME, SYSLOG, BPF, PERFMON,
 *   AUDIT_*, MAC_*, CHECKPOINT_RESTORE, SYS_TTY_CONFIG     the machine's
 *   NET_ADMIN, NET_RAW, NET_BROADCAST                      the machine's network
 *   SYS_NICE, SYS_RESOURCE, WAKE_ALARM, BLOCK_SUSPEND      at the cost of others
 *   LINUX_IMMUTABLE, LEASE                                 files that stay in the way
 */
static __always_inline bool is_harmless(int capability)
{
	switch (capability) {
	case CAP_CHOWN:		   /* path_chown says of what */
	case CAP_DAC_OVERRIDE:	   /* the labels say where */
	case CAP_FOWNER:	   /* the same */
	case CAP_KILL:		   /* task_kill says whom */
	case CAP_SETGID:	   /* other ids have no more rights in the jail */
	case CAP_SETUID:	   /* the same */
	case CAP_SETPCAP:	   /* only gives up */
	case CAP_NET_BIND_SERVICE: /* a port number below 1024 */
	case CAP_IPC_LOCK:	   /* memory, which is not limited either */
	case CAP_IPC_OWNER:	   /* the ipc namespace is the jail's */
	case CAP_SYS_PTRACE:	   /* ptrace_access_check says whom */
		return true;
	}
	return false;
}

/*
 * The kernel works under other credentials than the task's: overlayfs under those
 * of who mounted it. The task's own workers for io_uring do not count.
 */
static __always_inline bool acts_for_another(const struct cred *cred)
{
	struct task_struct *task = bpf_get_current_task_btf();

	if (task->flags & PF_IO_WORKER)
		return false;
	return cred == task->cred && cred != task->real_cred;
}

/*
 * The kernel asks for capabilities that nobody needs: for two of them whenever a file
 * is opened or written to, for SYS_ADMIN in listxattr(2). So there is one record a
 * second for each at most, and none where it wants no audit record.
 */
static __always_inline bool is_worth_a_record(struct current_jail *c, unsigned int opts)
{
	struct told *told = bpf_map_lookup_elem(&told_capabilities, &c->slot);
	__u64 now = bpf_ktime_get_ns();
	__u32 place = c->number % MAX_CAPABILITIES;

	if (opts & CAP_OPT_NOAUDIT || !told)
		return false;
	if (c->number == CAP_DAC_READ_SEARCH || c->number == CAP_FSETID)
		return false;
	if (now - told->at_ns[place] < 1000000000ULL)
		return false;
	told->at_ns[place] = now;
	return true;
}

SEC("lsm/capable")
int BPF_PROG(capable, const struct cred *cred, struct user_namespace *ns, int capability,
	     unsigned int opts, int ret)
{
	struct current_jail c;

	if (ret || !jailed(&c, HOOK_CAPABLE))
		return ret;
	if (!(c.jail->flags & JAIL_ROOT) || is_harmless(capability) || acts_for_another(cred))
		return 0;
	c.number = capability;
	if (is_worth_a_record(&c, opts))
		return refuse_always(&c);
	return ERROR(EPERM);
}

/* ---- Files ---- */

/* Of a name, enough to know "net" and "task" and whether it is a number. */
struct start_of_name {
	char c[6];
};

static __always_inline struct start_of_name start_of(struct dentry *dentry)
{
	struct start_of_name name = {};

	bpf_probe_read_kernel_str(name.c, sizeof(name.c), dentry->d_name.name);
	return name;
}

static __always_inline bool is_net(struct dentry *dentry)
{
	struct start_of_name name = start_of(dentry);

	return name.c[0] == 'n' && name.c[1] == 'e' && name.c[2] == 't' && !name.c[3];
}

#define MAX_PROC_DEPTH 12

/*
 * Below a directory of a process in /proc, where ptrace_access_check decides. But
 * net/ in there, or in task/TID/, is the machine's network, and pid 1 shares the
 * supervisor's memory: what is written of that holds for both (oom_score_adj).
 */
static __noinline bool is_of_process(struct dentry *dentry)
{
	struct dentry *first = dentry, *second = dentry, *fourth = dentry, *third = dentry;
	struct start_of_name name;

	if (dentry->d_sb->s_magic != PROC_SUPER_MAGIC)
		return false;
	for (int i = 0; i < MAX_PROC_DEPTH; i++) {
		struct dentry *parent = first->d_parent;

		if (parent->d_parent == parent) {
			name = start_of(first);
			if (name.c[0] < '0' || name.c[0] > '9')
				return false;
			if (name.c[0] == '1' && !name.c[1])
				return false;
			return !is_net(second) && !is_net(fourth);
		}
		fourth = third;
		third = second;
		second = first;
		first = parent;
	}
	return false;
}

static long to_private(__u32 i, struct walk *w)
{
	struct dentry *parent = w->dentry->d_parent;
	struct inode *inode = parent->d_inode;

	if (parent == w->dentry || find_label(w->jail, w->dentry))
		return 1;
	if (is_null(inode) || !(inode->i_mode & S_IXOTH)) {
		w->end = parent;
		return 1;
	}
	w->dentry = parent;
	return 0;
}

/*
 * May everyone use it, by its mode and those of the directories up to the label?
 * A program that is executed need not be readable.
 */
static __noinline bool is_public(const struct jail *jail, struct dentry *dentry, __u32 want)
{
	struct walk w = {.jail = jail, .dentry = dentry};
	struct inode *inode = dentry->d_inode;
	umode_t need = 0;

	if (want & RIGHT_EXECUTE)
		need |= S_IXOTH;
	else if (want & RIGHT_READ)
		need |= S_IROTH;
	if (want & RIGHT_WRITE)
		need |= S_IWOTH;
	if (is_null(inode) || (inode->i_mode & need) != need)
		return false;
	bpf_loop(MAX_DEPTH, to_private, &w, 0);
	return !w.end;
}

/* The project's files run outside too, as root if they say so. */
static __always_inline bool gives_identity(umode_t mode)
{
	return !S_ISDIR(mode) && mode & (S_ISUID | S_ISGID);
}

/* Bits that a file has not yet. */
static __always_inline bool adds_identity(struct current_jail *c, struct dentry *dentry,
					  umode_t mode)
{
	struct inode *inode = dentry->d_inode;
	umode_t has = is_null(inode) ? S_IFREG : inode->i_mode;

	if (!(c->jail->flags & JAIL_ROOT))
		return false;
	return gives_identity((has & S_IFMT) | (mode & ~has & (S_ISUID | S_ISGID)));
}

/* What a label that gives the right does not give to root. Wanting nothing: looking. */
static __noinline int check_root(struct current_jail *c, struct dentry *dentry, __u32 want,
				 __u32 given)
{
	struct inode *inode = dentry->d_inode;

	if (given & RIGHT_PUBLIC && !is_public(c->jail, dentry, want) && !is_of_process(dentry))
		return refuse(c, dentry, want, given, ERROR(EACCES));
	if (is_null(inode) || !want)
		return 0;
	/* Also a file that O_TMPFILE made with such a mode. */
	if (want & RIGHT_WRITE && gives_identity(inode->i_mode))
		return refuse(c, dentry, want, given, ERROR(EPERM));
	/* A device node that came with the project; a rule on the node itself opens it. */
	if (given & RIGHT_LINKED && S_ISDEVICE(inode->i_mode) && !find_label(c->jail, inode))
		return refuse(c, dentry, want, given, ERROR(EPERM));
	return 0;
}

#endif
