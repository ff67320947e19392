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
	/* The latest look-up in headgate_endpoints on this CPU: two hashes of 28 bytes would be
	 * half of what a dropped frame costs, and a flood goes to one address and port.
	 */
	struct headgate_endpoint_key key;
	__u32 endpoint;
	__u64 generation; /* headgate_control.endpoints_generation before it */
};

HEADGATE_MAP struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct headgate_early);
} headgate_early_scratch SEC(".maps");

/* 1 where the flow is one of a protected endpoint: early->try.endpoint is it. */
static __always_inline int headgate_early_find(struct headgate_early *early)
{
	const struct headgate_flow_key *flow = &early->try.flow;
	struct headgate_endpoint_key *key = &early->key;
	const struct headgate_endpoint_ref *ref;
	const struct headgate_control *control;
	__u64 generation;
	__u32 zero = 0;

	control = bpf_map_lookup_elem(&headgate_control, &zero);
	if (!control)
		return 0;
	generation = headgate_read(control->endpoints_generation);
	if (early->generation != generation || key->netns_id != flow->netns_id ||
	    key->port != flow->local_port || key->protocol != early->try.protocol ||
	    key->address[3] != flow->local_address[3] ||
	    key->address[2] != flow->local_address[2] ||
	    key->address[1] != flow->local_address[1] ||
	    key->address[0] != flow->local_address[0]) {
		ref = headgate_find_endpoint(flow->netns_id, flow->local_address, flow->local_port,
					     early->try.protocol);
		if (!ref)
			return 0;
		key->netns_id = flow->netns_id;
		key->port = flow->local_port;
		key->protocol = (__u8)early->try.protocol;
		__builtin_memcpy(key->address, flow->local_address, sizeof(key->address));
		early->endpoint = ref->endpoint;
		early->generation = generation;
	}
	early->try.endpoint = early->endpoint;
	return 1;
}

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
	return headgate_early_find(early) ? early : NULL;
}

#endif /* HEADGATE_LIB_EARLY_H */
