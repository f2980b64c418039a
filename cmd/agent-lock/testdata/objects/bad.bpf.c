/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Programs that a verifier must refuse: one forgets a check, one is too long. */
#include "types.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

SEC("tp_btf/sched_process_exec")
int unchecked(void *ctx)
{
	__u32 key = 0;
	__u64 *count = bpf_map_lookup_elem(&counts, &key);

	*count = 3; /* which may be NULL */
	return 0;
}

SEC("tp_btf/sched_process_exec")
int unread(void *ctx)
{
	register __u64 garbage asm("r7");

	asm volatile("%0 = r8" : "=r"(garbage));
	return garbage != 0;
}
