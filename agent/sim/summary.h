// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "agent/sim/contender.h"
#include "agent/sim/meter.h"
#include "agent/sim/scenario.h"

namespace headgate::sim {

/// Means over several seeds.
struct Summary {
  std::string scenario;
  std::string contender;
  std::size_t seeds = 0;
  Metrics mean;
  double flips = 0;
  double oom_kills = 0;
  double goodput_min = 0;
  double peak_backlog_max_s = 0;
};
[[nodiscard]] Summary summarize(const Scenario& scenario, const Contender& contender,
                                std::uint64_t first_seed, std::size_t seeds);

/// One contender against many random pods.
struct FuzzOutcome {
  std::uint64_t seed = 0;  ///< of the scenario; the run's own is always 1
  double capacity_cores = 0;
  Metrics metrics;
  /// Backlog in seconds of capacity.
  [[nodiscard]] double peak_s() const { return metrics.peak_backlog_s / capacity_cores; }
};
struct FuzzSummary {
  std::vector<FuzzOutcome> outcomes;
  double goodput_mean = 0, goodput_p10 = 0, goodput_p2 = 0, goodput_min = 0;
  double peak_p50_s = 0, peak_p90_s = 0, peak_max_s = 0;  ///< seconds of capacity
  double p99_delay_p90_ms = 0;
  double danger_mean_s = 0, total_variation_mean = 0;
};
/// Goodput counts up to 1.3: more is work that retries brought back.
[[nodiscard]] FuzzSummary fuzz(const Contender& contender, std::uint64_t first_seed,
                               std::size_t scenarios);

/// The value at rank q * (n - 1), rounded down; 0 of nothing.
[[nodiscard]] double quantile(std::vector<double> values, double q);

}  // namespace headgate::sim
