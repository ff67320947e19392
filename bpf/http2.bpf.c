// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Stage HTTP/2 of the program on the live connections of a port: recognises requests (lib/http2.h)
 * and brings about the refusal of gRPC calls. Entered by tail call, with the connection's state
 * saying where in the packet to go on.
 *
 * Every packet passes. A call is refused by overwriting four octets of it: the length of its
 * message becomes 2^32 - 1, which is above what its server accepts, and the server's own gRPC stack
 * answers RESOURCE_EXHAUSTED before it buffers, decompresses or decodes anything. That needs a
 * server that checks the length first and has a limit below 4 GiB: whoever sets
 * HEADGATE_REQUESTS_REFUSE on a port of gRPC has made sure of it.
 *
 * Needs bpf_loop (Linux 5.17).
 */
#include "lib/http2.h"
#include "lib/in_flight.h"
#include "lib/request.h"
#include "lib/stream.h"

/* Not 2^31 - 1: a server whose limit is the largest int would take that, and try to allocate it. */
#define HEADGATE_POISON 0xffffffffU

struct headgate_http2_env {
	struct __sk_buff *skb;
	struct headgate_stream *stream;
	const struct headgate_request_port *port;
	__u64 cookie;
};

static __always_inline struct headgate_http2 *headgate_http2_of(struct headgate_stream *stream)
{
	_Static_assert(sizeof(stream->http2) == sizeof(struct headgate_http2), "lib/stream.h");
	return (struct headgate_http2 *)stream->http2;
}

static __always_inline void headgate_http2_find(struct headgate_http2_env *env,
						struct headgate_http2 *h,
						struct headgate_call *call)
{
	const struct headgate_route *route;

	h->hpack.key.port = env->stream->port;
	route = bpf_map_lookup_elem(&headgate_methods, &h->hpack.key);
	if (!route)
		return;
	call->endpoint = (__u16)route->endpoint;
	call->flags = (__u8)route->flags & ~HEADGATE_CALL_NO_PATH;
	call->generation = (__u8)env->port->generation;
}

static __always_inline void headgate_http2_seen(struct headgate_http2_env *env,
						struct headgate_http2 *h)
{
	struct headgate_counters *counters;

	if (h->hpack.call.flags & HEADGATE_CALL_NO_PATH)
		headgate_count_unknown(env->stream->port, HEADGATE_UNKNOWN_NO_PATH);
	if (h->marks & HEADGATE_HTTP2_RECOGNIZED)
		return;
	h->marks |= HEADGATE_HTTP2_RECOGNIZED;
	env->stream->flags |= HEADGATE_STREAM_RECOGNIZED;
	counters = headgate_counters_of(env->stream->port);
	if (counters)
		__sync_fetch_and_add(&counters->recognized, 1);
}

static __always_inline int headgate_http2_put(struct headgate_http2_env *env, __u32 stream,
					      const struct headgate_call *call)
{
	struct headgate_call_key key = {.cookie = env->cookie, .stream = stream};

	return (int)bpf_map_update_elem(&headgate_calls, &key, call, BPF_ANY);
}

static __always_inline int headgate_http2_take(struct headgate_http2_env *env, __u32 stream,
					       struct headgate_call *call)
{
	struct headgate_call_key key = {.cookie = env->cookie, .stream = stream};
	const struct headgate_call *found = bpf_map_lookup_elem(&headgate_calls, &key);

	if (!found)
		return 0;
	*call = *found;
	bpf_map_delete_elem(&headgate_calls, &key);
	return 1;
}

/* The slot that counts it. A slot that a path was given long ago may serve something else now. */
static __always_inline __u32 headgate_http2_endpoint(const struct headgate_http2_env *env,
						     const struct headgate_call *call)
{
	const struct headgate_endpoint_policy *policy;
	__u32 endpoint = call->endpoint;

	if (endpoint == HEADGATE_CALL_REST)
		return env->port->rest;
	policy = bpf_map_lookup_elem(&headgate_policies, &endpoint);
	if (!policy || policy->level != HEADGATE_LEVEL_ROUTE || policy->parent != env->stream->port)
		return env->port->rest;
	return endpoint;
}

static __always_inline struct headgate_responses *
headgate_http2_responses(const struct headgate_http2_env *env)
{
	return bpf_map_lookup_elem(&headgate_response_states, &env->cookie);
}

static __always_inline void headgate_http2_more(struct headgate_http2_env *env,
						struct headgate_http2 *h)
{
	const struct headgate_responses *responses = headgate_http2_responses(env);

	h->dropped = responses && headgate_responses_refused(responses, h->stream);
}

/*
 * Octets of a refused call are not live: its server drops them unread. cgroup_skb has counted them
 * with their packet just now, to end by age; only what is in this packet is taken back, so that
 * nobody takes away more than has come.
 */
static __always_inline void headgate_http2_drop(const struct headgate_http2_env *env, __u64 bytes)
{
	const struct headgate_target_policy *target;
	struct headgate_target_state *state;
	__u32 slot = env->stream->target;

	target = bpf_map_lookup_elem(&headgate_targets, &slot);
	state = bpf_map_lookup_elem(&headgate_target_states, &slot);
	if (target && state)
		__sync_fetch_and_add(
		    headgate_live_sum(state,
				      HEADGATE_LIVE_GENERATION(headgate_read(target->live_base))),
		    -bytes);
}

static __always_inline void headgate_http2_judge(struct headgate_http2_env *env,
						 struct headgate_http2 *h,
						 const struct headgate_http2_judged *judged)
{
	struct headgate_request request = {.bytes = judged->bytes, .guarded = 1};
	const struct headgate_call *call = &judged->call;
	__u32 poison = HEADGATE_POISON;

	request.endpoint = headgate_http2_endpoint(env, call);
	request.exempt = env->stream->exempt;
	if (call->flags & HEADGATE_ROUTE_EXEMPT) {
		request.exempt = HEADGATE_EXEMPT_KIND_SOURCE;
		request.guarded = 0; /* counted as what it is */
	}
	if (judged->may_poison && (call->flags & HEADGATE_ROUTE_UNARY) &&
	    (env->port->flags & HEADGATE_REQUESTS_REFUSE) &&
	    call->generation == (__u8)env->port->generation)
		request.guarded = 0;
	if (headgate_request_gate(&request) == HEADGATE_ACTION_GRPC_EXHAUSTED) {
		if (!bpf_skb_store_bytes(env->skb, h->at - sizeof(poison), &poison, sizeof(poison),
					 0)) {
			struct headgate_responses *responses = headgate_http2_responses(env);

			if (responses) { /* else its close takes them back: sock_ops.bpf.c */
				h->dropped = h->frame_left != 0;
				headgate_responses_refuse(responses, judged->stream);
			}
			return;
		}
		headgate_request_passed(&request); /* no memory for a copy of the packet */
	}
	headgate_call_begins(env->cookie, judged->stream, request.endpoint);
}

static __always_inline void headgate_http2_gone(struct headgate_http2_env *env, __u32 stream)
{
	struct headgate_responses *responses = headgate_http2_responses(env);

	if (responses)
		headgate_call_ends(responses, stream, 0);
}

static long headgate_http2_turn(__u32 index, struct headgate_http2_env *env)
{
	struct headgate_http2 *h = headgate_http2_of(env->stream);
	__u32 end = env->stream->packet_bytes, at = h->at, dropped = h->dropped;

	(void)index;
	if (headgate_http2_lost(h) || at >= end)
		return 1;
	headgate_http2_handle(env, h, headgate_http2_step(h, env->skb, end));
	if (dropped)
		headgate_http2_drop(env, h->at - at);
	return 0;
}

SEC("sk_skb/stream_verdict")
int headgate_stream_http2(struct __sk_buff *skb)
{
	struct headgate_http2_env env = {.skb = skb};
	struct headgate_http2 *h;
	__u32 port;

	env.cookie = bpf_get_socket_cookie(skb);
	env.stream = bpf_map_lookup_elem(&headgate_stream_states, &env.cookie);
	if (!env.stream)
		return SK_PASS;
	port = env.stream->port;
	env.port = bpf_map_lookup_elem(&headgate_request_ports, &port);
	h = headgate_http2_of(env.stream);
	if (headgate_http2_lost(h))
		return SK_PASS;
	if (!env.port || !(env.port->flags & HEADGATE_REQUESTS_HTTP2)) {
		/* for good: what is not read now is missing later */
		headgate_http2_lose(h, HEADGATE_UNKNOWN_PROTOCOL);
	} else {
		env.stream->packet_bytes = skb->len;
		h->at = env.stream->at;
		bpf_loop(HEADGATE_HTTP2_STEPS_MAX, headgate_http2_turn, &env, 0);
		if (!headgate_http2_lost(h) && h->at < env.stream->packet_bytes)
			headgate_http2_lose(h, HEADGATE_UNKNOWN_BUDGET);
	}
	if (headgate_http2_lost(h)) {
		env.stream->protocol = HEADGATE_PROTOCOL_NONE;
		headgate_stream_given_up(env.stream);
		headgate_count_unknown(port, h->hpack.reason);
	}
	return SK_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
