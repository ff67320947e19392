/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The requests that a server has and has not answered, counted in `in_flight` of their routes'
 * states: one a connection of HTTP/1.1, many of HTTP/2 (lib/responses.h). Runs under the socket's
 * lock. No atomics that return a value: sock_ops and cgroup_egress load on 5.10 too.
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

static __always_inline void headgate_count_response(__u32 endpoint, __u64 life_ns)
{
	struct headgate_life_histogram *lives = bpf_map_lookup_elem(&headgate_lives, &endpoint);
	struct headgate_counters *counters = headgate_counters_of(endpoint);
	__u32 bucket = headgate_life_bucket(life_ns);

	if (!counters || !lives)
		return;
	__sync_fetch_and_add(&counters->responses, 1);
	__sync_fetch_and_add(&counters->response_ns, life_ns);
	if (bucket < HEADGATE_LIFE_BUCKETS)
		__sync_fetch_and_add(&lives->counts[bucket], 1);
}

/* The first byte of its answer is sent. */
static __always_inline void headgate_in_flight_answered(__u64 cookie)
{
	struct headgate_stream *stream;
	__u64 request_ns;

	stream = bpf_map_lookup_elem(&headgate_stream_states, &cookie);
	if (!stream)
		return;
	request_ns = headgate_in_flight_ends(stream);
	if (request_ns)
		headgate_count_response(stream->waiting, bpf_ktime_get_ns() - request_ns);
}

/* A request of HTTP/2 that has no answer, or none that can be seen: what was taken in and what has
 * ended must stay the same number.
 */
static __always_inline void headgate_count_unanswered(__u32 endpoint)
{
	struct headgate_counters *counters = headgate_counters_of(endpoint);

	if (counters)
		__sync_fetch_and_add(&counters->closed, 1);
}

/* A request of HTTP/2 goes to the server. */
static __always_inline void headgate_call_begins(__u64 cookie, __u32 stream, __u32 endpoint)
{
	struct headgate_responses *responses =
	    bpf_map_lookup_elem(&headgate_response_states, &cookie);
	struct headgate_endpoint_state *state = bpf_map_lookup_elem(&headgate_states, &endpoint);

	if (responses && state &&
	    headgate_responses_begin(responses, stream, endpoint, bpf_ktime_get_ns()))
		__sync_fetch_and_add(&state->in_flight, 1);
	else
		headgate_count_unanswered(endpoint);
}

static __always_inline void headgate_call_ends(struct headgate_responses *responses, __u32 stream,
					       const int answered)
{
	struct headgate_endpoint_state *state;
	struct headgate_waiting_call call;
	__u32 endpoint;

	if (!headgate_responses_end(responses, stream, &call))
		return;
	endpoint = call.endpoint;
	state = bpf_map_lookup_elem(&headgate_states, &endpoint);
	if (state)
		__sync_fetch_and_add(&state->in_flight, -1);
	if (answered)
		headgate_count_response(endpoint, bpf_ktime_get_ns() - call.begun_ns);
	else
		headgate_count_unanswered(endpoint);
}

/* None of this connection's will be seen to be answered. Unrolled: of a loop here clang makes one
 * whose way back is no jump, which verifiers before 6.2 refuse ("back-edge").
 */
static __always_inline void headgate_calls_lost(struct headgate_responses *responses)
{
	__u32 i;

	headgate_responses_lose(responses);
#pragma clang loop unroll(full)
	for (i = 0; i < HEADGATE_RESPONSES_CALLS; i++)
		headgate_call_ends(responses, headgate_responses_lost(responses), 0);
}

#endif /* HEADGATE_LIB_IN_FLIGHT_H */
