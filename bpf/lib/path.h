/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The path of a request target, normalised byte by byte into the key of headgate_routes (RFC 3986
 * section 6.2.2, RFC 9112 section 3.2): the scheme and authority of an absolute form, the query,
 * empty and "." segments and a trailing "/" go, octets that are unreserved are decoded, the hex
 * digits of the others are written in capitals, and the path ends in "/".
 *
 * What servers read in different ways has no path: "..", "*", %XX that is none.
 *
 * Pure, as verdict.h is. Each byte is taken alone, so it does not matter where a packet ends.
 */
#ifndef HEADGATE_LIB_PATH_H
#define HEADGATE_LIB_PATH_H

#include "lib/verdict.h"

enum headgate_path_state {
	HEADGATE_PATH_START = 0,
	HEADGATE_PATH_SCHEME = 1,    /* "http", "https": `segment` counts its bytes */
	HEADGATE_PATH_SLASHES = 2,   /* the two behind the scheme's colon */
	HEADGATE_PATH_AUTHORITY = 3, /* up to the path's first "/" */
	HEADGATE_PATH_SEGMENT = 4,
	HEADGATE_PATH_HEX_FIRST = 5, /* behind a "%" */
	HEADGATE_PATH_HEX_SECOND = 6,
	HEADGATE_PATH_QUERY = 7, /* behind the path: nothing counts */
	HEADGATE_PATH_BAD = 8,
};

/* What the segment at the end of the path is so far. */
enum headgate_path_segment {
	HEADGATE_SEGMENT_EMPTY = 0,
	HEADGATE_SEGMENT_DOT = 1,
	HEADGATE_SEGMENT_DOTS = 2,
	HEADGATE_SEGMENT_NAME = 3,
};

struct headgate_path {
	struct headgate_route_key key; /* `path` is zero behind its end */
	__u32 bytes;  /* of the path, those that the key has no room for included */
	__u8 state;   /* enum headgate_path_state */
	__u8 segment; /* enum headgate_path_segment; SCHEME: bytes so far */
	__u8 octet;   /* HEX_SECOND: value of the first digit; SLASHES: how many */
	__u8 reserved;
};
HEADGATE_ABI_SIZE(headgate_path, 136);

HEADGATE_INLINE void headgate_path_start(struct headgate_path *path, __u32 port)
{
	__builtin_memset(path, 0, sizeof(*path));
	path->key.port = port;
}

HEADGATE_INLINE void headgate_path_put(struct headgate_path *path, __u8 byte)
{
	const __u32 at = path->bytes++;

	if (at < HEADGATE_ROUTE_PATH_BYTES)
		path->key.path[at] = byte;
}

/* A "." segment goes, with what there is of it. */
HEADGATE_INLINE void headgate_path_drop_dot(struct headgate_path *path)
{
	const __u32 at = --path->bytes;

	if (at < HEADGATE_ROUTE_PATH_BYTES)
		path->key.path[at] = 0;
}

HEADGATE_INLINE void headgate_path_slash(struct headgate_path *path)
{
	switch (path->segment) {
	case HEADGATE_SEGMENT_EMPTY:
		if (!path->bytes)
			headgate_path_put(path, '/');
		break;
	case HEADGATE_SEGMENT_DOT:
		headgate_path_drop_dot(path);
		break;
	case HEADGATE_SEGMENT_DOTS:
		path->state = HEADGATE_PATH_BAD;
		break;
	default:
		headgate_path_put(path, '/');
	}
	path->segment = HEADGATE_SEGMENT_EMPTY;
}

/* One octet of a segment, decoded. */
HEADGATE_INLINE void headgate_path_octet(struct headgate_path *path, __u8 byte)
{
	if (byte == '.' && path->segment < HEADGATE_SEGMENT_DOTS)
		path->segment++;
	else
		path->segment = HEADGATE_SEGMENT_NAME;
	headgate_path_put(path, byte);
}

/* 0 to 15; 16 = no digit. */
HEADGATE_INLINE __u32 headgate_hex_digit(__u8 byte)
{
	if (byte >= '0' && byte <= '9')
		return byte - '0';
	byte |= 0x20;
	return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10U : 16;
}

HEADGATE_INLINE __u8 headgate_hex_capital(__u32 digit)
{
	return (__u8)(digit < 10 ? '0' + digit : 'A' + digit - 10);
}

/* RFC 3986 section 2.3 */
HEADGATE_INLINE int headgate_is_unreserved(__u8 byte)
{
	const __u8 lower = byte | 0x20;

	return (lower >= 'a' && lower <= 'z') || (byte >= '0' && byte <= '9') || byte == '-' ||
	       byte == '.' || byte == '_' || byte == '~';
}

HEADGATE_INLINE void headgate_path_byte(struct headgate_path *path, __u8 byte)
{
	const __u64 scheme = 0x7370747468ULL; /* "https", the first letter lowest */
	__u32 digit;

	switch (path->state) {
	case HEADGATE_PATH_START:
		if (byte == '/') {
			path->state = HEADGATE_PATH_SEGMENT;
			headgate_path_slash(path);
			break;
		}
		path->state = HEADGATE_PATH_SCHEME;
		/* fall through */
	case HEADGATE_PATH_SCHEME:
		if (byte == ':' && (path->segment == 4 || path->segment == 5)) {
			path->state = HEADGATE_PATH_SLASHES;
			path->segment = HEADGATE_SEGMENT_EMPTY;
		} else if (path->segment < 5 &&
			   (byte | 0x20) == (__u8)(scheme >> (8 * path->segment))) {
			path->segment++;
		} else {
			path->state = HEADGATE_PATH_BAD;
		}
		break;
	case HEADGATE_PATH_SLASHES:
		if (byte != '/')
			path->state = HEADGATE_PATH_BAD;
		else if (++path->octet == 2)
			path->state = HEADGATE_PATH_AUTHORITY;
		break;
	case HEADGATE_PATH_AUTHORITY:
		if (byte == '/') {
			path->state = HEADGATE_PATH_SEGMENT;
			headgate_path_slash(path);
		} else if (byte == '?' || byte == '#') {
			path->state = HEADGATE_PATH_QUERY;
		}
		break;
	case HEADGATE_PATH_SEGMENT:
		if (byte == '/')
			headgate_path_slash(path);
		else if (byte == '?' || byte == '#')
			path->state = HEADGATE_PATH_QUERY;
		else if (byte == '%')
			path->state = HEADGATE_PATH_HEX_FIRST;
		else
			headgate_path_octet(path, byte);
		break;
	case HEADGATE_PATH_HEX_FIRST:
		digit = headgate_hex_digit(byte);
		path->octet = (__u8)digit;
		path->state = digit < 16 ? HEADGATE_PATH_HEX_SECOND : HEADGATE_PATH_BAD;
		break;
	case HEADGATE_PATH_HEX_SECOND:
		digit = headgate_hex_digit(byte);
		if (digit > 15) {
			path->state = HEADGATE_PATH_BAD;
			break;
		}
		path->state = HEADGATE_PATH_SEGMENT;
		if (headgate_is_unreserved((__u8)((__u32)path->octet << 4 | digit))) {
			headgate_path_octet(path, (__u8)((__u32)path->octet << 4 | digit));
		} else {
			headgate_path_octet(path, '%');
			headgate_path_octet(path, headgate_hex_capital(path->octet));
			headgate_path_octet(path, headgate_hex_capital(digit));
		}
		break;
	}
}

/* Behind the target's last byte: the key is complete. 0 = it has no path. */
HEADGATE_INLINE int headgate_path_end(struct headgate_path *path)
{
	__u32 bytes;

	switch (path->state) {
	case HEADGATE_PATH_AUTHORITY: /* "http://host": RFC 9112 section 3.2.1 */
	case HEADGATE_PATH_SEGMENT:
	case HEADGATE_PATH_QUERY:
		headgate_path_slash(path);
		break;
	default:
		path->state = HEADGATE_PATH_BAD;
	}
	bytes = path->bytes;
	if (bytes > HEADGATE_ROUTE_PATH_BYTES)
		bytes = HEADGATE_ROUTE_PATH_BYTES;
	path->key.prefix_bits = 32 + 8 * bytes;
	return path->state != HEADGATE_PATH_BAD;
}

#endif /* HEADGATE_LIB_PATH_H */
