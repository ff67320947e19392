// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Payload as a target receives it: cgroup_skb ingress on its v2 cgroup. Runs for every packet that
 * one of its sockets gets, so it does as little as it can: a connection that sock_ops has not
 * marked is left after one look-up in the socket itself.
 */
#include "lib/gate.h"
#include "lib/live.h"
#include "lib/payload.h"

/* A datagram that the gate has let in; sk_lookup itself sees no size. */
static __always_inline void headgate_datagram(struct __sk_buff *skb, struct bpf_sock *sk)
{
	const __u32 ip_bytes = headgate_ip_header_bytes(skb, IPPROTO_UDP);
	struct headgate_endpoint_policy *policy;
	struct headgate_endpoint_ref *ref;
	struct headgate_counters *counters;
	__u32 address[4] = {}, endpoint;

	if (!ip_bytes || skb->len < ip_bytes + sizeof(struct udphdr))
		return;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		address[2] = bpf_htonl(0xffff);
		if (bpf_skb_load_bytes(skb, offsetof(struct iphdr, daddr), &address[3], 4))
			return;
	} else if (bpf_skb_load_bytes(skb, offsetof(struct ipv6hdr, daddr), address, 16)) {
		return;
	}
	ref = headgate_find_endpoint(headgate_netns_id, address, (__u16)sk->src_port, IPPROTO_UDP);
	if (!ref)
		return;
	endpoint = ref->endpoint;
	policy = bpf_map_lookup_elem(&headgate_policies, &endpoint);
	counters = headgate_counters_of(endpoint);
	if (policy && counters && policy->target == headgate_target_slot)
		counters->payload_bytes += skb->len - ip_bytes - sizeof(struct udphdr);
}

/* A request begins with this packet. Loads are of constant lengths, as everywhere: verifiers before
 * 6.2 lose the lower bound of another.
 */
static __always_inline void headgate_announced(struct __sk_buff *skb,
					       const struct headgate_payload *payload,
					       struct headgate_connection *connection,
					       struct headgate_target_state *state,
					       const struct headgate_target_policy *target)
{
	const __u64 live_bytes_max = headgate_read(target->live_bytes_max);
	__u8 head[HEADGATE_HEAD_BYTES] = {};
	long err;

	if (!live_bytes_max || payload->bytes < HEADGATE_HEAD_BYTES / 2)
		return;
	if (payload->bytes < HEADGATE_HEAD_BYTES)
		err = bpf_skb_load_bytes(skb, payload->offset_bytes, head, HEADGATE_HEAD_BYTES / 2);
	else
		err = bpf_skb_load_bytes(skb, payload->offset_bytes, head, HEADGATE_HEAD_BYTES);
	if (!err)
		headgate_live_announce(connection, state, live_bytes_max,
				       headgate_content_length(head), payload->bytes);
}

SEC("cgroup_skb/ingress")
int headgate_ingress(struct __sk_buff *skb)
{
	struct headgate_connection *connection;
	struct headgate_target_state *state;
	struct headgate_target_policy *target;
	struct headgate_counters *counters;
	struct headgate_payload payload;
	struct bpf_sock *sk = skb->sk;
	__u32 slot, endpoint;
	__u64 expected;
	__u8 first[4] = {};

	if (!sk)
		return 1;
	sk = bpf_sk_fullsock(sk);
	if (!sk)
		return 1;
	if (sk->protocol == IPPROTO_UDP) {
		headgate_datagram(skb, sk);
		return 1;
	}
	connection = bpf_sk_storage_get(&headgate_connections, sk, 0, 0);
	if (!connection || connection->target != headgate_target_slot || connection->closed)
		return 1;
	payload = headgate_tcp_payload(skb);
	if (!payload.bytes)
		return 1;
	slot = connection->target;
	endpoint = connection->endpoint;
	target = bpf_map_lookup_elem(&headgate_targets, &slot);
	state = bpf_map_lookup_elem(&headgate_target_states, &slot);
	counters = headgate_counters_of(endpoint);
	if (!target || !state || !counters)
		return 1;
	counters->payload_bytes += payload.bytes;
	if (connection->kind == HEADGATE_STREAM_UNKNOWN) {
		(void)bpf_skb_load_bytes(skb, payload.offset_bytes, first, sizeof(first));
		connection->kind = headgate_stream_kind_of(first);
	}
	expected = headgate_live_expected(connection, payload.bytes);
	if (!expected && connection->kind == HEADGATE_STREAM_HTTP1 &&
	    connection->turn_bytes == headgate_read(connection->received_bytes))
		headgate_announced(skb, &payload, connection, state, target);
	headgate_live_add(connection, state,
			  HEADGATE_LIVE_GENERATION(headgate_read(target->live_base)),
			  payload.bytes - expected);
	return 1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
