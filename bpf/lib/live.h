/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Live bytes: payload that a target has received and not answered yet. They are what a collector
 * holds in memory, times what it makes of them, so they can be bounded before memory is full.
 *
 * A connection that begins as HTTP/1.1 in plain text ends them with the first byte of its response,
 * every connection with its close. Where no response can be seen (TLS, HTTP/2) they end by age: see
 * HEADGATE_LIVE_GENERATIONS. Pure, as verdict.h is; the words that packets of one connection may
 * change on two CPUs at a time are only ever added to.
 */
#ifndef HEADGATE_LIB_LIVE_H
#define HEADGATE_LIB_LIVE_H

#include "lib/verdict.h"

/* What the first four bytes of a connection say about the rest of it. */
HEADGATE_INLINE __u32 headgate_stream_kind_of(const __u8 *first)
{
	const __u32 word =
	    (__u32)first[0] << 24 | (__u32)first[1] << 16 | (__u32)first[2] << 8 | first[3];

	switch (word) {
	case 0x504f5354: /* POST */
	case 0x47455420: /* GET and a blank */
	case 0x50555420: /* PUT and a blank */
	case 0x48454144: /* HEAD */
	case 0x44454c45: /* DELE(TE) */
	case 0x50415443: /* PATC(H) */
	case 0x4f505449: /* OPTI(ONS) */
		return HEADGATE_STREAM_HTTP1;
	}
	return HEADGATE_STREAM_OTHER;
}

/* What is in an answer that begins with these twelve bytes. */
enum headgate_response {
	HEADGATE_RESPONSE_NONE = 0,	/* not the beginning of one, or of an interim one (1xx) */
	HEADGATE_RESPONSE_FINAL = 1,	/* the request is answered */
	HEADGATE_RESPONSE_SWITCHED = 2, /* 101: no HTTP/1.1 from here on */
};

HEADGATE_INLINE __u32 headgate_response_of(const __u8 *first)
{
	if (first[0] != 'H' || first[1] != 'T' || first[2] != 'T' || first[3] != 'P' ||
	    first[4] != '/' || first[5] != '1' || first[6] != '.')
		return HEADGATE_RESPONSE_NONE;
	if (first[9] != '1')
		return HEADGATE_RESPONSE_FINAL;
	return first[10] == '0' && first[11] == '1' ? HEADGATE_RESPONSE_SWITCHED
						    : HEADGATE_RESPONSE_NONE;
}

HEADGATE_INLINE __u64 *headgate_live_sum(struct headgate_target_state *state, __u32 generation)
{
	return &state->live_aged[generation & (HEADGATE_LIVE_GENERATIONS - 1)];
}

/* Payload has come in. */
HEADGATE_INLINE void headgate_live_add(struct headgate_connection *connection,
				       struct headgate_target_state *state, __u32 generation,
				       __u64 bytes)
{
	if (connection->kind == HEADGATE_STREAM_OTHER) {
		if (connection->generation != generation) {
			connection->generation = generation;
			connection->released_bytes = headgate_read(connection->received_bytes);
		}
		__sync_fetch_and_add(headgate_live_sum(state, generation), bytes);
	} else {
		__sync_fetch_and_add(&state->live_bytes, bytes);
	}
	__sync_fetch_and_add(&connection->received_bytes, bytes);
}

/* They are answered, or their connection has ended. Runs under the socket's lock. */
HEADGATE_INLINE void headgate_live_release(struct headgate_connection *connection,
					   struct headgate_target_state *state, __u32 generation)
{
	const __u64 received = headgate_read(connection->received_bytes);
	const __u64 bytes = received - connection->released_bytes;

	connection->released_bytes = received;
	if (connection->kind != HEADGATE_STREAM_OTHER)
		__sync_fetch_and_add(&state->live_bytes, -bytes);
	else if (((generation - connection->generation) & 0xffff) <= 1) /* else aged already */
		__sync_fetch_and_add(headgate_live_sum(state, connection->generation), -bytes);
}

/* A turn ends when the server sends after it has received. Keeps the largest there was. */
HEADGATE_INLINE void headgate_turn_ends(struct headgate_connection *connection,
					struct headgate_endpoint_state *state)
{
	const __u64 received = headgate_read(connection->received_bytes);
	const __u64 bytes = received - connection->turn_bytes;

	if (!bytes)
		return;
	connection->turn_bytes = received;
	if (connection->turns < 255)
		connection->turns++;
	if (bytes > headgate_read(state->largest_request_bytes))
		state->largest_request_bytes = bytes; /* a race loses one of two large ones */
}

/* Did it carry one request? TLS takes up to two turns before it and its answer. */
HEADGATE_INLINE int headgate_one_request(const struct headgate_connection *connection)
{
	return connection->turns <= (connection->kind == HEADGATE_STREAM_OTHER ? 3 : 1);
}

/* The bucket of a life in a headgate_life_histogram: octave and quarter. */
HEADGATE_INLINE __u32 headgate_life_bucket(__u64 life_ns)
{
	__u32 octave = 0, bucket;
	__u64 rest = life_ns;

	if (rest >> 32) {
		octave += 32;
		rest >>= 32;
	}
	if (rest >> 16) {
		octave += 16;
		rest >>= 16;
	}
	if (rest >> 8) {
		octave += 8;
		rest >>= 8;
	}
	if (rest >> 4) {
		octave += 4;
		rest >>= 4;
	}
	if (rest >> 2) {
		octave += 2;
		rest >>= 2;
	}
	octave += (__u32)(rest >> 1);
	if (octave < HEADGATE_LIFE_FIRST_OCTAVE)
		return 0;
	bucket = (octave - HEADGATE_LIFE_FIRST_OCTAVE) * 4 + (__u32)((life_ns >> (octave - 2)) & 3);
	return bucket < HEADGATE_LIFE_BUCKETS ? bucket : HEADGATE_LIFE_BUCKETS - 1;
}

#endif /* HEADGATE_LIB_LIVE_H */
