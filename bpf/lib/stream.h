/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What is known of one live connection whose requests are looked at: the value of the map
 * headgate_stream_states, keyed by socket cookie. sock_ops makes it when the connection is
 * established and deletes it when it is closed; the stages change it under the socket's lock.
 *
 * It outlives the agent with its map. Another layout means raising HEADGATE_ABI_VERSION.
 */
#ifndef HEADGATE_LIB_STREAM_H
#define HEADGATE_LIB_STREAM_H

#include "lib/path.h"

enum headgate_stream_protocol {
	HEADGATE_PROTOCOL_UNKNOWN = 0, /* no request yet; stage HTTP1 finds out */
	HEADGATE_PROTOCOL_HTTP1 = 1,
	HEADGATE_PROTOCOL_HTTP2 = 2,
	HEADGATE_PROTOCOL_NONE = 3, /* passes for the rest of its life, unread */
};

#define HEADGATE_STREAM_RECOGNIZED 1U /* counted in `recognized` of its port */
#define HEADGATE_STREAM_PIPELINED  2U /* answers cannot be told apart: none is timed any more */
#define HEADGATE_STREAM_SWALLOW	   4U /* the request being read was answered: its body is dropped */
#define HEADGATE_STREAM_CLOSING	   8U /* answered with "Connection: close": all is dropped */
#define HEADGATE_STREAM_WRITTEN	   16U /* `written_seq` is that of an earlier request */
#define HEADGATE_STREAM_PENDING	   32U /* a head ended in this packet, and is not judged yet */
#define HEADGATE_STREAM_GIVEN_UP   64U /* counted in `unrecognized` of its port */

/* HTTP/1.1; lib/http1.h */
struct headgate_http1 {
	struct headgate_path path;
	__u64 skip_bytes;    /* of a body or chunk: still to come, not to be looked at */
	__u64 body_bytes;    /* announced; chunked: those of the chunks that are not counted yet */
	__u64 words[3];	     /* the first 24 bytes of the text being read */
	__u64 offset;	     /* in the stream, of the request's first byte */
	__u32 head_bytes;    /* of the head, chunk line or trailers so far */
	__u32 requests;	     /* how many have begun */
	__u8 state;	     /* enum headgate_http1_state */
	__u8 method;	     /* enum headgate_http1_method */
	__u8 header;	     /* enum headgate_http1_header */
	__u8 reason;	     /* enum headgate_unknown */
	__u32 flags;	     /* HEADGATE_HTTP1_* */
	__u32 text_bytes;    /* that went into `words`, or would have */
	__u32 request_bytes; /* of the whole head of the latest request */
	__u32 refused_for;   /* enum headgate_reason, of the latest request */
	__u32 reserved32;
	__u64 reserved[5];
};
HEADGATE_ABI_SIZE(headgate_http1, 256);

#define HEADGATE_STREAM_WINDOW_BYTES 64

struct headgate_stream {
	__u64 established_ns;
	__u64 passed_ns;  /* when a request was last let through */
	__u64 begun_ns;	  /* first byte of the request that is being read */
	__u64 request_ns; /* first byte of the request that waits for its answer; 0 = none */
	__u64 offset;	  /* in the stream, of the first byte of the packet */
	__u32 port;	  /* endpoint slot */
	__u32 target;
	__u32 waiting;	   /* endpoint slot of the request that waits for its answer */
	__u32 exempt;	   /* HEADGATE_EXEMPT_KIND_* of the peer, when it connected */
	__u32 protocol;	   /* enum headgate_stream_protocol */
	__u32 flags;	   /* HEADGATE_STREAM_* */
	__u32 written_seq; /* tcp_sock.write_seq when the last request came */
	__u32 at;	   /* of the packet: the next byte to look at. A stage that hands over to
			    * another leaves it there. */
	__u32 packet_bytes;
	__u32 window_at; /* where in the packet `window` was taken */
	__u32 window_bytes;
	__u32 reading; /* endpoint slot of the request that is being read */
	__u8 window[HEADGATE_STREAM_WINDOW_BYTES]; /* bytes of the packet */
	union {
		struct headgate_http1 http1;
		__u64 http2[32]; /* of lib/http2.h; all zero when the preface has been read */
	};
};
HEADGATE_ABI_SIZE(headgate_stream, 408);

#endif /* HEADGATE_LIB_STREAM_H */
