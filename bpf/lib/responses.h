/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the server of a connection of HTTP/2 sends, as far as it tells when a request is answered:
 * the heads of its frames (RFC 9113, 4.1) and in them the end of a stream. Nothing of a payload is
 * read.
 *
 * The value of the map headgate_response_states, keyed by socket cookie. sock_ops makes it when the
 * connection is established and deletes it when it is closed; cgroup_skb reads the server's octets
 * by their sequence numbers, so that a retransmit is not read twice. A gap ends it for good
 * (HEADGATE_RESPONSES_LOST): from there on no request of this connection is in flight, as far as is
 * known. All under the socket's lock. Pure; 5.10 loads it.
 *
 * It outlives the agent with its map. Another layout means raising HEADGATE_ABI_VERSION.
 */
#ifndef HEADGATE_LIB_RESPONSES_H
#define HEADGATE_LIB_RESPONSES_H

#include "lib/frame.h"

enum headgate_responses_state {
	HEADGATE_RESPONSES_NEW = 0,  /* the server has said nothing yet */
	HEADGATE_RESPONSES_READ = 1, /* all that it has said was read */
	HEADGATE_RESPONSES_LOST = 2, /* `have` calls have been given up */
	HEADGATE_RESPONSES_OVER = 3, /* all have */
};

/* A client counts its streams 1, 3, 5, so up to as many at a time have places of their own. What
 * finds its place taken is not followed.
 */
#define HEADGATE_RESPONSES_CALLS 64U
/* Heads of frames read in one packet; one that is cut takes a turn for each octet. */
#define HEADGATE_RESPONSES_TURNS 192

/* Streams that are remembered as refused: as many as a client sends in turn. */
#define HEADGATE_RESPONSES_REFUSED 8U

struct headgate_waiting_call {
	__u64 begun_ns;
	__u32 stream; /* 0: this place is free */
	__u32 endpoint;
	__u32 ended; /* the highest stream of this place that is answered, followed or not */
	__u32 reserved;
};

struct headgate_responses {
	__u64 head;	/* of a frame, as far as it has come, without its first octet */
	__u32 next_seq; /* of the next octet to look at */
	__u8 state;	/* enum headgate_responses_state */
	__u8 lead;	/* first octet of the head */
	__u8 have;	/* octets of the head that have come */
	__u8 refused_next;
	/* The latest streams whose request was refused with more of it to come; 0 = none. */
	__u32 refused[HEADGATE_RESPONSES_REFUSED];
	struct headgate_waiting_call calls[HEADGATE_RESPONSES_CALLS];
};
HEADGATE_ABI_SIZE(headgate_responses, 1584);

HEADGATE_OCTETS_INLINE struct headgate_waiting_call *
headgate_responses_place(struct headgate_responses *responses, __u32 stream)
{
	return &responses->calls[(stream >> 1) & (HEADGATE_RESPONSES_CALLS - 1)];
}

/* A request goes to the server. 1: its answer will be seen. */
HEADGATE_OCTETS_INLINE int headgate_responses_begin(struct headgate_responses *responses,
						    __u32 stream, __u32 endpoint, __u64 now_ns)
{
	struct headgate_waiting_call *call = headgate_responses_place(responses, stream);

	/* A server may answer before the request has come that far. */
	if (responses->state != HEADGATE_RESPONSES_READ || call->stream || stream <= call->ended)
		return 0;
	call->stream = stream;
	call->endpoint = endpoint;
	call->begun_ns = now_ns;
	return 1;
}

/* It is no more. 1: it was followed, and `out` says what it was. */
HEADGATE_OCTETS_INLINE int headgate_responses_end(struct headgate_responses *responses,
						  __u32 stream, struct headgate_waiting_call *out)
{
	struct headgate_waiting_call *call = headgate_responses_place(responses, stream);

	if (stream > call->ended)
		call->ended = stream;
	if (!stream || call->stream != stream)
		return 0;
	*out = *call;
	call->stream = 0;
	return 1;
}

HEADGATE_OCTETS_INLINE void headgate_responses_refuse(struct headgate_responses *responses,
						      __u32 stream)
{
	responses->refused[responses->refused_next & (HEADGATE_RESPONSES_REFUSED - 1)] = stream;
	responses->refused_next++;
}

HEADGATE_OCTETS_INLINE int headgate_responses_refused(const struct headgate_responses *responses,
						      __u32 stream)
{
	__u32 found = 0, i;

	for (i = 0; i < HEADGATE_RESPONSES_REFUSED; i++)
		found |= responses->refused[i] == stream;
	return (int)found;
}

/* Nothing is read any more: headgate_responses_lost() gives the calls that wait. */
HEADGATE_OCTETS_INLINE void headgate_responses_lose(struct headgate_responses *responses)
{
	responses->state = HEADGATE_RESPONSES_LOST;
	responses->have = 0;
}

/* The next of them, to be ended; 0: this place is free. */
HEADGATE_OCTETS_INLINE __u32 headgate_responses_lost(struct headgate_responses *responses)
{
	const __u32 place = responses->have & (HEADGATE_RESPONSES_CALLS - 1);

	responses->have = (__u8)(place + 1);
	if (responses->have == HEADGATE_RESPONSES_CALLS)
		responses->state = HEADGATE_RESPONSES_OVER;
	return responses->calls[place].stream;
}

/* What there is in a packet. */
enum headgate_responses_event {
	HEADGATE_RESPONSES_ON = 0,    /* nothing that matters: go on */
	HEADGATE_RESPONSES_ENDED = 1, /* the answer to this stream is complete */
	HEADGATE_RESPONSES_RESET = 2, /* there will be none */
	HEADGATE_RESPONSES_DONE = 3,  /* no more in this packet */
	HEADGATE_RESPONSES_BROKEN = 4,
};

/* A head is complete: its payload is skipped. The first is one of SETTINGS (RFC 9113, 3.4). */
HEADGATE_OCTETS_INLINE __u32 headgate_responses_frame(struct headgate_responses *responses,
						      __u32 *stream)
{
	const __u8 type = HEADGATE_FRAME_TYPE(responses->head);

	responses->have = 0;
	responses->next_seq += HEADGATE_FRAME_LENGTH(responses->lead, responses->head);
	*stream = HEADGATE_FRAME_STREAM(responses->head);
	if (responses->state == HEADGATE_RESPONSES_NEW) {
		if (type != HEADGATE_HTTP2_SETTINGS || *stream)
			return HEADGATE_RESPONSES_BROKEN;
		responses->state = HEADGATE_RESPONSES_READ;
	}
	if ((type == HEADGATE_HTTP2_DATA || type == HEADGATE_HTTP2_HEADERS) &&
	    (HEADGATE_FRAME_FLAGS(responses->head) & HEADGATE_HTTP2_END_STREAM))
		return HEADGATE_RESPONSES_ENDED;
	return type == HEADGATE_HTTP2_RST_STREAM ? HEADGATE_RESPONSES_RESET : HEADGATE_RESPONSES_ON;
}

/*
 * Reads the next head, or an octet of it, of a packet whose `bytes` octets of payload lie at
 * `offset` and begin with sequence number `seq`. Returns an event; *stream is set with the first
 * two kinds.
 */
HEADGATE_OCTETS_INLINE __u32 headgate_responses_next(struct headgate_responses *responses,
						     headgate_octets *octets, __u32 offset,
						     __u32 seq, __u32 bytes, __u32 *stream)
{
	const __u32 at = responses->next_seq - seq;
	__u32 taken;

	if (at >= bytes) /* in a later packet, or this is a retransmit; or one went by unseen */
		return at <= 0x7fffffffU ? (__u32)HEADGATE_RESPONSES_DONE
					 : (__u32)HEADGATE_RESPONSES_BROKEN;
	taken = headgate_frame_head(octets, offset + at, bytes - at, &responses->lead,
				    &responses->head, &responses->have);
	if (!taken)
		return HEADGATE_RESPONSES_BROKEN;
	responses->next_seq += taken;
	if (responses->have == HEADGATE_FRAME_HEAD_BYTES)
		return headgate_responses_frame(responses, stream);
	return HEADGATE_RESPONSES_ON;
}

#endif /* HEADGATE_LIB_RESPONSES_H */
