/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The RST that answers a SYN, as the kernel's own would: RFC 9293 section 3.10.7.1 (sequence number
 * 0, acknowledging the SYN and what it carried), checksums after RFC 1071. Pure, as packet.h is.
 */
#ifndef HEADGATE_LIB_RESET_H
#define HEADGATE_LIB_RESET_H

#include "lib/packet.h"

#define HEADGATE_RESET_TTL 64

/* What the SYN takes of the sequence space, and so what is acknowledged. */
HEADGATE_INLINE __u32 headgate_reset_ack(const struct headgate_packet *packet)
{
	return packet->isn + 1 + (packet->l4_bytes - packet->tcp_header_bytes);
}

HEADGATE_INLINE __u16 headgate_fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (__u16)sum;
}

/* Sum of the pseudo header, whichever way the packet goes. */
HEADGATE_INLINE __u64 headgate_pseudo_sum(const struct headgate_flow_key *flow, int ipv6,
					  __u32 tcp_bytes)
{
	__u64 sum = headgate_to_network32(tcp_bytes) + (__u64)headgate_to_network32(IPPROTO_TCP);

	sum += (__u64)flow->remote_address[3] + flow->local_address[3];
	if (ipv6) {
		sum += (__u64)flow->remote_address[0] + flow->remote_address[1] +
		       flow->remote_address[2];
		sum +=
		    (__u64)flow->local_address[0] + flow->local_address[1] + flow->local_address[2];
	}
	return sum;
}

/* The TCP header without its checksum, as 32-bit words. */
struct headgate_reset_tcp {
	__u32 words[5];
};

HEADGATE_INLINE void headgate_make_reset(struct headgate_reset_tcp *to,
					 const struct headgate_packet *packet,
					 const struct headgate_flow_key *flow)
{
	to->words[0] = headgate_to_network32((__u32)flow->local_port << 16 | flow->remote_port);
	to->words[1] = 0;
	to->words[2] = headgate_to_network32(headgate_reset_ack(packet));
	to->words[3] = headgate_to_network32(0x50140000); /* five words, RST and ACK, window 0 */
	to->words[4] = 0;
}

HEADGATE_INLINE __u64 headgate_reset_sum(const struct headgate_reset_tcp *tcp)
{
	return (__u64)tcp->words[0] + tcp->words[1] + tcp->words[2] + tcp->words[3] + tcp->words[4];
}

/* The check field: the checksum, or (`partial`) the sum of the pseudo header alone, where the
 * kernel has promised to finish it on the way out (CHECKSUM_PARTIAL).
 */
HEADGATE_INLINE __u16 headgate_reset_check(const struct headgate_reset_tcp *tcp,
					   const struct headgate_flow_key *flow, int ipv6,
					   int partial)
{
	const __u64 pseudo = headgate_pseudo_sum(flow, ipv6, sizeof(*tcp));

	return partial ? headgate_fold(pseudo)
		       : (__u16)~headgate_fold(pseudo + headgate_reset_sum(tcp));
}

/* The IPv4 header of the answer: no options, not to be fragmented, the service class of the SYN
 * without its ECN bits (RFC 3168 section 6.1.1 wants none on a RST).
 */
HEADGATE_INLINE void headgate_make_ipv4(struct iphdr *to, __u8 tos,
					const struct headgate_flow_key *flow)
{
	const __u32 bytes = sizeof(*to) + sizeof(struct headgate_reset_tcp);
	__u64 sum;

	to->version = 4;
	to->ihl = 5;
	to->tos = tos & 0xfc;
	to->tot_len = headgate_to_network16((__u16)bytes);
	to->id = 0;
	to->frag_off = headgate_to_network16(0x4000);
	to->ttl = HEADGATE_RESET_TTL;
	to->protocol = IPPROTO_TCP;
	to->saddr = flow->local_address[3];
	to->daddr = flow->remote_address[3];
	sum = headgate_to_network16((__u16)(0x4500 | to->tos)) + (__u64)to->tot_len + to->frag_off +
	      headgate_to_network16(HEADGATE_RESET_TTL << 8 | IPPROTO_TCP) + (__u64)to->saddr +
	      to->daddr;
	to->check = (__u16)~headgate_fold(sum);
}

HEADGATE_INLINE void headgate_make_ipv6(struct ipv6hdr *to, const struct headgate_flow_key *flow)
{
	__u32 *words = (__u32 *)to;

	words[0] = headgate_to_network32(0x60000000);
	words[1] = headgate_to_network32((__u32)sizeof(struct headgate_reset_tcp) << 16 |
					 IPPROTO_TCP << 8 | HEADGATE_RESET_TTL);
	__builtin_memcpy(&to->saddr, flow->local_address, sizeof(to->saddr));
	__builtin_memcpy(&to->daddr, flow->remote_address, sizeof(to->daddr));
}

#endif /* HEADGATE_LIB_RESET_H */
