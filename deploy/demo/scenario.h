// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headgate::demo {

/// How the clients speak to the collector.
enum class Traffic : std::uint8_t {
  kConnections,  ///< one connection a request
  kKeepAlive,    ///< HTTP/1.1 on connections that are kept, two classes of routes
  kGrpc,         ///< unary gRPC calls on connections that are kept
};

[[nodiscard]] std::string_view to_string(Traffic traffic);

enum class PhaseKind : std::uint8_t {
  kCalm,      ///< below capacity
  kOverload,  ///< more requests than the collector can serve
  kCost,      ///< as many requests as when calm, each of several times the cost
  kJump,      ///< as many requests as when calm, each of 2 MB
};

struct Phase {
  std::string name;   ///< unique within a scenario: key of the report
  std::string label;  ///< for people
  PhaseKind kind = PhaseKind::kCalm;
  double seconds = 0;
  double rate_per_s = 0;      ///< of both classes
  double critical_per_s = 0;  ///< of it, of the critical class: always of the light size
};

/// One request of the open loop, known before the run starts: both runs get the very same.
struct Arrival {
  std::uint32_t at_us = 0;  ///< after the start of the run
  std::uint16_t phase = 0;  ///< index into the phases
  std::uint16_t group = 0;  ///< which of the rotating groups it writes
  bool critical = false;    ///< its class
};

/// 60 % of capacity -> x3 -> calm -> x10 -> calm -> 60 % at four times the cost -> calm.
/// `capacity_per_s` is what the collector was measured to serve; `scale` stretches every phase.
/// `jump`: after it 60 % in requests of 2 MB -> calm. With two classes, 30 % of capacity is
/// critical in every phase, and what grows is the other.
[[nodiscard]] std::vector<Phase> overload_story(double capacity_per_s, double scale,
                                                Traffic traffic = Traffic::kConnections,
                                                bool jump = false);

/// Poisson arrivals of all phases. The same on every machine for one seed: the generator is
/// mt19937_64 (exact by the standard) and the exponential is drawn by inversion, because
/// std::exponential_distribution may differ between libraries.
[[nodiscard]] std::vector<Arrival> poisson_arrivals(const std::vector<Phase>& phases,
                                                    std::uint64_t seed, std::uint16_t groups);

[[nodiscard]] double total_seconds(const std::vector<Phase>& phases);

}  // namespace headgate::demo
