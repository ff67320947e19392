/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * WHERE A VERDICT IS MADE.
 *
 * Two steps. headgate_judge() says whether the policy has room for one more, and if not, for which
 * reason: kill switch and idle gate first, then circuit, caps, share, memory, budget. Only where
 * the answer is a reason, headgate_resolve() looks at what may still let it in (lease, exemption,
 * probe, observe, max_refuse) and else chooses what the client gets. So the admitted path stays at
 * a few loads, and nothing is refused before the lease has been checked.
 *
 * Pure: memory is passed in, time is a value, no helper is called. Compiled for BPF by the hooks
 * and natively, under ASan, by tests/unit/verdict_test.cc.
 *
 * `locked` is a constant: 0 = BPF atomics (kernel 5.12+), 1 = the same under the spin lock of the
 * state, for older kernels. Shared words are only ever changed through the functions below.
 */
#ifndef HEADGATE_LIB_VERDICT_H
#define HEADGATE_LIB_VERDICT_H

#include "headgate/bpf_abi.h"

#ifndef __bpf__
/* Native tests run on one thread. */
#define headgate_spin_lock(lock)   ((void)(lock))
#define headgate_spin_unlock(lock) ((void)(lock))
#define HEADGATE_INLINE		   static inline
typedef __u32 headgate_lock;
#else
#define headgate_spin_lock(lock)   bpf_spin_lock(lock)
#define headgate_spin_unlock(lock) bpf_spin_unlock(lock)
#define HEADGATE_INLINE		   static __attribute__((always_inline)) inline
typedef struct bpf_spin_lock headgate_lock;
#endif

/* A read that the compiler may neither repeat nor split. */
#define headgate_read(word) (*(const volatile __typeof__(word) *)&(word))

/* Why a try was let in although the policy had no room for it, or that it was not. */
enum headgate_cause {
	HEADGATE_CAUSE_ROOM = 0,     /* the policy has room */
	HEADGATE_CAUSE_STALE = 1,    /* the lease has run out: fail open */
	HEADGATE_CAUSE_EXEMPT = 2,   /* the source is exempt */
	HEADGATE_CAUSE_PROBE = 3,    /* never shut for good */
	HEADGATE_CAUSE_CAPPED = 4,   /* max_refuse */
	HEADGATE_CAUSE_OBSERVED = 5, /* mode observe */
	HEADGATE_CAUSE_REFUSED = 6,
	HEADGATE_CAUSE_EXPIRED = 7,  /* refused because it has waited for its deadline */
	HEADGATE_CAUSE_LAST_TRY = 8, /* let in because it has */
};

struct headgate_answer {
	__u32 verdict; /* enum headgate_verdict */
	__u32 cause;   /* enum headgate_cause */
};

/* Adds and returns the value before. */
HEADGATE_INLINE __u64 headgate_fetch_add(__u64 *word, __u64 delta, headgate_lock *lock,
					 const int locked)
{
	__u64 before;

	if (!locked)
		return __sync_fetch_and_add(word, delta);
	headgate_spin_lock(lock);
	before = *word;
	*word = before + delta;
	headgate_spin_unlock(lock);
	return before;
}

/*
 * Generic cell rate algorithm (ITU-T I.371) on a theoretical arrival time: 1 = there was room, and
 * `charge_ns` has been taken. The check comes before the charge, so an attempt larger than the
 * bucket is never starved. `clamp_ns` bounds what is owed: a policy that lowers its charges must
 * not wait for debts made under the old ones.
 *
 * A race lost twice is charged blindly: a few attempts too many, never one too few.
 */
HEADGATE_INLINE int headgate_take(__u64 *tat_ns, __u64 now_ns, __u64 charge_ns, __u64 depth_ns,
				  __u64 clamp_ns, headgate_lock *lock, const int locked)
{
	__u64 tat, owed, from, next;
	int room = 0, round;

	if (locked) {
		headgate_spin_lock(lock);
		tat = *tat_ns;
		owed = tat > now_ns + clamp_ns ? now_ns + clamp_ns : tat;
		from = owed > now_ns ? owed : now_ns;
		room = from - now_ns <= depth_ns;
		*tat_ns = room ? from + charge_ns : owed;
		headgate_spin_unlock(lock);
		return room;
	}
	for (round = 0; round < 2; round++) {
		tat = headgate_read(*tat_ns);
		owed = tat > now_ns + clamp_ns ? now_ns + clamp_ns : tat;
		from = owed > now_ns ? owed : now_ns;
		room = from - now_ns <= depth_ns;
		/* the cut debt is stored by refusals too: else it would be cut anew from each
		 * later clock, and never paid
		 */
		next = room ? from + charge_ns : owed;
		if (next == tat || __sync_val_compare_and_swap(tat_ns, tat, next) == tat)
			return room;
	}
	if (room)
		__sync_fetch_and_add(tat_ns, charge_ns);
	return room;
}

/* What the bucket is charged for a request of this size; 0 = not known. */
HEADGATE_INLINE __u64 headgate_charge_ns(const struct headgate_endpoint_policy *policy,
					 __u64 size_kb)
{
	return policy->charge_request_ns + size_kb * policy->charge_kb_ns;
}

/* Takes the charge whether there is room or not: what is exempt or a probe is still work. */
HEADGATE_INLINE void headgate_charge(const struct headgate_endpoint_policy *policy,
				     const struct headgate_target_policy *target,
				     struct headgate_target_state *target_state, __u64 now_ns,
				     __u64 size_kb, const int locked)
{
	if (!(headgate_read(policy->flags) & HEADGATE_ARM_BUDGET))
		return;
	(void)headgate_take(&target_state->bucket_tat_ns, now_ns,
			    headgate_charge_ns(policy, size_kb), ~0ULL >> 1,
			    target->bucket_depth_max_ns + target->bucket_charge_max_ns,
			    &target_state->lock, locked);
}

/* Cumulative counters that may be read in the middle of an update: never below zero. */
HEADGATE_INLINE __u64 headgate_outstanding(__u64 issued, __u64 settled, __u64 written_off)
{
	__s64 left = (__s64)(issued - settled - written_off);

	return left > 0 ? (__u64)left : 0;
}

/* What counts against a cap: live connections, those older than the attach, and the admitted ones
 * that have not established yet.
 */
HEADGATE_INLINE __u64 headgate_held(__u64 in_flight, __u64 legacy, __u64 tickets)
{
	return ((__s64)in_flight > 0 ? in_flight : 0) + legacy + tickets;
}

/* What a target has received and not answered: see HEADGATE_LIVE_GENERATIONS and lib/live.h. */
HEADGATE_INLINE __u64 headgate_live_bytes(const struct headgate_target_policy *target,
					  const struct headgate_target_state *state)
{
	const __u64 base = headgate_read(target->live_base);
	const __u32 now = HEADGATE_LIVE_GENERATION(base);
	const __u32 of = HEADGATE_LIVE_GENERATIONS - 1;
	const __s64 bytes =
	    (__s64)(headgate_read(state->live_bytes) + headgate_read(state->live_aged[now & of]) +
		    headgate_read(state->live_aged[(now - 1) & of])) -
	    HEADGATE_LIVE_BASE_BYTES(base);

	return bytes > 0 ? (__u64)bytes : 0;
}

/* Error diffusion: the fraction is carried on, so that of any n attempts n * share are admitted,
 * to one. Independent coins would add noise and, with retries, let most of them through.
 */
HEADGATE_INLINE int headgate_share(struct headgate_endpoint_state *state, __u64 admit_q32,
				   const int locked)
{
	__u64 before = headgate_fetch_add(&state->share_q32, admit_q32, &state->lock, locked);

	return (before >> 32) != ((before + admit_q32) >> 32);
}

/* What the share is drawn by: see headgate_judge_drawn(). */
#define HEADGATE_NO_DRAW (~0ULL)

/*
 * Has the policy room for one more attempt? HEADGATE_REASON_NONE = yes, and it has been charged.
 * `size_kb`: payload of the request where the hook can see it, else 0. `draw_q32`: where the
 * refusal is silence, a number in [0, 1 << 32) that is the same for every retransmit: the share
 * admits what is below it, so that a retransmit meets the same answer; else HEADGATE_NO_DRAW.
 */
HEADGATE_INLINE __u32 headgate_judge_drawn(const struct headgate_endpoint_policy *policy,
					   const struct headgate_target_policy *target,
					   struct headgate_endpoint_state *state,
					   struct headgate_target_state *target_state, __u64 now_ns,
					   __u64 size_kb, __u64 draw_q32, const int locked)
{
	const __u64 flags = headgate_read(policy->flags);

	if (!(flags & HEADGATE_ARM_MASK))
		return HEADGATE_REASON_NONE;
	if (flags & HEADGATE_ARM_MAX_REFUSE) {
		/* At most 8 refusals are saved up, so that the share holds over short times too.
		 * Signed: for a moment another CPU may have taken one that was not there.
		 */
		if ((__s64)headgate_read(state->refuse_credit_q32) <
		    (__s64)(8 * HEADGATE_ALWAYS_Q32))
			(void)headgate_fetch_add(&state->refuse_credit_q32, policy->max_refuse_q32,
						 &state->lock, locked);
	}
	if (flags & HEADGATE_ARM_CIRCUIT)
		return HEADGATE_REASON_CIRCUIT;
	if (flags & HEADGATE_ARM_CONNECTIONS) {
		const __u64 own_max = headgate_read(policy->connections_max);
		const __u64 target_max = headgate_read(target->connections_max);

		if (own_max &&
		    headgate_held(
			headgate_read(state->in_flight), headgate_read(policy->connections_legacy),
			headgate_outstanding(headgate_read(state->tickets_issued),
					     headgate_read(state->tickets_settled),
					     headgate_read(policy->tickets_written_off))) >=
			own_max)
			return HEADGATE_REASON_CONNECTIONS;
		if (target_max &&
		    headgate_held(headgate_read(target_state->in_flight),
				  headgate_read(target->connections_legacy),
				  headgate_outstanding(
				      headgate_read(target_state->tickets_issued),
				      headgate_read(target_state->tickets_settled),
				      headgate_read(target->tickets_written_off))) >= target_max)
			return HEADGATE_REASON_CONNECTIONS;
	}
	if (flags & HEADGATE_ARM_SHARE) {
		const __u64 admit_q32 = headgate_read(policy->admit_q32);

		if (draw_q32 != HEADGATE_NO_DRAW ? draw_q32 >= admit_q32
						 : !headgate_share(state, admit_q32, locked))
			return HEADGATE_REASON_SHARE;
	}
	/* Behind the share: what thins out must not have used up the cap, or the two multiply. */
	if ((flags & HEADGATE_ARM_RATE) &&
	    !headgate_take(&state->rate_tat_ns, now_ns, policy->rate_interval_ns,
			   policy->rate_burst_ns, policy->rate_burst_ns + policy->rate_interval_ns,
			   &state->lock, locked))
		return HEADGATE_REASON_RATE;
	if (flags & HEADGATE_ARM_MEMORY) {
		const __u64 live_bytes = headgate_live_bytes(target, target_state);

		if (live_bytes && live_bytes >= headgate_read(target->live_bytes_max))
			return HEADGATE_REASON_MEMORY;
	}
	if ((flags & HEADGATE_ARM_BUDGET) &&
	    !headgate_take(&target_state->bucket_tat_ns, now_ns,
			   headgate_charge_ns(policy, size_kb), policy->depth_ns,
			   target->bucket_depth_max_ns + target->bucket_charge_max_ns,
			   &target_state->lock, locked))
		return HEADGATE_REASON_BUDGET;
	return HEADGATE_REASON_NONE;
}

HEADGATE_INLINE __u32 headgate_judge(const struct headgate_endpoint_policy *policy,
				     const struct headgate_target_policy *target,
				     struct headgate_endpoint_state *state,
				     struct headgate_target_state *target_state, __u64 now_ns,
				     __u64 size_kb, const int locked)
{
	return headgate_judge_drawn(policy, target, state, target_state, now_ns, size_kb,
				    HEADGATE_NO_DRAW, locked);
}

HEADGATE_INLINE int headgate_lease_expired(const struct headgate_target_policy *target,
					   __u64 now_ns)
{
	return now_ns > headgate_read(target->valid_until_ns);
}

/* One probe in the interval, in every state; interval 0 = none. */
HEADGATE_INLINE int headgate_probe(const struct headgate_endpoint_policy *policy,
				   struct headgate_endpoint_state *state, __u64 now_ns,
				   const int locked)
{
	const __u64 interval = headgate_read(policy->probe_interval_ns);
	__u64 last;
	int due;

	if (!interval)
		return 0;
	if (locked) {
		headgate_spin_lock(&state->lock);
		last = state->probe_last_ns;
		due = now_ns - last >= interval && now_ns >= last;
		if (due)
			state->probe_last_ns = now_ns;
		headgate_spin_unlock(&state->lock);
		return due;
	}
	last = headgate_read(state->probe_last_ns);
	if (now_ns < last || now_ns - last < interval)
		return 0;
	return __sync_val_compare_and_swap(&state->probe_last_ns, last, now_ns) == last;
}

/* Is there a refusal left that max_refuse allows? Takes it. */
HEADGATE_INLINE int headgate_may_refuse(const struct headgate_endpoint_policy *policy,
					struct headgate_endpoint_state *state, const int locked)
{
	__u64 before;

	if (!(headgate_read(policy->flags) & HEADGATE_ARM_MAX_REFUSE))
		return 1;
	before = headgate_fetch_add(&state->refuse_credit_q32, -HEADGATE_ALWAYS_Q32, &state->lock,
				    locked);
	if ((__s64)before >= (__s64)HEADGATE_ALWAYS_Q32)
		return 1;
	(void)headgate_fetch_add(&state->refuse_credit_q32, HEADGATE_ALWAYS_Q32, &state->lock,
				 locked);
	return 0;
}

/*
 * What a try gets for which the policy has no room (`reason` is not NONE).
 *
 * exempt: 0, HEADGATE_EXEMPT_KIND_SOURCE or HEADGATE_EXEMPT_KIND_NODE (the latter up to the rate).
 * age: first and latest try of the same attempt, NULL where it is new. A deferred attempt is reset
 * at its last try before the deadline, never after it: with gaps that double (1, 3, 7 s) or grow
 * by one (5, 7 s) the next try comes no later than twice the last gap from now.
 * size_kb: as for headgate_judge(); what is let in all the same is charged for it.
 *
 * Under HEADGATE_LAST_TRY_ENTERS an attempt that the budget has deferred until then is let in
 * instead, at the cost of those that come after it. Retries and newcomers meet the same bucket, so
 * in a long overload chance alone would keep many out until the end; and whoever was told to wait
 * is to be served. No more than one second of work may wait, spread over the seconds to the
 * deadline: a small share of the capacity, with no standing wave as from a priority at each try.
 * Only the budget gives way, which is judged last: behind any other reason nobody has asked yet
 * whether rate and memory have room, and a share may be low for memory's sake.
 */
HEADGATE_INLINE struct headgate_answer
headgate_resolve(const struct headgate_endpoint_policy *policy,
		 const struct headgate_target_policy *target, struct headgate_endpoint_state *state,
		 struct headgate_target_state *target_state, __u32 reason, __u32 exempt,
		 const struct headgate_age *age, __u64 now_ns, __u64 size_kb, const int locked)
{
	struct headgate_answer answer = {HEADGATE_ADMIT, HEADGATE_CAUSE_STALE};
	__u64 age_ns, gap_ns, deadline_ns, waiting, own_max;
	__u32 action;

	if (headgate_lease_expired(target, now_ns))
		return answer;
	if (exempt == HEADGATE_EXEMPT_KIND_SOURCE ||
	    (exempt == HEADGATE_EXEMPT_KIND_NODE &&
	     (!policy->exempt_interval_ns ||
	      headgate_take(&state->exempt_tat_ns, now_ns, policy->exempt_interval_ns,
			    policy->exempt_burst_ns,
			    policy->exempt_burst_ns + policy->exempt_interval_ns, &state->lock,
			    locked)))) {
		headgate_charge(policy, target, target_state, now_ns, size_kb, locked);
		answer.cause = HEADGATE_CAUSE_EXEMPT;
		return answer;
	}
	if (headgate_probe(policy, state, now_ns, locked)) {
		headgate_charge(policy, target, target_state, now_ns, size_kb, locked);
		answer.cause = HEADGATE_CAUSE_PROBE;
		return answer;
	}
	if (headgate_read(policy->flags) & HEADGATE_OBSERVE) {
		answer.cause = HEADGATE_CAUSE_OBSERVED;
		return answer;
	}
	if (!headgate_may_refuse(policy, state, locked)) {
		answer.cause = HEADGATE_CAUSE_CAPPED;
		return answer;
	}
	answer.cause = HEADGATE_CAUSE_REFUSED;
	action = (headgate_read(policy->actions) >> (8 * (reason & 7))) & 0xff;
	if (action == HEADGATE_ACTION_DROP) {
		answer.verdict = HEADGATE_DROP;
		return answer;
	}
	if (action >= HEADGATE_ACTION_HTTP_429) {
		answer.verdict = HEADGATE_ANSWER;
		return answer;
	}
	answer.verdict = HEADGATE_RESET;
	/* Who waits goes on waiting, also where another reason now resets newcomers. */
	if (action != HEADGATE_ACTION_DEFER && !age)
		return answer;
	if (age) {
		age_ns = now_ns - age->first_ns;
		gap_ns = now_ns - age->last_ns;
		deadline_ns = headgate_read(policy->defer_deadline_ns);
		if (age_ns + 2 * gap_ns > deadline_ns) {
			answer.cause = HEADGATE_CAUSE_EXPIRED;
			if (reason == HEADGATE_REASON_BUDGET && age_ns <= deadline_ns &&
			    (headgate_read(policy->flags) & HEADGATE_LAST_TRY_ENTERS)) {
				headgate_charge(policy, target, target_state, now_ns, size_kb,
						locked);
				answer.verdict = HEADGATE_ADMIT;
				answer.cause = HEADGATE_CAUSE_LAST_TRY;
			}
			return answer;
		}
	} else {
		waiting = headgate_outstanding(headgate_read(target_state->waiting_started),
					       headgate_read(target_state->waiting_settled),
					       headgate_read(target->waiting_written_off));
		own_max = reason == HEADGATE_REASON_BUDGET
			      ? headgate_read(policy->waiting_max)
			      : headgate_read(policy->waiting_max_other);
		if (waiting >= own_max || waiting >= headgate_read(target->waiting_max))
			return answer; /* no more may wait: refused at once */
	}
	answer.verdict = HEADGATE_DEFER;
	return answer;
}

#endif /* HEADGATE_LIB_VERDICT_H */
