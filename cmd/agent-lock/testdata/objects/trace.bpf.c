/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Tracing programs, with a constant and a ring buffer. */
#include "types.h"

const volatile __u32 wanted = 7;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

SEC("fentry/do_unlinkat")
int BPF_PROG(unlink_entry, int dfd, struct filename *name)
{
	__u32 *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event)
		return 0;
	*event = wanted;
	bpf_ringbuf_submit(event, 0);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(exec, struct task_struct *task, int old, struct linux_binprm *bprm)
{
	bpf_printk("%d", BPF_CORE_READ(task, pid));
	return 0;
}
