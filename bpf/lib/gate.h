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
#include "lib/verdict.h"

struct headgate_try {
	struct headgate_flow_key flow;
	__u32 protocol; /* IPPROTO_TCP or IPPROTO_UDP */
};

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

/* The whole verdict for one try: enum headgate_verdict. Unknown and broken = admit. */
static __always_inline __u32 headgate_gate(struct headgate_try *try, const int locked)
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
	int tcp = try->protocol == IPPROTO_TCP;
	__u64 flags, now_ns, hash = 0, known = 0;

	ref = headgate_find_endpoint(try->flow.netns_id, try->flow.local_address,
				     try->flow.local_port, try->protocol);
	if (!ref)
		return HEADGATE_ADMIT;
	endpoint = ref->endpoint;
	control = bpf_map_lookup_elem(&headgate_control, &zero);
	policy = bpf_map_lookup_elem(&headgate_policies, &endpoint);
	counters = headgate_counters_of(endpoint);
	if (!control || !policy || !counters || headgate_read(control->off))
		return HEADGATE_ADMIT;
	counters->tries++;
	flags = headgate_read(policy->flags);
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

	if (tcp) {
		/* Seen before? Under SYN cookies the final ACK is looked up again, an admitted SYN
		 * may be sent again: a ticket lets both in without judging or charging twice.
		 */
		hash = headgate_flow_hash(control->hash_key, &try->flow);
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
			if (!(flags & HEADGATE_TICKETS_SETTLED)) {
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
	}
	if (!age)
		counters->offered++;

	reason = headgate_judge(policy, target, state, target_state, now_ns, 0, locked);
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
		if (!tcp)
			return HEADGATE_ADMIT;
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

	if (answer.verdict == HEADGATE_DEFER && !tcp)
		answer.verdict = HEADGATE_RESET; /* nobody sends a datagram again */
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
		if (flows && known >> 62 == HEADGATE_FLOW_TIME_WAIT)
			headgate_flow_drop(flows, known, locked); /* the pit's look-up ended it */
		return HEADGATE_DEFER;
	}
	if (age)
		headgate_end_wait(&try->flow, target_state, locked);
	if (flows && known >> 62 == HEADGATE_FLOW_TIME_WAIT) {
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
	if (answer.verdict == HEADGATE_DROP)
		counters->dropped++;
	else
		counters->reset++;
	return answer.verdict;
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
