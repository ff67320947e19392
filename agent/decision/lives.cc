// SPDX-License-Identifier: Apache-2.0
#include "agent/decision/lives.h"

#include <array>
#include <cmath>

namespace headgate {

double life_s(std::size_t bucket) {
  const double octave = std::ldexp(1e-9, HEADGATE_LIFE_FIRST_OCTAVE + static_cast<int>(bucket / 4));
  const double low = 1 + 0.25 * static_cast<double>(bucket % 4);
  return octave * std::sqrt(low * (low + 0.25));
}

Lives lives_between(const headgate_life_histogram& before, const headgate_life_histogram& now) {
  Lives out;
  std::array<std::uint32_t, HEADGATE_LIFE_BUCKETS> gained{};
  for (std::size_t i = 0; i < gained.size(); ++i) {
    gained[i] = now.counts[i] - before.counts[i];  // counts wrap
    if (gained[i] > 0 && out.count == 0) {
      out.min_s = life_s(i);
    }
    out.count += gained[i];
  }
  // nearest rank: the smallest life that 99 % do not exceed
  std::uint64_t left = out.count - out.count / 100;
  for (std::size_t i = 0; i < gained.size() && left > 0; ++i) {
    if (gained[i] >= left) {
      out.p99_s = life_s(i);
      break;
    }
    left -= gained[i];
  }
  return out;
}

}  // namespace headgate
