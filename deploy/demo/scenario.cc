// SPDX-License-Identifier: Apache-2.0
#include "deploy/demo/scenario.h"

#include <cmath>
#include <random>

namespace headgate::demo {

std::string_view to_string(Traffic traffic) {
  switch (traffic) {
    case Traffic::kConnections: return "connections";
    case Traffic::kKeepAlive: return "keepalive";
    case Traffic::kGrpc: return "grpc";
  }
  return "?";
}

std::vector<Phase> overload_story(double capacity_per_s, double scale, Traffic traffic, bool jump) {
  const double calm = 0.6 * capacity_per_s;
  std::vector<Phase> phases = {
      {"warm", "60 %", PhaseKind::kCalm, 8, calm},
      {"x3", "x3", PhaseKind::kOverload, 10, 3 * capacity_per_s},
      {"back_after_x3", "after x3", PhaseKind::kCalm, 8, calm},
      {"x10", "x10", PhaseKind::kOverload, 12, 10 * capacity_per_s},
      {"back_after_x10", "after x10", PhaseKind::kCalm, 12, calm},
      {"cost_x4", "60 %, 4x cost", PhaseKind::kCost, 10, calm},
      {"back_after_cost", "after 4x cost", PhaseKind::kCalm, 8, calm},
  };
  if (jump) {
    phases.push_back({"jump_2mb", "60 %, 2 MB", PhaseKind::kJump, 10, calm});
    phases.push_back({"back_after_jump", "after 2 MB", PhaseKind::kCalm, 12, calm});
  }
  for (Phase& phase : phases) {
    phase.seconds *= scale;
    if (traffic == Traffic::kKeepAlive) {
      phase.critical_per_s = 0.3 * capacity_per_s;
    }
  }
  return phases;
}

std::vector<Arrival> poisson_arrivals(const std::vector<Phase>& phases, std::uint64_t seed,
                                      std::uint16_t groups) {
  std::mt19937_64 random(seed);
  std::vector<Arrival> arrivals;
  double begin_s = 0;
  std::uint16_t group = 0;
  // 53 bits, never 0: the logarithm stays finite.
  const auto uniform = [&] { return (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53; };
  for (std::size_t p = 0; p < phases.size(); ++p) {
    const Phase& phase = phases[p];
    const double end_s = begin_s + phase.seconds;
    double t_s = begin_s;
    while (phase.rate_per_s > 0) {
      t_s -= std::log(uniform()) / phase.rate_per_s;
      if (t_s >= end_s) {
        break;
      }
      const bool critical =
          phase.critical_per_s > 0 && uniform() < phase.critical_per_s / phase.rate_per_s;
      arrivals.push_back(
          {static_cast<std::uint32_t>(t_s * 1e6), static_cast<std::uint16_t>(p), group, critical});
      group = static_cast<std::uint16_t>((group + 1) % groups);
    }
    begin_s = end_s;
  }
  return arrivals;
}

double total_seconds(const std::vector<Phase>& phases) {
  double sum = 0;
  for (const Phase& phase : phases) {
    sum += phase.seconds;
  }
  return sum;
}

}  // namespace headgate::demo
