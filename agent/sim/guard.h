// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/strategy.h"

namespace headgate::sim {

/// What the agent reads of the pod at one instant.
struct Observation {
  double at_s = 0;
  double tick_s = 0;
  Signals signals;
  std::vector<EndpointActivity> endpoints;  ///< since the observation before
  bool restarted = false;
  bool live_bytes_known = false;
  std::uint64_t live_bytes = 0;  ///< received by what is open
  std::uint64_t largest_request_bytes = 0;
};

/// One request, or one connection, that asks to come in.
struct Attempt {
  std::uint32_t endpoint = 0;
  double size_kb = 0;  ///< 0 = not known yet
  double now_s = 0;
};

/// What stands in front of the pod.
class Guard {
 public:
  Guard() = default;
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  Guard(Guard&&) = delete;
  Guard& operator=(Guard&&) = delete;
  virtual ~Guard() = default;

  [[nodiscard]] virtual bool admits(const Attempt& attempt) = 0;
  /// What is in the pod just now, as far as it can be seen from outside: before each attempt.
  struct Load {
    std::span<const double> in_flight;  ///< of each endpoint: requests, or connections
    double live_bytes = 0;              ///< of what is in flight
  };
  virtual void see_load(const Load& /*load*/) {}
  /// An observation; what follows from it is in force from `now_s` on.
  virtual void observe(const Observation& /*observation*/, double /*now_s*/) {}

  // Inside the pod: only what has no kernel gate.
  /// Asked before each service: true = refuse what has waited for so long.
  [[nodiscard]] virtual bool refuses_waiting(double /*waited_s*/, double /*now_s*/) {
    return false;
  }
  virtual void queue_is_empty(double /*now_s*/) {}

  /// Share of the live connections to close per second, in [0, 1].
  [[nodiscard]] virtual double close_share_per_s(double /*live*/) const { return 0; }

  /// Of the decision in force; nullptr where nothing decides.
  [[nodiscard]] virtual const Decision* decision() const { return nullptr; }
  [[nodiscard]] virtual std::vector<Strategy::Threshold> internals() const { return {}; }
};

}  // namespace headgate::sim
