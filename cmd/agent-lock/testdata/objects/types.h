/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the objects here need of the kernel's types; CO-RE finds the rest. */
#ifndef OBJECTS_TYPES_H
#define OBJECTS_TYPES_H

#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct inode {
	unsigned long i_ino;
};
struct file {
	struct inode *f_inode;
};
struct task_struct {
	int pid;
};
struct linux_binprm;
struct filename;
#pragma clang attribute pop

char LICENSE[] SEC("license") = "GPL";

#endif
