/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From a flow to a verdict: the look-ups and the counters around lib/verdict.h, the same for every
 * hook that judges new connections and datagrams. A hook fills in a headgate_try and translates the
 * verdict into its own return value.
 */
#ifndef HEADGATE_LIB_GATE_H
#define HEADGATE_LIB_GATE_H

#include "lib/common.h"
#include "lib/flows.h"
#include "lib/maps.h"
#include "lib/node.h"
#include "lib/verdict.h"

struct headgate_try {
	struct headgate_flow_key flow;
	__u32 protocol; /* IPPROTO_TCP or IPPROTO_UDP */
	__u32 isn;	/* early hooks: of the SYN */
	__u32 mute;	/* early hooks: not 0 = this packet cannot be answered, only dropped */
	__u32 again;	/* early hooks, set by the gate: dropped before, and sent again */
	__u32 endpoint; /* early hooks: found already */
	__u64 attempt;	/* hash of flow and ISN */
	__u64 note;	/* what is remembered of it */
};

/* Datagrams between an early hook and the socket; more of them have been lost on the way. */
#define HEADGATE_EARLY_DATAGRAMS_MAX 4096

static __always_inline __u64 headgate_now(const int locked)
{
	/* coarse costs a tenth of the precise clock; it is as old as the atomics (5.11, 5.12) */
	return locked ? bpf_ktime_get_ns() : bpf_ktime_get_coarse_ns();
}

/* The endpoint that a local address and port belong to; NULL = not protected. */
static __always_inline struct headgate_endpoint_ref *
headgate_find_endpoint(__u32 netns_id, const __u32 *local_address, __u16 port, __u32 protocol)
{
	struct headgate_endpoint_key key = {
	    .netns_id = netns_id,
	    .port = port,
	    .protocol = (__u8)protocol,
	};
	struct headgate_endpoint_ref *ref = bpf_map_lookup_elem(&headgate_endpoints, &key);

	if (!ref || !(ref->flags & HEADGATE_REF_BY_ADDRESS))
		return ref;
	__builtin_memcpy(key.address, local_address, sizeof(key.address));
	return bpf_map_lookup_elem(&headgate_endpoints, &key);
}

static __always_inline __u32 headgate_exempt_kind(const struct headgate_endpoint_policy *policy,
						  const struct headgate_flow_key *flow,
						  __u64 now_ns)
{
	const __u64 flags = headgate_read(policy->flags);

	if (flags & HEADGATE_EXEMPT_NODE) {
		struct headgate_node_flow_key key = {.source_port = flow->remote_port};
		__u64 *noted_ns;

		__builtin_memcpy(key.source_address, flow->remote_address,
				 sizeof(key.source_address));
		noted_ns = bpf_map_lookup_elem(&headgate_node_flows, &key);
		/* signed: the note bears the precise clock, which is ahead of the coarse one */
		if (noted_ns && (__s64)(now_ns - *noted_ns) < (__s64)HEADGATE_NODE_FLOW_TTL_NS)
			return HEADGATE_EXEMPT_KIND_SOURCE;
	}
	if (flags & HEADGATE_EXEMPT_SOURCES) {
		struct headgate_exempt_key key = {.prefix_bits = 160, .target = policy->target};
		__u32 *kind;

		__builtin_memcpy(key.address, flow->remote_address, sizeof(key.address));
		kind = bpf_map_lookup_elem(&headgate_exempt, &key);
		if (kind)
			return *kind;
	}
	return 0;
}

static __always_inline void headgate_count_cause(struct headgate_counters *counters, __u32 cause)
{
	switch (cause) {
	case HEADGATE_CAUSE_STALE:
		counters->admitted_stale++;
		break;
	case HEADGATE_CAUSE_EXEMPT:
		counters->admitted_exempt++;
		break;
	case HEADGATE_CAUSE_PROBE:
		counters->admitted_probe++;
		break;
	case HEADGATE_CAUSE_CAPPED:
		counters->admitted_capped++;
		break;
	case HEADGATE_CAUSE_OBSERVED:
		counters->admitted_observed++;
		break;
	case HEADGATE_CAUSE_LAST_TRY:
		counters->admitted_last_try++;
		break;
	}
}

/* A deferred attempt waits no more, whatever became of it. */
static __always_inline void headgate_end_wait(const struct headgate_flow_key *flow,
					      struct headgate_target_state *target_state,
					      const int locked)
{
	bpf_map_delete_elem(&headgate_ages, flow);
	(void)headgate_fetch_add(&target_state->waiting_settled, 1, &target_state->lock, locked);
}

/* See headgate_source_set. Nothing depends on a bit that another CPU's store takes away. */
static __always_inline void headgate_note_source(const struct headgate_control *control,
						 __u32 endpoint, const __u32 *address)
{
	struct headgate_source_set *sources = bpf_map_lookup_elem(&headgate_sources, &endpoint);
	__u64 hash, bit;
	__u32 word;

	if (!sources)
		return;
	hash = (__u64)(address[0] + control->hash_key[0]) * (address[1] + control->hash_key[1]);
	hash += (__u64)(address[2] + control->hash_key[2]) * (address[3] + control->hash_key[3]);
	hash ^= hash >> 32;
	hash *= 0xd6e8feb86659fd93ULL;
	bit = 1ULL << (hash >> 58);
	word = (__u32)(hash >> 54) & (HEADGATE_SOURCE_BITS / 64 - 1);
	if (!(headgate_read(sources->bits[word]) & bit))
		sources->bits[word] |= bit;
}

/* Has an early hook let this datagram in already? */
static __always_inline int headgate_datagram_known(struct headgate_endpoint_state *state,
						   const int locked)
{
	if ((__s64)headgate_read(state->early_datagrams) <= 0)
		return 0;
	if ((__s64)headgate_fetch_add(&state->early_datagrams, -1, &state->lock, locked) > 0)
		return 1;
	(void)headgate_fetch_add(&state->early_datagrams, 1, &state->lock, locked);
	return 0;
}

static __always_inline __u32 headgate_action_for(const struct headgate_endpoint_policy *policy,
						 __u32 reason)
{
	return (headgate_read(policy->actions) >> (8 * reason)) & 0xff;
}

/*
 * The whole verdict for one try: enum headgate_verdict. Unknown and broken = admit. `early` is a
 * constant: 1 in the hooks in front of the socket layer, which see SYNs only and know their ISN.
 */
static __always_inline __u32 headgate_gate(struct headgate_try *try, const int early,
					   const int locked)
{
	struct headgate_answer answer = {HEADGATE_ADMIT, HEADGATE_CAUSE_ROOM};
	const struct headgate_target_policy *target;
	const struct headgate_endpoint_policy *policy;
	struct headgate_target_state *target_state;
	const struct headgate_endpoint_ref *ref;
	struct headgate_endpoint_state *state;
	const struct headgate_control *control;
	struct headgate_counters *counters;
	struct headgate_flow_set *flows = NULL;
	struct headgate_age *age = NULL;
	__u32 endpoint, target_slot, flow_slot, reason, exempt, zero = 0;
	int tcp = try->protocol == IPPROTO_TCP, drops;
	__u64 flags, now_ns, hash = 0, known = 0;
	struct headgate_flow_set *notes = NULL;
	__u64 draw = HEADGATE_NO_DRAW;

	if (early) {
		endpoint = try->endpoint;
	} else {
		ref = headgate_find_endpoint(try->flow.netns_id, try->flow.local_address,
					     try->flow.local_port, try->protocol);
		if (!ref)
			return HEADGATE_ADMIT;
		endpoint = ref->endpoint;
	}
	control = bpf_map_lookup_elem(&headgate_control, &zero);
	policy = bpf_map_lookup_elem(&headgate_policies, &endpoint);
	counters = headgate_counters_of(endpoint);
	if (!control || !policy || !counters || headgate_read(control->off))
		return HEADGATE_ADMIT;
	flags = headgate_read(policy->flags);
	drops = early && headgate_action_for(policy, HEADGATE_REASON_SHARE) == HEADGATE_ACTION_DROP;
	if (early && (!(flags & HEADGATE_JUDGE_EARLY) || !(flags & HEADGATE_ARM_MASK) ||
		      (try->mute && !drops)))
		return HEADGATE_ADMIT; /* left to the socket's gate */
	counters->tries++;
	if (!(flags & (HEADGATE_ARM_MASK | HEADGATE_MAY_DEFER))) {
		counters->offered++;
		counters->admitted++;
		return HEADGATE_ADMIT; /* the gate is idle */
	}

	target_slot = policy->target;
	target = bpf_map_lookup_elem(&headgate_targets, &target_slot);
	target_state = bpf_map_lookup_elem(&headgate_target_states, &target_slot);
	state = bpf_map_lookup_elem(&headgate_states, &endpoint);
	if (!target || !target_state || !state)
		return HEADGATE_ADMIT;
	now_ns = headgate_now(locked);

	if (tcp)
		hash = headgate_flow_hash(control->hash_key, &try->flow);
	if (drops && tcp) {
		/* A silent drop holds for all retransmits: the share draws by a hash of the
		 * attempt, and what any other reason has dropped is remembered.
		 */
		try->attempt = headgate_attempt_hash(hash, try->isn);
		draw = try->attempt >> 32;
		flow_slot = headgate_flow_set_of(try->attempt);
		notes = bpf_map_lookup_elem(&headgate_flows, &flow_slot);
		if (!notes)
			return HEADGATE_ADMIT;
		try->note = headgate_flow_find(notes, try->attempt);
		try->again = try->note >> 62 == HEADGATE_FLOW_REFUSED &&
			     headgate_flow_fresh(try->note, now_ns, HEADGATE_DROPPED_TTL_NS);
		if (try->again && !(flags & HEADGATE_OBSERVE) &&
		    !headgate_lease_expired(target, now_ns) &&
		    !((flags & HEADGATE_ARM_MASK & ~HEADGATE_ARM_MAX_REFUSE) ==
			  HEADGATE_ARM_SHARE &&
		      draw < headgate_read(policy->admit_q32))) {
			counters->repeats++;
			counters->repeats_refused++;
			return HEADGATE_DROP;
		}
	}
	if (tcp) {
		/* Seen before? Under SYN cookies the final ACK is looked up again, an admitted SYN
		 * may be sent again: a ticket lets both in without judging or charging twice.
		 */
		flow_slot = headgate_flow_set_of(hash);
		flows = bpf_map_lookup_elem(&headgate_flows, &flow_slot);
		if (!flows)
			return HEADGATE_ADMIT;
		known = headgate_flow_find(flows, hash);
		if (known >> 62 == HEADGATE_FLOW_TICKET &&
		    headgate_flow_fresh(known, now_ns,
					flags & HEADGATE_TICKETS_SETTLED
					    ? HEADGATE_TICKET_TTL_NS
					    : HEADGATE_TICKET_UNSETTLED_TTL_NS)) {
			counters->repeats++;
			/* Behind an early hook the SYN itself is looked up for the second time, the
			 * final ACK under SYN cookies for the third: there it stays until it is
			 * old.
			 */
			if (!(flags & (HEADGATE_TICKETS_SETTLED | HEADGATE_JUDGE_EARLY))) {
				headgate_flow_drop(flows, known, locked);
				(void)headgate_fetch_add(&state->tickets_settled, 1, &state->lock,
							 locked);
				(void)headgate_fetch_add(&target_state->tickets_settled, 1,
							 &target_state->lock, locked);
			}
			return HEADGATE_ADMIT;
		}
		/* Refused out of TIME_WAIT: once more, and judged no more. Not for longer than the
		 * policy may refuse at all.
		 */
		if (known >> 62 == HEADGATE_FLOW_REFUSED) {
			headgate_flow_drop(flows, known, locked);
			if (headgate_flow_fresh(known, now_ns, HEADGATE_REFUSED_TTL_NS) &&
			    !(flags & HEADGATE_OBSERVE) &&
			    !headgate_lease_expired(target, now_ns)) {
				counters->repeats++;
				counters->repeats_refused++;
				return HEADGATE_RESET;
			}
		}
		if (flags & HEADGATE_MAY_DEFER) {
			age = bpf_map_lookup_elem(&headgate_ages, &try->flow);
			if (age && now_ns - age->last_ns > target->defer_deadline_ns)
				age = NULL; /* another connect from the same port */
		}
	} else if (!early && (flags & HEADGATE_JUDGE_EARLY) &&
		   headgate_datagram_known(state, locked)) {
		counters->repeats++;
		return HEADGATE_ADMIT;
	}
	if (!age && !(early && try->again))
		counters->offered++;

	reason = headgate_judge_drawn(policy, target, state, target_state, now_ns, 0, draw, locked);
	if (reason != HEADGATE_REASON_NONE) {
		exempt = headgate_lease_expired(target, now_ns)
			     ? 0
			     : headgate_exempt_kind(policy, &try->flow, now_ns);
		counters->would_refuse[reason & 7]++;
		answer = headgate_resolve(policy, target, state, target_state, reason, exempt, age,
					  now_ns, 0, locked);
		headgate_count_cause(counters, answer.cause);
	}

	if (answer.verdict == HEADGATE_ADMIT) {
		counters->admitted++;
		if (!tcp) {
			if (early &&
			    headgate_read(state->early_datagrams) < HEADGATE_EARLY_DATAGRAMS_MAX)
				(void)headgate_fetch_add(&state->early_datagrams, 1, &state->lock,
							 locked);
			return HEADGATE_ADMIT;
		}
		if (early && notes && try->again) {
			counters->admitted_deferred++;
			headgate_flow_drop(notes, try->note, locked);
		}
		if (age) {
			counters->admitted_deferred++;
			headgate_end_wait(&try->flow, target_state, locked);
		}
		if (flows && (flags & HEADGATE_ARM_MASK)) {
			headgate_flow_put(flows, hash, HEADGATE_FLOW_TICKET, now_ns, locked);
			(void)headgate_fetch_add(&state->tickets_issued, 1, &state->lock, locked);
			(void)headgate_fetch_add(&target_state->tickets_issued, 1,
						 &target_state->lock, locked);
		}
		return HEADGATE_ADMIT;
	}

	headgate_note_source(control, endpoint, try->flow.remote_address);
	if (answer.verdict == HEADGATE_DEFER && !tcp)
		answer.verdict = HEADGATE_RESET; /* nobody sends a datagram again */
	if (answer.verdict == HEADGATE_DROP && !early)
		answer.verdict = HEADGATE_RESET; /* the kernel answers what has come so far */
	/* Silence to a masqueraded client costs the node: connection tracking keeps one of its
	 * ports and an entry for two minutes (nf_conntrack_tcp_timeout_syn_sent), behind a RST
	 * none. The node's own connects are exempt, so this is such a client.
	 */
	if (answer.verdict == HEADGATE_DROP && tcp && (flags & HEADGATE_EXEMPT_NODE) &&
	    headgate_is_node_address(try->flow.remote_address))
		answer.verdict = HEADGATE_RESET;
	if (answer.verdict == HEADGATE_RESET && early && !tcp)
		answer.verdict = HEADGATE_DROP; /* nobody makes an ICMP error here */
	if (answer.verdict == HEADGATE_DEFER) {
		counters->refused[reason & 7]++;
		counters->deferred_tries++;
		if (age) {
			age->last_ns = now_ns;
		} else {
			struct headgate_age fresh = {
			    .first_ns = now_ns, .last_ns = now_ns, .endpoint = endpoint};

			counters->deferred++;
			bpf_map_update_elem(&headgate_ages, &try->flow, &fresh, BPF_ANY);
			(void)headgate_fetch_add(&target_state->waiting_started, 1,
						 &target_state->lock, locked);
		}
		if (!early && flows && known >> 62 == HEADGATE_FLOW_TIME_WAIT)
			headgate_flow_drop(flows, known, locked); /* the pit's look-up ended it */
		return HEADGATE_DEFER;
	}
	if (age)
		headgate_end_wait(&try->flow, target_state, locked);
	if (!early && flows && known >> 62 == HEADGATE_FLOW_TIME_WAIT) {
		/* The kernel does not answer this SYN by RST but by the ACK of the old connection;
		 * the client resets that one and tries again.
		 */
		if (answer.verdict == HEADGATE_RESET &&
		    headgate_flow_fresh(known, now_ns, HEADGATE_TIME_WAIT_TTL_NS))
			headgate_flow_put(flows, hash, HEADGATE_FLOW_REFUSED, now_ns, locked);
		else
			headgate_flow_drop(flows, known, locked);
	}
	if (answer.cause == HEADGATE_CAUSE_EXPIRED) {
		counters->refused[HEADGATE_REASON_WAITED]++;
		counters->expired++;
		return answer.verdict;
	}
	counters->refused[reason & 7]++;
	if (answer.verdict != HEADGATE_DROP) {
		counters->reset++;
		return answer.verdict;
	}
	if (!try->again)
		counters->dropped++;
	if (notes)
		headgate_flow_put(notes, try->attempt, HEADGATE_FLOW_REFUSED, now_ns, locked);
	return HEADGATE_DROP;
}

/* The hook could not defer this try and resets it: the counts follow. */
static __always_inline void headgate_defer_failed(struct headgate_try *try, const int locked)
{
	struct headgate_target_state *target_state;
	struct headgate_endpoint_policy *policy;
	struct headgate_endpoint_ref *ref;
	struct headgate_counters *counters;
	struct headgate_age *age;
	__u32 endpoint, target_slot;

	ref = headgate_find_endpoint(try->flow.netns_id, try->flow.local_address,
				     try->flow.local_port, try->protocol);
	if (!ref)
		return;
	endpoint = ref->endpoint;
	policy = bpf_map_lookup_elem(&headgate_policies, &endpoint);
	counters = headgate_counters_of(endpoint);
	if (!policy || !counters)
		return;
	target_slot = policy->target;
	target_state = bpf_map_lookup_elem(&headgate_target_states, &target_slot);
	if (!target_state)
		return;
	counters->pit_missing++;
	counters->deferred_tries--;
	counters->reset++;
	age = bpf_map_lookup_elem(&headgate_ages, &try->flow);
	if (!age)
		return;
	if (age->first_ns == age->last_ns)
		counters->deferred--; /* it was the first try */
	headgate_end_wait(&try->flow, target_state, locked);
}

#endif /* HEADGATE_LIB_GATE_H */
