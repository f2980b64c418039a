/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Files: opening, receiving, changing with and without an open, looking.
 * path_* hooks see the operation of the system call; inode_* hooks are used
 * where no path_* hook exists.
 */
#ifndef AGENT_LOCK_FILE_BPF_H
#define AGENT_LOCK_FILE_BPF_H

#include "guard.bpf.h"
#include "root.bpf.h"

/* Pipes, sockets, memfds: on superblocks that no path leads to. */
static __always_inline bool has_no_path(struct dentry *dentry)
{
	return dentry->d_sb->s_flags & SB_NOUSER;
}

/* What is outside does not exist; what visibly exists is refused. */
static __always_inline int refuse_sight(struct current_jail *c, struct dentry *dentry, __u32 want,
					__u32 given)
{
	if (given & RIGHT_ANY || c->jail->flags & JAIL_SHOW_OUTSIDE)
		return refuse(c, dentry, want, given, ERROR(EACCES));
	return refuse(c, dentry, want, given, ERROR(ENOENT));
}

/* Looking at the object itself: reading it is not asked for. */
static __always_inline int check_look(struct current_jail *c, struct dentry *dentry, __u32 given)
{
	if (given & (RIGHT_READ | RIGHT_SELF))
		return c->jail->flags & JAIL_ROOT ? check_root(c, dentry, 0, given) : 0;
	if (has_no_path(dentry))
		return 0;
	return refuse_sight(c, dentry, RIGHT_READ, given);
}

/*
 * A file with several names may be an outside file under an inside name. Its
 * other names cannot be found from here, so the jail's policy decides. A removed
 * name (unhashed, and reached through /proc/self/fd) counts no more, but is one.
 */
static __always_inline bool links_forbid(struct dentry *dentry, __u32 want, __u32 given)
{
	unsigned int others = 2;
	struct inode *inode;

	if (!(given & (want & RIGHT_WRITE ? RIGHT_LINKS_READONLY : RIGHT_LINKS_DENY)))
		return false;
	inode = dentry->d_inode;
	if (is_null(inode) || S_ISDIR(inode->i_mode))
		return false;
	if (!dentry->d_hash.pprev)
		others = 1;
	return inode->i_nlink >= others;
}

/* Why rights that suffice do not help; WHY_RIGHTS: they do. */
static __always_inline enum why forbidden(struct current_jail *c, struct dentry *dentry, __u32 want,
					  __u32 given)
{
	if (given & RIGHT_GUARDED) {
		if (may_be_ruled(c->jail, dentry) && name_denies(c->jail, dentry))
			return WHY_DENIED;
		if (want & RIGHT_WRITE && names_protect(c->jail, dentry, is_directory(dentry)))
			return WHY_PROTECTED;
	}
	if (links_forbid(dentry, want, given))
		return WHY_LINKS;
	return WHY_RIGHTS;
}

static __always_inline int check_use(struct current_jail *c, struct dentry *dentry, __u32 want,
				     __u32 given)
{
	if ((given & want) == want) {
		c->why = forbidden(c, dentry, want, given);
		if (c->why != WHY_RIGHTS)
			return refuse(c, dentry, want, given, ERROR(EACCES));
		return c->jail->flags & JAIL_ROOT ? check_root(c, dentry, want, given) : 0;
	}
	if (has_no_path(dentry))
		return 0;
	if (want & RIGHT_WRITE)
		return refuse(c, dentry, want, given, ERROR(EACCES));
	return refuse_sight(c, dentry, want, given);
}

/* Changing what exists, without an open. */
static __always_inline int check_change(struct current_jail *c, struct dentry *dentry)
{
	dentry = untrusted(dentry);
	return check_use(c, dentry, RIGHT_WRITE, rights_cold(c->jail, dentry));
}

/*
 * The rights for making or removing a name, which may be a rule's own; without
 * RIGHT_WRITE if the name is protected or leads to a rule. With zero in it the verifier
 * follows one outcome, not all.
 */
static __noinline __u32 entry_rights(struct current_jail *c, struct dentry *entry, bool directory)
{
	__u32 given = rights_at(c->jail, entry);
	__u32 why = c->jail->zero;

	if (given & RIGHT_FIXED) {
		given &= ~RIGHT_WRITE;
	} else if (given & RIGHT_WRITE && given & RIGHT_GUARDED &&
		   names_protect(c->jail, entry, directory)) {
		why |= WHY_PROTECTED;
		given &= ~RIGHT_WRITE;
	}
	c->why |= why | c->jail->zero;
	return given | c->jail->zero;
}

static __always_inline int check_entry(struct current_jail *c, struct dentry *entry)
{
	__u32 given = entry_rights(c, entry, is_directory(entry));

	if (given & RIGHT_WRITE)
		return 0;
	return refuse(c, entry, RIGHT_WRITE, given, ERROR(EACCES));
}

static __always_inline int check_removal(struct current_jail *c, struct dentry *entry)
{
	int error;

	entry = untrusted(entry);
	error = check_entry(c, entry);
	if (!error && is_repository(c->jail, entry))
		remember(c->jail, entry, identity_of(entry));
	return error;
}

/* What the jail makes itself is not guarded from it. */
static __always_inline int check_new(struct current_jail *c, struct dentry *entry, bool directory)
{
	__u32 given;

	entry = untrusted(entry);
	given = entry_rights(c, entry, directory);
	if (!(given & RIGHT_WRITE))
		return refuse(c, entry, RIGHT_WRITE, given, ERROR(EACCES));
	if (given & RIGHT_GUARDED && (directory || is_repository(c->jail, entry)))
		remember(c->jail, entry, 0);
	return 0;
}

static __always_inline __u32 wanted_by(struct file *file)
{
	unsigned int flags = file->f_flags;
	__u32 want = file->f_mode & (FMODE_READ | FMODE_WRITE);

	_Static_assert(FMODE_READ == RIGHT_READ && FMODE_WRITE == RIGHT_WRITE, "rights are modes");
	if (flags & O_TRUNC)
		want |= RIGHT_WRITE;
	if (flags & FMODE_EXEC_FLAG)
		want |= RIGHT_EXECUTE;
	return want;
}

/* ---- Opening and receiving ---- */

SEC("lsm/file_open")
int BPF_PROG(file_open, struct file *file, int ret)
{
	struct dentry *dentry = file->f_path.dentry;
	struct current_jail c;
	__u32 want;

	if (ret || !jailed(&c, HOOK_FILE_OPEN))
		return ret;
	c.opened = file;
	want = wanted_by(file);
	return check_use(&c, dentry, want ?: RIGHT_READ, rights_of(c.jail, dentry));
}

/* True for what is no socket. */
static __always_inline bool is_own_socket(struct current_jail *c, struct file *file)
{
	struct socket *sock = bpf_sock_from_file(file);
	struct owner *owner;
	struct sock *sk;

	if (!sock)
		return true;
	sk = sock->sk;
	if (!sk)
		return false;
	owner = bpf_sk_storage_get(&sockets, sk, NULL, 0);
	return owner && owner->cookie && owner->cookie == c->jail->cookie;
}

/* SCM_RIGHTS, and every other way in which a descriptor arrives. */
SEC("lsm/file_receive")
int BPF_PROG(file_receive, struct file *file, int ret)
{
	struct dentry *dentry = file->f_path.dentry;
	struct current_jail c;
	__u32 want, given;

	if (ret || !jailed(&c, HOOK_FILE_RECEIVE))
		return ret;
	if (!is_own_socket(&c, file)) /* it may be connected to anybody */
		return refuse(&c, dentry, RIGHT_CONNECT, 0, ERROR(EACCES));
	want = wanted_by(file);
	given = rights_cold(c.jail, dentry);
	if (!want) /* O_PATH */
		return check_look(&c, dentry, given);
	return check_use(&c, dentry, want, given);
}

/* ---- Changes without an open ---- */

SEC("lsm/path_unlink")
int BPF_PROG(path_unlink, const struct path *dir, struct dentry *dentry, int ret)
{
	struct current_jail c;

	if (ret || !jailed(&c, HOOK_PATH_UNLINK))
		return ret;
	return check_removal(&c, dentry);
}

SEC("lsm/path_rmdir")
int BPF_PROG(path_rmdir, const struct path *dir, struct dentry *dentry, int ret)
{
	struct current_jail c;

	if (ret || !jailed(&c, HOOK_PATH_RMDIR))
		return ret;
	return check_removal(&c, dentry);
}

SEC("lsm/path_mkdir")
int BPF_PROG(path_mkdir, const struct path *dir, struct dentry *dentry, umode_t mode, int ret)
{
	struct current_jail c;

	if (ret || !jailed(&c, HOOK_PATH_MKDIR))
		return ret;
	return check_new(&c, dentry, true);
}

/* Also open(O_CREAT) and bind(2) of a Unix socket. */
SEC("lsm/path_mknod")
int BPF_PROG(path_mknod, const struct path *dir, struct dentry *dentry, umode_t mode,
	     unsigned int dev, int ret)
{
	struct current_jail c;

	if (ret || !jailed(&c, HOOK_PATH_MKNOD))
		return ret;
	/* A way to any disk, or to be root outside. */
	if (S_ISDEVICE(mode) || adds_identity(&c, dentry, mode))
		return refuse_always(&c);
	return check_new(&c, dentry, false);
}

SEC("lsm/path_symlink")
int BPF_PROG(path_symlink, const struct path *dir, struct dentry *dentry, const char *old_name,
	     int ret)
{
	struct current_jail c;

	if (ret || !jailed(&c, HOOK_PATH_SYMLINK))
		return ret;
	return check_entry(&c, untrusted(dentry));
}

/*
 * A new name must not give more than the old one: what is linked has to be
 * changeable already. EXDEV makes git, cargo and pnpm fall back to copying.
 */
static __always_inline int check_link(struct current_jail *c, struct dentry *old_dentry,
				      struct dentry *new_dentry)
{
	const __u32 want = RIGHT_READ | RIGHT_WRITE;
	__u32 from = has_no_path(old_dentry) ? want : entry_rights(c, old_dentry, false);
	__u32 to = entry_rights(c, new_dentry, false);

	if ((from & want) == want && to & RIGHT_WRITE)
		return 0;
	if (to & RIGHT_WRITE)
		return refuse(c, old_dentry, want, from, ERROR(EXDEV));
	if ((from & want) == want)
		return refuse(c, new_dentry, RIGHT_WRITE, to, ERROR(EXDEV));
	return refuse(c, new_dentry, RIGHT_WRITE, to, ERROR(EACCES));
}

SEC("lsm/path_link")
int BPF_PROG(path_link, struct dentry *old_dentry, const struct path *new_dir,
	     struct dentry *new_dentry, int ret)
{
	struct current_jail c;

	if (ret || !jailed(&c, HOOK_PATH_LINK))
		return ret;
	return check_link(&c, untrusted(old_dentry), untrusted(new_dentry));
}

/* Does moving a directory to a name change what is free of rules for names in it? */
static __always_inline bool frees(struct current_jail *c, struct dentry *directory,
				  struct dentry *name, __u32 rights, bool exchange)
{
	if (!is_directory(directory) && !(exchange && is_directory(name)))
		return false;
	return rights & RIGHT_GUARDED || changes_freedom(c->jail, directory, name, exchange);
}

/*
 * What the jail has made stays known under a new name, if there was nothing under
 * it: else it may fail, and what is there is not the jail's.
 */
static __always_inline void renamed(struct current_jail *c, struct dentry *old_dentry,
				    struct dentry *new_dentry)
{
	if (has_made(c->jail, old_dentry) && !exists(new_dentry))
		remember(c->jail, new_dentry, 0);
	else
		forget(c->jail, new_dentry);
	forget(c->jail, old_dentry);
}

static __always_inline int check_rename(struct current_jail *c, struct dentry *old_dentry,
					struct dentry *new_dentry, unsigned int flags)
{
	bool exchange = flags & RENAME_EXCHANGE;
	__u32 from = entry_rights(c, old_dentry, is_directory(exchange ? new_dentry : old_dentry));
	__u32 to = entry_rights(c, new_dentry, is_directory(old_dentry));

	if (from & to & RIGHT_WRITE) {
		if (!((from | to) & RIGHT_GUARDED))
			return 0;
		if (frees(c, old_dentry, new_dentry, from ^ to, exchange)) {
			c->why = WHY_PROTECTED;
			return refuse(c, old_dentry, RIGHT_WRITE, from, ERROR(EXDEV));
		}
		renamed(c, old_dentry, new_dentry);
		return 0;
	}
	if (to & RIGHT_WRITE)
		return refuse(c, old_dentry, RIGHT_WRITE, from, ERROR(EXDEV));
	if (from & RIGHT_WRITE)
		return refuse(c, new_dentry, RIGHT_WRITE, to, ERROR(EXDEV));
	return refuse(c, old_dentry, RIGHT_WRITE, from, ERROR(EACCES));
}

SEC("lsm/path_rename")
int BPF_PROG(path_rename, const struct path *old_dir, struct dentry *old_dentry,
	     const struct path *new_dir, struct dentry *new_dentry, unsigned int flags, int ret)
{
	struct current_jail c;

	if (ret || !jailed(&c, HOOK_PATH_RENAME))
		return ret;
	return check_rename(&c, untrusted(old_dentry), untrusted(new_dentry), flags);
}

SEC("lsm/path_truncate")
int BPF_PROG(path_truncate, const struct path *path, int ret)
{
	struct current_jail c;

	if (ret || !jailed(&c, HOOK_PATH_TRUNCATE))
		return ret;
	return check_change(&c, path->dentry);
}

SEC("lsm/path_chmod")
int BPF_PROG(path_chmod, const struct path *path, umode_t mode, int ret)
{
	struct current_jail c;

	if (ret || !jailed(&c, HOOK_PATH_CHMOD))
		return ret;
	if (adds_identity(&c, path->dentry, mode))
		return refuse_always(&c);
	return check_change(&c, path->dentry);
}

SEC("lsm/path_chown")
int BPF_PROG(path_chown, const struct path *path, __u64 uid, __u64 gid, int ret)
{
	struct current_jail c;

	if (ret || !jailed(&c, HOOK_PATH_CHOWN))
		return ret;
	return check_change(&c, path->dentry);
}

static __always_inline int inode_changed(struct dentry *dentry, __u32 hook, int ret)
{
	struct current_jail c;

	if (ret || !jailed(&c, hook))
		return ret;
	return check_change(&c, dentry);
}

/*
 * Times. Mode, owner and length are decided by path_chmod, path_chown,
 * path_truncate and, where a descriptor is at hand, when it was opened.
 */
static __always_inline int times_changed(struct dentry *dentry, struct iattr *attr, int ret)
{
	if (attr->ia_valid & (ATTR_MODE | ATTR_UID | ATTR_GID | ATTR_SIZE))
		return ret;
	return inode_changed(dentry, HOOK_INODE_SETATTR, ret);
}

SEC("lsm/inode_setattr")
int BPF_PROG(inode_setattr, void *idmap, struct dentry *dentry, struct iattr *attr, int ret)
{
	return times_changed(dentry, attr, ret);
}

/* 6.1 and 6.6 call it without the idmap that 6.12 passes. */
SEC("lsm/inode_setattr")
int BPF_PROG(inode_setattr_noidmap, struct dentry *dentry, struct iattr *attr, int ret)
{
	return times_changed(dentry, attr, ret);
}

SEC("lsm/inode_setxattr")
int BPF_PROG(inode_setxattr, void *idmap, struct dentry *dentry, const char *name,
	     const void *value, __u64 size, int flags, int ret)
{
	return inode_changed(dentry, HOOK_INODE_SETXATTR, ret);
}

SEC("lsm/inode_removexattr")
int BPF_PROG(inode_removexattr, void *idmap, struct dentry *dentry, const char *name, int ret)
{
	return inode_changed(dentry, HOOK_INODE_REMOVEXATTR, ret);
}

SEC("lsm/inode_set_acl")
int BPF_PROG(inode_set_acl, void *idmap, struct dentry *dentry, const char *name,
	     struct posix_acl *acl, int ret)
{
	return inode_changed(dentry, HOOK_INODE_SET_ACL, ret);
}

SEC("lsm/inode_remove_acl")
int BPF_PROG(inode_remove_acl, void *idmap, struct dentry *dentry, const char *name, int ret)
{
	return inode_changed(dentry, HOOK_INODE_REMOVE_ACL, ret);
}

/* Flags, by file_setattr(2) or an ioctl. Since 6.17, which added the system call. */
SEC("lsm/inode_file_setattr")
int BPF_PROG(inode_file_setattr, struct dentry *dentry, void *attr, int ret)
{
	return inode_changed(dentry, HOOK_INODE_FILE_SETATTR, ret);
}

/* ---- Looking ---- */

static __always_inline int looked_at(struct dentry *dentry, __u32 hook, int ret)
{
	struct current_jail c;

	if (ret || !jailed(&c, hook))
		return ret;
	return check_look(&c, dentry, rights_cold(c.jail, dentry));
}

/* stat(2): the one that is asked all the time. */
SEC("lsm/inode_getattr")
int BPF_PROG(inode_getattr, const struct path *path, int ret)
{
	struct dentry *dentry = path->dentry;
	struct current_jail c;

	if (ret || !jailed(&c, HOOK_INODE_GETATTR))
		return ret;
	return check_look(&c, dentry, rights_of(c.jail, dentry));
}

SEC("lsm/inode_file_getattr")
int BPF_PROG(inode_file_getattr, struct dentry *dentry, void *attr, int ret)
{
	return looked_at(dentry, HOOK_INODE_FILE_GETATTR, ret);
}

SEC("lsm/inode_readlink")
int BPF_PROG(inode_readlink, struct dentry *dentry, int ret)
{
	return looked_at(dentry, HOOK_INODE_READLINK, ret);
}

SEC("lsm/inode_getxattr")
int BPF_PROG(inode_getxattr, struct dentry *dentry, const char *name, int ret)
{
	return looked_at(dentry, HOOK_INODE_GETXATTR, ret);
}

SEC("lsm/inode_listxattr")
int BPF_PROG(inode_listxattr, struct dentry *dentry, int ret)
{
	return looked_at(dentry, HOOK_INODE_LISTXATTR, ret);
}

SEC("lsm/inode_get_acl")
int BPF_PROG(inode_get_acl, void *idmap, struct dentry *dentry, const char *name, int ret)
{
	return looked_at(dentry, HOOK_INODE_GET_ACL, ret);
}

SEC("lsm/sb_statfs")
int BPF_PROG(sb_statfs, struct dentry *dentry, int ret)
{
	struct current_jail c;

	if (ret || !jailed(&c, HOOK_SB_STATFS))
		return ret;
	if (answers_for_overlay(&c, dentry))
		return 0;
	return check_look(&c, dentry, rights_cold(c.jail, dentry));
}

/* inotify and fanotify: names and times of what happens elsewhere. */
SEC("lsm/path_notify")
int BPF_PROG(path_notify, const struct path *path, __u64 mask, unsigned int obj_type, int ret)
{
	struct current_jail c;

	if (ret || !jailed(&c, HOOK_PATH_NOTIFY))
		return ret;
	return check_use(&c, path->dentry, RIGHT_READ, rights_cold(c.jail, path->dentry));
}

/* What an ioctl on a file or directory may ask of one that is only readable. */
static __always_inline bool only_tells(unsigned int cmd)
{
	switch (cmd) {
	case FIGETBSZ:
	case FS_IOC_GETFLAGS:
	case FS_IOC32_GETFLAGS:
	case FS_IOC_GETVERSION:
	case FS_IOC_FIEMAP:
	case FS_IOC_FSGETXATTR:
	case FS_IOC_GETFSLABEL:
		return true;
	}
	return IOC_TYPE(cmd) == TERMINAL_TYPE; /* isatty(3), FIONREAD, FIOCLEX */
}

/* What outlives the jail in a terminal that it shares: input, its discipline, an owner. */
static __always_inline bool harms_terminal(unsigned int cmd, umode_t mode)
{
	if (cmd == FIOASYNC)
		return S_ISCHR(mode);
	return cmd == TIOCSTI || cmd == TIOCLINUX || cmd == TIOCSETD;
}

/*
 * Requests of sockets' own (type 0x89) that tell, or concern the socket alone. The
 * others change interfaces, routes and neighbours, or give descriptors.
 */
static __always_inline bool only_asks_network(unsigned int cmd)
{
	switch (cmd) {
	case 0x8901 ... 0x8907: /* owner, mark, time stamps */
	case 0x8910:		/* SIOCGIF: NAME */
	case 0x8912:		/* CONF */
	case 0x8913:		/* FLAGS */
	case 0x8915:		/* ADDR */
	case 0x8917:		/* DSTADDR */
	case 0x8919:		/* BRDADDR */
	case 0x891b:		/* NETMASK */
	case 0x891d:		/* METRIC */
	case 0x8921:		/* MTU */
	case 0x8927:		/* HWADDR */
	case 0x8933:		/* INDEX */
	case 0x8938:		/* COUNT */
	case 0x8942:		/* TXQLEN */
	case 0x894b:		/* SIOCOUTQNSD */
	case 0x8970:		/* MAP */
		return true;
	}
	return IOC_TYPE(cmd) != 0x89;
}

/*
 * On files: flags, subvolumes and verity change an object through a descriptor
 * that was opened to read. On terminals: what is typed into one is read by the
 * shell outside once the jail has ended. The command is an unsigned int, so high
 * bits change nothing.
 */
static __always_inline int controlled(struct file *file, unsigned int cmd, int ret)
{
	struct dentry *dentry = file->f_path.dentry;
	umode_t mode = file->f_inode->i_mode;
	struct current_jail c;

	if (ret)
		return ret;
	if (S_ISREG(mode) || S_ISDIR(mode)) {
		if (only_tells(cmd) || !jailed(&c, HOOK_FILE_IOCTL))
			return 0;
		return check_change(&c, dentry);
	}
	if (S_ISSOCK(mode)) {
		if (only_asks_network(cmd) || !jailed(&c, HOOK_FILE_IOCTL))
			return 0;
		return refuse_always(&c);
	}
	if (!harms_terminal(cmd, mode) || !jailed(&c, HOOK_FILE_IOCTL))
		return 0;
	return refuse_always(&c);
}

SEC("lsm/file_ioctl")
int BPF_PROG(file_ioctl, struct file *file, unsigned int cmd, unsigned long arg, int ret)
{
	return controlled(file, cmd, ret);
}

SEC("lsm/file_ioctl_compat")
int BPF_PROG(file_ioctl_compat, struct file *file, unsigned int cmd, unsigned long arg, int ret)
{
	return controlled(file, cmd, ret);
}

/*
 * The kernel signals whoever is in a terminal's foreground, in any pid namespace,
 * when somebody types; with F_SETSIG that may kill. FIOASYNC is the same by ioctl.
 */
SEC("lsm/file_fcntl")
int BPF_PROG(file_fcntl, struct file *file, unsigned int cmd, unsigned long arg, int ret)
{
	struct current_jail c;

	if (ret)
		return ret;
	if (cmd != F_SETFL || !(arg & FASYNC) || !S_ISCHR(file->f_inode->i_mode) ||
	    !jailed(&c, HOOK_FILE_FCNTL))
		return 0;
	return refuse_always(&c);
}

#endif
