// SPDX-License-Identifier: Apache-2.0
#include "agent/strategies/adaptive_saturation.h"

#include <cmath>

namespace headgate::adaptive {
namespace {

constexpr double kThrottledUse = 0.7;  ///< two threads use up a quota in bursts well below it
constexpr double kCalmPressure = 0.5;
constexpr double kSoftUse = 1.3;  ///< a CFS burst carries at most one quota over
constexpr unsigned kSoftIntervals = 5;
constexpr double kLossMargin = 0.05;  ///< below saturated_at
constexpr double kLossMemory = 0.3;
constexpr double kCapacityReturns_s = 0.5;
constexpr double kCapacityTried_s = 2;
constexpr double kLeastCapacity = 0.05;  ///< of the nominal one
constexpr double kUndoneShare = 0.5;     ///< of an interval
constexpr double kUndoneMemory_s = 0.5;
constexpr double kFullLong_s = 1.2;
constexpr double kAlwaysWaiting = 0.9;  ///< cpu.pressure
constexpr double kMostlyWaiting = 0.6;
constexpr double kWaitingLong_s = 0.15;

/// Every period throttled (Documentation/scheduler/sched-bwc.rst).
bool all_throttled(const Interval& interval) {
  return interval.periods >= 1 && interval.throttled >= interval.periods;
}

}  // namespace

bool Saturation::calm(const Interval& interval) {
  return interval.use < kThrottledUse && interval.throttled <= 0 &&
         interval.pressure < kCalmPressure;
}

bool Saturation::hard_quota() const {
  return set_->quota == Quota::kHard || (set_->quota == Quota::kAuto && !soft_);
}

bool Saturation::waited_long() const { return waiting_for_s_ > kWaitingLong_s; }

void Saturation::judge(const Interval& interval, const Model& model, Connections& connections) {
  learn_quota(interval);
  judge_loss(interval, model, connections);
  judge_cpu(interval);
  saturated_ = by_cpu_;
  contradicted_ = false;
  if (!set_->use_connections) return;
  const bool waits = connections.keeps_window_open(interval);
  contradicted_ = contradicts(interval, model, waits);
  connections.judge(contradicted_, interval);
  // Where it can be seen that nobody waits, a full CPU is no reason to keep the window open.
  if (connections.pending_known()) {
    saturated_ = connections.keeps_window_open(interval) || contradicted_ || lost();
  }
}

void Saturation::learn_quota(const Interval& interval) {
  soft_intervals_ = interval.use > kSoftUse ? soft_intervals_ + 1 : 0;
  if (interval.throttled > 0) {
    soft_ = false;
  } else if (soft_intervals_ >= kSoftIntervals) {
    soft_ = true;
  }
}

/// Pressure counts the target's own throttling and every short wait for a busy neighbour, so a
/// healthy target reads above 0.8 too. Work that was let in and is not done is the evidence; where
/// it can only be modelled it is needed once, because a cut makes it vanish. A quota that is used
/// up in every period well below what is taken for the capacity needs no other evidence: the
/// capacity is smaller.
void Saturation::judge_loss(const Interval& interval, const Model& model,
                            const Connections& connections) {
  pressed_ = interval.pressure > set_->pressure_loss && interval.use < threshold() - kLossMargin;
  proven_ = true;
  doubtful_ = false;
  bool before = false;
  if (set_->loss_needs_backlog) {
    modelled_backlog_s_ =
        std::max(0.0, modelled_backlog_s_ * std::exp(-interval.length_s / kUndoneMemory_s) +
                          model.predicted_s - interval.work_s);
    const bool undone = modelled_backlog_s_ > kUndoneShare * interval.capacity_s();
    const bool counted = connections.pending_known();
    proven_ = (hard_quota() && all_throttled(interval)) ||
              (counted ? connections.proves_loss(interval) : undone);
    before = !counted && loss_intervals_ > 0;
    doubtful_ = pressed_ && !counted;
  }
  loss_intervals_ = pressed_ && (proven_ || before) ? loss_intervals_ + 1 : 0;
}

void Saturation::judge_cpu(const Interval& interval) {
  // An interval without a period is an idle group's stopped timer: it says nothing, so the verdict
  // before stands.
  if (interval.periods >= 1 || !set_->hold_verdict) {
    throttled_ = all_throttled(interval) && interval.periods >= set_->min_throttled_periods;
  }
  // Pressure that goes on proves nothing by itself: with all done that came in, nothing is full.
  by_cpu_ = (lost() && proven_) || interval.use >= threshold() ||
            (hard_quota() && throttled_ && interval.periods >= 0 && interval.use > kThrottledUse);
}

/// Nobody waits, but the CPU is full (or taken away) and by the model more was let in than is done,
/// or less than would fill it; or it is full for longer than chance keeps it so. Then the server
/// answers before it works, and in flight is no evidence.
bool Saturation::contradicts(const Interval& interval, const Model& model, bool waits) {
  const double one_s = full_s(interval);
  const bool full = by_cpu_ && !waits;
  const bool always_waiting = full && interval.pressure > kAlwaysWaiting;
  full_for_s_ = full ? full_for_s_ + interval.length_s : 0;
  waiting_for_s_ = always_waiting ? waiting_for_s_ + interval.length_s : 0;
  const bool mostly_waiting = full && interval.pressure > kMostlyWaiting;
  waiting_intervals_ = mostly_waiting ? waiting_intervals_ + 1 : 0;
  full_done_s_ = full ? full_done_s_ + one_s : 0;
  // Since it is full: what was there and what has come in.
  full_model_s_ = full ? full_model_s_ + model.predicted_s : model.in_flight_s;
  if (waits) return false;
  const bool undone = modelled_backlog_s_ > kUndoneShare * interval.capacity_s();
  // Less is chance the longer it lasts, as long as the CPU is waited for most of the time.
  const double chance =
      set_->alarm_sigmas * model.sigma / std::sqrt(std::max(1.0, waiting_intervals_));
  const bool too_little = full_model_s_ * (1 + chance) < full_done_s_;
  const bool for_long = full_for_s_ > kFullLong_s || waited_long();
  return ((by_cpu_ || pressed_) && undone) || (by_cpu_ && too_little) ||
         (for_long && model.in_flight_s < one_s);
}

void Saturation::follow_capacity(const Interval& interval) {
  const double nominal = interval.capacity_cores;
  const double used = interval.work_s / interval.length_s;
  double effective = share_ * nominal;
  if (lost() && !proven_) {
    // All that comes in is done: more is tried, and what is not done then tells how much there is.
    effective += std::min(1.0, interval.length_s / kCapacityTried_s) * (nominal - effective);
  } else if (lost()) {
    effective = loss_intervals_ == set_->pressure_ticks
                    ? used
                    : effective + kLossMemory * (used - effective);
  } else if (loss_intervals_ == 0) {
    effective += std::min(1.0, interval.length_s / kCapacityReturns_s) * (nominal - effective);
  }
  capacity_cores_ = std::clamp(effective, kLeastCapacity * nominal, nominal);
  share_ = capacity_cores_ / nominal;
}

void Saturation::forget_verdicts() {
  saturated_ = by_cpu_ = throttled_ = pressed_ = doubtful_ = contradicted_ = false;
  loss_intervals_ = 0;
  modelled_backlog_s_ = full_for_s_ = waiting_for_s_ = 0;
  waiting_intervals_ = full_model_s_ = full_done_s_ = 0;
}

void Saturation::settle(const Interval& interval) {
  forget_verdicts();
  capacity_cores_ = share_ * interval.capacity_cores;
}

void Saturation::forget() {
  forget_verdicts();
  share_ = 1;
}

}  // namespace headgate::adaptive
