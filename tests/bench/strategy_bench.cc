// SPDX-License-Identifier: Apache-2.0
// What a decision costs: one target, one tick, hot. The bar is absolute (1 us for adaptive with up
// to eight endpoints) and a ratio to graded, which does next to nothing, so that the figure means
// something on any machine.
//   strategy_bench [TICKS]       exit 1 when a bar is missed
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "agent/strategies/registry.h"

namespace headgate {
namespace {

constexpr double kBarNs = 1000;
constexpr double kBarRatio = 40;
constexpr std::size_t kBarEndpoints = 8;  ///< the relative costs take the square of their number

double thread_cpu_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

/// Nanoseconds a decision, the best of five rounds.
double measure(std::string_view name, std::size_t endpoint_count, int ticks) {
  const auto strategy = find_strategy(name)->make({});
  Signals signals;
  signals.at = Instant(std::chrono::seconds(1000));
  signals.interval = std::chrono::milliseconds(100);
  signals.capacity_cores = 2;
  signals.periods = std::uint64_t{1};
  signals.throttled_periods = std::uint64_t{0};
  signals.cpu_pressure = Ratio{0.1};
  signals.memory = Ratio{0.4};
  signals.memory_slope_per_second = 0.0;
  signals.memory_limit_bytes = std::uint64_t{512} << 20U;
  std::vector<EndpointInput> endpoints(endpoint_count);
  Decision decision;
  decision.endpoints.resize(endpoint_count);
  const auto tick = [&](int i) {
    const bool overload = i / 200 % 2 == 1;  // 20 s calm, 20 s at x10
    const auto admitted = static_cast<std::uint64_t>((overload ? 90 : 60) + i % 7) /
                          static_cast<std::uint64_t>(endpoint_count);
    for (EndpointInput& endpoint : endpoints) {
      endpoint.activity.offered = overload ? 10 * admitted : admitted;
      endpoint.activity.admitted = endpoint.activity.established = admitted;
      endpoint.activity.closed = admitted;
      endpoint.activity.received_bytes = admitted * static_cast<std::uint64_t>(9000 + i % 11 * 100);
      endpoint.activity.in_flight = static_cast<std::uint64_t>(i % 5);
      endpoint.activity.in_flight_known = true;
    }
    signals.at += signals.interval;
    const double use = (overload ? 0.9 : 0.6) + 0.01 * (i % 7);
    signals.cpu = signals.cpu_fast = signals.cpu_slow = Ratio{use};
    for (EndpointDecision& endpoint : decision.endpoints) endpoint = EndpointDecision{};
    strategy->decide({.signals = signals, .endpoints = endpoints}, decision);
  };
  for (int i = 0; i < 1000; ++i) tick(i);
  double best_ns = 1e18;
  for (int round = 0; round < 5; ++round) {
    const double before = thread_cpu_ns();
    for (int i = 0; i < ticks; ++i) tick(i);
    best_ns = std::min(best_ns, (thread_cpu_ns() - before) / ticks);
  }
  return best_ns;
}

int bench(int argc, char** argv) {
  const int ticks = argc > 1 ? std::atoi(argv[1]) : 200'000;
  if (ticks <= 0) {
    std::fprintf(stderr, "usage: strategy_bench [TICKS]\n");
    return 2;
  }
  int result = 0;
  std::printf("%-10s %9s %12s %9s\n", "strategy", "endpoints", "ns/decision", "x graded");
  for (const std::size_t endpoints : {1U, 4U, 8U, 32U}) {
    const double graded_ns = measure("graded", endpoints, ticks);
    const double adaptive_ns = measure("adaptive", endpoints, ticks);
    std::printf("%-10s %9zu %12.0f %9.1f\n", "graded", endpoints, graded_ns, 1.0);
    std::printf("%-10s %9zu %12.0f %9.1f\n", "adaptive", endpoints, adaptive_ns,
                adaptive_ns / graded_ns);
    if (endpoints <= kBarEndpoints &&
        (adaptive_ns > kBarNs || adaptive_ns > kBarRatio * graded_ns)) {
      result = 1;
    }
  }
  return result;
}

}  // namespace
}  // namespace headgate

int main(int argc, char** argv) { return headgate::bench(argc, argv); }
