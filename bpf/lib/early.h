/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From a frame to a verdict, the same for tc and XDP. */
#ifndef HEADGATE_LIB_EARLY_H
#define HEADGATE_LIB_EARLY_H

#include "lib/gate.h"
#include "lib/reset.h"

static __always_inline void headgate_count_left(__u32 kind)
{
	__u32 why = kind - HEADGATE_PACKET_FRAGMENT;
	__u64 *count = bpf_map_lookup_elem(&headgate_left_counts, &why);

	if (count)
		++*count;
}

/* What a frame asks for, outside the stack: a number that is read from a map is any number to the
 * verifier, so it looks at the gate once, and not once for each way through the headers.
 */
struct headgate_early {
	struct headgate_try try;
	struct headgate_packet packet;
};

HEADGATE_MAP struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct headgate_early);
} headgate_early_scratch SEC(".maps");

/* NULL where the frame is not to be judged; counted where it might have been. */
static __always_inline struct headgate_early *headgate_early_parse(void *data, void *end)
{
	struct headgate_packet packet = {};
	struct headgate_flow_key flow = {};
	struct headgate_early *early;
	__u32 kind, zero = 0;

	kind = headgate_parse(data, end, &packet, &flow);
	if (kind == HEADGATE_PACKET_OTHER)
		return NULL;
	if (kind >= HEADGATE_PACKET_FRAGMENT) {
		headgate_count_left(kind);
		return NULL;
	}
	early = bpf_map_lookup_elem(&headgate_early_scratch, &zero);
	if (!early)
		return NULL;
	flow.netns_id = headgate_netns_id;
	early->packet = packet;
	early->try.flow = flow;
	early->try.protocol = kind == HEADGATE_PACKET_SYN ? IPPROTO_TCP : IPPROTO_UDP;
	early->try.isn = packet.isn;
	early->try.mute = 0;
	early->try.again = 0;
	return early;
}

#endif /* HEADGATE_LIB_EARLY_H */
