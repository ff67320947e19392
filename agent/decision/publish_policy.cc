// SPDX-License-Identifier: Apache-2.0
#include "agent/decision/publish_policy.h"

#include <algorithm>
#include <cmath>

namespace headgate {
namespace {

/// Exempt connections may use the allowance of a second at once, as a kubelet that starts all its
/// probes together does.
constexpr std::uint64_t kExemptBurstNs = 1'000'000'000;

bool usable(double x) { return std::isfinite(x) && x > 0; }

std::uint64_t charge_ns(double charge_s) {
  return usable(charge_s) ? to_saturated_ns(charge_s) : 0;
}

bool has_budget(const EndpointDecision& endpoint) { return usable(endpoint.depth_s); }

std::uint64_t packed(headgate_action action, unsigned reason) {
  return static_cast<std::uint64_t>(action) << (8U * reason);
}

std::uint64_t pack_actions(headgate_action refuse) {
  std::uint64_t actions = 0;
  for (unsigned reason = HEADGATE_REASON_NONE + 1; reason < HEADGATE_REASON_COUNT; ++reason) {
    actions |= packed(reason == HEADGATE_REASON_WAITED ? HEADGATE_ACTION_RESET : refuse, reason);
  }
  return actions;
}

/// How long attempts may wait under auto: a queue of one second is served well before any deadline.
constexpr double kAutoWait_s = 1;

/// refuse: auto. What waits already goes on waiting, also where nobody new may.
void defer_what_can_be_served(headgate_endpoint_policy& policy, const EndpointDecision& endpoint,
                              const Decision& decision, const PolicyContext& context) {
  const auto served =
      usable(context.closes_per_s)
          ? static_cast<std::uint64_t>(std::min(context.closes_per_s * kAutoWait_s, 1e9))
          : std::uint64_t{0};
  policy.waiting_max = has_budget(endpoint) ? decision.waiting_max : 0;
  policy.waiting_max_other = served;
  if (policy.waiting_max > 0 || context.somebody_waits) {
    policy.actions |= packed(HEADGATE_ACTION_DEFER, HEADGATE_REASON_BUDGET);
    policy.flags |= HEADGATE_LAST_TRY_ENTERS;
  }
  if (served > 0 || context.somebody_waits) {
    policy.actions |= packed(HEADGATE_ACTION_DEFER, HEADGATE_REASON_CONNECTIONS) |
                      packed(HEADGATE_ACTION_DEFER, HEADGATE_REASON_MEMORY);
    // A circuit that a law without a budget opens is a share of nothing.
    if (has_budget(endpoint)) {
      policy.actions |= packed(HEADGATE_ACTION_DEFER, HEADGATE_REASON_CIRCUIT);
    }
  }
  constexpr std::uint64_t kDeferring =
      HEADGATE_ARM_BUDGET | HEADGATE_ARM_CONNECTIONS | HEADGATE_ARM_MEMORY | HEADGATE_ARM_CIRCUIT;
  // Ages cost a look-up each try: an idle gate keeps none.
  const bool may = policy.actions != 0 && (policy.flags & kDeferring) != 0;
  if (may || context.somebody_waits) policy.flags |= HEADGATE_MAY_DEFER;
}

std::uint64_t armed(const EndpointDecision& endpoint, const Decision& decision,
                    const PolicyContext& context) {
  std::uint64_t flags = 0;
  if (decision.circuit_open) flags |= HEADGATE_ARM_CIRCUIT;
  if (endpoint.connections_max > 0 || (context.target_cap && decision.connections_max > 0)) {
    flags |= HEADGATE_ARM_CONNECTIONS;
  }
  if (usable(endpoint.rate_per_s)) flags |= HEADGATE_ARM_RATE;
  if (endpoint.admit < Probability::always()) flags |= HEADGATE_ARM_SHARE;
  if (has_budget(endpoint)) flags |= HEADGATE_ARM_BUDGET;
  if (decision.live_bytes_max > 0) flags |= HEADGATE_ARM_MEMORY;
  // It only holds back what is armed, and by itself it would keep the gate from being idle.
  if (flags != 0 && context.max_refuse < Probability::always()) flags |= HEADGATE_ARM_MAX_REFUSE;
  return flags;
}

}  // namespace

std::uint64_t to_saturated_ns(double duration_s) noexcept {
  if (!(duration_s > 0)) return 0;
  const double ns = duration_s * 1e9;
  return ns < static_cast<double>(kUnbounded) ? static_cast<std::uint64_t>(ns + 0.5) : kUnbounded;
}

headgate_endpoint_policy make_endpoint_policy(const EndpointDecision& endpoint,
                                              const Decision& decision,
                                              const PolicyContext& context) {
  const headgate_action refuse = context.refuse == HEADGATE_ACTION_DEFER && !context.may_defer
                                     ? HEADGATE_ACTION_RESET
                                     : context.refuse;
  headgate_endpoint_policy policy{};
  policy.flags = armed(endpoint, decision, context);
  if (context.observe) policy.flags |= HEADGATE_OBSERVE;
  if (context.early) policy.flags |= HEADGATE_JUDGE_EARLY;
  if (context.tickets_settled) policy.flags |= HEADGATE_TICKETS_SETTLED;
  if (context.exempt_node) policy.flags |= HEADGATE_EXEMPT_NODE;
  if (context.exempt_sources) policy.flags |= HEADGATE_EXEMPT_SOURCES;
  if (refuse == HEADGATE_ACTION_DEFER) policy.flags |= HEADGATE_MAY_DEFER;

  policy.admit_q32 = endpoint.admit.q32();
  policy.actions = pack_actions(refuse);
  policy.waiting_max = policy.waiting_max_other = kUnbounded;
  if (context.automatic && context.may_defer) {
    defer_what_can_be_served(policy, endpoint, decision, context);
  }

  const bool budget = has_budget(endpoint);
  policy.charge_request_ns = budget ? charge_ns(endpoint.charge_request_s) : 0;
  policy.charge_kb_ns = budget ? charge_ns(endpoint.charge_kb_s) : 0;
  policy.depth_ns = budget ? to_saturated_ns(endpoint.depth_s) : kUnbounded;

  const bool rate = usable(endpoint.rate_per_s);
  policy.rate_interval_ns = rate ? to_saturated_ns(1 / endpoint.rate_per_s) : 0;
  policy.rate_burst_ns = rate ? to_saturated_ns(endpoint.rate_burst_s) : kUnbounded;

  policy.connections_max = endpoint.connections_max;
  policy.connections_legacy = context.connections_legacy;
  policy.tickets_written_off = context.tickets_written_off;
  policy.probe_interval_ns = endpoint.probe && context.probe_interval > Duration::zero()
                                 ? static_cast<std::uint64_t>(context.probe_interval.count())
                                 : 0;
  policy.max_refuse_q32 = context.max_refuse.q32();
  policy.exempt_interval_ns =
      usable(context.exempt_rate_per_s) ? to_saturated_ns(1 / context.exempt_rate_per_s) : 0;
  policy.exempt_burst_ns = kExemptBurstNs;
  policy.target = context.target;
  policy.level = context.level;
  policy.parent = context.parent;
  policy.generation = context.generation;
  return policy;
}

headgate_target_policy make_target_policy(const Decision& decision,
                                          const TargetPolicyContext& context) {
  const auto ns = [](Duration d) {
    return d > Duration::zero() ? static_cast<std::uint64_t>(d.count()) : std::uint64_t{0};
  };
  headgate_target_policy policy{};
  policy.valid_until_ns = to_ktime_ns(context.now) + ns(context.lease);
  for (const EndpointDecision& endpoint : decision.endpoints) {
    if (!has_budget(endpoint)) continue;
    const double charge_s =
        (usable(endpoint.charge_request_s) ? endpoint.charge_request_s : 0) +
        (usable(endpoint.charge_kb_s) ? endpoint.charge_kb_s : 0) *
            (usable(context.largest_request_kb) ? context.largest_request_kb : 0);
    policy.bucket_depth_max_ns =
        std::max<__u64>(policy.bucket_depth_max_ns, to_saturated_ns(endpoint.depth_s));
    policy.bucket_charge_max_ns = std::max<__u64>(policy.bucket_charge_max_ns, charge_ns(charge_s));
  }
  policy.defer_deadline_ns = ns(context.defer_deadline);
  policy.waiting_max = context.waiting_max;
  policy.waiting_written_off = context.waiting_written_off;
  policy.live_bytes_max = decision.live_bytes_max > 0 ? decision.live_bytes_max : kUnbounded;
  policy.connections_max = decision.connections_max;
  policy.connections_legacy = context.connections_legacy;
  policy.tickets_written_off = context.tickets_written_off;
  policy.live_base = context.live_base;
  policy.generation = context.generation;
  return policy;
}

}  // namespace headgate
