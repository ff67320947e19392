/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every map, once. bpf/maps.bpf.c defines them (HEADGATE_DEFINE_MAPS), the hooks' objects declare
 * them extern; bpftool links all objects into one.
 *
 * Policies are separate from state: a value with a spin lock cannot be mmapped, and userspace
 * stores policies through a mapping while the kernel changes state.
 */
#ifndef HEADGATE_LIB_MAPS_H
#define HEADGATE_LIB_MAPS_H

#include "lib/responses.h"
#include "lib/common.h"
#include "lib/stream.h"

#ifdef HEADGATE_DEFINE_MAPS
#define HEADGATE_MAP
#else
#define HEADGATE_MAP extern
#endif

/* kill switch and versions; one cell */
HEADGATE_MAP struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct headgate_control);
} headgate_control SEC(".maps");

HEADGATE_MAP struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4 * HEADGATE_MAX_ENDPOINTS);
	__type(key, struct headgate_endpoint_key);
	__type(value, struct headgate_endpoint_ref);
} headgate_endpoints SEC(".maps");

HEADGATE_MAP struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, HEADGATE_MAX_ENDPOINTS);
	__type(key, __u32);
	__type(value, struct headgate_endpoint_policy);
} headgate_policies SEC(".maps");

HEADGATE_MAP struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, HEADGATE_MAX_TARGETS);
	__type(key, __u32);
	__type(value, struct headgate_target_policy);
} headgate_targets SEC(".maps");

HEADGATE_MAP struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HEADGATE_MAX_ENDPOINTS);
	__type(key, __u32);
	__type(value, struct headgate_endpoint_state);
} headgate_states SEC(".maps");

HEADGATE_MAP struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HEADGATE_MAX_TARGETS);
	__type(key, __u32);
	__type(value, struct headgate_target_state);
} headgate_target_states SEC(".maps");

/*
 * Counters of (CPU, endpoint): a plain array, because that can be mapped into the agent, which
 * reads one word of each endpoint ten times a second; a per-CPU array would have to be copied
 * whole. The agent makes it as many times as large as there are CPUs.
 */
HEADGATE_MAP struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, HEADGATE_MAX_ENDPOINTS);
	__type(key, __u32);
	__type(value, struct headgate_counters);
} headgate_counts SEC(".maps");

/* This CPU's. */
static __always_inline struct headgate_counters *headgate_counters_of(__u32 endpoint)
{
	__u32 at = bpf_get_smp_processor_id() * HEADGATE_MAX_ENDPOINTS + endpoint;

	return bpf_map_lookup_elem(&headgate_counts, &at);
}

/* what is remembered of flows: attempts admitted and not established yet, TIME_WAIT; lib/flows.h */
HEADGATE_MAP struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HEADGATE_FLOW_SETS);
	__type(key, __u32);
	__type(value, struct headgate_flow_set);
} headgate_flows SEC(".maps");

/* connections of targets, kept with their sockets */
HEADGATE_MAP struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct headgate_connection);
} headgate_connections SEC(".maps");

/* how long the connections of an endpoint lived */
HEADGATE_MAP struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, HEADGATE_MAX_ENDPOINTS);
	__type(key, __u32);
	__type(value, struct headgate_life_histogram);
} headgate_lives SEC(".maps");

/* attempts that were deferred and wait for their next try */
HEADGATE_MAP struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct headgate_flow_key);
	__type(value, struct headgate_age);
} headgate_ages SEC(".maps");

/* target HEADGATE_EXEMPT_NODE_SET holds the node's own addresses */
HEADGATE_MAP struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct headgate_exempt_key);
	__type(value, __u32);
} headgate_exempt SEC(".maps");

/* connects of the node itself, by source, with their time */
HEADGATE_MAP struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct headgate_node_flow_key);
	__type(value, __u64);
} headgate_node_flows SEC(".maps");

/* where deferred SYNs go to vanish: one listening socket a namespace and family */
HEADGATE_MAP struct {
	__uint(type, BPF_MAP_TYPE_SOCKHASH);
	__uint(max_entries, 2 * HEADGATE_MAX_TARGETS);
	__type(key, struct headgate_pit_key);
	__type(value, __u64);
} headgate_pits SEC(".maps");

/* sources that were refused, by endpoint; the agent clears it each second */
HEADGATE_MAP struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, HEADGATE_MAX_ENDPOINTS);
	__type(key, __u32);
	__type(value, struct headgate_source_set);
} headgate_sources SEC(".maps");

/* what early hooks left to the socket's gate, by enum headgate_left */
HEADGATE_MAP struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, HEADGATE_LEFT_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} headgate_left_counts SEC(".maps");

/* live connections whose requests are looked at, by socket cookie. Never deleted from while they
 * live: that would lose their unread data. The kernel takes them out when they close.
 */
HEADGATE_MAP struct {
	__uint(type, BPF_MAP_TYPE_SOCKHASH);
	__uint(max_entries, HEADGATE_MAX_STREAMS);
	__type(key, __u64);
	__type(value, __u64);
} headgate_streams SEC(".maps");

/* the same connections, as far as they have been read */
HEADGATE_MAP struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, HEADGATE_MAX_STREAMS);
	__type(key, __u64);
	__type(value, struct headgate_stream);
} headgate_stream_states SEC(".maps");

/* all zero: what a connection begins with */
HEADGATE_MAP struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct headgate_stream);
} headgate_stream_blank SEC(".maps");

/* of those that speak HTTP/2: what their servers have and have not answered */
HEADGATE_MAP struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, HEADGATE_MAX_STREAMS);
	__type(key, __u64);
	__type(value, struct headgate_responses);
} headgate_response_states SEC(".maps");

/* all zero */
HEADGATE_MAP struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct headgate_responses);
} headgate_response_blank SEC(".maps");

HEADGATE_MAP struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, HEADGATE_STAGE_COUNT);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} headgate_stream_stages SEC(".maps");

/* ports whose requests are looked at, by endpoint slot */
HEADGATE_MAP struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, HEADGATE_MAX_ENDPOINTS);
	__type(key, __u32);
	__type(value, struct headgate_request_port);
} headgate_request_ports SEC(".maps");

HEADGATE_MAP struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, HEADGATE_MAX_ENDPOINTS);
	__type(key, struct headgate_route_key);
	__type(value, struct headgate_route);
} headgate_routes SEC(".maps");

HEADGATE_MAP struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2 * HEADGATE_MAX_ENDPOINTS);
	__type(key, struct headgate_method_key);
	__type(value, struct headgate_route);
} headgate_methods SEC(".maps");

/* requests of HTTP/2 that wait for their first DATA while others come in between; lib/http2.h */
HEADGATE_MAP struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct headgate_call_key);
	__type(value, struct headgate_call);
} headgate_calls SEC(".maps");

/* requests and connections of unknown class, by port and reason */
HEADGATE_MAP struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, HEADGATE_MAX_ENDPOINTS);
	__type(key, struct headgate_unknown_key);
	__type(value, __u64);
} headgate_unknowns SEC(".maps");

HEADGATE_MAP struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HEADGATE_MAX_TARGETS);
	__type(key, __u32);
	__type(value, struct headgate_target_identity);
} headgate_target_ids SEC(".maps");

HEADGATE_MAP struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HEADGATE_MAX_ENDPOINTS);
	__type(key, __u32);
	__type(value, struct headgate_endpoint_identity);
} headgate_endpoint_ids SEC(".maps");

HEADGATE_MAP struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HEADGATE_MAX_TARGETS);
	__type(key, __u32);
	__type(value, struct headgate_model);
} headgate_models SEC(".maps");

/* Set before loading: which namespace this instance of a program serves, which target (0 where it
 * serves none of its own), and whether requests of HTTP/2 are looked at there.
 */
#ifdef HEADGATE_DEFINE_MAPS
const volatile __u32 headgate_netns_id = 0;
const volatile __u32 headgate_target_slot = 0;
const volatile __u32 headgate_serves_http2 = 0;
#else
extern const volatile __u32 headgate_netns_id;
extern const volatile __u32 headgate_target_slot;
extern const volatile __u32 headgate_serves_http2;
#endif

#endif /* HEADGATE_LIB_MAPS_H */
