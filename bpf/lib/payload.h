/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a packet carries, for the programs on cgroup_skb: they see it from its network header on. */
#ifndef HEADGATE_LIB_PAYLOAD_H
#define HEADGATE_LIB_PAYLOAD_H

#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include "lib/common.h"

struct headgate_payload {
	__u32 offset_bytes; /* from the network header */
	__u32 bytes;	    /* 0: none, or not to be seen (IPv6 extension headers) */
	__u32 seq;	    /* of its first octet */
};

/* Length of the IP header in front of `protocol`; 0 = it is not there. */
static __always_inline __u32 headgate_ip_header_bytes(struct __sk_buff *skb, __u8 protocol)
{
	void *data = (void *)(long)skb->data;
	void *end = (void *)(long)skb->data_end;
	struct ipv6hdr *ipv6 = data;
	struct iphdr *ipv4 = data;

	if (skb->protocol == bpf_htons(ETH_P_IP))
		return (void *)(ipv4 + 1) <= end && ipv4->protocol == protocol ? ipv4->ihl * 4U : 0;
	if (skb->protocol == bpf_htons(ETH_P_IPV6))
		return (void *)(ipv6 + 1) <= end && ipv6->nexthdr == protocol ? sizeof(*ipv6) : 0;
	return 0;
}

static __always_inline struct headgate_payload headgate_tcp_payload(struct __sk_buff *skb)
{
	struct headgate_payload out = {};
	const __u32 ip_bytes = headgate_ip_header_bytes(skb, IPPROTO_TCP);
	void *data = (void *)(long)skb->data;
	void *end = (void *)(long)skb->data_end;
	struct tcphdr *tcp = data + ip_bytes;

	if (!ip_bytes || (void *)(tcp + 1) > end)
		return out;
	out.offset_bytes = ip_bytes + tcp->doff * 4U;
	out.seq = bpf_ntohl(tcp->seq);
	if (skb->len > out.offset_bytes)
		out.bytes = skb->len - out.offset_bytes;
	return out;
}

#endif /* HEADGATE_LIB_PAYLOAD_H */
