/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Eight characters at once, the first lowest in the word: how many of them, from the first on, are
 * of a class. Each byte of a word is judged without looking at its neighbours (no carry leaves its
 * byte), or the lowest that is marked is right, which is the one that counts.
 *
 * Pure, as verdict.h is.
 */
#ifndef HEADGATE_LIB_WORDS_H
#define HEADGATE_LIB_WORDS_H

#include "lib/verdict.h"

/* Eight times the same byte. */
#define HEADGATE_EIGHT(byte) (~0ULL / 255 * (byte))

/* `from` need not be aligned: verifiers let it be where the machine does. */
HEADGATE_INLINE __u64 headgate_word_at(const __u8 *from)
{
	__u64 word;

#ifdef __bpf__
	word = *(const __u64 *)from;
#else
	__builtin_memcpy(&word, from, sizeof(word));
#endif
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	word = __builtin_bswap64(word);
#endif
	return word;
}

HEADGATE_INLINE void headgate_put_word(__u8 *to, __u64 word)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	word = __builtin_bswap64(word);
#endif
#ifdef __bpf__
	*(__u64 *)to = word;
#else
	__builtin_memcpy(to, &word, sizeof(word));
#endif
}

/* Bytes before the first that is marked by its highest bit; 8 = none is. (There is no count of
 * trailing zeros in BPF.)
 */
HEADGATE_INLINE __u32 headgate_unmarked(__u64 marks)
{
	const __u64 below = (marks & -marks) - 1; /* the bits before the mark */

	return marks ? (__u32)(((below & HEADGATE_EIGHT(1)) * HEADGATE_EIGHT(1) >> 56) - 1) : 8;
}

/* How many are letters, digits or '-': all of them may stand in a token (RFC 9110, 5.6.2) and in a
 * path as they are (RFC 3986, 2.3).
 */
HEADGATE_INLINE __u32 headgate_plain_bytes(__u64 word)
{
	const __u64 low = word & HEADGATE_EIGHT(0x7f);
	const __u64 lower = low | HEADGATE_EIGHT(0x20);
	const __u64 letter =
	    (lower + HEADGATE_EIGHT(0x80 - 'a')) & ~(lower + HEADGATE_EIGHT(0x7f - 'z'));
	const __u64 digit =
	    (low + HEADGATE_EIGHT(0x80 - '0')) & ~(low + HEADGATE_EIGHT(0x7f - '9'));
	const __u64 dash = ~((low ^ HEADGATE_EIGHT('-')) + HEADGATE_EIGHT(0x7f));

	return headgate_unmarked(~((letter | digit | dash) & ~word) & HEADGATE_EIGHT(0x80));
}

/* How many are no control characters (those of 0 to 31, and 127). */
HEADGATE_INLINE __u32 headgate_text_bytes(__u64 word)
{
	const __u64 del = word ^ HEADGATE_EIGHT(127);

	return headgate_unmarked(
	    (((word - HEADGATE_EIGHT(' ')) & ~word) | ((del - HEADGATE_EIGHT(1)) & ~del)) &
	    HEADGATE_EIGHT(0x80));
}

/* The first `bytes` (0 to 8) of a word; 0 behind them. */
HEADGATE_INLINE __u64 headgate_first_bytes(__u64 word, __u32 bytes)
{
	return bytes < 8 ? word & ~(~0ULL << (8 * (bytes & 7))) : word;
}

#endif /* HEADGATE_LIB_WORDS_H */
