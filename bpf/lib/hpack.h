/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which route a header block of HTTP/2 asks for (RFC 7541), without decoding it.
 *
 * - The dynamic table is not kept: insertions are counted. An index names the entry that was
 *   inserted so many insertions ago, whatever the sizes of entries; a valid reference never names
 *   an evicted one. What is kept is the route of the last entries whose name is ":path".
 * - Strings are not decoded: the Huffman code of a string is unique (RFC 7541, 5.2), so the octets
 *   of a path are looked up as they stand, and the map holds both forms of each method.
 *
 * The machine takes one octet, or a run of octets that mean the same, and keeps all it knows in
 * struct headgate_hpack: where the input is cut makes no difference. Pure, as verdict.h is.
 */
#ifndef HEADGATE_LIB_HPACK_H
#define HEADGATE_LIB_HPACK_H

#include "lib/octets.h"

#define HEADGATE_HPACK_PATHS	    8U /* entries named ":path" that are remembered */
#define HEADGATE_HPACK_STATIC_PATH  4U /* ":path: /" (RFC 7541, appendix A) */
#define HEADGATE_HPACK_STATIC_INDEX 5U /* ":path: /index.html" */
#define HEADGATE_HPACK_STATIC_COUNT 61U
#define HEADGATE_HPACK_NAME_PLAIN   0x3a70617468ULL /* ":path" */
#define HEADGATE_HPACK_NAME_HUFFMAN 0xb958d33fULL   /* the same in the Huffman code */

struct headgate_hpack_path {
	__u32 insertion; /* number of the entry, from 1; 0 = unused */
	struct headgate_call call;
};

enum headgate_hpack_state {
	HEADGATE_HPACK_FIELD = 0,      /* before a field: the only state in which a block may end */
	HEADGATE_HPACK_INDEX_MORE = 1, /* in the integer of an index or size */
	HEADGATE_HPACK_NAME_LENGTH = 2, /* before the length of a name */
	HEADGATE_HPACK_NAME_LENGTH_MORE = 3,
	HEADGATE_HPACK_NAME = 4,      /* in a name that may be ":path" */
	HEADGATE_HPACK_NAME_SKIP = 5, /* in one that is not */
	HEADGATE_HPACK_VALUE_LENGTH = 6,
	HEADGATE_HPACK_VALUE_LENGTH_MORE = 7,
	HEADGATE_HPACK_PATH = 8, /* in the value of ":path" */
	HEADGATE_HPACK_VALUE_SKIP = 9,
	HEADGATE_HPACK_BROKEN = 10,
};

enum headgate_hpack_kind {
	HEADGATE_HPACK_INDEXED = 0, /* RFC 7541, 6.1 */
	HEADGATE_HPACK_INSERT = 1,  /* 6.2.1 */
	HEADGATE_HPACK_LITERAL = 2, /* 6.2.2, 6.2.3 */
	HEADGATE_HPACK_RESIZE = 3,  /* 6.3 */
};

struct headgate_hpack {
	struct headgate_method_key key; /* the path, octet by octet; `bytes` have come */
	struct headgate_hpack_path paths[HEADGATE_HPACK_PATHS];
	__u32 insertions; /* entries inserted since the connection began */
	__u32 value;	  /* integer under construction; of a string: octets that are to come */
	struct headgate_call call; /* of this block */
	__u8 state;		   /* enum headgate_hpack_state */
	__u8 kind;		   /* enum headgate_hpack_kind of this field */
	__u8 shift;		   /* of the next octet of an integer; octets of a name that came */
	__u8 huffman;		   /* this string is coded */
	__u8 is_path;		   /* this field's name is ":path" */
	__u8 paths_next;	   /* where the next one is remembered */
	__u8 has_fields;	   /* this block has had a field */
	__u8 has_path;		   /* this block has had a path */
	__u8 reason;		   /* enum headgate_unknown, once BROKEN */
	__u8 reserved[3];
};
HEADGATE_ABI_SIZE(headgate_hpack, 216);

/* Before a header block. */
HEADGATE_OCTETS_INLINE void headgate_hpack_begin(struct headgate_hpack *h)
{
	h->call.endpoint = HEADGATE_CALL_REST;
	h->call.flags = HEADGATE_CALL_NO_PATH;
	h->call.generation = 0;
	h->has_fields = 0;
	h->has_path = 0;
}

HEADGATE_OCTETS_INLINE void headgate_hpack_break(struct headgate_hpack *h, __u8 reason)
{
	h->state = HEADGATE_HPACK_BROKEN;
	h->reason = reason;
}

/* The path has been looked up: goes with the block, and with the entry if it made one. */
HEADGATE_OCTETS_INLINE void headgate_hpack_resolve(struct headgate_hpack *h,
						   const struct headgate_call *call)
{
	h->call = *call;
	if (h->kind == HEADGATE_HPACK_INSERT) {
		__u32 at = h->paths_next & (HEADGATE_HPACK_PATHS - 1);

		h->paths[at].insertion = h->insertions;
		h->paths[at].call = *call;
		h->paths_next = (__u8)(at + 1);
	}
}

/* Is this entry named ":path"? Its place among the remembered, or HEADGATE_HPACK_PATHS. */
HEADGATE_OCTETS_INLINE __u32 headgate_hpack_find(const struct headgate_hpack *h, __u32 insertion)
{
	__u32 i;

#ifdef __clang__
#pragma clang loop unroll(full)
#endif
	for (i = 0; i < HEADGATE_HPACK_PATHS; i++) {
		if (h->paths[i].insertion == insertion)
			return i;
	}
	return HEADGATE_HPACK_PATHS;
}

/* A block names one path (RFC 9113, 8.3). */
HEADGATE_OCTETS_INLINE void headgate_hpack_path_seen(struct headgate_hpack *h)
{
	if (h->has_path)
		headgate_hpack_break(h, HEADGATE_UNKNOWN_FRAME);
	h->has_path = 1;
}

/* The octets of the value are all there. 1 = `key` is to be looked up and resolved. */
HEADGATE_OCTETS_INLINE int headgate_hpack_value_ends(struct headgate_hpack *h)
{
	h->state = HEADGATE_HPACK_FIELD;
	h->has_fields = 1;
	if (h->kind == HEADGATE_HPACK_INSERT) {
		/* the number of an entry must not come twice */
		if (h->insertions == 0xfffffffeU) {
			headgate_hpack_break(h, HEADGATE_UNKNOWN_TOO_LONG);
			return 0;
		}
		h->insertions++;
	}
	if (!h->is_path)
		return 0;
	headgate_hpack_path_seen(h);
	return h->state == HEADGATE_HPACK_FIELD;
}

/* The length of the value is known: what it is depends on the name. Returns as above. */
HEADGATE_OCTETS_INLINE int headgate_hpack_value_begins(struct headgate_hpack *h)
{
	h->state = HEADGATE_HPACK_VALUE_SKIP;
	if (h->is_path) {
		h->key.bytes = 0; /* stays 0, which no method has, where it is too long */
		h->key.huffman = h->huffman;
		__builtin_memset(h->key.path, 0, sizeof(h->key.path));
		if (h->value <= HEADGATE_ROUTE_PATH_BYTES)
			h->state = HEADGATE_HPACK_PATH;
	}
	return h->value == 0 ? headgate_hpack_value_ends(h) : 0;
}

HEADGATE_OCTETS_INLINE void headgate_hpack_name_begins(struct headgate_hpack *h)
{
	h->shift = 0;
	h->is_path = h->value == (h->huffman ? 4U : 5U);
	if (h->value == 0)
		h->state = HEADGATE_HPACK_VALUE_LENGTH;
	else
		h->state = h->is_path ? HEADGATE_HPACK_NAME : HEADGATE_HPACK_NAME_SKIP;
}

/* The index, or size, of a representation is known. */
HEADGATE_OCTETS_INLINE void headgate_hpack_index_ends(struct headgate_hpack *h)
{
	const __u32 index = h->value;
	__u32 at = HEADGATE_HPACK_PATHS, back;

	h->state = HEADGATE_HPACK_FIELD;
	if (h->kind == HEADGATE_HPACK_RESIZE) {
		/* only at the beginning of a block (RFC 7541, 4.2) */
		if (h->has_fields)
			headgate_hpack_break(h, HEADGATE_UNKNOWN_HPACK);
		return;
	}
	h->is_path = index == HEADGATE_HPACK_STATIC_PATH || index == HEADGATE_HPACK_STATIC_INDEX;
	if (index > HEADGATE_HPACK_STATIC_COUNT) {
		back = index - HEADGATE_HPACK_STATIC_COUNT - 1;
		if (back >= h->insertions) {
			headgate_hpack_break(h, HEADGATE_UNKNOWN_HPACK);
			return;
		}
		at = headgate_hpack_find(h, h->insertions - back);
		h->is_path = at < HEADGATE_HPACK_PATHS;
	}
	if (h->kind != HEADGATE_HPACK_INDEXED) {
		h->state = index == 0 ? HEADGATE_HPACK_NAME_LENGTH : HEADGATE_HPACK_VALUE_LENGTH;
		return;
	}
	if (index == 0) {
		headgate_hpack_break(h, HEADGATE_UNKNOWN_HPACK);
		return;
	}
	h->has_fields = 1;
	if (!h->is_path)
		return;
	headgate_hpack_path_seen(h);
	if (at < HEADGATE_HPACK_PATHS)
		h->call = h->paths[at & (HEADGATE_HPACK_PATHS - 1)].call;
	else
		h->call.flags = 0; /* "/" and "/index.html" are paths, but no methods */
}

/* One more octet of an integer (RFC 7541, 5.1). 1 = it is complete. */
HEADGATE_OCTETS_INLINE int headgate_hpack_integer(struct headgate_hpack *h, __u8 octet)
{
	const __u64 sum = h->value + ((__u64)(octet & 0x7f) << (h->shift & 31));

	if (sum > 0xffffffffU) {
		headgate_hpack_break(h, HEADGATE_UNKNOWN_HPACK);
		return 0;
	}
	h->value = (__u32)sum;
	if (!(octet & 0x80))
		return 1;
	h->shift = (__u8)(h->shift + 7);
	if (h->shift > 28)
		headgate_hpack_break(h, HEADGATE_UNKNOWN_HPACK);
	return 0;
}

/* The first octet of an integer, where `mask` are its bits. 1 = it is complete. */
HEADGATE_OCTETS_INLINE int headgate_hpack_prefix(struct headgate_hpack *h, __u8 octet, __u8 mask,
						 __u8 more)
{
	h->value = octet & mask;
	if (h->value != mask)
		return 1;
	h->state = more;
	h->shift = 0;
	return 0;
}

/* The first octet of a field. 1 = its index is complete. */
HEADGATE_OCTETS_INLINE int headgate_hpack_field_begins(struct headgate_hpack *h, __u8 octet)
{
	__u8 mask = 0x0f;

	h->kind = HEADGATE_HPACK_LITERAL;
	if (octet & 0x80) {
		h->kind = HEADGATE_HPACK_INDEXED;
		mask = 0x7f;
	} else if (octet & 0x40) {
		h->kind = HEADGATE_HPACK_INSERT;
		mask = 0x3f;
	} else if (octet & 0x20) {
		h->kind = HEADGATE_HPACK_RESIZE;
		mask = 0x1f;
	}
	return headgate_hpack_prefix(h, octet, mask, HEADGATE_HPACK_INDEX_MORE);
}

/* One octet of a name that has the length of ":path". */
HEADGATE_OCTETS_INLINE void headgate_hpack_name_octet(struct headgate_hpack *h, __u8 octet)
{
	const __u64 name = h->huffman ? HEADGATE_HPACK_NAME_HUFFMAN : HEADGATE_HPACK_NAME_PLAIN;

	h->value--;
	if (octet != ((name >> (8 * (h->value & 7))) & 0xff))
		h->is_path = 0;
	if (h->value == 0)
		h->state = HEADGATE_HPACK_VALUE_LENGTH;
}

/* Up to eight octets of the path; how many. */
HEADGATE_OCTETS_INLINE __u32 headgate_hpack_path_octets(struct headgate_hpack *h,
							headgate_octets *octets, __u32 at,
							__u32 available)
{
	__u32 have = h->key.bytes, n = 1;

	if (available >= 8 && h->value >= 8 && have <= HEADGATE_ROUTE_PATH_BYTES - 8) {
		if (headgate_octets_load(octets, at, &h->key.path[have], 8))
			headgate_hpack_break(h, HEADGATE_UNKNOWN_BUDGET);
		n = 8;
	} else if (have <= HEADGATE_ROUTE_PATH_BYTES - 1) {
		if (headgate_octets_load(octets, at, &h->key.path[have], 1))
			headgate_hpack_break(h, HEADGATE_UNKNOWN_BUDGET);
	}
	h->key.bytes = (__u16)(have + n);
	h->value -= n;
	return n;
}

/*
 * One step in a block of which `available` > 0 octets lie at `at`. Returns how many it took, at
 * least one. *look_up = 1: `key` is to be looked up, and headgate_hpack_resolve() called, before
 * the next step.
 */
HEADGATE_OCTETS_INLINE __u32 headgate_hpack_step(struct headgate_hpack *h, headgate_octets *octets,
						 __u32 at, __u32 available, int *look_up)
{
	const __u8 state = h->state;
	__u32 n;
	__u8 octet;
	int ends;

	*look_up = 0;
	if (state == HEADGATE_HPACK_NAME_SKIP || state == HEADGATE_HPACK_VALUE_SKIP) {
		n = available < h->value ? available : h->value;
		h->value -= n;
		if (h->value == 0 && state == HEADGATE_HPACK_NAME_SKIP)
			h->state = HEADGATE_HPACK_VALUE_LENGTH;
		else if (h->value == 0)
			*look_up = headgate_hpack_value_ends(h);
		return n;
	}
	if (state == HEADGATE_HPACK_PATH) {
		n = headgate_hpack_path_octets(h, octets, at, available);
		if (h->value == 0 && h->state == HEADGATE_HPACK_PATH)
			*look_up = headgate_hpack_value_ends(h);
		return n;
	}
	if (headgate_octets_load(octets, at, &octet, 1)) {
		headgate_hpack_break(h, HEADGATE_UNKNOWN_BUDGET);
		return 1;
	}
	if (state == HEADGATE_HPACK_NAME) {
		headgate_hpack_name_octet(h, octet);
		return 1;
	}
	if (state == HEADGATE_HPACK_FIELD) {
		ends = headgate_hpack_field_begins(h, octet);
	} else if (state == HEADGATE_HPACK_NAME_LENGTH || state == HEADGATE_HPACK_VALUE_LENGTH) {
		h->huffman = octet >> 7;
		ends = headgate_hpack_prefix(h, octet, 0x7f, (__u8)(state + 1));
	} else {
		ends = headgate_hpack_integer(h, octet);
	}
	if (!ends)
		return 1;
	if (state <= HEADGATE_HPACK_INDEX_MORE)
		headgate_hpack_index_ends(h);
	else if (state <= HEADGATE_HPACK_NAME_LENGTH_MORE)
		headgate_hpack_name_begins(h);
	else
		*look_up = headgate_hpack_value_begins(h);
	return 1;
}

#endif /* HEADGATE_LIB_HPACK_H */
