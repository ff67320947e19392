// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

namespace headgate {

using Duration = std::chrono::nanoseconds;

/// CLOCK_MONOTONIC, the clock of bpf_ktime_get_ns(): on Linux steady_clock is that clock, so an
/// Instant's count since its epoch is a kernel time stamp. Time enters at the top (main, agent)
/// and travels as a value; nothing below asks for it.
using Instant = std::chrono::time_point<std::chrono::steady_clock, Duration>;

[[nodiscard]] constexpr std::uint64_t to_ktime_ns(Instant t) noexcept {
  return static_cast<std::uint64_t>(t.time_since_epoch().count());
}

/// Seconds as a double, for formulas.
[[nodiscard]] constexpr double seconds(Duration d) noexcept {
  return std::chrono::duration<double>(d).count();
}

}  // namespace headgate
