/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Names that are protected or denied wherever they are in the project, whether
 * they exist or not: what runs later outside (.git/hooks, .vscode) is not
 * changed, what holds secrets (.env) is not opened.
 *
 * Free of that are repositories that the jail itself has made: git init and git
 * clone write all of these names.
 */
#ifndef AGENT_LOCK_GUARD_BPF_H
#define AGENT_LOCK_GUARD_BPF_H

#include "label.bpf.h"

/*
 * Where short names are in a dentry: d_iname, d_shortname from 6.14 on. Set by the
 * loader, since clang moves the relocation of one to where the other is taken. What
 * is here is refused by the verifier.
 */
const volatile __u32 short_name_offset = 1 << 16;

static __always_inline __u8 initial(struct dentry *dentry)
{
	return *(const __u8 *)((const void *)dentry + short_name_offset);
}

/*
 * Can there be a rule for this name? Cheap, since it is asked for each open in the
 * project. A long name is not where initial() looks.
 */
static __always_inline bool may_be_ruled(const struct jail *jail, struct dentry *dentry)
{
	__u8 first = initial(dentry);

	if (jail->initials[first])
		return true;
	return dentry->d_name.len >= DNAME_INLINE;
}

#define EACH_BYTE(n) ((n) * 0x0101010101010101ULL)

/* Eight ASCII letters, without a branch. A file system that ignores case has .GIT for .git. */
static __always_inline __u64 lower_case(__u64 word)
{
	__u64 low = word & EACH_BYTE(0x7f);
	__u64 from_a = low + EACH_BYTE(0x80 - 'A');
	__u64 beyond_z = low + EACH_BYTE(0x80 - 'Z' - 1);
	__u64 upper = (from_a ^ beyond_z) & ~word & EACH_BYTE(0x80);

	return word | upper >> 2;
}

/* Global, so that the verifier looks at it once, and not at each call. */
__noinline int lower_name(struct name_key *key)
{
	if (!key)
		return 0;
	for (int i = 0; i < NAME_LEN / 8; i++)
		key->words[i] = lower_case(key->words[i]);
	return 0;
}

static __noinline __u32 kind_of_name(const struct jail *jail, __u64 within, struct dentry *dentry)
{
	struct name_key key = {
		.bits = (sizeof(key) - sizeof(key.bits)) * 8,
		.slot = jail->slot,
		.within = within,
	};
	const struct name_rule *rule;

	bpf_probe_read_kernel_str(key.name, sizeof(key.name), dentry->d_name.name);
	lower_name(&key);
	rule = bpf_map_lookup_elem(&names, &key);
	return rule ? rule->kind : NAME_RIGHTS;
}

/* ---- What the jail has made ---- */

static __always_inline bool made_key(const struct jail *jail, struct dentry *directory,
				     struct made_key *key)
{
	struct inode *inode = directory->d_inode;

	if (is_null(inode))
		return false;
	key->cookie = jail->cookie;
	key->parent = inode->i_ino;
	key->generation = inode->i_generation;
	key->dev = directory->d_sb->s_dev;
	return true;
}

/* Which inode, of one that exists. */
static __always_inline __u64 identity_of(struct dentry *dentry)
{
	struct inode *inode = dentry->d_inode;

	return is_null(inode) ? 0 : (__u32)inode->i_ino | (__u64)inode->i_generation << 32;
}

static __noinline bool has_made(const struct jail *jail, struct dentry *entry)
{
	struct made_key key = {};
	__u64 *removed;

	if (entry->d_name.len >= MADE_LEN || !made_key(jail, entry->d_parent, &key))
		return false;
	bpf_probe_read_kernel_str(key.name, sizeof(key.name), entry->d_name.name);
	removed = bpf_map_lookup_elem(&made, &key);
	return removed && (*removed == 0 || *removed == identity_of(entry));
}

/* Also when it is gone: rm removes it before what else is in a clone. */
static __always_inline bool has_made_git(const struct jail *jail, struct dentry *directory)
{
	struct made_key key = {.name = ".git"};

	return made_key(jail, directory, &key) && bpf_map_lookup_elem(&made, &key);
}

/*
 * A new directory, or .git, that is about to be made; or a .git that is about to be
 * removed, which may fail: the next one there may be somebody else's.
 */
static __noinline int remember(const struct jail *jail, struct dentry *entry, __u64 removed)
{
	struct made_key key = {};

	if (entry->d_name.len >= MADE_LEN || !made_key(jail, entry->d_parent, &key))
		return 0;
	bpf_probe_read_kernel_str(key.name, sizeof(key.name), entry->d_name.name);
	bpf_map_update_elem(&made, &key, &removed, removed ? BPF_EXIST : BPF_ANY);
	return 0;
}

/* What comes to this name next may be somebody else's. */
static __noinline int forget(const struct jail *jail, struct dentry *entry)
{
	struct made_key key = {};

	if (entry->d_name.len >= MADE_LEN || !made_key(jail, entry->d_parent, &key))
		return 0;
	bpf_probe_read_kernel_str(key.name, sizeof(key.name), entry->d_name.name);
	bpf_map_delete_elem(&made, &key);
	return 0;
}

/* A label that only leads to a rule does not end the search for names. */
static __always_inline bool ends_search(const struct jail *jail, struct dentry *dentry)
{
	const struct label *label = find_label(jail, dentry);

	return label && !(label->rights & RIGHT_WAY);
}

/*
 * One walk up answers everything: whether a name on the way forbids to change an
 * object, and whether that is free of such names. What is in packages is free by a
 * name; what is in a clone of the jail's, if all that lies between is the jail's too:
 * what was moved into it is not part of it.
 */
enum way {
	WAY_RULED = 1 << 0, /* passed a protected or denied name */
	WAY_MOVED = 1 << 1, /* ... and after that what the jail has not made */
	WAY_FORBIDDEN = 1 << 2,
	WAY_DIRECTORY = 1 << 3, /* the object is one, or becomes one */
};

struct guard_walk {
	struct walk walk;
	struct dentry *object;
	struct dentry *below;	/* the one before */
	struct dentry *modules; /* git's, the innermost */
	__u32 way;
};

static __always_inline bool stays_directory(const struct guard_walk *w)
{
	return w->way & WAY_DIRECTORY && (is_directory(w->object) || !exists(w->object));
}

/* A .git that the jail has not made, and what of it leads to the object. */
static __always_inline void pass_git(struct guard_walk *w, struct dentry *git)
{
	__u32 kind;

	if (git == w->object) {
		if (exists(git))
			w->way |= WAY_FORBIDDEN;
		return;
	}
	kind = kind_of_name(w->walk.jail, NAMES_IN_REPOSITORY, w->below);
	if (kind == NAME_PROTECTED ||
	    (kind == NAME_MODULES && w->below == w->object && exists(w->object)))
		w->way |= WAY_FORBIDDEN;
	else if (kind == NAME_MODULES && !w->modules)
		w->modules = w->below;
}

static __always_inline void pass_name(struct guard_walk *w, struct dentry *dentry, bool own)
{
	__u32 kind = kind_of_name(w->walk.jail, NAMES_ANYWHERE, dentry);

	if (kind == NAME_FREE)
		w->way &= ~(WAY_RULED | WAY_MOVED);
	if (kind == NAME_REPOSITORY && !own)
		pass_git(w, dentry);
	if (kind == NAME_PROTECTED ||
	    (kind == NAME_DENIED && dentry == w->object && !stays_directory(w)))
		w->way |= WAY_RULED;
}

/* A directory above a name that is ruled. */
static __always_inline void pass_above(struct guard_walk *w, struct dentry *dentry, bool own)
{
	if (!own)
		w->way |= WAY_MOVED;
	else if (!(w->way & WAY_MOVED) && has_made_git(w->walk.jail, dentry))
		w->way &= ~WAY_RULED;
}

static long to_label(__u32 i, struct guard_walk *w)
{
	struct dentry *dentry = w->walk.dentry;
	bool above = w->way & WAY_RULED;
	bool named, own;

	if (ends_search(w->walk.jail, dentry))
		return 1;
	named = may_be_ruled(w->walk.jail, dentry);
	if (above || named) {
		own = has_made(w->walk.jail, dentry);
		if (above)
			pass_above(w, dentry, own);
		if (named)
			pass_name(w, dentry, own);
		if (w->way & WAY_FORBIDDEN)
			return 1;
	}
	w->below = dentry;
	w->walk.dentry = dentry->d_parent;
	return 0;
}

/* ---- Git's modules and worktrees ---- */

struct module_walk {
	struct walk walk;
	bool found, free;
};

static long to_modules(__u32 i, struct module_walk *w)
{
	struct dentry *dentry = w->walk.dentry;

	if (dentry == w->walk.end)
		return 1;
	if (has_made(w->walk.jail, dentry)) {
		w->free = true;
		return 1;
	}
	if (kind_of_name(w->walk.jail, NAMES_IN_MODULES, dentry) == NAME_PROTECTED)
		w->found = true;
	w->walk.dentry = dentry->d_parent;
	return 0;
}

/*
 * An object in .git/modules or .git/worktrees: settings and hooks are protected,
 * and directories are not moved away, unless the jail made the module.
 */
static __always_inline bool module_forbids(const struct jail *jail, struct dentry *object,
					   struct dentry *modules)
{
	struct module_walk w = {
		.walk = {.jail = jail, .dentry = object, .end = modules},
		.found = is_directory(object),
	};

	bpf_loop(MAX_DEPTH, to_modules, &w, 0);
	return w.found && !w.free;
}

static __always_inline bool is_repository(const struct jail *jail, struct dentry *entry)
{
	return may_be_ruled(jail, entry) &&
	       kind_of_name(jail, NAMES_ANYWHERE, entry) == NAME_REPOSITORY;
}

/* ---- The verdict ---- */

/* Do the names on the way forbid to change an object, which need not exist? */
static __noinline bool names_protect(const struct jail *jail, struct dentry *object, bool directory)
{
	struct guard_walk w = {
		.walk = {.jail = jail, .dentry = object},
		.object = object,
		.below = object,
		.way = (directory ? WAY_DIRECTORY : 0) | jail->zero,
	};

	bpf_loop(MAX_DEPTH, to_label, &w, 0);
	if (w.way & (WAY_RULED | WAY_FORBIDDEN))
		return true;
	return w.modules && module_forbids(jail, object, w.modules);
}

enum freedom {
	NOT_FREE,
	FREE_MADE,
	FREE_PACKAGES,
};

struct freedom_walk {
	struct walk walk;
	__u32 freedom;
	__u32 moved;
};

static long to_freedom(__u32 i, struct freedom_walk *w)
{
	struct dentry *dentry = w->walk.dentry;
	const struct jail *jail = w->walk.jail;

	if (ends_search(jail, dentry))
		return 1;
	if (kind_of_name(jail, NAMES_ANYWHERE, dentry) == NAME_FREE) {
		w->freedom = FREE_PACKAGES;
		return 1;
	}
	if (!has_made(jail, dentry))
		w->moved = 1;
	else if (!w->moved && has_made_git(jail, dentry))
		w->freedom = FREE_MADE;
	w->walk.dentry = dentry->d_parent;
	return 0;
}

/* Is what is in a directory free of rules for names, and why? */
static __noinline __u32 freedom_in(const struct jail *jail, struct dentry *directory, __u32 moved)
{
	struct freedom_walk w = {
		.walk = {.jail = jail, .dentry = directory},
		.freedom = jail->zero,
		.moved = moved | jail->zero,
	};

	bpf_loop(MAX_DEPTH, to_freedom, &w, 0);
	return w.freedom;
}

/* The freedom in a directory once it is moved to a name. */
static __always_inline __u32 freedom_after(const struct jail *jail, struct dentry *directory,
					   struct dentry *name)
{
	bool own = has_made(jail, directory);

	if (kind_of_name(jail, NAMES_ANYWHERE, name) == NAME_FREE)
		return FREE_PACKAGES;
	if (own && has_made_git(jail, directory))
		return FREE_MADE;
	return freedom_in(jail, name->d_parent, !own);
}

/*
 * Would moving a directory free what is protected in it, or bring what was free to
 * where it is protected? EXDEV then makes mv copy it, name by name. What is exchanged
 * has to have the same freedom before.
 */
static __noinline bool changes_freedom(const struct jail *jail, struct dentry *directory,
				       struct dentry *name, bool exchange)
{
	__u32 before = freedom_in(jail, directory, 0);
	__u32 after = exchange ? freedom_in(jail, name, 0) : freedom_after(jail, directory, name);

	if (!exchange && before == NOT_FREE && after == FREE_MADE)
		return false;
	return before != after;
}

/* Does the name of an object forbid to open it? */
static __noinline bool name_denies(const struct jail *jail, struct dentry *dentry)
{
	return kind_of_name(jail, NAMES_ANYWHERE, dentry) == NAME_DENIED && !is_directory(dentry) &&
	       freedom_in(jail, dentry->d_parent, 0) == NOT_FREE;
}

#endif
