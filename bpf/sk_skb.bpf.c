// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What comes in on live connections whose requests are looked at: the verdict program of the map
 * headgate_streams (sockmap.rst; the kernel needs no parser for it since 5.13). A connection keeps
 * the program that it met first, for life, so this one does no more than call the stage that is in
 * force.
 */
#include "lib/maps.h"

SEC("sk_skb/stream_verdict")
int headgate_stream_entry(struct __sk_buff *skb)
{
	__u64 cookie = bpf_get_socket_cookie(skb);
	struct headgate_stream *stream = bpf_map_lookup_elem(&headgate_stream_states, &cookie);
	__u32 stage = HEADGATE_STAGE_HTTP1;

	if (!stream || !skb->len) /* a FIN has no bytes */
		return SK_PASS;
	if (stream->protocol == HEADGATE_PROTOCOL_NONE &&
	    !(stream->flags & (HEADGATE_STREAM_SWALLOW | HEADGATE_STREAM_CLOSING)))
		return SK_PASS;
	stream->at = 0;
	stream->packet_bytes = skb->len;
	if (stream->protocol == HEADGATE_PROTOCOL_HTTP2)
		stage = HEADGATE_STAGE_HTTP2;
	bpf_tail_call(skb, &headgate_stream_stages, stage);
	/* No such stage: this packet is not read, and nothing is known of what comes behind it. */
	stream->protocol = HEADGATE_PROTOCOL_NONE;
	return stream->flags & (HEADGATE_STREAM_SWALLOW | HEADGATE_STREAM_CLOSING) ? SK_DROP
										   : SK_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
