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

static __noinline __u32 kind_of_name(const struct jail *jail, __u64 within, struct dentry *dentry)
{
	struct name_key key = {
		.bits = (sizeof(key) - sizeof(key.bits)) * 8,
		.slot = jail->slot,
		.within = within,
	};
	const struct name_rule *rule;

	bpf_probe_read_kernel_str(key.name, sizeof(key.name), dentry->d_name.name);
	for (int i = 0; i < NAME_LEN / 8; i++)
		key.words[i] = lower_case(key.words[i]);
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

static __noinline bool has_made(const struct jail *jail, struct dentry *entry)
{
	struct made_key key = {};

	if (entry->d_name.len >= MADE_LEN || !made_key(jail, entry->d_parent, &key))
		return false;
	bpf_probe_read_kernel_str(key.name, sizeof(key.name), entry->d_name.name);
	return bpf_map_lookup_elem(&made, &key);
}

static __always_inline bool has_made_git(const struct jail *jail, struct dentry *directory)
{
	struct made_key key = {.name = ".git"};

	return made_key(jail, directory, &key) && bpf_map_lookup_elem(&made, &key);
}

/* A new directory, or .git, that is about to be made. */
static __noinline int remember(const struct jail *jail, struct dentry *entry)
{
	struct made_key key = {};
	__u32 value = 1;

	if (entry->d_name.len >= MADE_LEN || !made_key(jail, entry->d_parent, &key))
		return 0;
	bpf_probe_read_kernel_str(key.name, sizeof(key.name), entry->d_name.name);
	bpf_map_update_elem(&made, &key, &value, BPF_ANY);
	return 0;
}

/* A label that only leads to a rule does not end the search for names. */
static __always_inline bool ends_search(const struct jail *jail, struct dentry *dentry)
{
	const struct label *label = find_label(jail, dentry);

	return label && !(label->rights & RIGHT_WAY);
}

static long to_freedom(__u32 i, struct walk *w)
{
	struct dentry *dentry = w->dentry;

	if (ends_search(w->jail, dentry))
		return 1;
	if (kind_of_name(w->jail, NAMES_ANYWHERE, dentry) == NAME_FREE ||
	    (has_made_git(w->jail, dentry) && has_made(w->jail, dentry))) {
		w->end = dentry;
		return 1;
	}
	w->dentry = dentry->d_parent;
	return 0;
}

/* In a repository that the jail has cloned, or among packages it has installed? */
static __noinline bool is_free(const struct jail *jail, struct dentry *directory)
{
	struct walk w = {.jail = jail, .dentry = directory};

	bpf_loop(MAX_DEPTH, to_freedom, &w, 0);
	return w.end;
}

/* ---- Git's own ---- */

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
static __noinline bool module_forbids(const struct jail *jail, struct dentry *object,
				      struct dentry *modules)
{
	struct module_walk w = {
		.walk = {.jail = jail, .dentry = object, .end = modules},
		.found = is_directory(object),
	};

	bpf_loop(MAX_DEPTH, to_modules, &w, 0);
	return w.found && !w.free;
}

/* An object at or below a .git, reached through an entry of it. */
static __noinline bool git_forbids(const struct jail *jail, struct dentry *object,
				   struct dentry *git)
{
	struct walk w = {.dentry = object, .end = git};
	__u32 kind;

	if (has_made(jail, git))
		return false;
	if (object == git)
		return exists(object);
	bpf_loop(MAX_DEPTH, to_entry, &w, 0);
	kind = kind_of_name(jail, NAMES_IN_REPOSITORY, w.dentry);
	if (kind == NAME_MODULES && object != w.dentry)
		return module_forbids(jail, object, w.dentry);
	return kind == NAME_PROTECTED || (kind == NAME_MODULES && exists(object));
}

static __always_inline bool is_repository(const struct jail *jail, struct dentry *entry)
{
	return may_be_ruled(jail, entry) &&
	       kind_of_name(jail, NAMES_ANYWHERE, entry) == NAME_REPOSITORY;
}

/* ---- The verdict ---- */

struct guard_walk {
	struct walk walk;
	struct dentry *ruled; /* has a name that is protected or denied */
	struct dentry *git;   /* the outermost .git */
};

static long to_label(__u32 i, struct guard_walk *w)
{
	struct dentry *dentry = w->walk.dentry;
	const struct jail *jail = w->walk.jail;

	if (may_be_ruled(jail, dentry)) {
		__u32 kind = kind_of_name(jail, NAMES_ANYWHERE, dentry);

		if (kind == NAME_REPOSITORY)
			w->git = dentry;
		if (kind == NAME_PROTECTED || (kind == NAME_DENIED && !is_directory(dentry)))
			w->ruled = dentry;
	}
	if (ends_search(jail, dentry))
		return 1;
	w->walk.dentry = dentry->d_parent;
	return 0;
}

/* Do the names on the way forbid to change an object, which need not exist? */
static __noinline bool names_protect(const struct jail *jail, struct dentry *object)
{
	struct guard_walk w = {.walk = {.jail = jail, .dentry = object}};

	bpf_loop(MAX_DEPTH, to_label, &w, 0);
	if (w.ruled && !is_free(jail, w.ruled->d_parent))
		return true;
	return w.git && git_forbids(jail, object, w.git);
}

/* Does the name of an object forbid to open it? */
static __noinline bool name_denies(const struct jail *jail, struct dentry *dentry)
{
	return kind_of_name(jail, NAMES_ANYWHERE, dentry) == NAME_DENIED && !is_directory(dentry) &&
	       !is_free(jail, dentry->d_parent);
}

#endif
