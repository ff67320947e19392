// SPDX-License-Identifier: Apache-2.0
#include "agent/strategies/memory_stop.h"

#include <algorithm>

namespace headgate {

void MemoryStop::update(const StrategyInput& in) {
  const Signals& signals = in.signals;
  const Duration dt = signals.interval;
  refuse_ = 0;

  const bool evidence = signals.memory_pressure.value_or(Ratio{0}) > Ratio{0} ||
                        signals.memory_limit_hits.value_or(0) > 0 ||
                        signals.oom_kills.value_or(0) > 0;
  evidence_left_ = evidence ? kEvidenceLasts : std::max(Duration::zero(), evidence_left_ - dt);

  if (!signals.memory.known()) {
    open_ = suspended_ = false;
    flat_ = flat_idle_ = reopen_left_ = Duration::zero();
    return;
  }
  const double level = (*signals.memory).value;
  const bool rising = signals.memory_slope_per_second.value_or(0) > kRisingPerSecond;
  const bool idle = !signals.cpu_fast.known() || *signals.cpu_fast < Ratio{idle_below_};
  flat_ = evidence || rising ? Duration::zero() : flat_ + dt;
  flat_idle_ = evidence || rising || !idle ? Duration::zero() : flat_idle_ + dt;
  const bool flat = flat_idle_ >= kFlatAndIdle || flat_ >= kFlatAnyway;

  if (suspended_ && (evidence || level < in.memory_close || level >= suspended_level_ + kHigher)) {
    suspended_ = false;
  }
  const bool may_refuse = wants_evidence_ ? evidence_left_ > Duration::zero() : !suspended_;

  if (open_) {
    if (level < in.memory_close) {
      open_ = false;
    } else if (flat) {
      open_ = false;
      suspended_ = true;
      suspended_level_ = level;
      reopen_left_ = kReopen;
    }
  } else if (level >= in.memory_open && may_refuse) {
    open_ = true;
    flat_ = flat_idle_ = reopen_left_ = Duration::zero();
  } else {
    reopen_left_ = std::max(Duration::zero(), reopen_left_ - dt);
  }
  if (open_) return;

  if (may_refuse && !flat && level > in.memory_shed && in.memory_open > in.memory_shed) {
    const double part = (level - in.memory_shed) / (in.memory_open - in.memory_shed);
    refuse_ = refuse_max_ * std::min(1.0, part);
  }
  if (reopening()) {
    refuse_ = std::max(refuse_, refuse_max_ * (seconds(reopen_left_) / seconds(kReopen)));
  }
}

}  // namespace headgate
