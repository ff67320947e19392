// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "headgate/sample.h"
#include "headgate/signal.h"
#include "headgate/smoothed.h"

namespace headgate {

inline constexpr Duration kCpuFastTimeConstant = std::chrono::milliseconds(110);
inline constexpr Duration kCpuSlowTimeConstant = std::chrono::seconds(2);
inline constexpr Duration kMemorySlopeTimeConstant = std::chrono::milliseconds(500);

/// Turns the samples of one target into signals. Pure: time comes with the samples.
///
/// CPU is smoothed in cores and divided by the limit of now, so that a resize in place shows in the
/// same tick. A counter that could not be read for a while is compared with its last good value:
/// the difference is then the mean over the gap. Samples closer than half a tick are merged by the
/// caller; a late sample is one sample, nothing is caught up.
class SignalDeriver {
 public:
  /// One tick. A sample at the same instant as the one before, or a counter that went back, makes
  /// the signals of that tick unknown with the reason; the smoothed ones keep their last value
  /// until `stale_after` has passed since the last good sample, then they are unknown (kStale) and
  /// forgotten: the next good sample starts them anew. Without a limit (kNoLimit) there is no ratio
  /// at once.
  ///
  /// `machine_cpus` is the number of CPUs of the machine: usage that they could not have spent
  /// between two samples is kImpossible (a counter that was set, or misread), because one such
  /// number would otherwise shut the gate for seconds. 0 = not known, everything is believed.
  /// `load1` is passed through: it is the node's and not the target's.
  const Signals& update(const Sample& sample, Duration stale_after, unsigned machine_cpus = 0,
                        Measured<double> load1 = Unknown::kNotRead);
  [[nodiscard]] const Signals& signals() const { return signals_; }
  /// Samples whose CPU counter was no number to go by, by cause; for the error metric.
  struct Distrusted {
    std::uint64_t went_back = 0;
    std::uint64_t impossible = 0;
  };
  [[nodiscard]] const Distrusted& distrusted() const { return distrusted_; }
  /// The cgroup was recreated: everything learned from samples is void.
  void reset() { *this = SignalDeriver(); }

  /// What a restarted agent needs to go on: the smoothed values and the counter they were made
  /// from, so that its first sample already tells the mean over the gap. Exactly kModelBytes, or 0
  /// where there is nothing to save or `out` is too small.
  static constexpr std::size_t kModelBytes = 64;
  [[nodiscard]] std::size_t save(std::span<std::byte> out) const;
  /// The counterpart, before the first update(). `data` may be longer. False = not understood, the
  /// derivation starts cold. The caller vouches that it is the same cgroup.
  bool restore(std::span<const std::byte> data);

 private:
  /// A cumulative counter of the kernel and its last good value.
  struct Counter {
    bool has = false;
    std::uint64_t value = 0;
    Instant at{};
  };
  struct Rise {
    Measured<std::uint64_t> by;
    Duration over{};  ///< > 0 where `by` is known
  };
  static Rise advance(Counter& counter, const Measured<std::uint64_t>& now, Instant at);
  static Measured<Ratio> share_of_time(const Rise& rise_us);

  void derive_cpu(const Sample& sample, Duration stale_after, unsigned machine_cpus);
  void derive_memory(const Sample& sample, Duration stale_after);
  void derive_memory_details(const Sample& sample);

  Signals signals_;
  Distrusted distrusted_;
  bool has_previous_ = false;
  Instant previous_at_{};

  Counter usage_ns_, periods_, throttled_periods_, cpu_pressure_us_;
  Smoothed fast_cores_{kCpuFastTimeConstant};
  Smoothed slow_cores_{kCpuSlowTimeConstant};
  double last_cores_ = 0;  ///< the limit of the last good sample
  Instant cpu_good_at_{};

  bool has_working_set_ = false;
  double working_set_bytes_ = 0;
  Instant working_set_at_{};
  Smoothed slope_{kMemorySlopeTimeConstant};

  bool has_details_ = false;
  Instant details_at_{};
  Counter memory_pressure_us_, limit_hits_, oom_kills_;
};

}  // namespace headgate
