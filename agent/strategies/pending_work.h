// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "headgate/smoothed.h"
#include "headgate/strategy.h"

namespace headgate {

/// How long a newcomer would wait for what is there already: live connections over completions per
/// second (Little's law). A CPU that reads 0.95 for two ticks is either a burst that is gone in the
/// next one or a queue of a second; only this tells them apart, because the usage of a group with a
/// quota cannot pass 1 (case H04).
///
/// It is evidence only where a connection's life is its service. A keep-alive connection lives on
/// idle, so the lifetime in calm times is learned and must be short; until a second of calm has
/// been seen, where sock_ops is missing, or where UDP brings work too, nothing is said.
class PendingWork {
 public:
  /// A life longer than this in calm times is not service.
  static constexpr double kServiceLifeSeconds = 0.125;

  /// One tick. `calm`: the target is far from saturation.
  void update(const StrategyInput& in, bool calm);
  /// Seconds; nothing where it is not credible.
  [[nodiscard]] std::optional<double> wait_s() const { return wait_s_; }

  [[nodiscard]] const Smoothed& calm_life() const { return calm_life_; }
  bool restore_calm_life(double value, double weight) { return calm_life_.restore(value, weight); }

 private:
  Smoothed completions_per_second_{std::chrono::milliseconds(500)};
  Smoothed calm_life_{std::chrono::seconds(5)};
  std::optional<double> wait_s_;
};

}  // namespace headgate
