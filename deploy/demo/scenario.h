// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headgate::demo {

enum class PhaseKind : std::uint8_t {
  kCalm,      ///< below capacity
  kOverload,  ///< more requests than the collector can serve
  kCost,      ///< as many requests as when calm, each of several times the cost
};

struct Phase {
  std::string name;   ///< unique within a scenario: key of the report
  std::string label;  ///< for people
  PhaseKind kind = PhaseKind::kCalm;
  double seconds = 0;
  double rate_per_s = 0;
};

/// One request of the open loop, known before the run starts: both runs get the very same.
struct Arrival {
  std::uint32_t at_us = 0;  ///< after the start of the run
  std::uint16_t phase = 0;  ///< index into the phases
  std::uint16_t group = 0;  ///< which of the rotating groups it writes
};

/// 60 % of capacity -> x3 -> calm -> x10 -> calm -> 60 % at four times the cost -> calm.
/// `capacity_per_s` is what the collector was measured to serve; `scale` stretches every phase.
[[nodiscard]] std::vector<Phase> overload_story(double capacity_per_s, double scale);

/// Poisson arrivals of all phases. The same on every machine for one seed: the generator is
/// mt19937_64 (exact by the standard) and the exponential is drawn by inversion, because
/// std::exponential_distribution may differ between libraries.
[[nodiscard]] std::vector<Arrival> poisson_arrivals(const std::vector<Phase>& phases,
                                                    std::uint64_t seed, std::uint16_t groups);

[[nodiscard]] double total_seconds(const std::vector<Phase>& phases);

}  // namespace headgate::demo
