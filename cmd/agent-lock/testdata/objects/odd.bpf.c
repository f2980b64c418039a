/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a loader stumbles over: a section of no known type, targets that are not known yet,
 * a map of maps, a map that wants a pin.
 */
#include "types.h"

struct inner {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} inner_one SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct inner);
} outer SEC(".maps") = {
	.values = {&inner_one},
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(pinning, 1);
	__type(key, __u32);
	__type(value, __u64);
} pinned SEC(".maps");

SEC("socket")
int map_of_maps(void *ctx)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&outer, &key) != 0;
}

SEC("socket")
int pinned_map(void *ctx)
{
	__u32 key = 0;
	__u64 *value = bpf_map_lookup_elem(&pinned, &key);

	return value ? *value : 0;
}

SEC("no_such_type/x")
int no_type(void *ctx)
{
	return 0;
}

SEC("freplace/any")
int replacement(void *ctx)
{
	return 0;
}
