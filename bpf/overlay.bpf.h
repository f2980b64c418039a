/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Overlay file systems. Each operation on one becomes operations on its layers,
 * in the same task, and the hooks see both. The first is decided as any other. The
 * second is on objects that the jail may not name; it is told by the credentials,
 * those of who mounted the overlay, which the kernel lends the task meanwhile.
 *
 * A jailed process cannot come by them: its own were made by setgroups(2) in the
 * jail's first process, personalities of io_uring are refused, and where else
 * the kernel overrides credentials (access(2), a core dump) they are a copy of the
 * task's own.
 */
#ifndef AGENT_LOCK_OVERLAY_BPF_H
#define AGENT_LOCK_OVERLAY_BPF_H

#define OVERLAYFS_SUPER_MAGIC 0x794c7630
#define FUSE_SUPER_MAGIC      0x65735546

#define OVERLAYS	      8

struct slot_overlays {
	__u64 cookie; /* the jail's */
	struct overlay of[OVERLAYS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_JAILS);
	__uint(map_flags, BPF_F_RDONLY_PROG);
	__type(key, __u32);
	__type(value, struct slot_overlays);
} overlays SEC(".maps");

/* Where things are in the overlay module's types, which may be loaded after us. */
struct overlay_layout {
	__u32 known;
	__u32 creator_cred; /* in struct ovl_fs */
	__u32 layers;
	__u32 numlayer;
	__u32 mnt; /* in struct ovl_layer */
	__u32 layer_size;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_RDONLY_PROG);
	__type(key, __u32);
	__type(value, struct overlay_layout);
} layout SEC(".maps");

/*
 * Is the current task at work on a layer, for an overlay that the jail's labels are
 * on? Making a file takes a copy of the overlay's credentials with the caller's ids;
 * it shares the list of groups with the original, and with nothing of the task's.
 */
static __noinline bool works_for_overlay(struct current_jail *c)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	const struct cred *cred = BPF_CORE_READ(task, cred);
	const struct cred *own = BPF_CORE_READ(task, real_cred);
	const struct slot_overlays *known;
	__u64 groups, user_ns;
	__u32 slot = c->slot;

	if (cred == own)
		return false;
	known = bpf_map_lookup_elem(&overlays, &slot);
	if (!known || !c->jail || known->cookie != c->jail->cookie)
		return false;
	groups = (__u64)BPF_CORE_READ(cred, group_info);
	user_ns = (__u64)BPF_CORE_READ(cred, user_ns);
	if (groups == (__u64)BPF_CORE_READ(own, group_info))
		return false;
	for (int i = 0; i < OVERLAYS; i++) {
		const struct overlay *overlay = &known->of[i];

		if (!overlay->cred)
			break;
		if (overlay->cred == (__u64)cred)
			return true;
		if (overlay->groups == groups && overlay->user_ns == user_ns)
			return true;
	}
	return false;
}

/* statfs(2) asks a layer under the caller's credentials. What it tells is the overlay's. */
static __noinline bool answers_for_overlay(struct current_jail *c, struct dentry *dentry)
{
	__u64 sb = (__u64)BPF_CORE_READ(dentry, d_sb);
	const struct slot_overlays *known;
	__u32 slot = c->slot;

	known = bpf_map_lookup_elem(&overlays, &slot);
	if (!known || !c->jail || known->cookie != c->jail->cookie)
		return false;
	for (int i = 0; i < OVERLAYS; i++) {
		if (known->of[i].cred && known->of[i].sb == sb)
			return true;
	}
	return false;
}

/* ---- FUSE ---- */

/*
 * A FUSE server may have the kernel open another file and use that (passthrough). The
 * open that was asked for is decided before this one, which is told by who opens: the
 * file has the server's credentials and the task its own. A jailed process can be no
 * such server, which needs /dev/fuse and a mount.
 */
static __always_inline bool opens_for_fuse(struct current_jail *c)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	const struct backing_file *behind = (const void *)c->opened;
	struct dentry *asked;

	if (!behind || !bpf_core_field_exists(behind->user_path))
		return false;
	if (!(c->opened->f_mode & FMODE_BACKING))
		return false;
	if (BPF_CORE_READ(behind, file.f_cred) == BPF_CORE_READ(task, cred))
		return false;
	asked = BPF_CORE_READ(behind, user_path.dentry);
	return asked && BPF_CORE_READ(asked, d_sb, s_magic) == FUSE_SUPER_MAGIC;
}

static __noinline bool works_behind(struct current_jail *c)
{
	return works_for_overlay(c) || opens_for_fuse(c);
}

/* ---- For the supervisor ---- */

static __always_inline __u64 word_at(__u64 address)
{
	__u64 word = 0;

	bpf_probe_read_kernel(&word, sizeof(word), (void *)address);
	return word;
}

static __always_inline bool is_overlay(struct super_block *sb)
{
	return sb && BPF_CORE_READ(sb, s_magic) == OVERLAYFS_SUPER_MAGIC;
}

static __always_inline struct super_block *layer_sb(const struct overlay_layout *at, __u64 ofs,
						    __u32 i)
{
	__u64 layers = word_at(ofs + at->layers);
	struct vfsmount *mnt = (void *)word_at(layers + i * at->layer_size + at->mnt);

	return mnt ? BPF_CORE_READ(mnt, mnt_sb) : NULL;
}

/* The upper layer, or without one the first lower one. */
static __noinline int tell_overlay(struct overlay *overlay, const struct overlay_layout *at,
				   struct super_block *sb)
{
	__u64 ofs = (__u64)BPF_CORE_READ(sb, s_fs_info);
	struct cred *cred = (void *)word_at(ofs + at->creator_cred);
	struct super_block *layer;

	overlay->cred = (__u64)cred;
	overlay->groups = (__u64)BPF_CORE_READ(cred, group_info);
	overlay->user_ns = (__u64)BPF_CORE_READ(cred, user_ns);
	layer = layer_sb(at, ofs, 0);
	if (!layer)
		layer = layer_sb(at, ofs, 1);
	overlay->sb = (__u64)layer;
	return 0;
}

#define MAX_LAYERS 64

/* The overlay that a file is on, and those among its layers. */
static __noinline int tell_overlays(struct overlay *found, struct super_block *sb)
{
	const struct overlay_layout *at;
	__u32 key = 0, layers, n = 1;
	__u64 ofs;

	at = bpf_map_lookup_elem(&layout, &key);
	if (!at || !at->known || !found || !is_overlay(sb))
		return 0;
	tell_overlay(&found[0], at, sb);
	ofs = (__u64)BPF_CORE_READ(sb, s_fs_info);
	layers = (__u32)word_at(ofs + at->numlayer);
	for (__u32 i = 0; i < MAX_LAYERS; i++) {
		struct super_block *layer;

		if (i >= layers || n >= OVERLAYS_DEEP)
			break;
		layer = layer_sb(at, ofs, i);
		if (is_overlay(layer))
			tell_overlay(&found[n++], at, layer);
	}
	return 0;
}

#endif
