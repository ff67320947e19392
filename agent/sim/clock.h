// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "headgate/clock.h"

namespace headgate::sim {

/// The time of an experiment as the kernel's clock would show it. It does not begin at 0: a machine
/// has been up for a while, and zeroed state is long ago.
[[nodiscard]] inline Instant instant(double time_s) {
  constexpr Duration kUpFor = std::chrono::seconds(1000);
  return Instant(kUpFor + Duration(std::llround(time_s * 1e9)));
}

}  // namespace headgate::sim
