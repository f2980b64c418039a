/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What every hook shares: which jail the current task is in, which label rules
 * a dentry, and how a denial is recorded.
 */
#ifndef AGENT_LOCK_JAIL_BPF_H
#define AGENT_LOCK_JAIL_BPF_H

#include "kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

/* ---- Shared with Go (bpf2go generates the Go side from these) ---- */

#define MAX_JAILS  64
#define LABEL_BITS 12
#define MAX_LABELS (1 << LABEL_BITS)

/* A right holds for the labelled object and all below it. */
enum right {
	RIGHT_READ = 1 << 0,
	RIGHT_WRITE = 1 << 1,
	RIGHT_EXECUTE = 1 << 2,
	RIGHT_SELF = 1 << 3,	/* of the object alone: exists, stat and readlink */
	RIGHT_CONNECT = 1 << 4, /* a Unix socket of the host's that may be talked to */

	/* Not rights, but what else is to be known at a label. */
	RIGHT_LINKED = 1 << 5,		/* names of outside files may be here */
	RIGHT_FIXED = 1 << 6,		/* of the object alone: keeps its name */
	RIGHT_WAY = 1 << 7,		/* leads to a rule, has the rights of what is around it */
	RIGHT_NAMES = 1 << 8,		/* there are rules for names in this directory */
	RIGHT_FILES = 1 << 9,		/* files below may have labels of their own */
	RIGHT_GUARDED = 1 << 10,	/* the rules for names anywhere hold here */
	RIGHT_PUBLIC = 1 << 11,		/* root uses what everyone may use */
	RIGHT_LINKS_READONLY = 1 << 12, /* a file with several names is not changed */
	RIGHT_LINKS_DENY = 1 << 13,	/* ... nor opened */
};
#define RIGHT_OWN (RIGHT_SELF | RIGHT_FIXED)
#define RIGHT_ANY (RIGHT_READ | RIGHT_WRITE | RIGHT_EXECUTE | RIGHT_SELF | RIGHT_CONNECT)

enum jail_flag {
	JAIL_SHOW_OUTSIDE = 1 << 0, /* EACCES where it would be ENOENT */
	JAIL_ROOT = 1 << 1,	    /* the command runs as root: see root.bpf.h */
};

/* Of a directory, by its dentry, of which it has one; of anything else by its inode. */
struct label {
	__u64 object; /* address; 0: unused */
	enum right rights;
	__u32 unused;
};

/* One jail's slot. Written by the supervisor before a namespace leads to it. */
struct jail {
	__u64 cookie; /* differs between any two jails, also over time */
	__u32 multipliers[2];
	enum jail_flag flags;
	__u32 slot; /* its own number */
	/*
	 * Always 0, which the verifier does not know: it follows a flag that may be
	 * set or not once, but each that it knows one by one.
	 */
	__u32 zero;
	__u32 unused;
	__u8 initials[256]; /* 1: a rule for names anywhere begins with this byte */
	struct label labels[MAX_LABELS];
};

enum hook {
	HOOK_FILE_OPEN,
	HOOK_FILE_RECEIVE,
	HOOK_FILE_IOCTL,
	HOOK_PATH_UNLINK,
	HOOK_PATH_RMDIR,
	HOOK_PATH_MKDIR,
	HOOK_PATH_MKNOD,
	HOOK_PATH_SYMLINK,
	HOOK_PATH_LINK,
	HOOK_PATH_RENAME,
	HOOK_PATH_TRUNCATE,
	HOOK_PATH_CHMOD,
	HOOK_PATH_CHOWN,
	HOOK_PATH_CHROOT,
	HOOK_PATH_NOTIFY,
	HOOK_INODE_GETATTR,
	HOOK_INODE_SETATTR,
	HOOK_INODE_READLINK,
	HOOK_INODE_GETXATTR,
	HOOK_INODE_LISTXATTR,
	HOOK_INODE_SETXATTR,
	HOOK_INODE_REMOVEXATTR,
	HOOK_INODE_SET_ACL,
	HOOK_INODE_GET_ACL,
	HOOK_INODE_REMOVE_ACL,
	HOOK_SB_STATFS,
	HOOK_SB_MOUNT,
	HOOK_SB_UMOUNT,
	HOOK_SB_PIVOTROOT,
	HOOK_SB_REMOUNT,
	HOOK_MOVE_MOUNT,
	HOOK_USERNS_CREATE,
	HOOK_PTRACE_ACCESS_CHECK,
	HOOK_UNIX_STREAM_CONNECT,
	HOOK_UNIX_MAY_SEND,
	HOOK_BPF,
	HOOK_BPF_MAP,
	HOOK_BPF_PROG,
	HOOK_TASK_KILL,
	HOOK_TASK_SETNICE,
	HOOK_TASK_SETIOPRIO,
	HOOK_KEY_PERMISSION,
	HOOK_PERF_EVENT_OPEN,
	HOOK_KERNEL_MODULE_REQUEST,
	HOOK_KERNEL_LOAD_DATA,
	HOOK_KERNEL_READ_FILE,
	HOOK_SYSLOG,
	HOOK_URING_SQPOLL,
	HOOK_URING_OVERRIDE_CREDS,
	HOOK_URING_CMD,
	HOOK_QUOTACTL,
	HOOK_SETTIME,
	HOOK_SOCKET_CREATE,
	HOOK_SOCKET_CONNECT,
	HOOK_SOCKET_SENDMSG,
	HOOK_SOCKET_SETSOCKOPT,
	HOOK_NETLINK_SEND,
	HOOK_CAPABLE,
	HOOK_FILE_FCNTL,
	HOOK_INODE_FILE_GETATTR,
	HOOK_INODE_FILE_SETATTR,
};

/* An IP address in network order; IPv4 as ::ffff:a.b.c.d. */
struct address {
	__be32 word[4];
};

/* Whom a socket is to talk to, or what kind of socket is to be made. */
struct peer {
	struct address address;
	__u16 port; /* 0: no peer but a kind */
	__u16 protocol;
	__u16 family;
	__u16 type;
};

/* Why something was refused. From WHY_MODE on it is about a socket. */
enum why {
	WHY_RIGHTS,    /* those of the label do not suffice */
	WHY_LINKS,     /* the file has several names */
	WHY_PROTECTED, /* the name is protected */
	WHY_DENIED,    /* the name is denied */
	WHY_MODE,      /* not what the network mode gives */
	WHY_LOCAL,     /* this machine's, and not the jail's own */
	WHY_FORBIDDEN, /* link-local, metadata */
	WHY_KIND,      /* this kind of socket */
	WHY_ROUTE,     /* a route of the packet's own */
	WHY_PORT,      /* sharing a port */
	WHY_OPTION,    /* changing the host's filters */
	WHY_NETLINK,   /* changing the host's network */
};

#define NAME_LEN 64
#define MADE_LEN 64

/*
 * A rule for names: of entries of one directory, or anywhere. In an LPM trie, so
 * that the longest beginning of a name wins; one that ends in a zero byte is a
 * whole name.
 */
struct name_key {
	__u32 bits; /* of what follows */
	__u32 slot;
	__u64 within; /* address of the directory's dentry, or NAMES_* */
	union {
		char name[NAME_LEN];
		__u64 words[NAME_LEN / 8];
	};
};

/* Groups of names; what is larger is a directory. */
#define NAMES_ANYWHERE	    0 /* lower case: case is ignored */
#define NAMES_IN_REPOSITORY 1 /* in a .git */
#define NAMES_IN_MODULES    2 /* at any depth in .git/modules and .git/worktrees */

enum name_kind {
	NAME_RIGHTS,	 /* in one directory: has these rights */
	NAME_PROTECTED,	 /* not changed */
	NAME_DENIED,	 /* not opened, if it is no directory */
	NAME_REPOSITORY, /* git's: NAMES_IN_REPOSITORY hold in it */
	NAME_MODULES,	 /* git's: NAMES_IN_MODULES hold in it */
	NAME_FREE,	 /* nothing below is protected */
};

struct name_rule {
	enum name_kind kind;
	enum right rights;
};

#define EVENT_NAMES    20
#define EVENT_NAME_LEN 64
#define COMM_LEN       16

/* A denial. Names run from the object up to its file system's root. */
struct event {
	__u64 time_ns; /* CLOCK_MONOTONIC */
	enum hook hook;
	enum right want;  /* asked for */
	enum right given; /* by the nearest label */
	__s32 error;
	__u32 pid; /* thread group, in the initial pid namespace */
	__u32 dev; /* file system of the object, as the kernel encodes it; 0: no object */
	__u32 depth;
	enum why why;
	struct peer peer; /* of a socket */
	__u32 number;	  /* of the capability */
	__u32 unused;
	char comm[COMM_LEN];
	char names[EVENT_NAMES][EVENT_NAME_LEN];
};

/* An overlay's credentials, as addresses. They stay while it is mounted. */
struct overlay {
	__u64 cred; /* 0: unused */
	__u64 groups;
	__u64 user_ns;
	__u64 sb; /* of the layer that answers statfs(2) */
};

/* An overlay may have others as layers. */
#define OVERLAYS_DEEP 4

/* One open descriptor of the reading process or of a child of it. */
struct descriptor {
	__u64 inode;  /* address */
	__u64 dentry; /* address */
	__u64 parent; /* of the dentry, which is another than its mount shows where it is a root */
	__u32 tgid;   /* in the initial pid namespace */
	__u32 pidns;  /* inode number */
	__u32 fd;
	__u32 child; /* 1: the child's */
	struct overlay overlays[OVERLAYS_DEEP];
};

/* ---- Maps ---- */

/* The slot after the last is never written: it gives no rights. */
#define NO_RIGHTS MAX_JAILS

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_JAILS + 1);
	__uint(map_flags, BPF_F_RDONLY_PROG);
	__type(key, __u32);
	__type(value, struct jail);
} jails SEC(".maps");

/*
 * Which pid namespaces are jails. A namespace is entered at its inode number,
 * modulo the size: the kernel inlines lookups in an array.
 */
#define NAMESPACE_PLACES 4096

struct entry {
	__u32 inum; /* 0: free */
	__u32 slot;
	__u64 cookie; /* the jail's: an inode number comes again */
};

/* Where a jail's namespace is entered. */
struct place {
	__u32 index;
	__u32 unused;
	__u64 cookie;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NAMESPACE_PLACES);
	__type(key, __u32);
	__type(value, struct entry);
} namespaces SEC(".maps");

/* Thread group of a supervisor -> place of its jail's namespace. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_JAILS);
	__type(key, __u32);
	__type(value, struct place);
} supervisors SEC(".maps");

/* Thread group of a jail's pid 1 -> place of its namespace. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_JAILS);
	__type(key, __u32);
	__type(value, struct place);
} inits SEC(".maps");

/* Denials that did not fit into a slot's ring buffer. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_JAILS);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

struct ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_JAILS);
	__type(key, __u32);
	__array(values, struct ring);
} rings SEC(".maps");

enum owner_flag {
	OWNER_CONNECTED = 1 << 0, /* UDP: connect(2) was called */
	OWNER_SHARES = 1 << 1,	  /* somebody else may have come to share its port */
};

/* Sockets made or accepted in a jail. */
struct owner {
	__u64 cookie; /* the jail's */
	__u64 flags;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct owner);
} sockets SEC(".maps");

#define MAX_NAMES 16384

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, MAX_NAMES);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_RDONLY_PROG);
	__type(key, struct name_key);
	__type(value, struct name_rule);
} names SEC(".maps");

/* A directory, or .git, that a jail has made. */
struct made_key {
	__u64 cookie; /* the jail's */
	__u64 parent; /* inode number */
	__u32 dev;
	__u32 generation;
	char name[MADE_LEN];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct made_key);
	__type(value, __u64); /* 0, or the inode that was to be removed */
} made SEC(".maps");

/* Keys made in a jail: address -> its cookie. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, __u64);
} keys SEC(".maps");

/* When a jail's last record of a capability was written. */
#define MAX_CAPABILITIES 64

struct told {
	__u64 at_ns[MAX_CAPABILITIES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_JAILS + 1);
	__type(key, __u32);
	__type(value, struct told);
} told_capabilities SEC(".maps");

/* ---- Pointers ---- */

/*
 * Verifiers from 6.2 up to 6.13 take the d_inode of a hook's dentry for never NULL
 * and drop a plain test for it; later ones ask for one. So there are two, the second
 * on the low half as a plain number.
 */
static __always_inline bool is_null(const void *pointer)
{
	__u32 low = (__u32)(__u64)pointer;

	asm volatile("%0 = %0" : "+w"(low));
	return !pointer || low == 0;
}

/* ---- Which jail ---- */

#define MAX_PIDNS_LEVEL	  32	      /* include/linux/pid_namespace.h */
#define PROC_PID_INIT_INO 0xEFFFFFFCU /* include/linux/proc_ns.h: the initial namespace */

struct current_jail {
	__u32 slot;
	enum hook hook; /* that is asking */
	enum why why;	/* it refuses */
	__u32 number;	/* for the record */
	const struct jail *jail;
	struct pid_namespace *ns;
	const struct file *opened; /* by file_open; NULL: by no other hook */
};

static __always_inline struct entry *find_namespace(__u32 inum)
{
	__u32 place = inum % NAMESPACE_PLACES;
	struct entry *ns = bpf_map_lookup_elem(&namespaces, &place);

	return ns && ns->inum == inum ? ns : NULL;
}

static __always_inline bool lookup_jail(struct current_jail *c, __u32 inum, enum hook hook)
{
	const struct entry *ns = inum ? find_namespace(inum) : NULL;

	if (!ns)
		return false;
	c->slot = ns->slot;
	c->hook = hook;
	c->why = WHY_RIGHTS;
	c->number = 0;
	c->opened = NULL;
	c->jail = bpf_map_lookup_elem(&jails, &c->slot);
	return c->jail != NULL;
}

struct ancestry {
	struct pid_namespace *ns;
	__u32 found; /* the inode number of a jail's; 0: none yet */
};

/* For a task that is gone: what is read may be, too. */
static long to_namespace_of(__u32 i, struct ancestry *a)
{
	struct pid_namespace *ns = a->ns;
	__u32 inum = BPF_CORE_READ(ns, ns.inum);

	if (find_namespace(inum)) {
		a->found = inum;
		return 1;
	}
	a->ns = BPF_CORE_READ(ns, parent);
	return !a->ns;
}

/*
 * The jail's pid namespace of a task that has no nsproxy: it is past
 * exit_task_namespaces(), dead or dying. Its own pid namespace still tells. Rare,
 * so copied field by field. 0: not jailed.
 */
static __noinline __u32 exiting_task_jail(struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	__u32 level = BPF_CORE_READ(pid, level);
	struct ancestry a = {};

	if (level == 0 || level > MAX_PIDNS_LEVEL)
		return 0;
	bpf_core_read(&a.ns, sizeof(a.ns),
		      (void *)&pid->numbers[0].ns + level * bpf_core_type_size(struct upid));
	bpf_loop(MAX_PIDNS_LEVEL, to_namespace_of, &a, 0);
	return a.found;
}

static long to_namespace(__u32 i, struct ancestry *a)
{
	struct pid_namespace *ns = a->ns->parent;
	__u32 inum;

	if (!ns)
		return 1;
	a->ns = ns;
	inum = ns->ns.inum;
	if (inum == PROC_PID_INIT_INO)
		return 1;
	if (find_namespace(inum)) {
		a->found = inum;
		return 1;
	}
	return 0;
}

/* The same for a namespace below the jail's. */
static __noinline bool lookup_above(struct current_jail *c, enum hook hook)
{
	struct ancestry a = {.ns = c->ns};

	bpf_loop(MAX_PIDNS_LEVEL, to_namespace, &a, 0);
	c->ns = a.ns;
	return lookup_jail(c, a.found, hook);
}

/*
 * Is the current task in a jail? setns(2) and unshare(2) only ever lead to
 * descendants, so the jail's namespace stays among the ancestors of
 * pid_ns_for_children. In the initial namespace this is three loads, and nothing of
 * what it tells is written.
 */
static __always_inline bool jailed(struct current_jail *c, enum hook hook)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct nsproxy *nsproxy = task->nsproxy;
	struct pid_namespace *ns;
	__u32 inum;

	if (!nsproxy) {
		c->ns = NULL;
		return lookup_jail(c, exiting_task_jail(task), hook);
	}
	ns = nsproxy->pid_ns_for_children;
	if (!ns)
		return false;
	inum = ns->ns.inum;
	if (inum == PROC_PID_INIT_INO)
		return false;
	c->ns = ns;
	return lookup_jail(c, inum, hook) || lookup_above(c, hook);
}

#include "overlay.bpf.h"

/* ---- Denials ---- */

/* Opaque to clang: it would compute the error, and 6.12 wants to see its range. */
#define ERROR(n)                                                    \
	({                                                          \
		int error_;                                         \
		asm volatile("%0 = %1" : "=r"(error_) : "i"(-(n))); \
		error_;                                             \
	})

struct naming {
	struct event *event;
	struct dentry *dentry;
};

static long name_one(__u32 i, struct naming *n)
{
	struct dentry *dentry = n->dentry, *parent = dentry->d_parent;

	if (parent == dentry || i >= EVENT_NAMES)
		return 1;
	bpf_probe_read_kernel_str(n->event->names[i], EVENT_NAME_LEN, dentry->d_name.name);
	n->event->depth = i + 1;
	n->dentry = parent;
	return 0;
}

/* The object's path within its file system, last name first. */
static __noinline int name_object(struct event *event, struct dentry *dentry)
{
	struct naming n = {.event = event, .dentry = dentry};

	event->dev = dentry->d_sb->s_dev;
	bpf_loop(EVENT_NAMES, name_one, &n, 0);
	return 0;
}

/* A full buffer loses the record, never the verdict. */
static __always_inline struct event *open_record(struct current_jail *c, __u32 want, __u32 given,
						 int error)
{
	__u32 slot = c->slot;
	struct event *event;
	void *ring;

	ring = bpf_map_lookup_elem(&rings, &slot);
	event = ring ? bpf_ringbuf_reserve(ring, sizeof(*event), 0) : NULL;
	if (!event) {
		__u64 *count = bpf_map_lookup_elem(&lost, &slot);

		if (count)
			__sync_fetch_and_add(count, 1);
		return NULL;
	}
	event->time_ns = bpf_ktime_get_ns();
	event->hook = c->hook;
	event->want = want;
	event->given = given;
	event->error = error;
	event->pid = bpf_get_current_pid_tgid() >> 32;
	event->dev = 0;
	event->depth = 0;
	event->why = c->why;
	__builtin_memset(&event->peer, 0, sizeof(event->peer));
	event->number = c->number;
	event->unused = 0;
	bpf_get_current_comm(event->comm, sizeof(event->comm));
	return event;
}

static __noinline int record(struct current_jail *c, struct dentry *dentry, __u32 want, __u32 given,
			     int error)
{
	struct event *event = open_record(c, want, given, error);

	if (!event)
		return 0;
	if (dentry)
		name_object(event, dentry);
	bpf_ringbuf_submit(event, 0);
	return 0;
}

/* What a file system does behind itself was decided where it was asked for. */
static __always_inline int refuse(struct current_jail *c, struct dentry *dentry, __u32 want,
				  __u32 given, int error)
{
	if (dentry && works_behind(c))
		return 0;
	record(c, dentry, want, given, error);
	return error;
}

/* Something only the host may do, whatever the object. */
static __always_inline int refuse_always(struct current_jail *c)
{
	return refuse(c, NULL, 0, 0, ERROR(EPERM));
}

#endif
