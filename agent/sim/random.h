// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace headgate::sim {

/// Chance for the simulator: xoshiro256** (Blackman and Vigna, "Scrambled linear pseudorandom
/// number generators", 2018) with distributions of its own, because those of <random> differ from
/// one standard library to the next. The same seed gives the same numbers everywhere; what is drawn
/// for a seed is part of the published results, so none of this may change.
class Random {
 public:
  explicit Random(std::uint64_t seed);

  std::uint64_t next();
  /// In [0, 1), 53 bits.
  double uniform();
  double between(double low, double high) { return low + (high - low) * uniform(); }
  /// Mean 1.
  double exponential();
  /// Mean 0, variance 1: the sum of twelve uniform numbers less 6.
  double normal();
  /// Above a mean of 50 the rounded normal distribution; `mean` <= 0 gives 0.
  int poisson(double mean);

 private:
  std::array<std::uint64_t, 4> state_{};
};

}  // namespace headgate::sim
