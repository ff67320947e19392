// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "headgate/clock.h"
#include "headgate/sample.h"
#include "headgate/units.h"

namespace headgate {

/// Numbers derived from the samples of one target; each may be unknown. CPU ratios are cores used
/// over effective cores, in [0, inf), never clipped. Smoothing is by time constant, so that it does
/// not change with the tick.
struct Signals {
  Instant at{};
  Duration interval{};              ///< since the sample before; 0 on the first
  double capacity_cores = 0;        ///< effective cores; 0 = unknown
  Measured<Ratio> cpu;              ///< this interval, raw
  Measured<Ratio> cpu_fast;         ///< exponential mean, time constant 110 ms
  Measured<Ratio> cpu_slow;         ///< exponential mean, time constant 2 s
  Measured<std::uint64_t> periods;  ///< CFS periods in this interval
  Measured<std::uint64_t> throttled_periods;
  Measured<Ratio> throttled;     ///< throttled_periods / periods, [0, 1]
  Measured<Ratio> cpu_pressure;  ///< share of the interval in which some task waited for CPU
  Measured<Ratio> memory;        ///< working set / limit; working set = current - inactive_file
  Measured<Ratio> memory_pressure;
  Measured<double> memory_slope_per_second;   ///< change of `memory`, smoothed over 500 ms
  Measured<std::uint64_t> memory_limit_hits;  ///< memory.events max, rise since the read before
  Measured<std::uint64_t> oom_kills;          ///< rise since the read before
  Measured<std::uint64_t> memory_limit_bytes;
  Measured<double> load1;  ///< /proc/loadavg of the node, runnable and uninterruptible tasks
};

}  // namespace headgate
