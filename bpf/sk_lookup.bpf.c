// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The default gate: sk_lookup in the target's network namespace. The kernel runs it when a packet
 * looks for a listening TCP socket or an unconnected UDP one, after DNAT and decapsulation; never
 * for a packet of an established connection. SK_DROP makes the kernel answer by its own RST or
 * ICMP. It sees no TCP flags: see HEADGATE_TICKET_TTL_NS and headgate_age for what follows.
 * Documentation/bpf/prog_sk_lookup.rst
 */
#include "lib/gate.h"

static __always_inline int headgate_sk_lookup(struct bpf_sk_lookup *ctx, const int locked)
{
	struct headgate_try try = {.flow = {.netns_id = headgate_netns_id}};
	struct headgate_pit_key pit_key = {.netns_id = headgate_netns_id};
	struct bpf_sock *pit;
	long err;

	try.protocol = ctx->protocol;
	if (try.protocol != IPPROTO_TCP && try.protocol != IPPROTO_UDP)
		return SK_PASS;
	try.flow.local_port = (__u16)ctx->local_port;
	try.flow.remote_port = bpf_ntohs((__u16)ctx->remote_port);
	pit_key.family = ctx->family;
	if (pit_key.family == AF_INET) {
		headgate_read_ipv4(try.flow.local_address, ctx->local_ip4);
		headgate_read_ipv4(try.flow.remote_address, ctx->remote_ip4);
	} else {
		headgate_read_ipv6(try.flow.local_address, ctx->local_ip6);
		headgate_read_ipv6(try.flow.remote_address, ctx->remote_ip6);
	}

	switch (headgate_gate(&try, 0, locked)) {
	case HEADGATE_ADMIT:
		return SK_PASS;
	case HEADGATE_DEFER:
		break;
	default:
		return SK_DROP;
	}

	/* Defer: hand the SYN to the pit, a listening socket whose filter drops SYNs and nothing
	 * else. Without a pit only a reset is left: a restart under load must let no flood in.
	 */
	pit = bpf_map_lookup_elem(&headgate_pits, &pit_key);
	if (pit) {
		err = bpf_sk_assign(ctx, pit, 0);
		bpf_sk_release(pit);
		if (!err)
			return SK_PASS;
	}
	headgate_defer_failed(&try, locked);
	return SK_DROP;
}

SEC("sk_lookup")
int headgate_sk_lookup_atomic(struct bpf_sk_lookup *ctx)
{
	return headgate_sk_lookup(ctx, 0);
}

/* The same for kernels without BPF atomics (5.10, 5.11). */
SEC("sk_lookup")
int headgate_sk_lookup_locked(struct bpf_sk_lookup *ctx)
{
	return headgate_sk_lookup(ctx, 1);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
