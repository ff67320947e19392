/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From a request to a verdict: what lib/gate.h is for connections. The stages that parse (HTTP/1.1,
 * HTTP/2) say whose endpoint slot the request belongs to, how large it is and whether this socket
 * can be answered now; the answer is the form in which it is refused, or that it is not.
 *
 * Runs on kernels with BPF atomics only (bpf_loop is younger).
 */
#ifndef HEADGATE_LIB_REQUEST_H
#define HEADGATE_LIB_REQUEST_H

#include "lib/gate.h"

struct headgate_request {
	__u32 endpoint; /* slot of its route, or the port's `rest` */
	__u32 exempt;	/* HEADGATE_EXEMPT_KIND_*; 0 = not exempt */
	__u64 bytes;	/* head and announced body; 0 = not known */
	__u32 guarded;	/* not 0: it must be let through, whatever the policy says */
	__u32 reason;	/* out: enum headgate_reason, where it is refused */
};

/* enum headgate_action of the refusal, or -1: it is admitted. Counts it either way. */
static __always_inline int headgate_request_gate(struct headgate_request *request)
{
	struct headgate_answer answer = {HEADGATE_ADMIT, HEADGATE_CAUSE_ROOM};
	const struct headgate_target_policy *target;
	const struct headgate_endpoint_policy *policy;
	struct headgate_target_state *target_state;
	struct headgate_endpoint_state *state;
	const struct headgate_control *control;
	struct headgate_counters *counters;
	__u32 endpoint = request->endpoint, target_slot, reason, zero = 0;
	__u64 now_ns, size_kb = (request->bytes + 512) >> 10;

	control = bpf_map_lookup_elem(&headgate_control, &zero);
	policy = bpf_map_lookup_elem(&headgate_policies, &endpoint);
	counters = headgate_counters_of(endpoint);
	if (!control || !policy || !counters || headgate_read(control->off))
		return -1;
	/* Atomic: verdicts run in softirq and in processes, on the same CPU. */
	__sync_fetch_and_add(&counters->tries, 1);
	__sync_fetch_and_add(&counters->offered, 1);
	__sync_fetch_and_add(&counters->payload_bytes, request->bytes);
	if (!(headgate_read(policy->flags) & HEADGATE_ARM_MASK))
		goto admit; /* the gate is idle */

	target_slot = policy->target;
	target = bpf_map_lookup_elem(&headgate_targets, &target_slot);
	target_state = bpf_map_lookup_elem(&headgate_target_states, &target_slot);
	state = bpf_map_lookup_elem(&headgate_states, &endpoint);
	if (!target || !target_state || !state)
		goto admit;
	now_ns = headgate_now(0);
	reason = headgate_judge(policy, target, state, target_state, now_ns, size_kb, 0);
	if (reason == HEADGATE_REASON_NONE)
		goto admit;
	__sync_fetch_and_add(&counters->would_refuse[reason & 7], 1);
	if (request->guarded && !headgate_lease_expired(target, now_ns)) {
		headgate_charge(policy, target, target_state, now_ns, size_kb, 0);
		__sync_fetch_and_add(&counters->admitted_guarded, 1);
		goto admit;
	}
	answer = headgate_resolve(policy, target, state, target_state, reason, request->exempt,
				  NULL, now_ns, size_kb, 0);
	headgate_count_cause(counters, answer.cause);
	if (answer.verdict != HEADGATE_ANSWER)
		goto admit; /* also where the action is none for a request */
	__sync_fetch_and_add(&counters->refused[reason & 7], 1);
	__sync_fetch_and_add(&counters->answered, 1);
	request->reason = reason & 7;
	return (int)((headgate_read(policy->actions) >> (8 * (reason & 7))) & 0xff);

admit:
	__sync_fetch_and_add(&counters->admitted, 1);
	__sync_fetch_and_add(&counters->admitted_bytes, request->bytes);
	return -1;
}

/* It was refused, and then could not be answered: it has been let through after all. */
static __always_inline void headgate_request_passed(const struct headgate_request *request)
{
	struct headgate_counters *counters = headgate_counters_of(request->endpoint);

	if (!counters)
		return;
	__sync_fetch_and_add(&counters->refused[request->reason & 7], -1);
	__sync_fetch_and_add(&counters->answered, -1);
	__sync_fetch_and_add(&counters->admitted, 1);
	__sync_fetch_and_add(&counters->admitted_guarded, 1);
	__sync_fetch_and_add(&counters->admitted_bytes, request->bytes);
}

/* It was admitted, and has to be answered all the same: the packet it came in began with what was
 * left of a refused one, and cannot be passed. Counted under HEADGATE_REASON_NONE.
 */
static __always_inline void headgate_request_forced(const struct headgate_request *request)
{
	struct headgate_counters *counters = headgate_counters_of(request->endpoint);

	if (!counters)
		return;
	__sync_fetch_and_add(&counters->refused[HEADGATE_REASON_NONE], 1);
	__sync_fetch_and_add(&counters->answered, 1);
	__sync_fetch_and_add(&counters->admitted, -1);
	__sync_fetch_and_add(&counters->admitted_bytes, -request->bytes);
}

/* Nothing is read of the connection any more. Where no request was seen on it before, it is one
 * that carries none: counted when it says so, not when it is established. One that is silent is
 * neither.
 */
static __always_inline void headgate_stream_given_up(struct headgate_stream *stream)
{
	struct headgate_counters *counters;

	if (stream->flags & (HEADGATE_STREAM_RECOGNIZED | HEADGATE_STREAM_GIVEN_UP))
		return;
	stream->flags |= HEADGATE_STREAM_GIVEN_UP;
	counters = headgate_counters_of(stream->port);
	if (counters)
		__sync_fetch_and_add(&counters->unrecognized, 1);
}

/* One more of unknown class. */
static __always_inline void headgate_count_unknown(__u32 port, __u32 reason)
{
	struct headgate_unknown_key key = {.port = port, .reason = reason};
	__u64 *count = bpf_map_lookup_elem(&headgate_unknowns, &key), one = 1;

	if (count)
		__sync_fetch_and_add(count, 1);
	else
		(void)bpf_map_update_elem(&headgate_unknowns, &key, &one, BPF_NOEXIST);
}

#endif /* HEADGATE_LIB_REQUEST_H */
