/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The request that a server has and has not answered: one a connection of HTTP/1.1, counted in
 * `in_flight` of its route's state. Runs under the socket's lock. No atomics that return a value:
 * sock_ops and cgroup_egress load on 5.10 too.
 */
#ifndef HEADGATE_LIB_IN_FLIGHT_H
#define HEADGATE_LIB_IN_FLIGHT_H

#include "lib/live.h"
#include "lib/maps.h"

static __always_inline void headgate_in_flight_begins(struct headgate_stream *stream,
						      __u32 endpoint)
{
	struct headgate_endpoint_state *state = bpf_map_lookup_elem(&headgate_states, &endpoint);

	if (!state)
		return;
	__sync_fetch_and_add(&state->in_flight, 1);
	stream->waiting = endpoint;
	stream->request_ns = stream->begun_ns;
}

/* It is in flight no more; 0: none was. */
static __always_inline __u64 headgate_in_flight_ends(struct headgate_stream *stream)
{
	const __u64 request_ns = stream->request_ns;
	struct headgate_endpoint_state *state;
	__u32 endpoint = stream->waiting;

	if (!request_ns)
		return 0;
	stream->request_ns = 0;
	state = bpf_map_lookup_elem(&headgate_states, &endpoint);
	if (state)
		__sync_fetch_and_add(&state->in_flight, -1);
	return request_ns;
}

/* The first byte of its answer is sent. */
static __always_inline void headgate_in_flight_answered(__u64 cookie)
{
	struct headgate_life_histogram *lives;
	struct headgate_counters *counters;
	struct headgate_stream *stream;
	__u64 request_ns, life_ns;
	__u32 endpoint, bucket;

	stream = bpf_map_lookup_elem(&headgate_stream_states, &cookie);
	if (!stream)
		return;
	request_ns = headgate_in_flight_ends(stream);
	if (!request_ns)
		return;
	endpoint = stream->waiting;
	counters = headgate_counters_of(endpoint);
	lives = bpf_map_lookup_elem(&headgate_lives, &endpoint);
	if (!counters || !lives)
		return;
	life_ns = bpf_ktime_get_ns() - request_ns;
	__sync_fetch_and_add(&counters->responses, 1);
	__sync_fetch_and_add(&counters->response_ns, life_ns);
	bucket = headgate_life_bucket(life_ns);
	if (bucket < HEADGATE_LIFE_BUCKETS)
		__sync_fetch_and_add(&lives->counts[bucket], 1);
}

#endif /* HEADGATE_LIB_IN_FLIGHT_H */
