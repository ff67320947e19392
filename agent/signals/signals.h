// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "headgate/sample.h"
#include "headgate/signal.h"

namespace headgate {

/// Turns the samples of one target into signals. Pure: time comes with the samples.
class SignalDeriver {
 public:
  /// One tick. A sample at the same instant as the one before, or a counter that went back, makes
  /// the signals of that tick unknown with the reason; the smoothed ones keep their last value
  /// until `stale_after` has passed since the last good sample, then they are unknown (kStale).
  const Signals& update(const Sample& sample, Duration stale_after);
  [[nodiscard]] const Signals& signals() const { return signals_; }
  /// The cgroup was recreated: everything learned from samples is void.
  void reset();

 private:
  // (state of the derivation: extend as needed)
  Sample previous_;
  bool has_previous_ = false;
  Signals signals_;
};

}  // namespace headgate
