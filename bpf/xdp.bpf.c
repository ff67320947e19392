// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The gate at the network card, for floods: before the kernel has made a socket buffer of the
 * frame. It sees addresses before DNAT and only the outer header of a tunnel, so it serves what
 * listens in the namespace of the card itself. Never on a pod's veth: a program there ends GSO
 * towards the pod.
 *
 * The RST is the frame itself, rebuilt and sent back. Documentation/networking/xdp-rx-metadata.rst
 */
#include "lib/early.h"

/* A frame of 54 bytes is below the least of Ethernet; cards fill it up, not all for XDP_TX. */
#define HEADGATE_IPV4_PADDING 6

/* In generic mode the frame is a socket buffer whose checksum may be left to the device
 * (CHECKSUM_PARTIAL, as virtio and veth pass it on): XDP is not told, but the field then holds the
 * sum of the pseudo header and no checksum.
 */
static __always_inline int headgate_xdp_partial(void *data, void *end,
						const struct headgate_packet *packet,
						const struct headgate_flow_key *flow)
{
	struct tcphdr *tcp = headgate_forward(data, packet->l4_offset);

	if ((void *)(tcp + 1) > end)
		return 0;
	return tcp->check ==
	       headgate_fold(headgate_pseudo_sum(flow, packet->ipv6, packet->l4_bytes));
}

static __always_inline int headgate_xdp_reset(struct xdp_md *ctx,
					      const struct headgate_packet *packet,
					      const struct headgate_flow_key *flow,
					      const int generic)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct headgate_reset_tcp fresh = {};
	struct headgate_reset_tcp *tcp;
	struct ethhdr *ethernet = data;
	__u8 mac[ETH_ALEN];
	__u64 ip_offset = packet->ip_offset & 31;
	int partial = 0, bytes;
	void *ip;

	asm volatile("" : "+r"(ip_offset));
	if ((void *)(ethernet + 1) > end)
		return XDP_DROP;
	if (generic) {
		partial = headgate_xdp_partial(data, end, packet, flow);
		if (partial && packet->options)
			return XDP_DROP; /* where its sum begins is kept beside the packet */
	}
	headgate_make_reset(&fresh, packet, flow);
	*((__u16 *)&fresh + 8) = headgate_reset_check(&fresh, flow, packet->ipv6, partial);

	ip = data + ip_offset;
	if (packet->ipv6) {
		struct ipv6hdr *ipv6 = ip;

		tcp = (void *)(ipv6 + 1);
		if ((void *)(tcp + 1) > end)
			return XDP_DROP;
		headgate_make_ipv6(ipv6, flow);
		*tcp = fresh;
		bytes = (int)(ip_offset + sizeof(*ipv6) + sizeof(*tcp));
	} else {
		struct iphdr *ipv4 = ip;
		__u8 *padding;

		tcp = (void *)(ipv4 + 1);
		padding = (void *)(tcp + 1);
		if ((void *)padding > end)
			return XDP_DROP;
		headgate_make_ipv4(ipv4, ipv4->tos, flow);
		*tcp = fresh;
		bytes = (int)(ip_offset + sizeof(*ipv4) + sizeof(*tcp));
		if ((void *)(padding + HEADGATE_IPV4_PADDING) <= end) {
			__builtin_memset(padding, 0, HEADGATE_IPV4_PADDING);
			bytes += HEADGATE_IPV4_PADDING;
		}
	}
	__builtin_memcpy(mac, ethernet->h_dest, sizeof(mac));
	__builtin_memcpy(ethernet->h_dest, ethernet->h_source, sizeof(mac));
	__builtin_memcpy(ethernet->h_source, mac, sizeof(mac));
	return bpf_xdp_adjust_tail(ctx, bytes - (int)(end - data)) ? XDP_DROP : XDP_TX;
}

static __always_inline int headgate_xdp(struct xdp_md *ctx, const int generic, const int locked)
{
	struct headgate_early *early =
	    headgate_early_parse((void *)(long)ctx->data, (void *)(long)ctx->data_end);

	if (!early)
		return XDP_PASS;
	switch (headgate_gate(&early->try, 1, locked)) {
	case HEADGATE_ADMIT:
		return XDP_PASS;
	case HEADGATE_RESET:
		return headgate_xdp_reset(ctx, &early->packet, &early->try.flow, generic);
	default:
		return XDP_DROP;
	}
}

SEC("xdp")
int headgate_xdp_native_atomic(struct xdp_md *ctx)
{
	return headgate_xdp(ctx, 0, 0);
}

/* The same for kernels without BPF atomics (5.10, 5.11). */
SEC("xdp")
int headgate_xdp_native_locked(struct xdp_md *ctx)
{
	return headgate_xdp(ctx, 0, 1);
}

SEC("xdp")
int headgate_xdp_generic_atomic(struct xdp_md *ctx)
{
	return headgate_xdp(ctx, 1, 0);
}

SEC("xdp")
int headgate_xdp_generic_locked(struct xdp_md *ctx)
{
	return headgate_xdp(ctx, 1, 1);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
