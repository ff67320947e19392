// SPDX-License-Identifier: Apache-2.0
#include "agent/strategies/adaptive_memory.h"

#include <algorithm>
#include <cmath>

namespace headgate::adaptive {
namespace {

constexpr double kSlopeTime_s = 0.5;
constexpr double kSlopeLevel = 0.5;  ///< below this level a slope is no danger yet
constexpr double kNoTime_s = 1.0;    ///< time to OOM at which nothing may come in any more
constexpr double kNever_s = 1e9;
constexpr double kFutile_s = 60;

constexpr double kEvidenceLasts_s = 1;
constexpr double kFlatPerSecond = 0.005;
constexpr double kMarkStep = 0.002;
constexpr double kIdleBelow = 0.8;
constexpr double kLongestWait_s = 32;
constexpr double kProbeRise = 0.01;  ///< of the limit: how much a probe may cost
constexpr double kReopen_s = 1;
constexpr double kProven_s = 5;      ///< open and flat for so long: the probe was right
constexpr double kLastProbe = 0.96;  ///< no probe above this level
constexpr double kLookAhead_s = 2;   ///< where memory falls: what it gives back can be used

constexpr double kRegressionMemory_s = 20;
constexpr double kRegressionLeast = 50;
constexpr double kErrors = 3;
constexpr double kLeakShare = 0.2;  ///< of the rise explained by the inflow, at most
constexpr unsigned kLeakTicks = 5;  ///< in a row: each tick is another look at the same chance

constexpr double kBaseRise_s = 5;
constexpr double kRecent_s = 1;
constexpr double kLargest_s = 60;
constexpr double kFloorShare = 0.05;
constexpr std::uint64_t kLimitMost = std::uint64_t{1} << 50U;
constexpr std::uint64_t kIdleInFlight = 2;

bool usable(double v) { return v >= 0 && v <= 100; }

}  // namespace

void MemoryRule::restart() {
  const double futile_left_s = futile_left_s_;
  *this = MemoryRule(*set_);
  futile_left_s_ = futile_left_s;
}

void MemoryRule::follow_slope(double level, double interval_s) {
  if (has_level_) {
    slope_ += std::min(1.0, interval_s / kSlopeTime_s) * ((level - level_) / interval_s - slope_);
  }
  has_level_ = true;
  level_ = level;
}

double MemoryRule::by_level(const StrategyInput& in, double level) const {
  const double full = in.memory_open - 0.02;
  return 1 - std::clamp((level - in.memory_shed) / std::max(0.01, full - in.memory_shed), 0.0, 1.0);
}

void MemoryRule::update(const StrategyInput& in, double interval_s, double inflow) {
  admit_ = 1;
  const Measured<Ratio>& memory = in.signals.memory;
  if (!memory.known() || !usable((*memory).value) || !(interval_s > 0)) {
    *this = MemoryRule(*set_);
    return;
  }
  const double level = (*memory).value;
  const double rise_per_s = has_level_ ? (level - level_) / interval_s : 0.0;
  follow_slope(level, interval_s);
  if (set_->careful_memory) {
    if (rise_is_not_inflow(rise_per_s, interval_s, inflow)) futile_left_s_ = kFutile_s;
    careful(in, level, interval_s);
  } else {
    plain(in, level, interval_s, inflow);
  }
}

void MemoryRule::plain(const StrategyInput& in, double level, double interval_s, double inflow) {
  const double left_s = slope_ > 1e-4 ? (1 - level) / slope_ : kNever_s;
  admit_ = by_level(in, level);
  if (level > kSlopeLevel) {
    admit_ = std::min(admit_,
                      std::clamp((left_s - kNoTime_s) / (set_->safe_oom_s - kNoTime_s), 0.0, 1.0));
  }
  if (level >= in.memory_open) {
    open_ = true;
  } else if (level < in.memory_close) {
    open_ = false;
  }
  if (open_) admit_ = 0;
  test_futility(interval_s, inflow);
  if (futile_left_s_ > 0) {
    futile_left_s_ -= interval_s;
    open_ = level > set_->leak_open;
    admit_ = open_ ? 0 : 1;
  }
}

/// Slope unchanged although admission fell: a leak.
void MemoryRule::test_futility(double interval_s, double inflow) {
  if (!testing_ && admit_ < 0.9 && slope_ > 1e-3) {
    testing_ = true;
    tested_slope_ = slope_;
    tested_inflow_ = inflow;
    tested_s_ = 0;
  }
  if (!testing_) {
    inflow_ = inflow;
    return;
  }
  tested_s_ += interval_s;
  inflow_ += std::min(1.0, interval_s) * (inflow - inflow_);
  if (admit_ >= 0.999 && tested_s_ > 5) {
    testing_ = false;
  } else if (tested_s_ > 2 && inflow_ < 0.6 * tested_inflow_) {
    if (slope_ > 0.75 * tested_slope_) futile_left_s_ = kFutile_s;
    testing_ = false;
  }
}

/// Regression of the rise per tick on the inflow of the tick: arrivals vary by themselves. True
/// where, with three standard errors to spare, most of the rise has another cause.
bool MemoryRule::rise_is_not_inflow(double rise_per_s, double interval_s, double inflow) {
  if (slope_ <= kFlatPerSecond || inflow < 0) {
    n_ = x_ = y_ = xx_ = xy_ = yy_ = 0;
    leak_ticks_ = 0;
    return false;
  }
  const double keep = std::exp(-interval_s / kRegressionMemory_s);
  n_ = n_ * keep + 1;
  x_ = x_ * keep + inflow;
  y_ = y_ * keep + rise_per_s;
  xx_ = xx_ * keep + inflow * inflow;
  xy_ = xy_ * keep + inflow * rise_per_s;
  yy_ = yy_ * keep + rise_per_s * rise_per_s;
  if (n_ < kRegressionLeast) return false;
  const double mean_x = x_ / n_;
  const double mean_y = y_ / n_;
  const double var_x = xx_ / n_ - mean_x * mean_x;
  const double var_y = yy_ / n_ - mean_y * mean_y;
  const double cov = xy_ / n_ - mean_x * mean_y;
  if (!(mean_y > 0) || !(var_x > 1e-6 * mean_x * mean_x) || !(mean_x > 0)) return false;
  const double slope = cov / var_x;
  const double error = std::sqrt(std::max(0.0, var_y / var_x - slope * slope) / n_);
  const bool leak = (slope + kErrors * error) * mean_x / mean_y < kLeakShare;
  leak_ticks_ = leak ? leak_ticks_ + 1 : 0;
  return leak_ticks_ >= kLeakTicks;
}

void MemoryRule::careful(const StrategyInput& in, double level, double interval_s) {
  const Signals& signals = in.signals;
  const double pressure = signals.memory_pressure.value_or(Ratio{0}).value;
  const bool short_of_pages = pressure > 0 || signals.memory_limit_hits.value_or(0) > 0 ||
                              signals.oom_kills.value_or(0) > 0;
  const bool blind = !signals.memory_pressure.known() && !signals.memory_limit_hits.known();
  const double left_s = slope_ > 1e-4 ? (1 - level) / slope_ : kNever_s;
  const bool evidence = short_of_pages || blind || left_s < set_->safe_oom_s;
  evidence_left_s_ = evidence ? kEvidenceLasts_s : std::max(0.0, evidence_left_s_ - interval_s);

  const double use = signals.cpu.value_or(Ratio{0}).value;
  // By a mark that the level must not pass: a smoothed slope would remember the rise too long.
  const bool rises = level > mark_ + kMarkStep;
  if (rises || level < mark_) mark_ = level;
  const bool flat = !short_of_pages && !rises && !(use >= kIdleBelow);
  flat_s_ = flat ? flat_s_ + interval_s : 0;

  const double expected = slope_ < 0 ? level + slope_ * kLookAhead_s : level;
  double allowed = by_level(in, expected);
  // Evidence arms the level; that it ceases is what refusing was for, and no reason to open at
  // once.
  if (level < in.memory_shed) {
    armed_ = false;
  } else if (evidence_left_s_ > 0) {
    armed_ = true;
  }
  if (!armed_) allowed = 1;
  if (level > kSlopeLevel) {
    allowed = std::min(allowed,
                       std::clamp((left_s - kNoTime_s) / (set_->safe_oom_s - kNoTime_s), 0.0, 1.0));
  }
  if (expected < in.memory_close) {
    open_ = false;
  } else if (level >= in.memory_open && armed_) {
    open_ = true;
  }
  if (open_) allowed = 0;
  if (level < in.memory_shed) wait_s_ = kFirstWait_s;

  if (suspended_) {
    suspended_s_ += interval_s;
    if (short_of_pages || level >= suspended_level_ + kProbeRise) {
      suspended_ = false;
      wait_s_ = std::min(kLongestWait_s, 2 * wait_s_);
      flat_s_ = 0;
    } else if (level < in.memory_close && allowed >= 1) {
      suspended_ = false;
    } else if (suspended_s_ > kProven_s) {
      wait_s_ = kFirstWait_s;
      if (evidence_left_s_ <= 0) armed_ = suspended_ = false;
    }
  } else if (allowed < 1 && flat_s_ >= wait_s_ && level < kLastProbe) {
    suspended_ = true;
    suspended_level_ = level;
    suspended_s_ = 0;
  }
  if (suspended_) {
    open_ = false;
    allowed = std::max(allowed, std::min(1.0, suspended_s_ / kReopen_s));
  }

  admit_ = allowed;
  if (futile_left_s_ > 0) {
    futile_left_s_ -= interval_s;
    open_ = false;
    admit_ = 1;
  }
}

void LiveBudget::update(const StrategyInput& in, double interval_s) {
  bytes_max_ = 0;
  const Signals& signals = in.signals;
  std::uint64_t in_flight = 0;
  std::uint64_t closed = 0;
  std::uint64_t bytes = 0;
  bool counted = false;
  for (const EndpointInput& endpoint : in.endpoints) {
    const EndpointActivity& activity = endpoint.activity;
    if (!endpoint.tcp || !activity.in_flight_known) continue;
    counted = true;
    in_flight += activity.in_flight;
    closed += activity.closed;
    bytes += activity.received_bytes;
  }
  const double keep = std::exp(-interval_s / kRecent_s);
  recent_bytes_ = recent_bytes_ * keep + static_cast<double>(bytes);
  largest_bytes_ *= std::exp(-interval_s / kLargest_s);
  if (closed > 0) {
    largest_bytes_ =
        std::max(largest_bytes_, static_cast<double>(bytes) / static_cast<double>(closed));
  }

  if (!counted || !signals.memory.known() || !usable((*signals.memory).value) ||
      !signals.memory_limit_bytes.known() || *signals.memory_limit_bytes > kLimitMost) {
    return;
  }
  const double limit = static_cast<double>(*signals.memory_limit_bytes);
  const double used = (*signals.memory).value * limit;
  if (base_bytes_ < 0 || used < base_bytes_) {
    base_bytes_ = used;
  } else if (in_flight <= kIdleInFlight) {
    base_bytes_ += -std::expm1(-interval_s / kBaseRise_s) * (used - base_bytes_);
  }
  const double floor = std::max(2 * largest_bytes_, kFloorShare * limit / set_->live_amplification);
  const double budget =
      (set_->live_share * limit - base_bytes_) / set_->live_amplification - recent_bytes_;
  const double bytes_max = std::clamp(std::max(budget, floor), 1.0, 1e18);
  bytes_max_ = static_cast<std::uint64_t>(bytes_max);
}

}  // namespace headgate::adaptive
