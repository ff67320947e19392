// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Connection counts of a target: sock_ops on its v2 cgroup. A listener's children belong to the
 * cgroup in which it listened, so what is counted here is what the target really got: handshakes
 * completed, connections alive, bytes received by those that have ended.
 *
 * "Alive" ends when the server lets go of the connection (it leaves ESTABLISHED and CLOSE_WAIT):
 * what lingers in FIN_WAIT for a slow client is no work of the server any more.
 */
#include "lib/gate.h"
#include "lib/in_flight.h"
#include "lib/live.h"

/* include/net/tcp_states.h; the numbers are ABI (enum in linux/bpf.h: BPF_TCP_*) */
static __always_inline int headgate_is_live(__u32 state)
{
	return state == BPF_TCP_ESTABLISHED || state == BPF_TCP_CLOSE_WAIT;
}

/* The states from which a socket that has closed first goes over into TIME_WAIT: the socket itself
 * is then closed, what stays is a small stand-in. (A reset ends them too; the note then expires.)
 */
static __always_inline int headgate_may_time_wait(__u32 state)
{
	return state == BPF_TCP_FIN_WAIT2 || state == BPF_TCP_CLOSING;
}

static __always_inline void headgate_fill_flow(struct bpf_sock_ops *ops,
					       struct headgate_flow_key *flow)
{
	flow->netns_id = headgate_netns_id;
	flow->local_port = (__u16)ops->local_port;
	/* network byte order in the upper half on little endian: bpf_ntohl gives the port in both
	 */
	flow->remote_port = (__u16)bpf_ntohl(ops->remote_port);
	if (ops->family == AF_INET) {
		headgate_read_ipv4(flow->local_address, ops->local_ip4);
		headgate_read_ipv4(flow->remote_address, ops->remote_ip4);
	} else {
		headgate_read_ipv6(flow->local_address, ops->local_ip6);
		headgate_read_ipv6(flow->remote_address, ops->remote_ip6);
	}
}

/* What is remembered of the flow of a connection; NULL where nothing can be. */
static __always_inline struct headgate_flow_set *
headgate_flows_of(const struct headgate_flow_key *flow, __u64 *hash)
{
	const struct headgate_control *control;
	__u32 slot, zero = 0;

	control = bpf_map_lookup_elem(&headgate_control, &zero);
	if (!control)
		return NULL;
	*hash = headgate_flow_hash(control->hash_key, flow);
	slot = headgate_flow_set_of(*hash);
	return bpf_map_lookup_elem(&headgate_flows, &slot);
}

/* Begins the books of a connection, with its socket. Without them (no memory) its life and bytes
 * are not known; it is counted all the same.
 */
static __always_inline void headgate_open_books(struct bpf_sock_ops *ops, __u32 endpoint,
						__u32 target)
{
	struct headgate_connection fresh = {
	    .established_ns = bpf_ktime_get_ns(), .endpoint = endpoint, .target = target};
	struct bpf_sock *sk = ops->sk;

	if (sk)
		(void)bpf_sk_storage_get(&headgate_connections, sk, &fresh,
					 BPF_SK_STORAGE_GET_F_CREATE);
}

static __always_inline void headgate_close_books(struct bpf_sock_ops *ops, __u32 endpoint,
						 struct headgate_endpoint_state *state,
						 struct headgate_target_state *target_state)
{
	struct headgate_target_policy *target;
	struct headgate_connection *connection;
	struct bpf_sock *sk = ops->sk;
	__u32 slot = headgate_target_slot;

	if (!sk)
		return;
	connection = bpf_sk_storage_get(&headgate_connections, sk, 0, 0);
	target = bpf_map_lookup_elem(&headgate_targets, &slot);
	if (!connection || !target || connection->closed)
		return;
	connection->closed = 1;
	headgate_turn_ends(connection, state);
	/* Of HTTP/2 a part may have been taken back (headgate_http2_drop): the rest ends by age. */
	if (connection->kind == HEADGATE_STREAM_HTTP1 || !connection->responses)
		headgate_live_release(connection, target_state,
				      HEADGATE_LIVE_GENERATION(headgate_read(target->live_base)));
	if (headgate_one_request(connection))
		headgate_count_response(endpoint, bpf_ktime_get_ns() - connection->established_ns);
}

/* What its server sends is looked at too, where that may be HTTP/2. */
static __always_inline void headgate_open_responses(struct bpf_sock_ops *ops, __u32 endpoint,
						    __u64 cookie)
{
	const struct headgate_request_port *port;
	struct headgate_connection *connection;
	struct headgate_responses *responses;
	struct bpf_sock *sk = ops->sk;
	__u32 zero = 0;

	port = bpf_map_lookup_elem(&headgate_request_ports, &endpoint);
	if (!port || !(port->flags & HEADGATE_REQUESTS_HTTP2) || !sk)
		return;
	connection = bpf_sk_storage_get(&headgate_connections, sk, 0, 0);
	responses = bpf_map_lookup_elem(&headgate_response_blank, &zero);
	if (!connection || !responses ||
	    bpf_map_update_elem(&headgate_response_states, &cookie, responses, BPF_ANY))
		return;
	responses = bpf_map_lookup_elem(&headgate_response_states, &cookie);
	if (!responses)
		return;
	responses->next_seq = ops->snd_nxt;
	connection->responses = 1;
}

/* From now on its requests are looked at. 0: that cannot be (no room, another user of the socket),
 * and nothing else changes.
 */
static __always_inline int headgate_open_stream(struct bpf_sock_ops *ops, __u32 endpoint,
						__u32 target, __u32 exempt)
{
	__u64 cookie = bpf_get_socket_cookie(ops);
	struct headgate_stream *stream;
	__u32 zero = 0;

	stream = bpf_map_lookup_elem(&headgate_stream_blank, &zero); /* too large for the stack */
	if (!stream || bpf_map_update_elem(&headgate_stream_states, &cookie, stream, BPF_ANY))
		return 0;
	stream = bpf_map_lookup_elem(&headgate_stream_states, &cookie);
	if (!stream)
		return 0;
	stream->established_ns = bpf_ktime_get_ns();
	stream->passed_ns = stream->established_ns;
	stream->http1.path.key.port = endpoint;
	stream->port = endpoint;
	stream->target = target;
	stream->exempt = exempt;
	if (!bpf_sock_hash_update(ops, &headgate_streams, &cookie, BPF_NOEXIST)) {
		if (headgate_serves_http2)
			headgate_open_responses(ops, endpoint, cookie);
		return 1;
	}
	bpf_map_delete_elem(&headgate_stream_states, &cookie);
	return 0;
}

/* The server lets go of it: requests that it has are not answered any more. */
static __always_inline void headgate_end_stream(struct bpf_sock_ops *ops)
{
	__u64 cookie = bpf_get_socket_cookie(ops);
	struct headgate_responses *responses;
	struct headgate_counters *counters;
	struct headgate_stream *stream;

	responses =
	    headgate_serves_http2 ? bpf_map_lookup_elem(&headgate_response_states, &cookie) : NULL;
	if (responses) {
		headgate_calls_lost(responses);
		bpf_map_delete_elem(&headgate_response_states, &cookie);
	}
	stream = bpf_map_lookup_elem(&headgate_stream_states, &cookie);
	if (!stream || !headgate_in_flight_ends(stream))
		return;
	counters = headgate_counters_of(stream->waiting);
	if (counters)
		__sync_fetch_and_add(&counters->closed, 1);
}

/* No byte comes any more. Not earlier: a server that closes its side may still read, and must not
 * read the rest of a request that was answered in its place.
 */
static __always_inline void headgate_close_stream(struct bpf_sock_ops *ops)
{
	__u64 cookie = bpf_get_socket_cookie(ops);

	bpf_map_delete_elem(&headgate_stream_states, &cookie);
}

static __always_inline int headgate_sock_ops(struct bpf_sock_ops *ops, const int locked)
{
	struct headgate_flow_key flow = {};
	struct headgate_flow_set *flows;
	struct headgate_target_state *target_state;
	struct headgate_endpoint_policy *policy;
	struct headgate_endpoint_state *state;
	struct headgate_counters *counters;
	struct headgate_endpoint_ref *ref;
	__u32 endpoint, target_slot;
	__u64 hash = 0, known;
	__u32 op = ops->op;
	enum { ESTABLISHED, ENDED, TIME_WAIT } what;

	if (op == BPF_SOCK_OPS_STATE_CB && ops->args[1] == BPF_TCP_CLOSE) {
		headgate_end_stream(ops);
		headgate_close_stream(ops);
	}
	if (op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		what = ESTABLISHED;
	else if (op == BPF_SOCK_OPS_STATE_CB && headgate_is_live(ops->args[0]) &&
		 !headgate_is_live(ops->args[1]))
		what = ENDED;
	else if (op == BPF_SOCK_OPS_STATE_CB && headgate_may_time_wait(ops->args[0]) &&
		 ops->args[1] == BPF_TCP_CLOSE)
		what = TIME_WAIT;
	else
		return 1;

	if (what == ENDED)
		headgate_end_stream(ops); /* also where the port is protected no more */
	headgate_fill_flow(ops, &flow);
	ref =
	    headgate_find_endpoint(flow.netns_id, flow.local_address, flow.local_port, IPPROTO_TCP);
	if (!ref)
		return 1;
	endpoint = ref->endpoint;
	policy = bpf_map_lookup_elem(&headgate_policies, &endpoint);
	state = bpf_map_lookup_elem(&headgate_states, &endpoint);
	counters = headgate_counters_of(endpoint);
	if (!policy || !state || !counters)
		return 1;
	target_slot = policy->target;
	if (target_slot != headgate_target_slot)
		return 1; /* another instance counts it: cgroups nest, and targets may share one */
	target_state = bpf_map_lookup_elem(&headgate_target_states, &target_slot);
	if (!target_state)
		return 1;

	flows = headgate_flows_of(&flow, &hash);
	if (!flows)
		return 1;

	if (what == TIME_WAIT) {
		headgate_flow_put(flows, hash, HEADGATE_FLOW_TIME_WAIT, headgate_now(locked),
				  locked);
		return 1;
	}
	if (what == ESTABLISHED) {
		/* only what is seen to begin is counted when it ends */
		if (bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags |
						       BPF_SOCK_OPS_STATE_CB_FLAG))
			return 1;
		/* Atomic, although it is this CPU's: a close runs in a process, where the softirq
		 * of another connection may come in between.
		 */
		__sync_fetch_and_add(&counters->established, 1);
		__sync_fetch_and_add(&state->in_flight, 1);
		__sync_fetch_and_add(&target_state->in_flight, 1);
		headgate_open_books(ops, endpoint, target_slot);
		known = headgate_flow_find(flows, hash);
		if (known)
			headgate_flow_drop(flows, known, locked);
		if (known >> 62 == HEADGATE_FLOW_TICKET) {
			__sync_fetch_and_add(&state->tickets_settled, 1);
			__sync_fetch_and_add(&target_state->tickets_settled, 1);
		}
		if ((ref->flags & HEADGATE_REF_REQUESTS) &&
		    !headgate_open_stream(
			ops, endpoint, target_slot,
			headgate_exempt_kind(policy, &flow, headgate_now(locked))))
			__sync_fetch_and_add(&counters->unrecognized, 1);
		return 1;
	}
	__sync_fetch_and_add(&counters->closed, 1);
	/* the client's FIN counts as a byte (rcv_nxt, RFC 9293 section 3.4) */
	__sync_fetch_and_add(&counters->received_bytes,
			     ops->bytes_received - (ops->args[0] == BPF_TCP_CLOSE_WAIT));
	__sync_fetch_and_add(&state->in_flight, -1);
	__sync_fetch_and_add(&target_state->in_flight, -1);
	headgate_close_books(ops, endpoint, state, target_state);
	return 1;
}

SEC("sockops")
int headgate_sock_ops_atomic(struct bpf_sock_ops *ops)
{
	return headgate_sock_ops(ops, 0);
}

/* The same for kernels without BPF atomics (5.10, 5.11). */
SEC("sockops")
int headgate_sock_ops_locked(struct bpf_sock_ops *ops)
{
	return headgate_sock_ops(ops, 1);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
