// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "headgate/strategy.h"

#include "agent/strategies/registry.h"

namespace headgate::test {

inline std::unique_ptr<Strategy> make_strategy(std::string_view name, const Params& params = {}) {
  const StrategyInfo* info = find_strategy(name);
  return info != nullptr && info->make != nullptr ? info->make(params) : nullptr;
}

/// Feeds a strategy hand-made signals, tick by tick.
class Ticks {
 public:
  Signals signals;
  std::vector<EndpointInput> endpoints;
  Decision decision;
  double memory_shed = 0.80, memory_open = 0.92, memory_close = 0.87;

  explicit Ticks(Strategy& strategy, std::size_t endpoint_count = 1)
      : endpoints(endpoint_count), strategy_(strategy) {
    signals.at = Instant(std::chrono::seconds(1000));
    signals.interval = std::chrono::milliseconds(100);
    signals.capacity_cores = 0.5;
    signals.memory = Unknown::kNoLimit;
    signals.memory_slope_per_second = Unknown::kNoLimit;
    cpu(0);
  }
  /// Both means and the raw value.
  Ticks& cpu(double ratio) { return cpu(ratio, ratio); }
  Ticks& cpu(double fast, double slow) {
    signals.cpu = Ratio{fast};
    signals.cpu_fast = Ratio{fast};
    signals.cpu_slow = Ratio{slow};
    return *this;
  }
  Ticks& cpu_unknown() {
    signals.cpu = signals.cpu_fast = signals.cpu_slow = Unknown::kStale;
    return *this;
  }
  Ticks& memory(double level, double slope = 0, double pressure = 0, std::uint64_t hits = 0) {
    signals.memory = Ratio{level};
    signals.memory_slope_per_second = slope;
    signals.memory_pressure = Ratio{pressure};
    signals.memory_limit_hits = hits;
    signals.oom_kills = std::uint64_t{0};
    return *this;
  }
  /// What one endpoint sees in each tick from now on: attempts, connections that are there, and
  /// answers with the mean of their times (the smallest and the p99 are the same).
  Ticks& traffic(std::uint64_t offered, std::uint64_t in_flight, std::uint64_t responses = 0,
                 double response_s = 0, std::size_t endpoint = 0) {
    EndpointActivity& activity = endpoints[endpoint].activity;
    activity = {};
    activity.offered = activity.admitted = offered;
    activity.closed = activity.responses = responses;
    activity.in_flight = in_flight;
    activity.in_flight_known = activity.responses_known = true;
    activity.response_s_sum = static_cast<double>(responses) * response_s;
    activity.response_s_min = activity.response_s_p99 = response_s;
    return *this;
  }
  Ticks& refused(std::uint64_t attempts, std::size_t endpoint = 0) {
    EndpointActivity& activity = endpoints[endpoint].activity;
    activity.refused = attempts;
    activity.admitted = activity.offered - std::min(activity.offered, attempts);
    return *this;
  }
  Ticks& tick(Duration interval) {
    signals.interval = interval;
    return *this;
  }
  const Decision& run(int ticks = 1) {
    for (int i = 0; i < ticks; ++i) {
      signals.at += signals.interval;
      decision.endpoints.resize(endpoints.size());
      decision.reset();
      strategy_.decide({.signals = signals,
                        .endpoints = endpoints,
                        .memory_shed = memory_shed,
                        .memory_open = memory_open,
                        .memory_close = memory_close},
                       decision);
    }
    return decision;
  }
  [[nodiscard]] double admit(std::size_t endpoint = 0) const {
    return decision.endpoints[endpoint].admit.value();
  }

 private:
  Strategy& strategy_;
};

}  // namespace headgate::test
