// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "agent/sim/guard.h"
#include "agent/sim/scenario.h"

namespace headgate::sim {

/// Guards that are no strategy of the product, but what strategies are compared with.
///   None        admits everything
///   QPSLimiter  token bucket at 0.965 of the capacity in mean requests, 50 ms of burst: what a
///               well-chosen rate limit does as long as the cost of a request does not change
struct BaselineInfo {
  std::string_view name;
  std::string_view doc;
  std::unique_ptr<Guard> (*make)(const Scenario& scenario);
};
[[nodiscard]] std::span<const BaselineInfo> baselines();

}  // namespace headgate::sim
