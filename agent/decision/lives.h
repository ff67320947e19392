// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "headgate/bpf_abi.h"

namespace headgate {

/// Seconds in the middle (geometric) of a bucket of headgate_life_histogram; 4 a factor of two.
[[nodiscard]] double life_s(std::size_t bucket);

/// What a histogram gained between two readings.
struct Lives {
  std::uint64_t count = 0;
  double min_s = 0;  ///< to a quarter octave; meaningful where count > 0
  double p99_s = 0;  ///< the same
};
[[nodiscard]] Lives lives_between(const headgate_life_histogram& before,
                                  const headgate_life_histogram& now);

}  // namespace headgate
