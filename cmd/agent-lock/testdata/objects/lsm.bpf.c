/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* An LSM program with a map, and one for a hook that no kernel has. */
#include "types.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, __u64);
} seen SEC(".maps");

SEC("lsm/file_open")
int BPF_PROG(watch_open, struct file *file, int ret)
{
	__u32 uid = bpf_get_current_uid_gid();
	__u64 number = BPF_CORE_READ(file, f_inode, i_ino);

	bpf_map_update_elem(&seen, &uid, &number, BPF_ANY);
	return ret;
}

SEC("lsm/no_such_hook")
int BPF_PROG(no_hook, int ret)
{
	return ret;
}
