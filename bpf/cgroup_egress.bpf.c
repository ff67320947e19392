// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * When a target answers: cgroup_skb egress on its v2 cgroup. The first byte of a response in plain
 * HTTP/1.1 ends what its request held in memory, and its time in flight; the end of a stream of
 * HTTP/2 the latter. Looks into a packet only where something has come in since the last answer, or
 * where requests of HTTP/2 are looked at.
 */
#include "lib/gate.h"
#include "lib/in_flight.h"
#include "lib/live.h"
#include "lib/payload.h"

/* What the server says on a connection of HTTP/2: which of its requests are answered now. */
static __always_inline void headgate_egress_responses(struct __sk_buff *skb,
						      const struct headgate_payload *payload)
{
	__u64 cookie = bpf_get_socket_cookie(skb);
	struct headgate_responses *responses;
	__u32 event, turn, stream = 0;

	responses = bpf_map_lookup_elem(&headgate_response_states, &cookie);
	if (!responses)
		return;
	/* One loop for both: a second one would be verified anew for each way out of the first. */
	for (turn = 0; turn < HEADGATE_RESPONSES_TURNS + HEADGATE_RESPONSES_CALLS; turn++) {
		if (responses->state == HEADGATE_RESPONSES_OVER)
			return;
		if (responses->state == HEADGATE_RESPONSES_LOST) {
			stream = headgate_responses_lost(responses);
			event = HEADGATE_RESPONSES_RESET;
		} else {
			event = HEADGATE_RESPONSES_BROKEN;
			if (turn < HEADGATE_RESPONSES_TURNS)
				event =
				    headgate_responses_next(responses, skb, payload->offset_bytes,
							    payload->seq, payload->bytes, &stream);
		}
		if (event == HEADGATE_RESPONSES_DONE)
			return;
		if (event == HEADGATE_RESPONSES_BROKEN)
			headgate_responses_lose(responses);
		else if (event != HEADGATE_RESPONSES_ON)
			headgate_call_ends(responses, stream, event == HEADGATE_RESPONSES_ENDED);
	}
}

SEC("cgroup_skb/egress")
int headgate_egress(struct __sk_buff *skb)
{
	struct headgate_connection *connection;
	struct headgate_target_policy *target;
	struct headgate_target_state *state;
	struct headgate_endpoint_state *endpoint_state;
	struct headgate_payload payload;
	struct bpf_sock *sk = skb->sk;
	__u32 slot, endpoint, response;
	__u8 first[12] = {};

	if (!sk)
		return 1;
	sk = bpf_sk_fullsock(sk);
	if (!sk || sk->protocol != IPPROTO_TCP)
		return 1;
	connection = bpf_sk_storage_get(&headgate_connections, sk, 0, 0);
	if (!connection || connection->target != headgate_target_slot || connection->closed ||
	    (!(headgate_serves_http2 && connection->responses) &&
	     headgate_read(connection->received_bytes) == connection->turn_bytes))
		return 1;
	payload = headgate_tcp_payload(skb);
	if (!payload.bytes)
		return 1;
	if (headgate_serves_http2 && connection->responses)
		headgate_egress_responses(skb, &payload);
	slot = connection->target;
	endpoint = connection->endpoint;
	target = bpf_map_lookup_elem(&headgate_targets, &slot);
	state = bpf_map_lookup_elem(&headgate_target_states, &slot);
	endpoint_state = bpf_map_lookup_elem(&headgate_states, &endpoint);
	if (!target || !state || !endpoint_state)
		return 1;
	if (connection->kind == HEADGATE_STREAM_HTTP1) {
		(void)bpf_skb_load_bytes(skb, payload.offset_bytes, first, sizeof(first));
		response = headgate_response_of(first);
		if (response == HEADGATE_RESPONSE_NONE)
			return 1;
		headgate_live_release(connection, state,
				      HEADGATE_LIVE_GENERATION(headgate_read(target->live_base)));
		headgate_in_flight_answered(bpf_get_socket_cookie(skb));
		if (response == HEADGATE_RESPONSE_SWITCHED)
			connection->kind = HEADGATE_STREAM_OTHER;
	}
	headgate_turn_ends(connection, endpoint_state);
	return 1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
