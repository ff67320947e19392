/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Requests of HTTP/1.1 in a stream of bytes (RFC 9112): where each begins, its method and path, and
 * where it ends. headgate_http1_step() takes one byte after the other, or eight at once where they
 * come to the same, so that every cut of the stream into packets has the same result; bodies are
 * skipped by arithmetic, and what they hold is never read as a request.
 *
 * What servers may read in different ways ends it for the rest of the connection, with a reason:
 * two lengths, a bare CR or LF, a folded header, a blank before a colon, Upgrade, CONNECT.
 *
 * Pure: the same C in stage HTTP1 of the kernel, in `headgate classify` and under fuzzers.
 */
#ifndef HEADGATE_LIB_HTTP1_H
#define HEADGATE_LIB_HTTP1_H

#include "lib/stream.h"
#include "lib/words.h"

#ifndef __bpf__
#define HEADGATE_GLOBAL static inline
#else
/* Verified once, for any argument, and not anew at every call. */
#define HEADGATE_GLOBAL __attribute__((noinline))
#endif

/* A head, the trailers, or a chunk's line beyond this is not read to its end. */
#define HEADGATE_HTTP1_HEAD_BYTES_MAX 16384
/* Steps on one packet: the longest head, byte by byte, and what comes before and behind it. A chunk
 * takes about eight.
 */
#define HEADGATE_HTTP1_STEPS_MAX 20000

enum headgate_http1_state {
	HEADGATE_HTTP1_BEGIN = 0, /* before a request: empty lines are skipped (RFC 9112, 2.2) */
	HEADGATE_HTTP1_BEGIN_LF = 1,
	HEADGATE_HTTP1_TLS = 2,	    /* the connection began as a TLS record does */
	HEADGATE_HTTP1_PREFACE = 3, /* behind "PRI * HTTP/2.0" and CR (RFC 9113, 3.4) */
	HEADGATE_HTTP1_METHOD = 4,
	HEADGATE_HTTP1_TARGET = 5,
	HEADGATE_HTTP1_VERSION = 6,
	HEADGATE_HTTP1_LINE_LF = 7, /* behind the request line, a header or a trailer */
	HEADGATE_HTTP1_LINE = 8,
	HEADGATE_HTTP1_NAME = 9,
	HEADGATE_HTTP1_VALUE = 10,
	HEADGATE_HTTP1_HEAD_LF = 11,
	HEADGATE_HTTP1_BODY = 12, /* skip_bytes of it */
	HEADGATE_HTTP1_CHUNK = 13,
	HEADGATE_HTTP1_CHUNK_SIZE = 14,
	HEADGATE_HTTP1_CHUNK_EXTENSION = 15,
	HEADGATE_HTTP1_CHUNK_QUOTED = 16,
	HEADGATE_HTTP1_CHUNK_ESCAPED = 17,
	HEADGATE_HTTP1_CHUNK_LF = 18,
	HEADGATE_HTTP1_CHUNK_DATA = 19, /* skip_bytes of it */
	HEADGATE_HTTP1_CHUNK_END = 20,
	HEADGATE_HTTP1_CHUNK_END_LF = 21,
	HEADGATE_HTTP1_LOST = 22,
};

/* RFC 9110 section 9, RFC 5789 */
enum headgate_http1_method {
	HEADGATE_METHOD_UNKNOWN = 0,
	HEADGATE_METHOD_GET = 1,
	HEADGATE_METHOD_HEAD = 2,
	HEADGATE_METHOD_POST = 3,
	HEADGATE_METHOD_PUT = 4,
	HEADGATE_METHOD_DELETE = 5,
	HEADGATE_METHOD_CONNECT = 6,
	HEADGATE_METHOD_OPTIONS = 7,
	HEADGATE_METHOD_TRACE = 8,
	HEADGATE_METHOD_PATCH = 9,
	HEADGATE_METHOD_PRI = 10, /* none: the first word of the preface of HTTP/2 */
};

/* The headers that say where a request ends and how it may be answered. */
enum headgate_http1_header {
	HEADGATE_HEADER_OTHER = 0,
	HEADGATE_HEADER_CONTENT_LENGTH = 1,
	HEADGATE_HEADER_TRANSFER_ENCODING = 2,
	HEADGATE_HEADER_CONNECTION = 3,
	HEADGATE_HEADER_EXPECT = 4,
};

/* headgate_http1.flags */
#define HEADGATE_HTTP1_LENGTH	1U   /* has Content-Length */
#define HEADGATE_HTTP1_CHUNKED	2U   /* has Transfer-Encoding: chunked */
#define HEADGATE_HTTP1_CLOSE	4U   /* the server is to close: Connection: close, HTTP/1.0 */
#define HEADGATE_HTTP1_EXPECT	8U   /* the client waits for 100 before it sends the body */
#define HEADGATE_HTTP1_UPGRADE	16U  /* what follows may be another protocol */
#define HEADGATE_HTTP1_TRAILERS 32U  /* behind the last chunk */
#define HEADGATE_HTTP1_ENDED	64U  /* a blank has ended the value: nothing may follow */
#define HEADGATE_HTTP1_OLD	128U /* HTTP/1.0 */
#define HEADGATE_HTTP1_ASTERISK 256U /* the target is "*" */

enum headgate_http1_event {
	HEADGATE_HTTP1_NOTHING = 0,
	HEADGATE_HTTP1_BEGUN = 1,  /* the byte is the first of a request */
	HEADGATE_HTTP1_HEAD = 2,   /* ... the last of a head; `reason`: its class is unknown */
	HEADGATE_HTTP1_END = 3,	   /* ... the last of a body (a request without one ends at HEAD) */
	HEADGATE_HTTP1_FAILED = 4, /* nothing more can be told of the connection; see `reason` */
	HEADGATE_HTTP1_HTTP2 = 5,  /* ... the last of the preface of HTTP/2 */
};

/* Eight characters as they stand in `words`. */
#define HEADGATE_WORD(a, b, c, d, e, f, g, h)                                                      \
	((__u64)(a) | (__u64)(b) << 8 | (__u64)(c) << 16 | (__u64)(d) << 24 | (__u64)(e) << 32 |   \
	 (__u64)(f) << 40 | (__u64)(g) << 48 | (__u64)(h) << 56)

/* tchar, RFC 9110 section 5.6.2 */
HEADGATE_INLINE int headgate_is_token(__u8 byte)
{
	/* !#$%&'*+-. 0-9 */
	const __u64 low = 0x03ff6cfa00000000ULL;
	/* A-Z ^_` a-z | ~ */
	const __u64 high = 0x57ffffffc7fffffeULL;

	return byte < 128 && ((byte < 64 ? low : high) >> (byte & 63) & 1);
}

HEADGATE_INLINE void headgate_http1_text_start(struct headgate_http1 *http1)
{
	http1->words[0] = 0;
	http1->words[1] = 0;
	http1->words[2] = 0;
	http1->text_bytes = 0;
}

HEADGATE_INLINE void headgate_http1_text(struct headgate_http1 *http1, __u8 byte)
{
	const __u32 at = http1->text_bytes++;

	if (at < 8)
		http1->words[0] |= (__u64)byte << (8 * at);
	else if (at < 16)
		http1->words[1] |= (__u64)byte << (8 * (at - 8));
	else if (at < 24)
		http1->words[2] |= (__u64)byte << (8 * (at - 16));
}

HEADGATE_INLINE int headgate_http1_is(const struct headgate_http1 *http1, __u32 bytes, __u64 first,
				      __u64 second, __u64 third)
{
	return http1->text_bytes == bytes && http1->words[0] == first &&
	       http1->words[1] == second && http1->words[2] == third;
}

HEADGATE_INLINE __u32 headgate_http1_fail(struct headgate_http1 *http1, __u32 reason)
{
	http1->state = HEADGATE_HTTP1_LOST;
	http1->reason = (__u8)reason;
	return HEADGATE_HTTP1_FAILED;
}

/* The first line is none of a request. */
HEADGATE_INLINE __u32 headgate_http1_no_request(struct headgate_http1 *http1)
{
	if (http1->requests <= 1 && http1->method == HEADGATE_METHOD_UNKNOWN)
		return headgate_http1_fail(http1, HEADGATE_UNKNOWN_NOT_HTTP);
	return headgate_http1_fail(http1, http1->method == HEADGATE_METHOD_PRI
					      ? HEADGATE_UNKNOWN_PREFACE
					      : HEADGATE_UNKNOWN_SYNTAX);
}

HEADGATE_INLINE __u32 headgate_http1_begin(struct headgate_http1 *http1, __u8 byte)
{
	if (byte == '\r') {
		http1->state = HEADGATE_HTTP1_BEGIN_LF;
		return HEADGATE_HTTP1_NOTHING;
	}
	http1->requests++;
	http1->method = HEADGATE_METHOD_UNKNOWN;
	http1->flags = 0;
	http1->reason = HEADGATE_UNKNOWN_NONE;
	http1->head_bytes = 1;
	http1->body_bytes = 0;
	headgate_http1_text_start(http1);
	headgate_path_start(&http1->path, http1->path.key.port);
	/* ContentType of a record: handshake (RFC 8446, section 5.1) */
	if (byte == 22 && http1->requests == 1) {
		http1->state = HEADGATE_HTTP1_TLS;
		return HEADGATE_HTTP1_BEGUN;
	}
	if (!headgate_is_token(byte))
		return headgate_http1_no_request(http1);
	http1->state = HEADGATE_HTTP1_METHOD;
	headgate_http1_text(http1, byte);
	return HEADGATE_HTTP1_BEGUN;
}

/* Methods are case-sensitive (RFC 9110, section 9.1). */
HEADGATE_INLINE __u32 headgate_http1_method_of(const struct headgate_http1 *http1)
{
	if (http1->text_bytes > 7)
		return HEADGATE_METHOD_UNKNOWN;
	switch (http1->words[0]) {
	case HEADGATE_WORD('G', 'E', 'T', 0, 0, 0, 0, 0):
		return HEADGATE_METHOD_GET;
	case HEADGATE_WORD('H', 'E', 'A', 'D', 0, 0, 0, 0):
		return HEADGATE_METHOD_HEAD;
	case HEADGATE_WORD('P', 'O', 'S', 'T', 0, 0, 0, 0):
		return HEADGATE_METHOD_POST;
	case HEADGATE_WORD('P', 'U', 'T', 0, 0, 0, 0, 0):
		return HEADGATE_METHOD_PUT;
	case HEADGATE_WORD('D', 'E', 'L', 'E', 'T', 'E', 0, 0):
		return HEADGATE_METHOD_DELETE;
	case HEADGATE_WORD('C', 'O', 'N', 'N', 'E', 'C', 'T', 0):
		return HEADGATE_METHOD_CONNECT;
	case HEADGATE_WORD('O', 'P', 'T', 'I', 'O', 'N', 'S', 0):
		return HEADGATE_METHOD_OPTIONS;
	case HEADGATE_WORD('T', 'R', 'A', 'C', 'E', 0, 0, 0):
		return HEADGATE_METHOD_TRACE;
	case HEADGATE_WORD('P', 'A', 'T', 'C', 'H', 0, 0, 0):
		return HEADGATE_METHOD_PATCH;
	case HEADGATE_WORD('P', 'R', 'I', 0, 0, 0, 0, 0):
		return HEADGATE_METHOD_PRI;
	}
	return HEADGATE_METHOD_UNKNOWN;
}

HEADGATE_INLINE __u32 headgate_http1_method_byte(struct headgate_http1 *http1, __u8 byte)
{
	if (byte == ' ') {
		http1->method = (__u8)headgate_http1_method_of(http1);
		if (http1->method == HEADGATE_METHOD_UNKNOWN ||
		    http1->method == HEADGATE_METHOD_PRI)
			http1->reason = HEADGATE_UNKNOWN_METHOD;
		http1->state = HEADGATE_HTTP1_TARGET;
		headgate_http1_text_start(http1);
		return HEADGATE_HTTP1_NOTHING;
	}
	if (!headgate_is_token(byte))
		return headgate_http1_no_request(http1);
	headgate_http1_text(http1, byte);
	return HEADGATE_HTTP1_NOTHING;
}

HEADGATE_INLINE __u32 headgate_http1_target_byte(struct headgate_http1 *http1, __u8 byte)
{
	if (byte == ' ' && http1->text_bytes) {
		if (http1->text_bytes == 1 && http1->words[0] == '*')
			http1->flags |= HEADGATE_HTTP1_ASTERISK;
		if (!headgate_path_end(&http1->path) && !http1->reason)
			http1->reason = HEADGATE_UNKNOWN_TARGET;
		http1->state = HEADGATE_HTTP1_VERSION;
		headgate_http1_text_start(http1);
		return HEADGATE_HTTP1_NOTHING;
	}
	if (byte <= ' ' || byte == 127)
		return headgate_http1_no_request(http1);
	headgate_http1_text(http1, byte);
	headgate_path_byte(&http1->path, byte);
	return HEADGATE_HTTP1_NOTHING;
}

HEADGATE_INLINE __u32 headgate_http1_version_byte(struct headgate_http1 *http1, __u8 byte)
{
	const __u64 common = HEADGATE_WORD('H', 'T', 'T', 'P', '/', 0, '.', 0);

	if (byte != '\r') {
		if (byte <= ' ' || http1->text_bytes == 8)
			return headgate_http1_no_request(http1);
		headgate_http1_text(http1, byte);
		return HEADGATE_HTTP1_NOTHING;
	}
	if (http1->text_bytes != 8)
		return headgate_http1_no_request(http1);
	switch (http1->words[0] ^ common) {
	case HEADGATE_WORD(0, 0, 0, 0, 0, '1', 0, '0'):
		http1->flags |= HEADGATE_HTTP1_OLD | HEADGATE_HTTP1_CLOSE;
		break;
	case HEADGATE_WORD(0, 0, 0, 0, 0, '1', 0, '1'):
		break;
	case HEADGATE_WORD(0, 0, 0, 0, 0, '2', 0, '0'):
		if (http1->method == HEADGATE_METHOD_PRI && http1->requests == 1 &&
		    (http1->flags & HEADGATE_HTTP1_ASTERISK)) {
			http1->state = HEADGATE_HTTP1_PREFACE;
			http1->text_bytes = 0;
			return HEADGATE_HTTP1_NOTHING;
		}
		return headgate_http1_no_request(http1);
	default:
		return headgate_http1_no_request(http1);
	}
	http1->state = HEADGATE_HTTP1_LINE_LF;
	return HEADGATE_HTTP1_NOTHING;
}

HEADGATE_INLINE __u32 headgate_http1_preface_byte(struct headgate_http1 *http1, __u8 byte)
{
	const __u64 rest = HEADGATE_WORD('\n', '\r', '\n', 'S', 'M', '\r', '\n', '\r');
	const __u32 at = http1->text_bytes;

	if (byte != (at < 8 ? (__u8)(rest >> (8 * at)) : '\n'))
		return headgate_http1_fail(http1, HEADGATE_UNKNOWN_PREFACE);
	return ++http1->text_bytes == 9 ? HEADGATE_HTTP1_HTTP2 : HEADGATE_HTTP1_NOTHING;
}

/* Behind the name of a header. */
HEADGATE_INLINE __u32 headgate_http1_named(struct headgate_http1 *http1)
{
	http1->header = HEADGATE_HEADER_OTHER;
	http1->state = HEADGATE_HTTP1_VALUE;
	http1->flags &= ~HEADGATE_HTTP1_ENDED;
	if (http1->flags & HEADGATE_HTTP1_TRAILERS)
		return HEADGATE_HTTP1_NOTHING; /* they change no framing (RFC 9110, 6.5.1) */
	if (headgate_http1_is(http1, 14, HEADGATE_WORD('c', 'o', 'n', 't', 'e', 'n', 't', '-'),
			      HEADGATE_WORD('l', 'e', 'n', 'g', 't', 'h', 0, 0), 0)) {
		if (http1->flags & HEADGATE_HTTP1_LENGTH)
			return headgate_http1_fail(http1, HEADGATE_UNKNOWN_FRAMING);
		http1->flags |= HEADGATE_HTTP1_LENGTH;
		http1->header = HEADGATE_HEADER_CONTENT_LENGTH;
	} else if (headgate_http1_is(http1, 17,
				     HEADGATE_WORD('t', 'r', 'a', 'n', 's', 'f', 'e', 'r'),
				     HEADGATE_WORD('-', 'e', 'n', 'c', 'o', 'd', 'i', 'n'), 'g')) {
		if (http1->flags & HEADGATE_HTTP1_CHUNKED)
			return headgate_http1_fail(http1, HEADGATE_UNKNOWN_FRAMING);
		http1->flags |= HEADGATE_HTTP1_CHUNKED;
		http1->header = HEADGATE_HEADER_TRANSFER_ENCODING;
	} else if (headgate_http1_is(http1, 10,
				     HEADGATE_WORD('c', 'o', 'n', 'n', 'e', 'c', 't', 'i'),
				     HEADGATE_WORD('o', 'n', 0, 0, 0, 0, 0, 0), 0)) {
		http1->header = HEADGATE_HEADER_CONNECTION;
	} else if (headgate_http1_is(http1, 6, HEADGATE_WORD('e', 'x', 'p', 'e', 'c', 't', 0, 0), 0,
				     0)) {
		http1->header = HEADGATE_HEADER_EXPECT;
	} else if (headgate_http1_is(http1, 7, HEADGATE_WORD('u', 'p', 'g', 'r', 'a', 'd', 'e', 0),
				     0, 0)) {
		http1->flags |= HEADGATE_HTTP1_UPGRADE;
	}
	headgate_http1_text_start(http1);
	return HEADGATE_HTTP1_NOTHING;
}

HEADGATE_INLINE __u8 headgate_lower(__u8 byte)
{
	return byte >= 'A' && byte <= 'Z' ? byte | 0x20 : byte;
}

HEADGATE_INLINE __u32 headgate_http1_name_byte(struct headgate_http1 *http1, __u8 byte)
{
	if (byte == ':' && http1->text_bytes)
		return headgate_http1_named(http1);
	if (!headgate_is_token(byte))
		return headgate_http1_fail(http1, HEADGATE_UNKNOWN_SYNTAX);
	headgate_http1_text(http1, headgate_lower(byte));
	return HEADGATE_HTTP1_NOTHING;
}

/* Behind an item of a list, or the value. */
HEADGATE_INLINE __u32 headgate_http1_item(struct headgate_http1 *http1)
{
	switch (http1->header) {
	case HEADGATE_HEADER_CONTENT_LENGTH:
		if (!http1->text_bytes)
			return headgate_http1_fail(http1, HEADGATE_UNKNOWN_FRAMING);
		break;
	case HEADGATE_HEADER_TRANSFER_ENCODING:
		if (!headgate_http1_is(http1, 7,
				       HEADGATE_WORD('c', 'h', 'u', 'n', 'k', 'e', 'd', 0), 0, 0))
			return headgate_http1_fail(http1, HEADGATE_UNKNOWN_FRAMING);
		break;
	case HEADGATE_HEADER_CONNECTION:
		if (headgate_http1_is(http1, 5, HEADGATE_WORD('c', 'l', 'o', 's', 'e', 0, 0, 0), 0,
				      0))
			http1->flags |= HEADGATE_HTTP1_CLOSE;
		break;
	case HEADGATE_HEADER_EXPECT:
		if (headgate_http1_is(http1, 12,
				      HEADGATE_WORD('1', '0', '0', '-', 'c', 'o', 'n', 't'),
				      HEADGATE_WORD('i', 'n', 'u', 'e', 0, 0, 0, 0), 0))
			http1->flags |= HEADGATE_HTTP1_EXPECT;
		break;
	}
	return HEADGATE_HTTP1_NOTHING;
}

HEADGATE_INLINE __u32 headgate_http1_value_byte(struct headgate_http1 *http1, __u8 byte)
{
	const int blank = byte == ' ' || byte == '\t';

	if (byte == '\r') {
		http1->state = HEADGATE_HTTP1_LINE_LF;
		return headgate_http1_item(http1);
	}
	if ((byte < ' ' && !blank) || byte == 127)
		return headgate_http1_fail(http1, HEADGATE_UNKNOWN_SYNTAX);
	if (http1->header == HEADGATE_HEADER_OTHER)
		return HEADGATE_HTTP1_NOTHING;
	if (blank) {
		if (http1->text_bytes)
			http1->flags |= HEADGATE_HTTP1_ENDED;
		return HEADGATE_HTTP1_NOTHING;
	}
	if (byte == ',' && http1->header == HEADGATE_HEADER_CONNECTION) {
		headgate_http1_item(http1);
		headgate_http1_text_start(http1);
		http1->flags &= ~HEADGATE_HTTP1_ENDED;
		return HEADGATE_HTTP1_NOTHING;
	}
	if (http1->flags & HEADGATE_HTTP1_ENDED) { /* two words are none of those we know */
		if (http1->header == HEADGATE_HEADER_CONTENT_LENGTH)
			return headgate_http1_fail(http1, HEADGATE_UNKNOWN_FRAMING);
		headgate_http1_text(http1, ' ');
		http1->flags &= ~HEADGATE_HTTP1_ENDED;
	}
	if (http1->header == HEADGATE_HEADER_CONTENT_LENGTH) {
		if (byte < '0' || byte > '9' || http1->body_bytes > ~0ULL / 32)
			return headgate_http1_fail(http1, HEADGATE_UNKNOWN_FRAMING);
		http1->body_bytes = 10 * http1->body_bytes + byte - '0';
	}
	headgate_http1_text(http1, headgate_lower(byte));
	return HEADGATE_HTTP1_NOTHING;
}

/* Behind the empty line that ends a head or the trailers. */
HEADGATE_INLINE __u32 headgate_http1_head_ends(struct headgate_http1 *http1)
{
	if (http1->flags & HEADGATE_HTTP1_TRAILERS) {
		http1->state = HEADGATE_HTTP1_BEGIN;
		return HEADGATE_HTTP1_END;
	}
	if ((http1->flags & HEADGATE_HTTP1_CHUNKED) &&
	    (http1->flags & (HEADGATE_HTTP1_LENGTH | HEADGATE_HTTP1_OLD)))
		return headgate_http1_fail(http1, HEADGATE_UNKNOWN_FRAMING);
	http1->request_bytes = http1->head_bytes;
	http1->head_bytes = 0;
	if (http1->method == HEADGATE_METHOD_CONNECT || (http1->flags & HEADGATE_HTTP1_UPGRADE)) {
		http1->reason = HEADGATE_UNKNOWN_UPGRADE;
		http1->state = HEADGATE_HTTP1_LOST;
	} else if (http1->flags & HEADGATE_HTTP1_CHUNKED) {
		http1->state = HEADGATE_HTTP1_CHUNK;
	} else if (http1->body_bytes) {
		http1->skip_bytes = http1->body_bytes;
		http1->state = HEADGATE_HTTP1_BODY;
	} else {
		http1->state = HEADGATE_HTTP1_BEGIN;
	}
	return HEADGATE_HTTP1_HEAD;
}

HEADGATE_INLINE __u32 headgate_http1_chunk_byte(struct headgate_http1 *http1, __u8 byte)
{
	const __u32 digit = headgate_hex_digit(byte);

	if (digit < 16) {
		if (http1->skip_bytes > ~0ULL / 64)
			return headgate_http1_fail(http1, HEADGATE_UNKNOWN_FRAMING);
		http1->skip_bytes = http1->skip_bytes << 4 | digit;
		http1->state = HEADGATE_HTTP1_CHUNK_SIZE;
	} else if (http1->state == HEADGATE_HTTP1_CHUNK) {
		return headgate_http1_fail(http1, HEADGATE_UNKNOWN_FRAMING);
	} else if (byte == '\r') {
		http1->state = HEADGATE_HTTP1_CHUNK_LF;
	} else if (byte == ';' || byte == ' ' || byte == '\t') {
		http1->state = HEADGATE_HTTP1_CHUNK_EXTENSION;
	} else {
		return headgate_http1_fail(http1, HEADGATE_UNKNOWN_FRAMING);
	}
	return HEADGATE_HTTP1_NOTHING;
}

/* Nothing of an extension counts but where it ends. Its line may go on in a quoted string (case
 * D10), though none may hold a line's end (RFC 9112, 7.1.1; RFC 9110, 5.6.4); other control
 * characters end it.
 */
HEADGATE_INLINE __u32 headgate_http1_extension_byte(struct headgate_http1 *http1, __u8 byte)
{
	if (byte == '\r' && http1->state == HEADGATE_HTTP1_CHUNK_EXTENSION) {
		http1->state = HEADGATE_HTTP1_CHUNK_LF;
		return HEADGATE_HTTP1_NOTHING;
	}
	if (((byte < ' ' && byte != '\t') || byte == 127) &&
	    !(http1->state == HEADGATE_HTTP1_CHUNK_QUOTED && (byte == '\r' || byte == '\n')))
		return headgate_http1_fail(http1, HEADGATE_UNKNOWN_FRAMING);
	switch (http1->state) {
	case HEADGATE_HTTP1_CHUNK_EXTENSION:
		if (byte == '"')
			http1->state = HEADGATE_HTTP1_CHUNK_QUOTED;
		break;
	case HEADGATE_HTTP1_CHUNK_QUOTED:
		if (byte == '"')
			http1->state = HEADGATE_HTTP1_CHUNK_EXTENSION;
		else if (byte == '\\')
			http1->state = HEADGATE_HTTP1_CHUNK_ESCAPED;
		break;
	default:
		http1->state = HEADGATE_HTTP1_CHUNK_QUOTED;
	}
	return HEADGATE_HTTP1_NOTHING;
}

/* Behind the LF of a chunk's line. */
HEADGATE_INLINE void headgate_http1_chunk_starts(struct headgate_http1 *http1)
{
	http1->head_bytes = 0;
	if (http1->skip_bytes) {
		http1->body_bytes += http1->skip_bytes;
		http1->state = HEADGATE_HTTP1_CHUNK_DATA;
		return;
	}
	http1->flags |= HEADGATE_HTTP1_TRAILERS;
	http1->state = HEADGATE_HTTP1_LINE;
}

HEADGATE_INLINE __u32 headgate_http1_expect(struct headgate_http1 *http1, __u8 byte, __u8 expected,
					    __u32 next, __u32 reason)
{
	if (byte != expected)
		return headgate_http1_fail(http1, reason);
	http1->state = (__u8)next;
	return HEADGATE_HTTP1_NOTHING;
}

/* One byte that is none of a body: enum headgate_http1_event. */
HEADGATE_INLINE __u32 headgate_http1_byte(struct headgate_http1 *http1, __u8 byte)
{
	if (http1->state >= HEADGATE_HTTP1_METHOD &&
	    ++http1->head_bytes > HEADGATE_HTTP1_HEAD_BYTES_MAX)
		return headgate_http1_fail(http1, HEADGATE_UNKNOWN_TOO_LONG);
	switch (http1->state) {
	case HEADGATE_HTTP1_BEGIN:
		return headgate_http1_begin(http1, byte);
	case HEADGATE_HTTP1_BEGIN_LF:
		return headgate_http1_expect(http1, byte, '\n', HEADGATE_HTTP1_BEGIN,
					     http1->requests ? HEADGATE_UNKNOWN_SYNTAX
							     : HEADGATE_UNKNOWN_NOT_HTTP);
	case HEADGATE_HTTP1_TLS:
		return headgate_http1_fail(http1, byte == 3 ? HEADGATE_UNKNOWN_TLS
							    : HEADGATE_UNKNOWN_NOT_HTTP);
	case HEADGATE_HTTP1_PREFACE:
		return headgate_http1_preface_byte(http1, byte);
	case HEADGATE_HTTP1_METHOD:
		return headgate_http1_method_byte(http1, byte);
	case HEADGATE_HTTP1_TARGET:
		return headgate_http1_target_byte(http1, byte);
	case HEADGATE_HTTP1_VERSION:
		return headgate_http1_version_byte(http1, byte);
	case HEADGATE_HTTP1_LINE_LF:
		return headgate_http1_expect(http1, byte, '\n', HEADGATE_HTTP1_LINE,
					     HEADGATE_UNKNOWN_SYNTAX);
	case HEADGATE_HTTP1_LINE:
		headgate_http1_text_start(http1);
		if (byte == '\r') {
			http1->state = HEADGATE_HTTP1_HEAD_LF;
			return HEADGATE_HTTP1_NOTHING;
		}
		http1->state = HEADGATE_HTTP1_NAME;
		return headgate_http1_name_byte(http1, byte);
	case HEADGATE_HTTP1_NAME:
		return headgate_http1_name_byte(http1, byte);
	case HEADGATE_HTTP1_VALUE:
		return headgate_http1_value_byte(http1, byte);
	case HEADGATE_HTTP1_HEAD_LF:
		if (byte != '\n')
			return headgate_http1_fail(http1, HEADGATE_UNKNOWN_SYNTAX);
		return headgate_http1_head_ends(http1);
	case HEADGATE_HTTP1_CHUNK:
	case HEADGATE_HTTP1_CHUNK_SIZE:
		return headgate_http1_chunk_byte(http1, byte);
	case HEADGATE_HTTP1_CHUNK_EXTENSION:
	case HEADGATE_HTTP1_CHUNK_QUOTED:
	case HEADGATE_HTTP1_CHUNK_ESCAPED:
		return headgate_http1_extension_byte(http1, byte);
	case HEADGATE_HTTP1_CHUNK_LF:
		if (byte != '\n')
			return headgate_http1_fail(http1, HEADGATE_UNKNOWN_FRAMING);
		headgate_http1_chunk_starts(http1);
		return HEADGATE_HTTP1_NOTHING;
	case HEADGATE_HTTP1_CHUNK_END:
		http1->head_bytes = 0;
		return headgate_http1_expect(http1, byte, '\r', HEADGATE_HTTP1_CHUNK_END_LF,
					     HEADGATE_UNKNOWN_FRAMING);
	case HEADGATE_HTTP1_CHUNK_END_LF:
		return headgate_http1_expect(http1, byte, '\n', HEADGATE_HTTP1_CHUNK,
					     HEADGATE_UNKNOWN_FRAMING);
	}
	return headgate_http1_fail(http1, HEADGATE_UNKNOWN_SYNTAX);
}

/* `bytes` of a body are passed over. */
HEADGATE_INLINE __u32 headgate_http1_skip(struct headgate_http1 *http1, __u64 bytes)
{
	http1->skip_bytes -= bytes;
	if (http1->skip_bytes)
		return HEADGATE_HTTP1_NOTHING;
	http1->head_bytes = 0;
	if (http1->state == HEADGATE_HTTP1_CHUNK_DATA) {
		http1->state = HEADGATE_HTTP1_CHUNK_END;
		return HEADGATE_HTTP1_NOTHING;
	}
	http1->state = HEADGATE_HTTP1_BEGIN;
	return HEADGATE_HTTP1_END;
}

/* In a body, what comes is passed over; elsewhere it is looked at, and must be in the window. */
HEADGATE_INLINE int headgate_http1_skips(const struct headgate_http1 *http1)
{
	return http1->state == HEADGATE_HTTP1_BODY || http1->state == HEADGATE_HTTP1_CHUNK_DATA;
}

/* Must the window be taken anew, from `at` on? It holds a word as long as much is left. */
HEADGATE_INLINE int headgate_http1_wants_window(const struct headgate_stream *stream)
{
	const __u32 seen = stream->at - stream->window_at;

	return seen >= stream->window_bytes ||
	       (seen + sizeof(__u64) > stream->window_bytes &&
		stream->packet_bytes - stream->at >= HEADGATE_STREAM_WINDOW_BYTES);
}

HEADGATE_INLINE void headgate_http1_text_word(struct headgate_http1 *http1, __u64 word, __u32 bytes)
{
	const __u32 at = http1->text_bytes, shift = 8 * (at & 7);

	word = headgate_first_bytes(word, bytes);
	http1->text_bytes += bytes;
	if (at < 8) {
		http1->words[0] |= word << shift;
		http1->words[1] |= shift ? word >> (64 - shift) : 0;
	} else if (at < 16) {
		http1->words[1] |= word << shift;
		http1->words[2] |= shift ? word >> (64 - shift) : 0;
	} else if (at < 24) {
		http1->words[2] |= word << shift;
	}
}

/* Plain bytes of a path; 0 = not here. */
HEADGATE_INLINE __u32 headgate_path_word(struct headgate_path *path, __u64 word)
{
	const __u32 at = path->bytes;
	__u32 bytes;

	if (path->state != HEADGATE_PATH_SEGMENT || at > HEADGATE_ROUTE_PATH_BYTES - sizeof(word))
		return 0;
	bytes = headgate_plain_bytes(word);
	if (!bytes)
		return 0;
	headgate_put_word(path->key.path + at, headgate_first_bytes(word, bytes));
	path->bytes += bytes;
	path->segment = HEADGATE_SEGMENT_NAME;
	return bytes;
}

/*
 * What headgate_http1_byte() would make of the first of eight bytes, made at once: how many, in
 * `taken`; 0 = they are to be taken one by one. Of what it takes it knows that it is well formed.
 */
HEADGATE_INLINE __u32 headgate_http1_word(struct headgate_http1 *http1, __u64 word, __u32 *taken)
{
	const __u64 version = HEADGATE_WORD('H', 'T', 'T', 'P', '/', '1', '.', '1');
	__u32 bytes = 0;

	switch (http1->state) {
	case HEADGATE_HTTP1_TARGET:
		bytes = headgate_path_word(&http1->path, word);
		http1->text_bytes += bytes; /* it begins otherwise, so it is not "*" */
		break;
	case HEADGATE_HTTP1_VERSION:
		if (word == version && !http1->text_bytes) {
			bytes = 8;
			headgate_http1_text_word(http1, word, bytes);
		}
		break;
	case HEADGATE_HTTP1_LINE:
	case HEADGATE_HTTP1_NAME:
		bytes = headgate_plain_bytes(word);
		if (!bytes)
			break;
		if (http1->state == HEADGATE_HTTP1_LINE)
			headgate_http1_text_start(http1);
		http1->state = HEADGATE_HTTP1_NAME;
		headgate_http1_text_word(http1, word | HEADGATE_EIGHT(0x20), bytes);
		if (bytes < 8 && (__u8)(word >> (8 * (bytes & 7))) == ':') {
			*taken = bytes + 1;
			return headgate_http1_named(http1);
		}
		break;
	case HEADGATE_HTTP1_VALUE:
		if (http1->header != HEADGATE_HEADER_OTHER)
			break;
		bytes = headgate_text_bytes(word);
		if (bytes < 7 && (__u16)(word >> (8 * (bytes & 7))) == ('\n' << 8 | '\r')) {
			bytes += 2;
			http1->state = HEADGATE_HTTP1_LINE;
		}
		break;
	}
	*taken = bytes;
	return HEADGATE_HTTP1_NOTHING;
}

/*
 * Takes what comes next of the packet, at least one byte: enum headgate_http1_event. `at` is then
 * behind it. The window must hold the byte at `at`, where it is one to be looked at.
 */
HEADGATE_GLOBAL __u32 headgate_http1_step(struct headgate_stream *stream)
{
	struct headgate_http1 *http1;
	__u32 left, in_window, event, taken = 0;

	if (!stream)
		return HEADGATE_HTTP1_NOTHING;
	http1 = &stream->http1;
	left = stream->packet_bytes - stream->at;
	if (headgate_http1_skips(http1)) {
		if (http1->skip_bytes < left)
			left = (__u32)http1->skip_bytes;
		stream->at += left;
		return headgate_http1_skip(http1, left);
	}
	if (http1->state == HEADGATE_HTTP1_BEGIN)
		http1->offset = stream->offset + stream->at;
	in_window = stream->at - stream->window_at;
	if (in_window <= HEADGATE_STREAM_WINDOW_BYTES - sizeof(__u64) &&
	    in_window + sizeof(__u64) <= stream->window_bytes &&
	    http1->head_bytes <= HEADGATE_HTTP1_HEAD_BYTES_MAX - sizeof(__u64)) {
		event = headgate_http1_word(http1, headgate_word_at(stream->window + in_window),
					    &taken);
		if (taken) {
			stream->at += taken;
			http1->head_bytes += taken;
			return event;
		}
	}
	stream->at++;
	return headgate_http1_byte(http1,
				   stream->window[in_window & (HEADGATE_STREAM_WINDOW_BYTES - 1)]);
}

#endif /* HEADGATE_LIB_HTTP1_H */
