//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel half of agent-lock. One set of programs serves all jails.
 *
 * A task is in a jail when the jail's pid namespace is among the ancestors of
 * its own. A verdict comes from the dentry that the kernel is about to use: the
 * nearest labelled inode on the way up gives the rights, no label gives none.
 *
 *   root.bpf.h       a command that runs as root: capabilities, file modes
 *   file.bpf.h       open, receive, change, look: rights decide
 *   inode.bpf.h      the same changes where the kernel has no path_* hooks
 *   socket.bpf.h     Unix sockets: own ones, and those with RIGHT_CONNECT
 *   network.bpf.h    kinds of sockets, addresses and ports
 *   process.bpf.h    mounts, namespaces, ptrace, bpf: never
 *   lifecycle.bpf.h  inode addresses for the supervisor; the end of a jail
 *   guard.bpf.h      names that are protected or denied anywhere
 *   label.bpf.h      the walk up, labels, names in one directory
 *   overlay.bpf.h    what overlayfs and FUSE do behind their files
 *   jail.bpf.h       maps, which jail, denial records
 *
 * Every hook keeps an earlier program's refusal. Every failure denies.
 */
#include "jail.bpf.h"
#include "root.bpf.h"
#include "file.bpf.h"
#include "inode.bpf.h"
#include "socket.bpf.h"
#include "network.bpf.h"
#include "process.bpf.h"
#include "lifecycle.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
