// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "headgate/strategy.h"

#include "agent/sim/guard.h"
#include "agent/sim/meter.h"
#include "agent/sim/scenario.h"

namespace headgate::sim {

/// Strategy::internals() with names of its own: the strategy may be gone when they are read.
using Internals = std::map<std::string, double, std::less<>>;
[[nodiscard]] inline Internals owned(const std::vector<Strategy::Threshold>& values) {
  Internals out;
  for (const Strategy::Threshold& one : values) out.emplace(one.name, one.value);
  return out;
}

/// One tick of the agent: what it read, and what followed.
struct TickRecord {
  Observation observation;
  Decision decision;
  Internals internals;
};

struct RunOptions {
  std::uint64_t seed = 1;
  bool keeps_windows = false;
  bool keeps_ticks = false;  ///< of a guard that decides
};

struct Outcome {
  Metrics metrics;
  std::vector<Window> windows;
  std::vector<TickRecord> ticks;
};

/// Runs one experiment. Deterministic: the same scenario, guard and seed give the same outcome. The
/// guard is fresh.
[[nodiscard]] Outcome simulate(const Scenario& scenario, Guard& guard, const RunOptions& options);

}  // namespace headgate::sim
