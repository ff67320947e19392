// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "headgate/bpf_abi.h"
#include "headgate/clock.h"
#include "headgate/strategy.h"
#include "headgate/units.h"

namespace headgate {

/// What the words of an endpoint's policy need beyond the decision.
struct PolicyContext {
  headgate_action refuse = HEADGATE_ACTION_RESET;  ///< for every reason but WAITED
  bool may_defer = false;                          ///< false: DEFER becomes RESET (no pit, not TCP)
  /// refuse: auto. DEFER where what waits will be served in time, RESET at once where not: for the
  /// budget up to Decision::waiting_max, for caps and memory up to what closes in a second; a share
  /// and a rate defer nobody new (a share that defers sheds nothing). Needs may_defer.
  bool automatic = false;
  double closes_per_s = 0;      ///< connections that end, of the whole target
  bool somebody_waits = false;  ///< attempts deferred before are not settled yet
  bool early = false;           ///< hooks in front of the socket judge it, too
  bool target_cap = true;       ///< the cap on the target's connections holds for this endpoint
  bool observe = false;         ///< judge and count, refuse nothing
  Probability max_refuse = Probability::always();
  bool exempt_node = false;       ///< the node's own connects, known by sock_ops
  bool exempt_sources = false;    ///< sources are to be looked up in headgate_exempt
  double exempt_rate_per_s = 20;  ///< for the node's addresses; 0 or no number = no limit
  bool tickets_settled = false;   ///< sock_ops deletes tickets
  Duration probe_interval = std::chrono::seconds(1);
  std::uint32_t target = 0;
  std::uint32_t level = HEADGATE_LEVEL_PORT;
  std::uint32_t parent = 0;
  std::uint32_t generation = 0;
  std::uint64_t connections_legacy = 0;
  std::uint64_t tickets_written_off = 0;
};

struct TargetPolicyContext {
  Instant now{};
  Duration lease = std::chrono::seconds(1);
  Duration defer_deadline = std::chrono::seconds(8);
  std::uint64_t waiting_max = 20'000;
  std::uint64_t waiting_written_off = 0;
  std::uint64_t tickets_written_off = 0;
  std::uint64_t connections_legacy = 0;
  std::uint64_t live_base = 0;    ///< see LiveAges
  double largest_request_kb = 0;  ///< for the largest charge; 0 = sizes are not charged
  std::uint32_t generation = 0;
};

/// What "no bound" is in a word: large, but the sum of the clock and two of them does not overflow,
/// because the kernel adds them.
inline constexpr std::uint64_t kUnbounded = 1ULL << 62;

/// Seconds to nanoseconds. Negative and NaN = 0; more than kUnbounded, and infinity, =
/// kUnbounded.
[[nodiscard]] std::uint64_t to_saturated_ns(double duration_s) noexcept;

/// The ABI words of one endpoint. Only what the decision needs is armed: where everything is
/// admitted and nothing is capped no HEADGATE_ARM_* bit is set and the gate is idle. A number that
/// is NaN or infinite never refuses: such a cap, rate or depth is not armed, such a charge is 0.
/// Words that are not armed hold what refuses nothing, so that a word of this policy beside the
/// flags of the one before is still harmless.
[[nodiscard]] headgate_endpoint_policy make_endpoint_policy(const EndpointDecision& endpoint,
                                                            const Decision& decision,
                                                            const PolicyContext& context);

/// The ABI words of one target. The lease runs from `context.now`.
[[nodiscard]] headgate_target_policy make_target_policy(const Decision& decision,
                                                        const TargetPolicyContext& context);

/// The headgate_action packed for `reason` in headgate_endpoint_policy.actions.
[[nodiscard]] constexpr headgate_action action_of(std::uint64_t actions, headgate_reason reason) {
  return static_cast<headgate_action>((actions >> (8U * static_cast<unsigned>(reason))) & 0xffU);
}

}  // namespace headgate
