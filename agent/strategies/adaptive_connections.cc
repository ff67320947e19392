// SPDX-License-Identifier: Apache-2.0
#include "agent/strategies/adaptive_connections.h"

#include <algorithm>
#include <cmath>

namespace headgate::adaptive {
namespace {

constexpr double kMost = 1e9;
constexpr double kLeastPending = 3;   ///< connections; fewer are chance
constexpr double kWindowShare = 0.2;  ///< of an interval's capacity
constexpr double kLossShare = 0.5;
constexpr double kMedianStep = 0.05;
constexpr double kLifeTime_s = 2;  ///< smoothing of the mean life
constexpr double kSeenLongEnough_s = 2;
constexpr double kKeptLife_s = 2;  ///< a mean life above this is no service
constexpr double kServedLife_s = 1;
constexpr double kDoubtAfter_s = 0.35;
constexpr double kDoubtAfterIntervals = 1.5;
constexpr double kSurelyPending = 16;
constexpr double kDoubt_s = 20;
constexpr double kLongestDoubt_s = 320;
constexpr double kSoonAgain_s = 60;
constexpr double kUnseenWork_s = 10;
constexpr double kKeptMemory_s = 3;
constexpr double kKeptLeast = 4;

}  // namespace

void Connections::count(const StrategyInput& in, double interval_s, bool calm) {
  any_counted_ = false;
  unseen_work_s_ = std::max(0.0, unseen_work_s_ - interval_s);
  in_flight_ = 0;
  double closed = 0;
  for (const EndpointInput& endpoint : in.endpoints) {
    const EndpointActivity& activity = endpoint.activity;
    if (endpoint.tcp && activity.in_flight_known) {
      any_counted_ = true;
      in_flight_ += std::min(static_cast<double>(activity.in_flight), kMost);
      closed += std::min(static_cast<double>(activity.closed), kMost);
    } else if (activity.offered > 0) {
      unseen_work_s_ = kUnseenWork_s;
    }
  }
  // An interval in which none of it came in does not make visible what is still worked on.
  all_counted_ = any_counted_ && unseen_work_s_ <= 0;
  if (!any_counted_ || !(interval_s > 0)) return;
  calm_s_ = calm ? calm_s_ + interval_s : 0;
  if (!calm || (in_flight_ <= 0 && closed <= 0)) return;

  const double step = kMedianStep * std::max(1.0, workers_ / 8);
  if (in_flight_ > workers_) workers_ = std::min(in_flight_, workers_ + step);
  if (in_flight_ < workers_) workers_ = std::max(in_flight_, workers_ - step);
  // Anew in each calm: what an overload leaves behind is no connection that is kept.
  const bool begins = calm_s_ <= interval_s;
  const double fresh = begins ? 1.0 : -std::expm1(-interval_s / kLifeTime_s);
  mean_in_flight_ += fresh * (in_flight_ - mean_in_flight_);
  closed_per_s_ += fresh * (closed / interval_s - closed_per_s_);
  if (calm_s_ < kSeenLongEnough_s) return;
  if (mean_in_flight_ > kKeptLife_s * closed_per_s_ && mean_in_flight_ > 1) {
    kept_ = true;
  } else if (mean_in_flight_ < kServedLife_s * closed_per_s_) {
    kept_ = false;
  }
}

double Connections::waiting() const { return std::max(0.0, in_flight_ - workers_); }

void Connections::weigh(double cost_s) {
  pending_s_ = in_flight_ > 0 ? cost_s * waiting() / in_flight_ : 0.0;
}

bool Connections::keeps_window_open(const Interval& interval) const {
  return pending_known() && waiting() > kLeastPending &&
         pending_s_ > kWindowShare * interval.capacity_s();
}

bool Connections::proves_loss(const Interval& interval) const {
  return waiting() > kLeastPending && pending_s_ > kLossShare * interval.capacity_s();
}

bool Connections::surely_waiting(const Interval& interval) const {
  return waiting() > std::max(kSurelyPending, workers_) &&
         pending_s_ > kWindowShare * interval.capacity_s();
}

void Connections::judge(bool contradiction, const Interval& interval) {
  if (!all_counted_ || kept_) {
    unexplained_s_ = 0;
    return;
  }
  if (surely_waiting(interval)) {  // whatever was concluded before
    unexplained_s_ = doubt_left_s_ = 0;
    credible_ = true;
    return;
  }
  unexplained_s_ = contradiction ? unexplained_s_ + interval.length_s : 0;
  const double doubt_after_s = std::max(kDoubtAfter_s, kDoubtAfterIntervals * interval.length_s);
  if (unexplained_s_ > doubt_after_s && doubt_left_s_ <= 0) {
    // Chance may bring this about once in a while, asynchronous work again and again.
    doubt_s_ = credible_for_s_ < kSoonAgain_s ? std::min(kLongestDoubt_s, 2 * doubt_s_) : kDoubt_s;
    doubt_left_s_ = doubt_s_;
    credible_for_s_ = 0;
  }
  if (doubt_left_s_ > 0) {
    doubt_left_s_ -= interval.length_s;
  } else {
    credible_for_s_ += interval.length_s;
  }
  credible_ = doubt_left_s_ <= 0;
}

void Connections::learn_kept(const Interval& interval, double base_cores) {
  const double keep = std::exp(-interval.length_s / kKeptMemory_s);
  kept_work_s_ =
      kept_work_s_ * keep + std::max(0.0, interval.work_s - base_cores * interval.length_s);
  kept_time_s_ = kept_time_s_ * keep + in_flight_ * interval.length_s;
}

std::uint64_t Connections::kept_max(double target, const Interval& interval,
                                    double base_cores) const {
  if (!(kept_time_s_ > 0) || !(kept_work_s_ > 0)) return 0;
  const double cores_each = kept_work_s_ / kept_time_s_;
  const double most = (target * interval.capacity_cores - base_cores) / cores_each;
  return static_cast<std::uint64_t>(std::clamp(most, kKeptLeast, 1e6));
}

}  // namespace headgate::adaptive
