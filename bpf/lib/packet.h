/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a frame asks for, for the hooks that see frames (tc, XDP): a new TCP connection, a datagram,
 * or nothing that they judge. Pure: compiled for BPF by the hooks and natively, under ASan, by
 * tests/unit/packet_test.cc, which holds a table of frames.
 *
 * Never judged, and so never answered: fragments (their ports are known after reassembly only),
 * whatever is sent to or from a multicast or broadcast address, ICMP, segments that are no pure
 * SYN, and frames whose lengths contradict each other. The socket's gate sees them later.
 *
 * Sources: RFC 791, RFC 8200 section 4, RFC 9293 section 3.1, RFC 768, IEEE 802.1Q-2022 clause 9.
 */
#ifndef HEADGATE_LIB_PACKET_H
#define HEADGATE_LIB_PACKET_H

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include "lib/flows.h"

#ifdef __bpf__
#include <bpf/bpf_endian.h>
#define headgate_to_host16(x)	 bpf_ntohs(x)
#define headgate_to_network16(x) bpf_htons(x)
#define headgate_to_host32(x)	 bpf_ntohl(x)
#define headgate_to_network32(x) bpf_htonl(x)
#else
#define headgate_to_host16(x)	 __builtin_bswap16(x)
#define headgate_to_network16(x) __builtin_bswap16(x)
#define headgate_to_host32(x)	 __builtin_bswap32(x)
#define headgate_to_network32(x) __builtin_bswap32(x)
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the native build is for tests on little endian machines"
#endif
#endif

#define HEADGATE_VLAN_TAGS_MAX	       4
#define HEADGATE_EXTENSION_HEADERS_MAX 6

struct headgate_vlan {
	__be16 tag;
	__be16 protocol;
};

enum headgate_packet_kind {
	HEADGATE_PACKET_OTHER = 0, /* nothing to judge */
	HEADGATE_PACKET_SYN = 1,
	HEADGATE_PACKET_DATAGRAM = 2,
	HEADGATE_PACKET_FRAGMENT = 3,
	HEADGATE_PACKET_DEEP = 4,
	HEADGATE_PACKET_MALFORMED = 5,
};

struct headgate_packet {
	__u32 isn;
	__u16 ip_offset; /* from the beginning of the frame */
	__u16 l4_offset;
	__u16 l4_bytes; /* TCP: header and payload, as the IP header says */
	__u8 ipv6;
	__u8 options; /* IP options or extension headers lie between IP and TCP */
	__u8 tcp_header_bytes;
};

HEADGATE_INLINE void headgate_flow_ipv4(__u32 *to, __u32 address)
{
	to[0] = to[1] = 0;
	to[2] = headgate_to_network32(0xffff);
	to[3] = address;
}

/* Class D, class E with the limited broadcast, "this host": nobody who can be answered. */
HEADGATE_INLINE int headgate_ipv4_unicast(__be32 address)
{
	const __u8 first = (__u8)(headgate_to_host32(address) >> 24);

	return first != 0 && first < 224;
}

/* Moves on by `bytes`, which is less than 16384. A wider type than the header's, held in a
 * register: clang would else fold it into arithmetic that the verifier takes for a 32-bit pointer.
 */
HEADGATE_INLINE void *headgate_forward(void *at, __u64 bytes)
{
	bytes &= 16383;
	asm volatile("" : "+r"(bytes));
	return (__u8 *)at + bytes;
}

/* From the transport header on. `at`: where it begins. */
HEADGATE_INLINE __u32 headgate_parse_transport(void *data, void *at, void *end, __u8 protocol,
					       __u32 l4_bytes, struct headgate_packet *packet,
					       struct headgate_flow_key *flow)
{
	packet->l4_offset = (__u16)((__u8 *)at - (__u8 *)data);
	packet->l4_bytes = (__u16)l4_bytes;
	if (protocol == IPPROTO_TCP) {
		const struct tcphdr *tcp = (const struct tcphdr *)at;

		if (l4_bytes < sizeof(*tcp) || (void *)(tcp + 1) > end)
			return HEADGATE_PACKET_MALFORMED;
		if (!tcp->syn || tcp->ack || tcp->fin || tcp->rst)
			return HEADGATE_PACKET_OTHER;
		if (tcp->doff < 5 || tcp->doff * 4U > l4_bytes)
			return HEADGATE_PACKET_MALFORMED;
		packet->tcp_header_bytes = (__u8)(tcp->doff * 4U);
		packet->isn = headgate_to_host32(tcp->seq);
		flow->remote_port = headgate_to_host16(tcp->source);
		flow->local_port = headgate_to_host16(tcp->dest);
		return HEADGATE_PACKET_SYN;
	}
	if (protocol == IPPROTO_UDP) {
		const struct udphdr *udp = (const struct udphdr *)at;

		if (l4_bytes < sizeof(*udp) || (void *)(udp + 1) > end)
			return HEADGATE_PACKET_MALFORMED;
		flow->remote_port = headgate_to_host16(udp->source);
		flow->local_port = headgate_to_host16(udp->dest);
		return HEADGATE_PACKET_DATAGRAM;
	}
	return HEADGATE_PACKET_OTHER;
}

HEADGATE_INLINE __u32 headgate_parse_ipv4(void *data, void *at, void *end,
					  struct headgate_packet *packet,
					  struct headgate_flow_key *flow)
{
	const struct iphdr *ip = (const struct iphdr *)at;
	__u32 header_bytes, total_bytes;

	if ((void *)(ip + 1) > end)
		return HEADGATE_PACKET_MALFORMED;
	if (ip->protocol != IPPROTO_TCP && ip->protocol != IPPROTO_UDP)
		return HEADGATE_PACKET_OTHER;
	if (ip->frag_off & headgate_to_network16(0x3fff)) /* more to come, or an offset */
		return HEADGATE_PACKET_FRAGMENT;
	header_bytes = ip->ihl * 4U;
	total_bytes = headgate_to_host16(ip->tot_len);
	if (ip->version != 4 || header_bytes < sizeof(*ip) || total_bytes < header_bytes)
		return HEADGATE_PACKET_MALFORMED;
	if (!headgate_ipv4_unicast(ip->saddr) || !headgate_ipv4_unicast(ip->daddr))
		return HEADGATE_PACKET_OTHER;
	packet->options = header_bytes != sizeof(*ip);
	headgate_flow_ipv4(flow->remote_address, ip->saddr);
	headgate_flow_ipv4(flow->local_address, ip->daddr);
	return headgate_parse_transport(data, headgate_forward(at, header_bytes), end, ip->protocol,
					total_bytes - header_bytes, packet, flow);
}

HEADGATE_INLINE __u32 headgate_parse_ipv6(void *data, void *at, void *end,
					  struct headgate_packet *packet,
					  struct headgate_flow_key *flow)
{
	const struct ipv6hdr *ip = (const struct ipv6hdr *)at;
	__u32 left_bytes, i;
	__u8 next;

	if ((void *)(ip + 1) > end)
		return HEADGATE_PACKET_MALFORMED;
	if (ip->version != 6)
		return HEADGATE_PACKET_MALFORMED;
	if (ip->daddr.s6_addr[0] == 0xff || ip->saddr.s6_addr[0] == 0xff)
		return HEADGATE_PACKET_OTHER;
	__builtin_memcpy(flow->remote_address, &ip->saddr, sizeof(flow->remote_address));
	__builtin_memcpy(flow->local_address, &ip->daddr, sizeof(flow->local_address));
	next = ip->nexthdr;
	left_bytes = headgate_to_host16(ip->payload_len);
	at = (void *)(ip + 1);
	HEADGATE_UNROLL
	for (i = 0; i <= HEADGATE_EXTENSION_HEADERS_MAX; i++) {
		const __u8 *extension = (const __u8 *)at;
		__u32 bytes;

		if (next == IPPROTO_TCP || next == IPPROTO_UDP)
			break;
		if (next == IPPROTO_FRAGMENT)
			return HEADGATE_PACKET_FRAGMENT;
		if (next != IPPROTO_HOPOPTS && next != IPPROTO_DSTOPTS && next != IPPROTO_ROUTING)
			return HEADGATE_PACKET_OTHER;
		if (i == HEADGATE_EXTENSION_HEADERS_MAX)
			return HEADGATE_PACKET_DEEP;
		if ((void *)(extension + 8) > end)
			return HEADGATE_PACKET_MALFORMED;
		if (next == IPPROTO_ROUTING && extension[3])
			return HEADGATE_PACKET_OTHER; /* this is not where it goes (RFC 8200 4.4) */
		next = extension[0];
		bytes = (extension[1] + 1U) * 8U;
		if (bytes > left_bytes)
			return HEADGATE_PACKET_MALFORMED;
		left_bytes -= bytes;
		at = headgate_forward(at, bytes);
		packet->options = 1;
	}
	return headgate_parse_transport(data, at, end, next, left_bytes, packet, flow);
}

/*
 * enum headgate_packet_kind of the frame in [data, end), which may hold only its beginning. For SYN
 * and DATAGRAM `packet` and the addresses and ports of `flow` (as the receiver sees them) are
 * filled in; the caller has zeroed both.
 */
HEADGATE_INLINE __u32 headgate_parse(void *data, void *end, struct headgate_packet *packet,
				     struct headgate_flow_key *flow)
{
	const struct ethhdr *ethernet = (const struct ethhdr *)data;
	__be16 protocol;
	void *at;
	__u32 i;

	if ((void *)(ethernet + 1) > end)
		return HEADGATE_PACKET_MALFORMED;
	if (ethernet->h_dest[0] & 1) /* the group bit: broadcast is one of them */
		return HEADGATE_PACKET_OTHER;
	protocol = ethernet->h_proto;
	at = (void *)(ethernet + 1);
	HEADGATE_UNROLL
	for (i = 0; i <= HEADGATE_VLAN_TAGS_MAX; i++) {
		const struct headgate_vlan *vlan = (const struct headgate_vlan *)at;

		if (protocol != headgate_to_network16(ETH_P_8021Q) &&
		    protocol != headgate_to_network16(ETH_P_8021AD))
			break;
		if (i == HEADGATE_VLAN_TAGS_MAX)
			return HEADGATE_PACKET_DEEP;
		if ((void *)(vlan + 1) > end)
			return HEADGATE_PACKET_MALFORMED;
		protocol = vlan->protocol;
		at = (void *)(vlan + 1);
	}
	packet->ip_offset = (__u16)((__u8 *)at - (__u8 *)data);
	if (protocol == headgate_to_network16(ETH_P_IP))
		return headgate_parse_ipv4(data, at, end, packet, flow);
	if (protocol == headgate_to_network16(ETH_P_IPV6)) {
		packet->ipv6 = 1;
		return headgate_parse_ipv6(data, at, end, packet, flow);
	}
	return HEADGATE_PACKET_OTHER;
}

#endif /* HEADGATE_LIB_PACKET_H */
