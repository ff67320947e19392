// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "headgate/clock.h"

namespace headgate {

/// Why a number is not known. Stable words: they are label values of
/// headgate_sample_errors_total{reason} and stand in `explain --json`.
enum class Unknown : std::uint8_t {
  kNotRead,      ///< nothing has been read yet
  kFirstSample,  ///< a difference needs two samples
  kMissing,      ///< ENOENT: the file is not there
  kGone,         ///< ENODEV, or ENOENT after it was there: the cgroup went away
  kIo,           ///< any other error of open or read
  kParse,        ///< the text is not what the kernel documents
  kUnsupported,  ///< EOPNOTSUPP: compiled in, switched off (PSI)
  kAbsent,       ///< the file is fine, the key is not in it (nr_periods without the cpu controller)
  kWentBack,     ///< a cumulative counter decreased: the cgroup was recreated
  kZeroInterval,  ///< two samples at the same instant
  kNoLimit,       ///< no limit anywhere, so there is no ratio
  kStale,         ///< the last good value is older than it may be
  kImpossible,    ///< a counter rose by more than all CPUs of the machine could have done
  kCount,
};
[[nodiscard]] std::string_view to_string(Unknown reason);

/// A number, or the reason why it is not known. Unknown is no evidence: it neither enters nor
/// holds a refusing state.
template <class T>
struct Measured {
  std::optional<T> value;
  Unknown reason = Unknown::kNotRead;  ///< meaningful where value is empty

  constexpr Measured() = default;
  constexpr Measured(T v) : value(v) {}             // NOLINT: a number is a measurement
  constexpr Measured(Unknown why) : reason(why) {}  // NOLINT: so is the lack of one
  [[nodiscard]] constexpr bool known() const { return value.has_value(); }
  [[nodiscard]] constexpr T value_or(T other) const { return value.value_or(other); }
  constexpr const T& operator*() const { return *value; }
};

/// Where a limit comes from: label of headgate_limit_source{resource,source}.
enum class LimitSource : std::uint8_t {
  kUnlimited,  ///< no limit at any level
  kConfig,     ///< capacity in the configuration
  kOwn,        ///< the target's own cgroup
  kAncestor,   ///< a smaller limit further up
  kCpuset,     ///< fewer CPUs in the cpuset than quota
  kRequest,    ///< the pod's request times a factor (no limit set)
  kCount,
};
[[nodiscard]] std::string_view to_string(LimitSource source);

/// What the target may use. CPU: effective cores = min over the target and all its ancestors of
/// quota / period, and of the cpuset; the cores of the host are never a limit by themselves.
struct Limits {
  Measured<double> cpu_cores;  ///< (0, inf); kNoLimit when unlimited
  LimitSource cpu_source = LimitSource::kUnlimited;
  Measured<std::uint64_t> memory_bytes;
  LimitSource memory_source = LimitSource::kUnlimited;
};

/// One target at one instant: raw kernel numbers, cumulative unless said otherwise. Units are those
/// of the field's name, whatever the hierarchy counts in (v1: ns, v2: us).
struct Sample {
  Instant at{};

  // read every tick
  Measured<std::uint64_t> cpu_usage_ns;
  Measured<std::uint64_t> cpu_periods;            ///< nr_periods
  Measured<std::uint64_t> cpu_throttled_periods;  ///< nr_throttled
  Measured<std::uint64_t> cpu_throttled_ns;
  Measured<std::uint64_t> cpu_pressure_some_us;  ///< cpu.pressure "some" total
  Measured<std::uint64_t> memory_current_bytes;

  // read once a second (every tick above 0.7 of the memory limit)
  Instant details_at{};
  Measured<std::uint64_t> memory_inactive_file_bytes;
  Measured<std::uint64_t> memory_pressure_some_us;
  Measured<std::uint64_t> memory_events_max;  ///< times the limit was hit
  Measured<std::uint64_t> memory_oom_kills;
  Limits limits;
};

}  // namespace headgate
