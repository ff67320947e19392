// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The gate at tc. Egress of the host's end of a pod's veth: what is about to enter the pod, after
 * DNAT, so that address and port are the pod's; a redirect by bpf_redirect_peer() passes it by.
 * Ingress of a NIC: where XDP cannot be had. A refusal is silence, or the SYN itself turned into
 * its RST and sent back the way it came.
 *
 * What is let in goes on to the next program or filter (TC_ACT_UNSPEC), as if this one were not
 * there. Documentation: tc-bpf(8), include/uapi/linux/pkt_cls.h.
 */
#include <linux/pkt_cls.h>

#include "lib/early.h"

/* Ethernet, IPv6 and TCP: what must lie in the linear part to be read. */
#define HEADGATE_LINEAR_BYTES 74

/*
 * Rewrites the SYN. A checksum may be full or left to the device (CHECKSUM_PARTIAL: the field holds
 * the sum of the pseudo header): bpf_l4_csum_replace() knows which and does right by differences,
 * where a full checksum would be wrong in the second case. For the same reason TCP must stay where
 * it is: the place where the sum begins is kept beside the packet.
 */
static __always_inline int headgate_tc_reset(struct __sk_buff *skb,
					     const struct headgate_packet *packet,
					     const struct headgate_flow_key *flow)
{
	const __u32 check_offset = packet->l4_offset + (__u32)offsetof(struct tcphdr, check);
	struct headgate_reset_tcp fresh = {};
	__u32 old_bytes = (packet->tcp_header_bytes - sizeof(fresh)) & 60;
	__u8 old[60 + sizeof(fresh)] = {}, macs[12], swapped[12];
	__be32 old_length, new_length;
	__u16 check = 0;
	__s64 diff;

	/* By construction no less and no more than fits: a bound that is compared is lost where
	 * clang has spilled the number before (verifiers before 6.2).
	 */
	asm volatile("" : "+r"(old_bytes));
	old_bytes += sizeof(fresh);
	if (bpf_skb_load_bytes(skb, packet->l4_offset, old, old_bytes) ||
	    bpf_skb_load_bytes(skb, 0, macs, sizeof(macs)))
		return -1;
	__builtin_memcpy(&check, old + offsetof(struct tcphdr, check), sizeof(check));
	old[offsetof(struct tcphdr, check)] = old[offsetof(struct tcphdr, check) + 1] = 0;
	headgate_make_reset(&fresh, packet, flow);
	diff = bpf_csum_diff((__be32 *)old, old_bytes, fresh.words, sizeof(fresh), 0);
	if (diff < 0)
		return -1;

	if (bpf_skb_change_tail(skb, packet->l4_offset + sizeof(fresh), 0))
		return -1;
	__builtin_memcpy(swapped, macs + 6, 6);
	__builtin_memcpy(swapped + 6, macs, 6);
	if (bpf_skb_store_bytes(skb, 0, swapped, sizeof(swapped), 0))
		return -1;
	if (packet->ipv6) {
		struct ipv6hdr ip = {};

		/* no checksum of its own that would keep a sum over the whole packet right */
		headgate_make_ipv6(&ip, flow);
		if (bpf_skb_store_bytes(skb, packet->ip_offset, &ip, sizeof(ip),
					BPF_F_RECOMPUTE_CSUM))
			return -1;
	} else {
		struct iphdr ip = {};
		__u8 tos = 0;

		if (bpf_skb_load_bytes(skb, packet->ip_offset + 1, &tos, sizeof(tos)))
			return -1;
		headgate_make_ipv4(&ip, tos, flow);
		if (bpf_skb_store_bytes(skb, packet->ip_offset, &ip, sizeof(ip), 0))
			return -1;
	}
	if (bpf_skb_store_bytes(skb, packet->l4_offset, &fresh, sizeof(fresh), 0) ||
	    bpf_skb_store_bytes(skb, check_offset, &check, sizeof(check), 0))
		return -1;
	if (bpf_l4_csum_replace(skb, check_offset, 0, (__u64)diff, 0))
		return -1;
	old_length = bpf_htonl(old_bytes);
	new_length = bpf_htonl(sizeof(fresh));
	return bpf_l4_csum_replace(skb, check_offset, old_length, new_length,
				   BPF_F_PSEUDO_HDR | sizeof(new_length))
		   ? -1
		   : 0;
}

static __always_inline int headgate_tc(struct __sk_buff *skb, const __u64 back, const int locked)
{
	const __u32 linear = skb->data_end - skb->data;
	struct headgate_early *early;

	if (linear < HEADGATE_LINEAR_BYTES && skb->len > linear)
		(void)bpf_skb_pull_data(
		    skb, skb->len < HEADGATE_LINEAR_BYTES ? skb->len : HEADGATE_LINEAR_BYTES);
	early = headgate_early_parse((void *)(long)skb->data, (void *)(long)skb->data_end);
	if (!early)
		return TC_ACT_UNSPEC;
	if (early->try.protocol == IPPROTO_TCP)
		early->try.mute = early->packet.options ||
				  early->packet.l4_bytes != early->packet.tcp_header_bytes;
	else if (skb->gso_segs > 1)
		return TC_ACT_UNSPEC; /* many in one: the socket's gate sees each */

	switch (headgate_gate(&early->try, 1, locked)) {
	case HEADGATE_ADMIT:
		return TC_ACT_UNSPEC;
	case HEADGATE_RESET:
		if (!early->try.mute && !headgate_tc_reset(skb, &early->packet, &early->try.flow))
			return bpf_redirect(skb->ifindex, back);
		return TC_ACT_SHOT;
	default:
		return TC_ACT_SHOT;
	}
}

SEC("tc")
int headgate_tc_egress_atomic(struct __sk_buff *skb)
{
	return headgate_tc(skb, BPF_F_INGRESS, 0);
}

/* The same for kernels without BPF atomics (5.10, 5.11). */
SEC("tc")
int headgate_tc_egress_locked(struct __sk_buff *skb)
{
	return headgate_tc(skb, BPF_F_INGRESS, 1);
}

SEC("tc")
int headgate_tc_ingress_atomic(struct __sk_buff *skb)
{
	return headgate_tc(skb, 0, 0);
}

SEC("tc")
int headgate_tc_ingress_locked(struct __sk_buff *skb)
{
	return headgate_tc(skb, 0, 1);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
