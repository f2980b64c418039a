/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Changes without an open on kernels that have no path_* hooks
 * (CONFIG_SECURITY_PATH is off): the inode_* hooks one step further in. They see
 * the same dentries and record under the path_* names.
 */
#ifndef AGENT_LOCK_INODE_BPF_H
#define AGENT_LOCK_INODE_BPF_H

#include "file.bpf.h"

/* The directory is what the new or old name hangs under. */
static __always_inline int entry_changed(struct dentry *dentry, __u32 hook, int ret)
{
	struct current_jail c;

	if (ret || !jailed(&c, hook))
		return ret;
	return check_entry(&c, untrusted(dentry));
}

static __always_inline int entry_removed(struct dentry *dentry, __u32 hook, int ret)
{
	struct current_jail c;

	if (ret || !jailed(&c, hook))
		return ret;
	return check_removal(&c, dentry);
}

SEC("lsm/inode_unlink")
int BPF_PROG(inode_unlink, struct inode *dir, struct dentry *dentry, int ret)
{
	return entry_removed(dentry, HOOK_PATH_UNLINK, ret);
}

SEC("lsm/inode_rmdir")
int BPF_PROG(inode_rmdir, struct inode *dir, struct dentry *dentry, int ret)
{
	return entry_removed(dentry, HOOK_PATH_RMDIR, ret);
}

SEC("lsm/inode_mkdir")
int BPF_PROG(inode_mkdir, struct inode *dir, struct dentry *dentry, umode_t mode, int ret)
{
	struct current_jail c;

	if (ret || !jailed(&c, HOOK_PATH_MKDIR))
		return ret;
	return check_new(&c, dentry, true);
}

static __always_inline int node_made(struct dentry *dentry, umode_t mode, int ret)
{
	struct current_jail c;

	if (ret || !jailed(&c, HOOK_PATH_MKNOD))
		return ret;
	if (S_ISDEVICE(mode) || adds_identity(&c, dentry, mode)) {
		if (works_for_overlay(&c)) /* a whiteout */
			return 0;
		return refuse_always(&c);
	}
	return check_new(&c, dentry, false);
}

SEC("lsm/inode_create")
int BPF_PROG(inode_create, struct inode *dir, struct dentry *dentry, umode_t mode, int ret)
{
	return node_made(dentry, mode, ret);
}

SEC("lsm/inode_mknod")
int BPF_PROG(inode_mknod, struct inode *dir, struct dentry *dentry, umode_t mode, unsigned int dev,
	     int ret)
{
	return node_made(dentry, mode, ret);
}

SEC("lsm/inode_symlink")
int BPF_PROG(inode_symlink, struct inode *dir, struct dentry *dentry, const char *old_name, int ret)
{
	return entry_changed(dentry, HOOK_PATH_SYMLINK, ret);
}

SEC("lsm/inode_link")
int BPF_PROG(inode_link, struct dentry *old_dentry, struct inode *dir, struct dentry *new_dentry,
	     int ret)
{
	struct current_jail c;

	if (ret || !jailed(&c, HOOK_PATH_LINK))
		return ret;
	return check_link(&c, untrusted(old_dentry), untrusted(new_dentry));
}

/*
 * Called once a direction for RENAME_EXCHANGE, which it is not told of. What replaces
 * or is a directory that exists is taken for one.
 */
SEC("lsm/inode_rename")
int BPF_PROG(inode_rename, struct inode *old_dir, struct dentry *old_dentry, struct inode *new_dir,
	     struct dentry *new_dentry, int ret)
{
	struct current_jail c;

	bool exchange =
		exists(new_dentry) && (is_directory(old_dentry) || is_directory(new_dentry));

	if (ret || !jailed(&c, HOOK_PATH_RENAME))
		return ret;
	return check_rename(&c, untrusted(old_dentry), untrusted(new_dentry),
			    exchange ? RENAME_EXCHANGE : 0);
}

/* Mode, owner, length and times at once. */
static __always_inline int attributes_changed(struct dentry *dentry, struct iattr *attr, int ret)
{
	struct current_jail c;

	if (ret || !jailed(&c, HOOK_INODE_SETATTR))
		return ret;
	if (attr->ia_valid & ATTR_MODE && adds_identity(&c, dentry, attr->ia_mode))
		return refuse_always(&c);
	return check_change(&c, dentry);
}

SEC("lsm/inode_setattr")
int BPF_PROG(inode_setattr_all, void *idmap, struct dentry *dentry, struct iattr *attr, int ret)
{
	return attributes_changed(dentry, attr, ret);
}

SEC("lsm/inode_setattr")
int BPF_PROG(inode_setattr_all_noidmap, struct dentry *dentry, struct iattr *attr, int ret)
{
	return attributes_changed(dentry, attr, ret);
}

#endif
