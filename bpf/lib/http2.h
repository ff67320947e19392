/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The requests on one connection of HTTP/2 (RFC 9113), as its server receives it: frames, header
 * blocks (lib/hpack.h), and of each request the first DATA frame, where gRPC states how long its
 * message is.
 *
 * One machine that takes what a packet holds and keeps all it knows in struct headgate_http2: where
 * packets begin and end makes no difference to what is seen. It begins behind the 24 octets of the
 * preface. What breaks a rule of the protocol ends it for good (HEADGATE_HTTP2_LOST, with the
 * reason): from there on nothing can be said about this connection.
 *
 * headgate_http2_step() only parses. headgate_http2_handle() does what a step found; its seven
 * hooks are defined by who includes this: bpf/http2.bpf.c by maps, lib/http2_native.h by callbacks.
 */
#ifndef HEADGATE_LIB_HTTP2_H
#define HEADGATE_LIB_HTTP2_H

#include "lib/frame.h"
#include "lib/hpack.h"

/* The largest frame that every peer may send (SETTINGS_MAX_FRAME_SIZE, RFC 9113, 6.5.2). What the
 * server allows beyond it travels the other way and is not seen.
 */
#define HEADGATE_HTTP2_FRAME_BYTES 16384U
/* One octet "compressed", four of length, then the message. */
#define HEADGATE_GRPC_PREFIX_BYTES 5U
/* Steps on one packet: a call takes 30 to 60 and two more for each frame of its message. Frames of
 * one octet would take 12000 in 64 KB.
 */
#define HEADGATE_HTTP2_STEPS_MAX 8192

enum headgate_http2_state {
	HEADGATE_HTTP2_HEAD = 0,   /* in the nine octets of a frame's head */
	HEADGATE_HTTP2_PAD = 1,	   /* before the length of the padding */
	HEADGATE_HTTP2_LEAD = 2,   /* in the priority fields of HEADERS */
	HEADGATE_HTTP2_BLOCK = 3,  /* in a header block */
	HEADGATE_HTTP2_PREFIX = 4, /* in the first octets of a DATA frame */
	HEADGATE_HTTP2_REST = 5,   /* in octets that mean nothing here */
	HEADGATE_HTTP2_LOST = 6,   /* see hpack.reason */
};

#define HEADGATE_HTTP2_STARTED	  0x01U /* SETTINGS have come */
#define HEADGATE_HTTP2_IN_BLOCK	  0x02U /* the header block goes on in CONTINUATION */
#define HEADGATE_HTTP2_TRAILERS	  0x04U /* it belongs to no new request */
#define HEADGATE_HTTP2_NO_BODY	  0x08U /* its HEADERS ended the stream */
#define HEADGATE_HTTP2_JUDGE	  0x10U /* this DATA frame is the first of its request */
#define HEADGATE_HTTP2_SPILLED	  0x40U /* a request has been put aside by headgate_http2_put() */
#define HEADGATE_HTTP2_RECOGNIZED 0x80U /* a request has been seen */

struct headgate_http2 {
	struct headgate_hpack hpack;
	__u64 head; /* of the frame, without its first octet; then of the gRPC message */
	__u32 at;   /* octets of this packet that are behind us */
	__u32 frame_left;
	__u32 stream;	   /* of this frame */
	__u32 last_stream; /* the highest that a request has opened */
	/* The latest request that waits for its DATA: mostly it comes at once. Stream 0 = none. */
	__u32 waiting_stream;
	struct headgate_call waiting_call;
	__u8 state; /* enum headgate_http2_state */
	__u8 type;  /* of this frame */
	__u8 flags;
	__u8 pad;     /* octets of padding at its end */
	__u8 lead;    /* first octet of a head; octets to skip in LEAD */
	__u8 have;    /* octets of the head, or of the gRPC prefix, that have come */
	__u8 marks;   /* HEADGATE_HTTP2_STARTED... */
	__u8 dropped; /* not 0: of a refused request; its server drops what is left of this frame */
};
HEADGATE_ABI_SIZE(headgate_http2, 256);

/* What a step has found; at most one path and one of the others. */
#define HEADGATE_HTTP2_PATH    0x01U /* hpack.key is to be looked up */
#define HEADGATE_HTTP2_REQUEST 0x02U /* the header block of a request is complete */
#define HEADGATE_HTTP2_BODY    0x04U /* a DATA frame begins */
#define HEADGATE_HTTP2_ENDED   0x08U /* this stream carries no more DATA */
#define HEADGATE_HTTP2_MESSAGE 0x10U /* the gRPC prefix of a request is complete */
#define HEADGATE_HTTP2_SHORT   0x20U /* its first DATA frame had no room for one */

HEADGATE_OCTETS_INLINE void headgate_http2_lose(struct headgate_http2 *h, __u8 reason)
{
	h->state = HEADGATE_HTTP2_LOST;
	h->hpack.reason = reason;
}

HEADGATE_OCTETS_INLINE int headgate_http2_lost(const struct headgate_http2 *h)
{
	return h->state == HEADGATE_HTTP2_LOST;
}

/* A frame of a header block, or of DATA, has come to its end. Returns events. */
HEADGATE_OCTETS_INLINE __u32 headgate_http2_frame_ends(struct headgate_http2 *h)
{
	h->state = HEADGATE_HTTP2_HEAD;
	h->have = 0;
	h->dropped = 0;
	if (h->type == HEADGATE_HTTP2_DATA)
		return h->marks & HEADGATE_HTTP2_JUDGE
			   ? HEADGATE_HTTP2_MESSAGE | HEADGATE_HTTP2_SHORT
			   : 0;
	if (h->type != HEADGATE_HTTP2_HEADERS && h->type != HEADGATE_HTTP2_CONTINUATION)
		return 0;
	if (!(h->flags & HEADGATE_HTTP2_END_HEADERS)) {
		h->marks |= HEADGATE_HTTP2_IN_BLOCK;
		return 0;
	}
	if (h->hpack.state != HEADGATE_HPACK_FIELD) {
		headgate_http2_lose(h, HEADGATE_UNKNOWN_HPACK);
		return 0;
	}
	h->marks &= (__u8)~HEADGATE_HTTP2_IN_BLOCK;
	return h->marks & HEADGATE_HTTP2_TRAILERS ? HEADGATE_HTTP2_ENDED : HEADGATE_HTTP2_REQUEST;
}

/* May this frame stand here (RFC 9113, 6)? enum headgate_unknown. */
HEADGATE_OCTETS_INLINE __u8 headgate_http2_check(const struct headgate_http2 *h, __u8 type,
						 __u8 flags, __u32 stream, __u32 length)
{
	const int odd = stream & 1, opened = odd && stream <= h->last_stream;
	int fits;

	if (!(h->marks & HEADGATE_HTTP2_STARTED) &&
	    (type != HEADGATE_HTTP2_SETTINGS || (flags & HEADGATE_HTTP2_ACK)))
		return HEADGATE_UNKNOWN_PREFACE; /* 3.4 */
	if (h->marks & HEADGATE_HTTP2_IN_BLOCK
		? type != HEADGATE_HTTP2_CONTINUATION || stream != h->stream
		: type == HEADGATE_HTTP2_CONTINUATION)
		return HEADGATE_UNKNOWN_FRAME; /* 6.10 */
	switch (type) {
	case HEADGATE_HTTP2_DATA:
		fits = opened;
		break;
	case HEADGATE_HTTP2_HEADERS:
		fits = odd;
		break;
	case HEADGATE_HTTP2_PRIORITY:
		fits = stream != 0 && length == 5;
		break;
	case HEADGATE_HTTP2_RST_STREAM:
		fits = opened && length == 4;
		break;
	case HEADGATE_HTTP2_SETTINGS:
		fits = stream == 0 && (flags & HEADGATE_HTTP2_ACK ? length == 0 : length % 6 == 0);
		break;
	case HEADGATE_HTTP2_PUSH_PROMISE:
		fits = 0; /* only servers push */
		break;
	case HEADGATE_HTTP2_PING:
		fits = stream == 0 && length == 8;
		break;
	case HEADGATE_HTTP2_GOAWAY:
		fits = stream == 0 && length >= 8;
		break;
	case HEADGATE_HTTP2_WINDOW_UPDATE:
		fits = (stream == 0 || opened) && length == 4;
		break;
	case HEADGATE_HTTP2_CONTINUATION:
		fits = 1;
		break;
	default:
		return HEADGATE_UNKNOWN_NONE; /* unknown types are ignored (5.5) */
	}
	if (!fits)
		return HEADGATE_UNKNOWN_FRAME;
	/* DATA of any size is skipped; nobody sends header blocks of that size */
	if (length > HEADGATE_HTTP2_FRAME_BYTES && type != HEADGATE_HTTP2_DATA)
		return HEADGATE_UNKNOWN_TOO_LONG;
	return HEADGATE_UNKNOWN_NONE;
}

/* A header block begins. */
HEADGATE_OCTETS_INLINE void headgate_http2_block_begins(struct headgate_http2 *h, __u32 stream,
							__u8 flags)
{
	headgate_hpack_begin(&h->hpack);
	h->marks &= (__u8) ~(HEADGATE_HTTP2_TRAILERS | HEADGATE_HTTP2_NO_BODY);
	if (flags & HEADGATE_HTTP2_END_STREAM)
		h->marks |= HEADGATE_HTTP2_NO_BODY;
	if (stream <= h->last_stream)
		h->marks |= HEADGATE_HTTP2_TRAILERS;
	else
		h->last_stream = stream;
}

/* The head of a frame is complete. Returns events. */
HEADGATE_OCTETS_INLINE __u32 headgate_http2_frame_begins(struct headgate_http2 *h)
{
	const __u32 length = HEADGATE_FRAME_LENGTH(h->lead, h->head);
	const __u32 stream = HEADGATE_FRAME_STREAM(h->head);
	const __u8 type = HEADGATE_FRAME_TYPE(h->head);
	__u8 flags = HEADGATE_FRAME_FLAGS(h->head);
	__u32 least = 0, events = 0;
	__u8 reason;

	reason = headgate_http2_check(h, type, flags, stream, length);
	if (reason) {
		headgate_http2_lose(h, reason);
		return 0;
	}
	h->marks |= HEADGATE_HTTP2_STARTED;
	h->marks &= (__u8)~HEADGATE_HTTP2_JUDGE;
	h->frame_left = length;
	h->stream = stream;
	h->type = type;
	h->pad = 0;
	h->lead = 0;
	h->have = 0;
	h->head = 0;
	h->state = HEADGATE_HTTP2_REST;
	if (type == HEADGATE_HTTP2_DATA) {
		h->state = HEADGATE_HTTP2_PREFIX;
		/* without an octet and not the last one, it says nothing yet */
		if (length || (flags & HEADGATE_HTTP2_END_STREAM))
			events = HEADGATE_HTTP2_BODY;
	} else if (type == HEADGATE_HTTP2_HEADERS) {
		headgate_http2_block_begins(h, stream, flags);
		h->state = HEADGATE_HTTP2_BLOCK;
		if (flags & HEADGATE_HTTP2_HAS_PRIORITY) {
			h->lead = 5;
			least = 5;
			h->state = HEADGATE_HTTP2_LEAD;
		}
	} else if (type == HEADGATE_HTTP2_CONTINUATION) {
		flags &= HEADGATE_HTTP2_END_HEADERS; /* it has no other */
		h->state = HEADGATE_HTTP2_BLOCK;
	} else {
		flags = 0;
		if (type == HEADGATE_HTTP2_RST_STREAM)
			events = HEADGATE_HTTP2_ENDED;
	}
	if (flags & HEADGATE_HTTP2_PADDED) {
		least++;
		h->state = HEADGATE_HTTP2_PAD;
	}
	h->flags = flags;
	if (length < least) {
		headgate_http2_lose(h, HEADGATE_UNKNOWN_FRAME);
		return 0;
	}
	return length ? events : events | headgate_http2_frame_ends(h);
}

/* In HEAD: all of it, or one octet. */
HEADGATE_OCTETS_INLINE __u32 headgate_http2_head(struct headgate_http2 *h, headgate_octets *octets,
						 __u32 available)
{
	const __u32 taken =
	    headgate_frame_head(octets, h->at, available, &h->lead, &h->head, &h->have);

	if (!taken) {
		headgate_http2_lose(h, HEADGATE_UNKNOWN_BUDGET);
		return 0;
	}
	h->at += taken;
	return h->have == HEADGATE_FRAME_HEAD_BYTES ? headgate_http2_frame_begins(h) : 0;
}

/* Where the head of the frame says that padding begins, only padding is left. */
HEADGATE_OCTETS_INLINE __u32 headgate_http2_payload_left(const struct headgate_http2 *h)
{
	return h->frame_left - h->pad;
}

/*
 * One step in a packet of which octets [h->at, end) are left, at least one. Returns events, which
 * are to be handled before the next step.
 */
HEADGATE_OCTETS_INLINE __u32 headgate_http2_step(struct headgate_http2 *h, headgate_octets *octets,
						 __u32 end)
{
	__u32 available = end - h->at, events = 0, n;
	int look_up = 0;
	__u8 octet = 0;

	if (h->state == HEADGATE_HTTP2_HEAD)
		return headgate_http2_head(h, octets, available);
	if (available > h->frame_left)
		available = h->frame_left;
	if (h->state == HEADGATE_HTTP2_PREFIX && !(h->marks & HEADGATE_HTTP2_JUDGE))
		h->state = HEADGATE_HTTP2_REST;
	switch (h->state) {
	case HEADGATE_HTTP2_PAD:
		n = 1;
		if (headgate_octets_load(octets, h->at, &octet, 1) ||
		    (__u32)octet + h->lead > h->frame_left - 1) {
			headgate_http2_lose(h, HEADGATE_UNKNOWN_FRAME);
			return 0;
		}
		h->pad = octet;
		if (h->type == HEADGATE_HTTP2_DATA)
			h->state = HEADGATE_HTTP2_PREFIX;
		else
			h->state = h->lead ? HEADGATE_HTTP2_LEAD : HEADGATE_HTTP2_BLOCK;
		break;
	case HEADGATE_HTTP2_LEAD:
		n = available < h->lead ? available : h->lead;
		h->lead = (__u8)(h->lead - n);
		if (h->lead == 0)
			h->state = HEADGATE_HTTP2_BLOCK;
		break;
	case HEADGATE_HTTP2_BLOCK:
		n = headgate_http2_payload_left(h);
		if (n == 0) {
			h->state = HEADGATE_HTTP2_REST; /* of padding */
			return 0;
		}
		if (available > n)
			available = n;
		n = headgate_hpack_step(&h->hpack, octets, h->at, available, &look_up);
		if (h->hpack.state == HEADGATE_HPACK_BROKEN) {
			headgate_http2_lose(h, h->hpack.reason);
			return 0;
		}
		if (look_up)
			events = HEADGATE_HTTP2_PATH;
		break;
	case HEADGATE_HTTP2_PREFIX:
		if (headgate_http2_payload_left(h) == 0) {
			h->state = HEADGATE_HTTP2_REST;
			return 0;
		}
		n = 1;
		if (headgate_octets_load(octets, h->at, &octet, 1)) {
			headgate_http2_lose(h, HEADGATE_UNKNOWN_BUDGET);
			return 0;
		}
		h->head = h->head << 8 | octet;
		h->have++;
		if (h->have == HEADGATE_GRPC_PREFIX_BYTES) {
			h->state = HEADGATE_HTTP2_REST;
			events = HEADGATE_HTTP2_MESSAGE;
		}
		break;
	default:
		n = available;
		break;
	}
	h->at += n;
	h->frame_left -= n;
	if (h->frame_left == 0) {
		if (events & HEADGATE_HTTP2_MESSAGE) {
			h->state = HEADGATE_HTTP2_HEAD;
			h->have = 0;
		} else {
			events |= headgate_http2_frame_ends(h);
		}
	}
	return events;
}

/*
 * May the length of the gRPC message that has just been read be overwritten? Only where nothing
 * but the server's own size check will see it: it has the shape of a gRPC message, the first of its
 * request and the only one in this frame, and all four octets lie in this packet.
 */
HEADGATE_OCTETS_INLINE int headgate_http2_may_poison(const struct headgate_http2 *h)
{
	const __u32 length = (__u32)h->head, left = headgate_http2_payload_left(h);

	if (h->head >> 33 || h->at < 4)
		return 0;
	return h->flags & HEADGATE_HTTP2_END_STREAM ? length == left : length >= left;
}

/* How a request is handed over. */
struct headgate_http2_judged {
	struct headgate_call call;
	__u32 stream;
	__u64 bytes; /* of its first message, with prefix; 0 = not known */
	__u32 may_poison;
};

/* Hooks. `env` is the includer's. */
struct headgate_http2_env;
/* The route of h->hpack.key. */
HEADGATE_OCTETS_INLINE void headgate_http2_find(struct headgate_http2_env *env,
						struct headgate_http2 *h,
						struct headgate_call *call);
/* The header block of a request has been read. */
HEADGATE_OCTETS_INLINE void headgate_http2_seen(struct headgate_http2_env *env,
						struct headgate_http2 *h);
/* Puts the request of a stream aside; 0 = done. */
HEADGATE_OCTETS_INLINE int headgate_http2_put(struct headgate_http2_env *env, __u32 stream,
					      const struct headgate_call *call);
/* Takes it back; 1 = there was one. */
HEADGATE_OCTETS_INLINE int headgate_http2_take(struct headgate_http2_env *env, __u32 stream,
					       struct headgate_call *call);
/* A DATA frame begins whose request has been judged, or is not known: is it of a refused one? */
HEADGATE_OCTETS_INLINE void headgate_http2_more(struct headgate_http2_env *env,
						struct headgate_http2 *h);
/* The verdict. If it is to be refused, the four octets before h->at are overwritten. */
HEADGATE_OCTETS_INLINE void headgate_http2_judge(struct headgate_http2_env *env,
						 struct headgate_http2 *h,
						 const struct headgate_http2_judged *judged);

/* Its client has given the request of a stream up, answered or not. */
HEADGATE_OCTETS_INLINE void headgate_http2_gone(struct headgate_http2_env *env, __u32 stream);

/* Does what a step has found. A request is judged once: when its first message begins, or where it
 * turns out to have none.
 */
HEADGATE_OCTETS_INLINE void headgate_http2_handle(struct headgate_http2_env *env,
						  struct headgate_http2 *h, __u32 events)
{
	struct headgate_http2_judged judged = {};
	int judge = 0;

	judged.stream = h->stream;
	if (events & HEADGATE_HTTP2_PATH) {
		struct headgate_call call = {};

		call.endpoint = HEADGATE_CALL_REST;
		headgate_http2_find(env, h, &call);
		headgate_hpack_resolve(&h->hpack, &call);
	}
	if (events & HEADGATE_HTTP2_REQUEST) {
		headgate_http2_seen(env, h);
		judged.call = h->hpack.call;
		if (h->marks & HEADGATE_HTTP2_NO_BODY) {
			judge = 1;
		} else {
			struct headgate_call older = h->waiting_call;
			__u32 stream = h->waiting_stream;

			h->waiting_call = judged.call;
			h->waiting_stream = h->stream;
			if (stream) {
				h->marks |= HEADGATE_HTTP2_SPILLED;
				if (headgate_http2_put(env, stream, &older)) {
					judged.call = older;
					judged.stream = stream;
					judge = 1;
				}
			}
		}
	} else if (events & (HEADGATE_HTTP2_BODY | HEADGATE_HTTP2_ENDED)) {
		int found = 0;

		if (h->waiting_stream == h->stream) {
			judged.call = h->waiting_call;
			h->waiting_stream = 0;
			found = 1;
		} else if (h->marks & HEADGATE_HTTP2_SPILLED) {
			found = headgate_http2_take(env, h->stream, &judged.call);
		}
		if (found && (events & HEADGATE_HTTP2_BODY) && h->frame_left) {
			h->hpack.call = judged.call;
			h->marks |= HEADGATE_HTTP2_JUDGE;
		} else {
			judge = found;
			if (!found && h->frame_left)
				headgate_http2_more(env, h);
		}
	} else if (events & HEADGATE_HTTP2_MESSAGE) {
		h->marks &= (__u8)~HEADGATE_HTTP2_JUDGE;
		judged.call = h->hpack.call;
		if (!(events & HEADGATE_HTTP2_SHORT)) {
			judged.bytes = (__u64)(__u32)h->head + HEADGATE_GRPC_PREFIX_BYTES;
			judged.may_poison = (__u32)headgate_http2_may_poison(h);
		}
		judge = 1;
	}
	if (judge)
		headgate_http2_judge(env, h, &judged);
	if ((events & HEADGATE_HTTP2_ENDED) && h->type == HEADGATE_HTTP2_RST_STREAM)
		headgate_http2_gone(env, h->stream);
}

#endif /* HEADGATE_LIB_HTTP2_H */
