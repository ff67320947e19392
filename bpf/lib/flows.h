/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What is remembered of a flow for seconds: see struct headgate_flow_set. Pure, as verdict.h is.
 *
 * A hash table of the kernel would do the same for three times the price: the insertion into an LRU
 * takes a lock, a free element, and several cache lines. Here a look-up is one line, an insertion
 * one compare-and-swap in it.
 */
#ifndef HEADGATE_LIB_FLOWS_H
#define HEADGATE_LIB_FLOWS_H

#include "lib/verdict.h"

#ifdef __clang__
#define HEADGATE_UNROLL _Pragma("clang loop unroll(full)")
#else
#define HEADGATE_UNROLL
#endif

#define HEADGATE_FLOW_FINGERPRINT ((1ULL << 36) - 1)
#define HEADGATE_FLOW_TIME_BITS	  26
#define HEADGATE_FLOW_TIME_MASK	  ((1U << HEADGATE_FLOW_TIME_BITS) - 1)
/* An entry may bear the precise clock and be looked up by the coarse one, which is behind. */
#define HEADGATE_FLOW_CLOCK_SLACK 64

/*
 * NH (UMAC, RFC 4418 section 5.2.2): with secret random words two different flows collide once in
 * 2^32 at most, whatever an attacker chooses; five multiplications that do not wait for each other.
 * The bits are then mixed (a bijection), because the low ones choose the set.
 */
HEADGATE_INLINE __u64 headgate_flow_hash(const __u32 *key, const struct headgate_flow_key *flow)
{
	__u64 hash = (__u64)(flow->netns_id + key[0]) *
		     ((flow->local_port | (__u32)flow->remote_port << 16) + key[1]);

	hash += (__u64)(flow->local_address[0] + key[2]) * (flow->local_address[1] + key[3]);
	hash += (__u64)(flow->local_address[2] + key[4]) * (flow->local_address[3] + key[5]);
	hash += (__u64)(flow->remote_address[0] + key[6]) * (flow->remote_address[1] + key[7]);
	hash += (__u64)(flow->remote_address[2] + key[8]) * (flow->remote_address[3] + key[9]);
	hash ^= hash >> 32;
	hash *= 0xd6e8feb86659fd93ULL;
	return hash ^ hash >> 32;
}

/* The same for one attempt: a retransmit bears the same ISN, the next connect another one. Its
 * upper half is what the share is drawn by.
 */
HEADGATE_INLINE __u64 headgate_attempt_hash(__u64 flow_hash, __u32 isn)
{
	__u64 hash = flow_hash + ((__u64)isn + 1) * 0x9e3779b97f4a7c15ULL;

	hash ^= hash >> 32;
	hash *= 0xd6e8feb86659fd93ULL;
	return hash ^ hash >> 32;
}

HEADGATE_INLINE __u32 headgate_flow_set_of(__u64 hash)
{
	return (__u32)hash & (HEADGATE_FLOW_SETS - 1);
}

HEADGATE_INLINE __u64 headgate_flow_entry(__u64 hash, __u32 kind, __u64 now_ns)
{
	return (hash >> 28) |
	       ((now_ns >> HEADGATE_FLOW_TIME_SHIFT) & HEADGATE_FLOW_TIME_MASK) << 36 |
	       (__u64)kind << 62;
}

/* Age in 2^20 ns, HEADGATE_FLOW_CLOCK_SLACK for "now". */
HEADGATE_INLINE __u32 headgate_flow_age(__u64 entry, __u64 now_ns)
{
	return ((__u32)(now_ns >> HEADGATE_FLOW_TIME_SHIFT) + HEADGATE_FLOW_CLOCK_SLACK -
		(__u32)(entry >> 36)) &
	       HEADGATE_FLOW_TIME_MASK;
}

HEADGATE_INLINE int headgate_flow_fresh(__u64 entry, __u64 now_ns, __u64 ttl_ns)
{
	return headgate_flow_age(entry, now_ns) <
	       (__u32)(ttl_ns >> HEADGATE_FLOW_TIME_SHIFT) + HEADGATE_FLOW_CLOCK_SLACK;
}

/* The entry of a flow, whatever its age; 0 = none. */
HEADGATE_INLINE __u64 headgate_flow_find(const struct headgate_flow_set *set, __u64 hash)
{
	__u64 entry;
	int i;

	HEADGATE_UNROLL
	for (i = 0; i < HEADGATE_FLOWS_PER_SET; i++) {
		entry = headgate_read(set->entries[i]);
		if (entry && !((entry ^ (hash >> 28)) & HEADGATE_FLOW_FINGERPRINT))
			return entry;
	}
	return 0;
}

/* Keeps the compiler from turning arithmetic back into a branch, which the verifier would follow
 * both ways at each of the entries: seven times four paths are too many for it.
 */
#define headgate_opaque(value) asm volatile("" : "+r"(value))

/* 1 where value is not 0, without a branch. */
HEADGATE_INLINE __u64 headgate_flow_nonzero(__u64 value)
{
	value |= -value;
	headgate_opaque(value);
	return value >> 63;
}

/*
 * How well the place of an entry suits `fresh`, with the number of the place in the lowest three
 * bits. Best the entry of the same flow, then a free place, a ticket that has expired, a note, and
 * last a ticket that may still be used; among equals the oldest.
 */
HEADGATE_INLINE __u64 headgate_flow_score(__u64 entry, __u64 fresh, __u64 now_ns, __u32 place)
{
	const __u64 ticket = ((entry >> 62) + 1) >> 2; /* HEADGATE_FLOW_TICKET is 3 */
	const __u64 age = headgate_flow_age(entry, now_ns);
	const __u64 free = headgate_flow_nonzero(entry) ^ 1;
	const __u64 same = headgate_flow_nonzero((entry ^ fresh) & HEADGATE_FLOW_FINGERPRINT) ^ 1;
	__u64 expired =
	    (HEADGATE_TICKET_TTL_NS >> HEADGATE_FLOW_TIME_SHIFT) + HEADGATE_FLOW_CLOCK_SLACK - age;

	headgate_opaque(expired);
	expired >>= 63;
	return ((ticket ^ 1) | (ticket & expired) << 1 | free << 1 | free | same << 2) << 32 |
	       age << 3 | place;
}

HEADGATE_INLINE int headgate_flow_replace(struct headgate_flow_set *set, __u64 *at, __u64 old,
					  __u64 fresh, const int locked)
{
	if (!locked)
		return __sync_val_compare_and_swap(at, old, fresh) == old;
	headgate_spin_lock(&set->lock);
	if (*at == old) {
		*at = fresh;
		headgate_spin_unlock(&set->lock);
		return 1;
	}
	headgate_spin_unlock(&set->lock);
	return 0;
}

/*
 * Remembers a flow, in place of what was known of it. A place that another CPU has taken meanwhile
 * is not fought for: the second choice is, and then the flow is not remembered.
 */
HEADGATE_INLINE void headgate_flow_put(struct headgate_flow_set *set, __u64 hash, __u32 kind,
				       __u64 now_ns, const int locked)
{
	const __u64 fresh = headgate_flow_entry(hash, kind, now_ns);
	__u64 old, best, score, worse;
	__u32 place, round, i;

	for (round = 0; round < 2; round++) {
		best = 0;
		HEADGATE_UNROLL
		for (i = 0; i < HEADGATE_FLOWS_PER_SET; i++) {
			score =
			    headgate_flow_score(headgate_read(set->entries[i]), fresh, now_ns, i);
			worse = best - score; /* the larger of the two, without a branch */
			headgate_opaque(worse);
			best -= worse & (__u64)((__s64)worse >> 63);
		}
		place = best & 7;
		headgate_opaque(place); /* what is checked is what is used */
		if (place >= HEADGATE_FLOWS_PER_SET)
			return;
		old = headgate_read(set->entries[place]);
		if (headgate_flow_score(old, fresh, now_ns, place) == best &&
		    headgate_flow_replace(set, &set->entries[place], old, fresh, locked))
			return;
	}
}

/* Forgets an entry that headgate_flow_find has returned. */
HEADGATE_INLINE void headgate_flow_drop(struct headgate_flow_set *set, __u64 entry,
					const int locked)
{
	int i;

	HEADGATE_UNROLL
	for (i = 0; i < HEADGATE_FLOWS_PER_SET; i++) {
		if (headgate_read(set->entries[i]) == entry) {
			(void)headgate_flow_replace(set, &set->entries[i], entry, 0, locked);
			return;
		}
	}
}

#endif /* HEADGATE_LIB_FLOWS_H */
