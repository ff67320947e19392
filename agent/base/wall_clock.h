// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

namespace headgate {

/// Time since 1970 in units of `Unit` (milliseconds, microseconds), as people and protocols want
/// it. Never for intervals: this clock is set.
template <class Unit>
[[nodiscard]] std::int64_t unix_now() {
  return std::chrono::duration_cast<Unit>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace headgate
