/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The part of the kernel's types that the programs read. Offsets come from the
 * running kernel (CO-RE), so only names and kinds of fields matter here; a
 * field that is gone makes the load fail, which is what a jail wants.
 */
#ifndef AGENT_LOCK_KERNEL_BPF_H
#define AGENT_LOCK_KERNEL_BPF_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef unsigned short umode_t;
typedef _Bool bool;

#define NULL  ((void *)0)
#define true  1
#define false 0

/* include/uapi/linux/bpf.h */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_LPM_TRIE = 11,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum {
	BPF_F_NO_PREALLOC = 1 << 0,
	BPF_F_RDONLY_PROG = 1 << 7
};
enum {
	BPF_ANY = 0,
	BPF_EXIST = 2,
};
enum {
	BPF_SK_STORAGE_GET_F_CREATE = 1 << 0
};

/* include/uapi/asm-generic/errno-base.h and errno.h */
enum {
	EPERM = 1,
	ENOENT = 2,
	EACCES = 13,
	EXDEV = 18,
	ENOPROTOOPT = 92,
	EPROTONOSUPPORT = 93,
	EAFNOSUPPORT = 97,
	ECONNREFUSED = 111
};

/* include/linux/fs.h: fmode_t, and the open flag that only the kernel sets. */
enum {
	FMODE_READ = 1 << 0,
	FMODE_WRITE = 1 << 1,
	FMODE_BACKING = 3 << 24 /* opened in place of another; the bit differs by kernel */
};
enum {
	FMODE_EXEC_FLAG = 1 << 5
};
enum {
	O_TRUNC = 01000
};
enum {
	ATTR_MODE = 1 << 0,
	ATTR_UID = 1 << 1,
	ATTR_GID = 1 << 2,
	ATTR_SIZE = 1 << 3
};
#define SB_NOUSER (1UL << 31)

/* include/uapi/linux/stat.h */
enum {
	S_IFMT = 0170000,
	S_IFREG = 0100000,
	S_IFDIR = 0040000,
	S_IFBLK = 0060000,
	S_IFCHR = 0020000,
	S_IFSOCK = 0140000,
	S_ISUID = 04000,
	S_ISGID = 02000,
	S_IROTH = 00004,
	S_IWOTH = 00002,
	S_IXOTH = 00001
};
#define S_ISREG(mode)	 (((mode) & S_IFMT) == S_IFREG)
#define S_ISDIR(mode)	 (((mode) & S_IFMT) == S_IFDIR)
#define S_ISSOCK(mode)	 (((mode) & S_IFMT) == S_IFSOCK)
#define S_ISCHR(mode)	 (((mode) & S_IFMT) == S_IFCHR)
#define S_ISDEVICE(mode) (((mode) & S_IFMT) == S_IFBLK || ((mode) & S_IFMT) == S_IFCHR)

/* include/linux/socket.h, include/linux/net.h */
enum {
	AF_UNSPEC = 0,
	AF_UNIX = 1,
	AF_INET = 2,
	AF_INET6 = 10,
	AF_NETLINK = 16,
	AF_UNREADABLE = 0xffff /* none */
};
enum {
	SOCK_STREAM = 1,
	SOCK_DGRAM = 2
};
enum {
	SOL_IP = 0,
	SOL_SOCKET = 1,
	SOL_TCP = 6,
	SOL_IPV6 = 41
};
enum {
	SO_REUSEADDR = 2,
	SO_REUSEPORT = 15,
	SO_BINDTODEVICE = 25,
	SO_BINDTOIFINDEX = 62
};
#define MSG_FASTOPEN 0x20000000

/* include/uapi/linux/in.h, in6.h, ipv6.h, tcp.h */
enum {
	IPPROTO_TCP = 6,
	IPPROTO_UDP = 17
};
enum {
	IP_OPTIONS = 4,
	IP_RETOPTS = 7
};
enum {
	IPV6_2292RTHDR = 5,
	IPV6_2292PKTOPTIONS = 6,
	IPV6_FLOWLABEL_MGR = 32,
	IPV6_RTHDR = 57
};
#define TCP_REPAIR 19
#define TCP_LISTEN 10 /* include/net/tcp_states.h */

/* include/uapi/linux/netlink.h, rtnetlink.h */
#define NETLINK_ROUTE 0
#define RTM_BASE      16

/* include/uapi/linux/capability.h and include/linux/security.h */
enum {
	CAP_CHOWN = 0,
	CAP_DAC_OVERRIDE = 1,
	CAP_DAC_READ_SEARCH = 2,
	CAP_FOWNER = 3,
	CAP_FSETID = 4,
	CAP_KILL = 5,
	CAP_SETGID = 6,
	CAP_SETUID = 7,
	CAP_SETPCAP = 8,
	CAP_NET_BIND_SERVICE = 10,
	CAP_IPC_LOCK = 14,
	CAP_IPC_OWNER = 15,
	CAP_SYS_PTRACE = 19
};
#define CAP_OPT_NOAUDIT	 (1 << 1)

#define PF_IO_WORKER	 0x00000010 /* include/linux/sched.h */
#define PROC_SUPER_MAGIC 0x9fa0	    /* include/uapi/linux/magic.h */

/* include/uapi/asm-generic/ioctls.h */
enum {
	TIOCSTI = 0x5412,
	TIOCLINUX = 0x541C,
	TIOCSETD = 0x5423,
	FIOASYNC = 0x5452
};
#define IOC_TYPE(cmd) (((cmd) >> 8) & 0xff)
#define TERMINAL_TYPE 0x54

/* include/uapi/asm-generic/fcntl.h */
#define F_SETFL 4
#define FASYNC	00020000

/* include/uapi/linux/fs.h: those that only tell. */
#define FIGETBSZ	  2
#define FS_IOC_GETFLAGS	  0x80086601
#define FS_IOC32_GETFLAGS 0x80046601
#define FS_IOC_GETVERSION 0x80087601
#define FS_IOC_FIEMAP	  0xC020660B
#define FS_IOC_FSGETXATTR 0x801C581F
#define FS_IOC_GETFSLABEL 0x81009431

#define KERNEL_TYPE	  __attribute__((preserve_access_index))

struct super_block {
	__u32 s_dev;
	unsigned long s_flags;
	unsigned long s_magic;
	void *s_fs_info;
} KERNEL_TYPE;

struct inode {
	umode_t i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
	unsigned int i_nlink;
	__u32 i_generation;
} KERNEL_TYPE;

struct qstr {
	__u32 len;
	const unsigned char *name;
} KERNEL_TYPE;

struct hlist_bl_node {
	struct hlist_bl_node **pprev;
} KERNEL_TYPE;

struct dentry {
	struct hlist_bl_node d_hash;
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
	struct super_block *d_sb;
} KERNEL_TYPE;

#define RENAME_EXCHANGE (1 << 1) /* include/uapi/linux/fs.h */

/* The least that fits into every kernel's short names, with its end. */
#define DNAME_INLINE 32

struct vfsmount {
	struct super_block *mnt_sb;
} KERNEL_TYPE;

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
} KERNEL_TYPE;

struct cred;

struct file {
	unsigned int f_mode;
	unsigned int f_flags;
	struct path f_path;
	struct inode *f_inode;
	const struct cred *f_cred;
} KERNEL_TYPE;

/* Since 6.8: a file that the kernel opens in place of another one. */
struct backing_file {
	struct file file;
	struct path user_path;
} KERNEL_TYPE;

struct ns_common {
	unsigned int inum;
} KERNEL_TYPE;

struct task_struct;

struct pid_namespace {
	struct task_struct *child_reaper;
	unsigned int level;
	struct pid_namespace *parent;
	struct ns_common ns;
} KERNEL_TYPE;

struct nsproxy {
	struct pid_namespace *pid_ns_for_children;
} KERNEL_TYPE;

struct upid {
	int nr;
	struct pid_namespace *ns;
} KERNEL_TYPE;

struct pid {
	unsigned int level;
	struct upid numbers[1];
} KERNEL_TYPE;

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
} KERNEL_TYPE;

struct group_info;
struct user_namespace;

struct cred {
	struct user_namespace *user_ns;
	struct group_info *group_info;
} KERNEL_TYPE;

struct task_struct {
	unsigned int flags;
	int pid;
	int tgid;
	struct task_struct *real_parent;
	struct pid *thread_pid;
	struct nsproxy *nsproxy;
	struct signal_struct *signal;
	const struct cred *real_cred;
	const struct cred *cred;
} KERNEL_TYPE;

struct iattr {
	unsigned int ia_valid;
	umode_t ia_mode;
} KERNEL_TYPE;

struct net {
	struct ns_common ns;
} KERNEL_TYPE;

typedef struct {
	struct net *net;
} possible_net_t;

struct in6_addr {
	__u8 bytes[16];
};

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	unsigned char skc_reuse : 4;
	unsigned char skc_reuseport : 1;
	unsigned char skc_ipv6only : 1;
	int skc_bound_dev_if;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
} KERNEL_TYPE;

struct sock_reuseport;

struct sock {
	struct sock_common __sk_common;
	__u16 sk_type;
	__u16 sk_protocol;
	struct sock_reuseport *sk_reuseport_cb;
} KERNEL_TYPE;

struct sockaddr;

struct msghdr {
	void *msg_name;
	int msg_namelen;
	void *msg_control;
	bool msg_control_is_user : 1;
	unsigned int msg_flags;
	unsigned long msg_controllen;
} KERNEL_TYPE;

struct sk_buff {
	unsigned int len;
	unsigned int data_len;
	unsigned char *data;
} KERNEL_TYPE;

struct socket {
	struct sock *sk;
} KERNEL_TYPE;

struct unix_sock {
	struct path path;
} KERNEL_TYPE;

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
} KERNEL_TYPE;

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	__u32 fd;
	struct file *file;
} KERNEL_TYPE;

struct key {
	const char *description;
} KERNEL_TYPE;

struct posix_acl;

#endif
