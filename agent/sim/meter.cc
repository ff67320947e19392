// SPDX-License-Identifier: Apache-2.0
#include "agent/sim/meter.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "agent/sim/pod.h"

namespace headgate::sim {
namespace {

constexpr double kWindowS = 0.1;
constexpr std::size_t kWindowsInSecond = 10;
/// A queue of this much capacity is one.
constexpr double kBacklogS = 0.25;
constexpr double kNoticeableShare = 0.01;
constexpr double kDangerFactor = 1.05;
constexpr double kAfterOverloadS = 5;
constexpr int kCleanWindows = 30;

double quantile_ms(std::vector<float>& values, std::size_t rank) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(rank);
  std::nth_element(values.begin(), at, values.end());
  return *at * 1000.0;
}

/// The least critical class gives first and keeps its floors; what is then missing all give alike.
std::vector<double> ideal_allocation(const std::vector<EndpointLoad>& endpoints,
                                     const std::vector<double>& offered, double missing) {
  constexpr double kNone = 1e-9;
  std::vector<double> ideal = offered;
  for (int level = 0; level < static_cast<int>(Criticality::kCount) && missing > kNone; ++level) {
    const auto in_class = [&](std::size_t i) {
      return static_cast<int>(endpoints[i].criticality) == level;
    };
    double reducible = 0;
    for (std::size_t i = 0; i < ideal.size(); ++i) {
      if (in_class(i)) reducible += offered[i] * (1 - endpoints[i].floor);
    }
    const double share = reducible > 0 ? std::min(1.0, missing / reducible) : 0;
    for (std::size_t i = 0; i < ideal.size(); ++i) {
      if (in_class(i)) ideal[i] -= share * offered[i] * (1 - endpoints[i].floor);
    }
    missing -= share * reducible;
  }
  if (missing > kNone) {
    const double left = std::accumulate(ideal.begin(), ideal.end(), 0.0);
    const double keep = left > 0 ? std::max(0.0, 1 - missing / left) : 0;
    for (double& share : ideal) share *= keep;
  }
  return ideal;
}

}  // namespace

Meter::Meter(const Scenario& scenario, bool keeps_windows)
    : scenario_(scenario),
      keeps_windows_(keeps_windows),
      delay_ticks_(std::llround(scenario.delay_s / kTickS)),
      total_offered_s_(scenario.endpoints.size()),
      total_admitted_s_(scenario.endpoints.size()),
      second_offered_s_(scenario.endpoints.size()),
      second_admitted_s_(scenario.endpoints.size()) {}

void Meter::offered(std::uint32_t endpoint, double work_s, bool first_attempt) {
  offered_s_ += work_s;
  ++arrivals_;
  ++flip_arrivals_;
  total_offered_s_[endpoint] += work_s;
  second_offered_s_[endpoint] += work_s;
  if (first_attempt) first_offered_s_ += work_s;
}

void Meter::admitted(std::uint32_t endpoint, double work_s) {
  admitted_s_ += work_s;
  total_admitted_s_[endpoint] += work_s;
  second_admitted_s_[endpoint] += work_s;
}

void Meter::refused() {
  ++refusals_;
  ++flip_refusals_;
}

void Meter::withdrawn(std::uint32_t endpoint, double work_s) {
  refused();
  total_admitted_s_[endpoint] -= work_s;
  second_admitted_s_[endpoint] -= work_s;
}

void Meter::finished(double work_s, double delay_s, bool useful) {
  delays_s_.push_back(static_cast<float>(delay_s));
  if (useful) metrics_.useful_work_s += work_s;
}

void Meter::end_tick(std::int64_t tick, const PodNow& pod) {
  const double now_s = static_cast<double>(tick) * kTickS;
  metrics_.peak_backlog_s = std::max(metrics_.peak_backlog_s, pod.backlog_s);
  metrics_.memory_peak_mib = std::max(metrics_.memory_peak_mib, pod.memory_mib);
  if (tick % 100 == 99) end_window(now_s, pod);
  // What a decision does is seen in whole windows of its own time.
  if ((tick - delay_ticks_ % 100 + 100) % 100 == 99) end_flip_window();
  if (tick % 200 == 199) {
    const double background_s = scenario_.background_cores.at(now_s) * 2 * kWindowS;
    optimum_s_ += std::min(first_offered_s_, std::max(0.0, possible_s_ - background_s));
    first_offered_s_ = possible_s_ = 0;
  }
  if (tick % 1000 == 999) end_allocation_window();
}

void Meter::end_window(double now_s, const PodNow& pod) {
  const double capacity_s = pod.capacity_cores * kWindowS;
  admitted_second_.push_back(admitted_s_);
  admitted_second_s_ += admitted_s_;
  if (admitted_second_.size() > kWindowsInSecond) {
    admitted_second_s_ -= admitted_second_.front();
    admitted_second_.pop_front();
  }
  const bool danger = scenario_.even_arrivals
                          ? admitted_s_ > kDangerFactor * capacity_s
                          : admitted_second_s_ > kDangerFactor * capacity_s *
                                                     static_cast<double>(admitted_second_.size());
  if (danger) metrics_.danger_s += kWindowS;
  const bool backlogged = pod.backlog_s / pod.capacity_cores > kBacklogS;
  const double from_s = scenario_.overload_from_s;
  if (scenario_.has_overload()) judge_recovery(now_s, backlogged);
  const bool near_overload = scenario_.has_overload() && now_s >= from_s &&
                             now_s < scenario_.overload_to_s + kAfterOverloadS;
  if (!near_overload) {
    calm_arrivals_ += arrivals_;
    calm_refusals_ += refusals_;
  }
  if (keeps_windows_) {
    windows_.push_back({now_s + kTickS, offered_s_ / kWindowS, admitted_s_ / kWindowS, pod.cpu,
                        pod.backlog_s, arrivals_ > 0 ? refusals_ / arrivals_ : 0,
                        pod.memory_mib / scenario_.memory_limit_mib});
  }
  possible_s_ += capacity_s;
  offered_s_ = admitted_s_ = arrivals_ = refusals_ = 0;
}

void Meter::judge_recovery(double now_s, bool backlogged) {
  const bool in_overload = now_s >= scenario_.overload_from_s && now_s < scenario_.overload_to_s;
  if (in_overload && backlogged) last_bad_s_ = now_s - scenario_.overload_from_s;
  last_second_.emplace_back(arrivals_, refusals_);
  if (last_second_.size() > kWindowsInSecond) last_second_.pop_front();
  if (now_s < scenario_.overload_to_s) return;
  double arrivals = 0;
  double refusals = 0;
  for (const auto& [arrived, refused] : last_second_) {
    arrivals += arrived;
    refusals += refused;
  }
  if (refusals > kNoticeableShare * arrivals || backlogged) {
    clean_windows_ = 0;
    if (!recovered_) last_unrecovered_s_ = now_s - scenario_.overload_to_s;
  } else if (++clean_windows_ >= kCleanWindows) {
    recovered_ = true;
  }
}

void Meter::end_flip_window() {
  const double share = flip_arrivals_ > 0 ? flip_refusals_ / flip_arrivals_ : 0;
  const bool refusing = share > kNoticeableShare;
  if (refusing != refusing_) ++metrics_.flips;
  refusing_ = refusing;
  metrics_.total_variation += std::fabs(share - last_share_);
  last_share_ = share;
  flip_arrivals_ = flip_refusals_ = 0;
}

void Meter::end_allocation_window() {
  if (scenario_.endpoints.size() > 1) {
    const double offered = std::accumulate(second_offered_s_.begin(), second_offered_s_.end(), 0.0);
    const double admitted =
        std::accumulate(second_admitted_s_.begin(), second_admitted_s_.end(), 0.0);
    if (admitted < offered * 0.97) {
      const std::vector<double> ideal =
          ideal_allocation(scenario_.endpoints, second_offered_s_, offered - admitted);
      for (std::size_t i = 0; i < ideal.size(); ++i) {
        misallocated_s_ += std::fabs(ideal[i] - second_admitted_s_[i]) * 0.5;
      }
      allocated_s_ += admitted;
    }
  }
  std::fill(second_offered_s_.begin(), second_offered_s_.end(), 0.0);
  std::fill(second_admitted_s_.begin(), second_admitted_s_.end(), 0.0);
}

Metrics Meter::result(int oom_kills) {
  Metrics m = metrics_;
  m.oom_kills = oom_kills;
  m.goodput = optimum_s_ > 0 ? m.useful_work_s / optimum_s_ : 0;
  if (!delays_s_.empty()) {
    m.p99_delay_ms = quantile_ms(
        delays_s_, static_cast<std::size_t>(0.99 * static_cast<double>(delays_s_.size() - 1)));
    m.p50_delay_ms = quantile_ms(delays_s_, delays_s_.size() / 2);
  }
  m.time_to_protect_s = last_bad_s_ < 0 ? 0 : last_bad_s_ + kWindowS;
  m.time_to_recover_s = last_unrecovered_s_ < 0 ? 0 : last_unrecovered_s_ + kWindowS;
  double offered = 0;
  double admitted = 0;
  for (std::size_t i = 0; i < total_offered_s_.size(); ++i) {
    offered += total_offered_s_[i];
    admitted += total_admitted_s_[i];
    m.admitted_share.push_back(total_offered_s_[i] > 0 ? total_admitted_s_[i] / total_offered_s_[i]
                                                       : 1);
  }
  m.refused_share = offered > 0 ? 1 - admitted / offered : 0;
  m.adherence = allocated_s_ > 0 ? 1 - misallocated_s_ / allocated_s_ : 1;
  m.false_refused_share = calm_arrivals_ > 0 ? calm_refusals_ / calm_arrivals_ : 0;
  return m;
}

}  // namespace headgate::sim
