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

/* What is looked for among a jail's overlays. */
struct overlay_search {
	const struct slot_overlays *known;
	__u64 cred, groups, user_ns;
	bool found;
};

static long is_lent_by(__u32 i, struct overlay_search *s)
{
	const struct overlay *overlay;

	if (i >= OVERLAYS)
		return 1;
	overlay = &s->known->of[i];
	if (!overlay->cred)
		return 1;
	s->found = overlay->cred == s->cred ||
		   (overlay->groups == s->groups && overlay->user_ns == s->user_ns);
	return s->found;
}

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
	struct overlay_search s = {.cred = (__u64)cred};
	__u32 slot = c->slot;

	if (cred == own)
		return false;
	s.known = bpf_map_lookup_elem(&overlays, &slot);
	if (!s.known || !c->jail || s.known->cookie != c->jail->cookie)
		return false;
	s.groups = (__u64)BPF_CORE_READ(cred, group_info);
	s.user_ns = (__u64)BPF_CORE_READ(cred, user_ns);
	if (s.groups == (__u64)BPF_CORE_READ(own, group_info))
		return false;
	bpf_loop(OVERLAYS, is_lent_by, &s, 0);
	return s.found;
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

struct layers_walk {
	const struct overlay_layout *at;
	struct overlay *found;
	__u64 ofs; /* struct ovl_fs */
	__u32 layers;
	__u64 n; /* of those found */
};

static long tell_layer(__u32 i, struct layers_walk *w)
{
	struct super_block *layer;
	__u64 n = w->n;

	if (i >= w->layers)
		return 1;
	layer = layer_sb(w->at, w->ofs, i);
	if (!is_overlay(layer))
		return 0;
	if (n >= OVERLAYS_DEEP)
		return 1;
	tell_overlay(&w->found[n], w->at, layer);
	w->n = n + 1;
	return 0;
}

/* The overlay that a file is on, and those among its layers. */
static __noinline int tell_overlays(struct overlay *found, struct super_block *sb)
{
	struct layers_walk w = {.found = found, .n = 1};
	__u32 key = 0;

	w.at = bpf_map_lookup_elem(&layout, &key);
	if (!w.at || !w.at->known || !found || !is_overlay(sb))
		return 0;
	tell_overlay(&found[0], w.at, sb);
	w.ofs = (__u64)BPF_CORE_READ(sb, s_fs_info);
	w.layers = (__u32)word_at(w.ofs + w.at->numlayer);
	bpf_loop(MAX_LAYERS, tell_layer, &w, 0);
	return 0;
}

#endif
