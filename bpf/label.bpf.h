/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which rights hold at a dentry: the nearest labelled directory on the way up, a
 * label of the object's own, or the rule for a name in a labelled directory.
 */
#ifndef AGENT_LOCK_LABEL_BPF_H
#define AGENT_LOCK_LABEL_BPF_H

#include "jail.bpf.h"

#define MAX_DEPTH 64

/* A name that is only about to be made has no inode. */
static __always_inline bool exists(struct dentry *dentry)
{
	return !is_null(dentry->d_inode);
}

static __always_inline bool is_directory(struct dentry *dentry)
{
	struct inode *inode = dentry->d_inode;

	return !is_null(inode) && S_ISDIR(inode->i_mode);
}

/*
 * The place of an object in a jail's table. The kernel lets no program calculate
 * with a pointer, but a 32-bit move drops that (with CAP_PERFMON); the asm keeps
 * clang from widening it to two shifts, and from taking a register more.
 */
static __always_inline const struct label *place_of(const void *object, const struct jail *jail,
						    __u32 multiplier)
{
	__u32 low = (__u32)(__u64)object;
	__u64 place;

	asm volatile("%0 *= %1" : "+w"(low) : "w"(multiplier));
	place = low >> (32 - LABEL_BITS - 4) & (MAX_LABELS - 1) << 4;
	asm volatile("%0 += %1" : "+r"(place) : "r"(jail->labels));
	return (const struct label *)place;
}

/*
 * A label is in one of two places, and in the second only while another one is in
 * the first (a cuckoo hash): an empty first place ends the search.
 */
static __always_inline const struct label *find_label(const struct jail *jail, const void *object)
{
	const struct label *label = place_of(object, jail, jail->multipliers[0]);

	if (label->object == (__u64)object)
		return label;
	label = place_of(object, jail, jail->multipliers[1]);
	return label->object == (__u64)object ? label : NULL;
}

extern void *bpf_rdonly_cast(const void *object, __u32 type) __ksym __weak;

/*
 * A hook's dentry without the verifier's trust in it, which nothing here needs. For each
 * pointer that is loaded from what it trusts, a verifier from 6.4 on goes twice through
 * the names of all of the kernel's types (btf_nested_type_is_trusted()); that was half of
 * what it took to load the programs. Of 6.2 and later.
 */
static __always_inline struct dentry *untrusted(struct dentry *dentry)
{
	if (bpf_rdonly_cast)
		return bpf_rdonly_cast(dentry, bpf_core_type_id_kernel(struct dentry));
	return dentry;
}

struct walk {
	const struct jail *jail;
	struct dentry *dentry;
	struct dentry *end;
};

static long to_labelled(__u32 i, struct walk *w)
{
	struct dentry *dentry = w->dentry, *parent;

	if (find_label(w->jail, dentry)) {
		w->end = dentry;
		return 1;
	}
	parent = dentry->d_parent;
	if (parent == dentry)
		return 1;
	w->dentry = parent;
	return 0;
}

/*
 * The nearest labelled directory from dentry on; NULL: none within MAX_DEPTH levels. The
 * verifier looks at one level, and not at each.
 */
static __always_inline const struct label *climb(const struct jail *jail, struct dentry *dentry,
						 struct dentry **at)
{
	struct walk w = {.jail = jail, .dentry = dentry};

	bpf_loop(MAX_DEPTH, to_labelled, &w, 0);
	*at = w.end;
	return w.end ? find_label(jail, w.end) : NULL;
}

/*
 * The first place in the table of the nearest dentry for which that is taken, by its own
 * label or by another one; NULL: none within MAX_DEPTH levels. This is what an open
 * costs: a level is one test and one load of the kernel's memory. The root of a file
 * system is its own parent, and costs the rest of the levels: only what has no label
 * gets there.
 */
static __always_inline const struct label *to_taken(const struct jail *jail, struct dentry **at)
{
	const __u32 multiplier = jail->multipliers[0];
	struct dentry *dentry = *at;

	for (int i = 0; i < MAX_DEPTH / 8; i++) {
#pragma unroll
		for (int j = 0; j < 8; j++) {
			const struct label *label = place_of(dentry, jail, multiplier);

			if (label->object) {
				*at = dentry;
				return label;
			}
			dentry = dentry->d_parent;
		}
	}
	return NULL;
}

/* How many places a walk may find taken by others before it goes level by level. */
#define MAX_STRANGERS 3

/* The same as climb(), in fewer instructions of the processor's and more of the verifier's. */
static __always_inline const struct label *climb_fast(const struct jail *jail,
						      struct dentry *dentry, struct dentry **at)
{
	const struct label *label;
	struct dentry *parent;

	for (int i = 0; i < MAX_STRANGERS; i++) {
		label = to_taken(jail, &dentry);
		if (!label)
			return NULL;
		*at = dentry;
		if (label->object == (__u64)dentry)
			return label;
		label = place_of(dentry, jail, jail->multipliers[1]);
		if (label->object == (__u64)dentry)
			return label;
		parent = dentry->d_parent;
		if (parent == dentry)
			return NULL;
		dentry = parent;
	}
	return climb(jail, dentry, at);
}

/* ---- Names ---- */

/*
 * Walks that only some operations need are done by bpf_loop(): the verifier looks
 * at one step of them, and not at each.
 */
static long to_entry(__u32 i, struct walk *w)
{
	struct dentry *parent = w->dentry->d_parent;

	if (parent == w->end || parent == w->dentry)
		return 1;
	w->dentry = parent;
	return 0;
}

/*
 * A rule for a name in the labelled directory through which dentry is reached; it
 * holds for all below the name too. The name is read with its end, so that a whole
 * one differs from the beginning of another.
 */
static __noinline bool named(const struct jail *jail, struct dentry *dentry,
			     struct dentry *directory, __u32 *rights)
{
	struct name_key key = {
		.bits = (sizeof(key) - sizeof(key.bits)) * 8,
		.slot = jail->slot,
		.within = (__u64)directory,
	};
	struct walk w = {.dentry = dentry, .end = directory};
	const struct name_rule *rule;

	bpf_loop(MAX_DEPTH, to_entry, &w, 0);
	bpf_probe_read_kernel_str(key.name, sizeof(key.name), w.dentry->d_name.name);
	rule = bpf_map_lookup_elem(&names, &key);
	if (!rule)
		return false;
	*rights = rule->rights;
	if (w.dentry != dentry)
		*rights &= ~RIGHT_OWN;
	else if (is_directory(dentry))
		*rights |= RIGHT_FIXED;
	return true;
}

/* ---- Rights ---- */

/*
 * The rights that hold at a dentry, which need not exist yet, by the label that a climb
 * from there found. No label: none.
 */
static __always_inline __u32 rights_by(const struct label *label, struct dentry *at,
				       const struct jail *jail, struct dentry *dentry)
{
	const struct label *own;
	struct inode *inode;
	__u32 rights;

	if (!label)
		return 0;
	rights = label->rights;
	if (rights & (RIGHT_FILES | RIGHT_NAMES)) { /* rare */
		inode = dentry->d_inode;
		own = rights & RIGHT_FILES && !is_null(inode) ? find_label(jail, inode) : NULL;
		if (own)
			return own->rights;
		if (rights & RIGHT_NAMES && at != dentry && named(jail, dentry, at, &rights))
			return rights;
	}
	return at == dentry ? rights : rights & ~RIGHT_OWN;
}

/* The rights at a dentry for what is asked all the time: opening and looking. */
static __always_inline __u32 rights_of(const struct jail *jail, struct dentry *dentry)
{
	struct dentry *at;
	const struct label *label = climb_fast(jail, dentry, &at);

	return rights_by(label, at, jail, dentry);
}

/* The same as a function, where its size counts for more than its call. */
static __noinline __u32 rights_at(const struct jail *jail, struct dentry *dentry)
{
	return rights_of(jail, dentry);
}

/* For what is asked seldom, so that it costs the verifier little. */
static __noinline __u32 rights_cold(const struct jail *jail, struct dentry *dentry)
{
	struct dentry *at;
	const struct label *label = climb(jail, dentry, &at);

	return rights_by(label, at, jail, dentry);
}

#endif
