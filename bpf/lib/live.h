/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Live bytes: payload that a target has received and not answered yet. They are what a collector
 * holds in memory, times what it makes of them, so they can be bounded before memory is full.
 *
 * A connection that begins as HTTP/1.1 in plain text ends them with the first byte of its response,
 * every connection with its close. Where no response can be seen (TLS, HTTP/2) they end by age: see
 * HEADGATE_LIVE_GENERATIONS. What comes of a call that is refused is taken back at once
 * (http2.bpf.c). Pure, as verdict.h is; the words that packets of one connection may change on two
 * CPUs at a time are only ever added to.
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

/* As much of a head is searched for its Content-Length. */
#define HEADGATE_HEAD_BYTES 256

/* The Content-Length in the beginning of a request of HTTP/1.1; 0 = none is seen. `head` has
 * HEADGATE_HEAD_BYTES. Names are compared by the letters that tell it from other headers that are
 * in use: this is a forecast, and what really comes is counted.
 */
HEADGATE_INLINE __u64 headgate_content_length(__u8 *head)
{
	volatile __u8 *place = &head[HEADGATE_HEAD_BYTES - 1];
	__u64 value = 0;
	__u32 i, k;

	for (i = 0; i < HEADGATE_HEAD_BYTES - 32; i++) {
		if (head[i] == '\n' && (head[i + 1] | 32) == 'c' && head[i + 8] == '-' &&
		    (head[i + 9] | 32) == 'l' && (head[i + 14] | 32) == 'h' && head[i + 15] == ':')
			break;
	}
	/* Through memory: else the verifier follows what comes for each place by itself. */
	*place = (__u8)i;
	i = *place;
	if (i >= HEADGATE_HEAD_BYTES - 32)
		return 0;
	for (k = 0; k < 14; k++) {
		const __u8 c = head[i + 16 + k];

		if (c >= '0' && c <= '9')
			value = value * 10 + (c - '0');
		else if (c != ' ' || value)
			break;
	}
	return value;
}

/* A request has begun that announces a body of so many bytes, of which `here_bytes` have come. They
 * are live from now on: a hundred clients that each begin to send 2 MB would be in before the first
 * of them has sent it. At most an eighth of the budget a connection, or a few who announce much and
 * send nothing would shut out the others.
 */
HEADGATE_INLINE void headgate_live_announce(struct headgate_connection *connection,
					    struct headgate_target_state *state,
					    __u64 live_bytes_max, __u64 body_bytes,
					    __u64 here_bytes)
{
	const __u64 most = live_bytes_max >> 3;
	__u64 ahead = body_bytes < most ? body_bytes : most;

	if (ahead <= here_bytes || ahead >> 31)
		return;
	ahead -= here_bytes;
	connection->generation = (__u32)ahead;
	__sync_fetch_and_add(&state->live_bytes, ahead);
	__sync_fetch_and_add(&connection->received_bytes, ahead);
}

/* Of these bytes, how many have been announced: they are counted already. */
HEADGATE_INLINE __u64 headgate_live_expected(struct headgate_connection *connection, __u64 bytes)
{
	__u32 ahead = headgate_read(connection->generation);

	if (connection->kind != HEADGATE_STREAM_HTTP1 || !ahead)
		return 0;
	if (ahead > bytes)
		ahead = (__u32)bytes;
	connection->generation -= ahead; /* a race of two packets counts one of them twice */
	return ahead;
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

/* 1 where `word` is not 0, without a branch (the compiler would make one of it). */
HEADGATE_INLINE __u64 headgate_is_set(__u64 word)
{
	__u64 negative = -word;

	asm volatile("" : "+r"(negative));
	return (word | negative) >> 63;
}

/* The bucket of a life in a headgate_life_histogram: octave and quarter. In a loop the verifier
 * would follow each way through branches by itself.
 */
HEADGATE_INLINE __u32 headgate_life_bucket(__u64 life_ns)
{
	__u64 rest = life_ns, octave = 0, half;
	__u32 bits, bucket;

#ifdef __clang__
#pragma clang loop unroll(full)
#endif
	for (bits = 32; bits; bits >>= 1) {
		half = headgate_is_set(rest >> bits) * bits;
		rest >>= half;
		octave += half;
	}
	if (octave < HEADGATE_LIFE_FIRST_OCTAVE)
		return 0;
	bucket =
	    (__u32)((octave - HEADGATE_LIFE_FIRST_OCTAVE) * 4 + ((life_ns >> (octave - 2)) & 3));
	return bucket < HEADGATE_LIFE_BUCKETS ? bucket : HEADGATE_LIFE_BUCKETS - 1;
}

#endif /* HEADGATE_LIB_LIVE_H */
