// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>

#include "agent/sim/guard.h"
#include "agent/sim/scenario.h"

namespace headgate::sim {

/// Guards that are no strategy of the product: what the others are compared with, and what needs
/// to sit inside the pod.
///   None        admits everything
///   QPSLimiter  token bucket at 0.965 of the capacity in mean requests, 50 ms of burst: what a
///               well-chosen rate limit does as long as the cost of a request does not change
///   CoDel       controlled delay as Facebook runs it (Maurer, "Fail at Scale", ACM Queue 2015):
///               what has waited for more than 5 ms while the queue has not been empty for 100 ms
///               (else for more than 100 ms) is refused when its turn comes
struct BaselineInfo {
  std::string_view name;
  std::string_view doc;
  std::unique_ptr<Guard> (*make)(const Scenario& scenario);
};
[[nodiscard]] std::span<const BaselineInfo> baselines();

}  // namespace headgate::sim
