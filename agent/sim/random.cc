// SPDX-License-Identifier: Apache-2.0
#include "agent/sim/random.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace headgate::sim {
namespace {

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;

/// The output function of splitmix64 (Steele, Lea, Flood 2014) with one xor the less.
std::uint64_t scatter(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

}  // namespace

Random::Random(std::uint64_t seed) {
  std::uint64_t z = seed * kGolden + 1;
  for (std::uint64_t& word : state_) {
    z += kGolden;
    word = scatter(z);
  }
}

std::uint64_t Random::next() {
  const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const std::uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

double Random::uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

double Random::exponential() { return -std::log(1 - uniform()); }

double Random::normal() {
  double sum = 0;
  for (int i = 0; i < 12; ++i) sum += uniform();
  return sum - 6;
}

int Random::poisson(double mean) {
  if (!(mean > 0)) return 0;
  if (mean > 50) {
    return static_cast<int>(std::max(0L, std::lround(mean + std::sqrt(mean) * normal())));
  }
  const double limit = std::exp(-mean);
  double product = 1;
  int count = 0;
  do {
    ++count;
    product *= uniform();
  } while (product > limit);
  return count - 1;
}

}  // namespace headgate::sim
