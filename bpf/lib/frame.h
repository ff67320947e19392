/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The nine octets in front of each frame of HTTP/2 (RFC 9113, 4.1), wherever packets are cut: the
 * same for what a client sends (lib/http2.h) and for what its server answers (lib/responses.h).
 */
#ifndef HEADGATE_LIB_FRAME_H
#define HEADGATE_LIB_FRAME_H

#include "lib/octets.h"

/* RFC 9113, 6 */
enum headgate_http2_frame {
	HEADGATE_HTTP2_DATA = 0,
	HEADGATE_HTTP2_HEADERS = 1,
	HEADGATE_HTTP2_PRIORITY = 2,
	HEADGATE_HTTP2_RST_STREAM = 3,
	HEADGATE_HTTP2_SETTINGS = 4,
	HEADGATE_HTTP2_PUSH_PROMISE = 5,
	HEADGATE_HTTP2_PING = 6,
	HEADGATE_HTTP2_GOAWAY = 7,
	HEADGATE_HTTP2_WINDOW_UPDATE = 8,
	HEADGATE_HTTP2_CONTINUATION = 9,
};

#define HEADGATE_HTTP2_END_STREAM   0x01U
#define HEADGATE_HTTP2_ACK	    0x01U
#define HEADGATE_HTTP2_END_HEADERS  0x04U
#define HEADGATE_HTTP2_PADDED	    0x08U
#define HEADGATE_HTTP2_HAS_PRIORITY 0x20U

/* A head is kept as its first octet, `lead`, and the other eight, `head`. */
#define HEADGATE_FRAME_HEAD_BYTES	  9U
#define HEADGATE_FRAME_LENGTH(lead, head) ((__u32)(lead) << 16 | (__u32)((head) >> 48))
#define HEADGATE_FRAME_TYPE(head)	  ((__u8)((head) >> 40))
#define HEADGATE_FRAME_FLAGS(head)	  ((__u8)((head) >> 32))
#define HEADGATE_FRAME_STREAM(head)	  ((__u32)(head)&0x7fffffffU) /* one reserved bit */

/*
 * Takes a whole head from `at`, where `available` > 0 octets lie, or one more octet of one of which
 * `have` have come. Returns how many it took; 0 = they cannot be read. A head is complete when
 * `have` is HEADGATE_FRAME_HEAD_BYTES.
 */
HEADGATE_OCTETS_INLINE __u32 headgate_frame_head(headgate_octets *octets, __u32 at, __u32 available,
						 __u8 *lead, __u64 *head, __u8 *have)
{
	__u8 all[HEADGATE_FRAME_HEAD_BYTES];
	__u32 i;

	if (*have == 0 && available >= sizeof(all)) {
		if (headgate_octets_load(octets, at, all, sizeof(all)))
			return 0;
		*lead = all[0];
		*head = 0;
#ifdef __clang__
#pragma clang loop unroll(full)
#endif
		for (i = 1; i < sizeof(all); i++)
			*head = *head << 8 | all[i];
		*have = sizeof(all);
		return sizeof(all);
	}
	if (headgate_octets_load(octets, at, all, 1))
		return 0;
	if (*have == 0)
		*lead = all[0];
	else
		*head = *head << 8 | all[0];
	++*have;
	return 1;
}

#endif /* HEADGATE_LIB_FRAME_H */
