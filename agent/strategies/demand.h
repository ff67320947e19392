// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "headgate/smoothed.h"
#include "headgate/strategy.h"

namespace headgate {

/// Attempts per second offered to each endpoint, smoothed: what allocate() spreads a refusal over.
/// Counted by the kernel in front of the gate, so it does not fall when the gate closes.
class Demand {
 public:
  static constexpr Duration kTimeConstant = std::chrono::seconds(1);

  /// One tick. Allocates only when the number of endpoints changes, which starts it anew.
  void update(const StrategyInput& in);
  [[nodiscard]] std::span<const double> per_second() const { return per_second_; }

 private:
  std::vector<Smoothed> smoothed_;
  std::vector<double> per_second_;
};

}  // namespace headgate
