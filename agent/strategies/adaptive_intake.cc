// SPDX-License-Identifier: Apache-2.0
#include "agent/strategies/adaptive_intake.h"

#include <algorithm>
#include <cmath>

namespace headgate::adaptive {
namespace {

/// Ticks closer together than this are merged: a sample of a few milliseconds has use 0 or 3.
constexpr double kLeastInterval_s = 0.04;
constexpr double kCountMost = 1e9;
constexpr double kBytesMost = 1e15;
constexpr double kUseMost = 1e3;

double number(std::uint64_t n) { return std::min(static_cast<double>(n), kCountMost); }

double kilobytes(std::uint64_t bytes) {
  return std::min(static_cast<double>(bytes), kBytesMost) / kBytesPerKb;
}

bool known(const Measured<Ratio>& ratio) {
  return ratio.known() && std::isfinite((*ratio).value) && (*ratio).value >= 0;
}

}  // namespace

void Intake::resize(std::size_t endpoints) {
  count_ = endpoints;
  admitted_.assign(2 * endpoints, 0.0);
  refused_.assign(2 * endpoints, 0.0);
  completed_.assign(2 * endpoints, 0.0);
  for (auto* v : {&offered_, &offered_kb_, &sized_}) v->assign(endpoints, 0.0);
  in_flight_.assign(endpoints, 0);
  sizes_known_.assign(endpoints, false);
}

void Intake::clear() {
  for (auto* v : {&admitted_, &refused_, &completed_, &offered_, &offered_kb_, &sized_}) {
    std::fill(v->begin(), v->end(), 0.0);
  }
  gathered_s_ = work_s_ = blind_s_ = pressure_s_ = pressure_known_s_ = 0;
  periods_ = throttled_ = -1;
}

void Intake::add(const StrategyInput& in, const Arrivals& arrivals, const CostModel& cost) {
  for (std::size_t i = 0; i < count_; ++i) {
    const EndpointInput& endpoint = in.endpoints[i];
    const EndpointActivity& a = endpoint.activity;
    const bool counted = set_->use_connections && endpoint.tcp && a.in_flight_known;
    const double requests = number(counted ? a.established : a.admitted);
    const double closed = number(a.closed);
    offered_[i] += number(a.offered);
    admitted_[i] += requests;
    in_flight_[i] = std::min<std::uint64_t>(a.in_flight, std::uint64_t{1} << 30U);
    sizes_known_[i] = a.sizes_known;
    double kb = 0;
    if (a.sizes_known) {
      kb = kilobytes(a.admitted_bytes);
      offered_kb_[i] += kilobytes(a.offered_bytes);
      sized_[i] += number(a.offered);
      completed_[count_ + i] += closed * arrivals.kb(i);
    } else if (counted) {
      const double received = kilobytes(a.received_bytes);
      kb = requests * (closed > 0 ? received / closed : arrivals.kb(i));
      offered_kb_[i] += received;
      sized_[i] += closed;
      completed_[count_ + i] += received;
    }
    admitted_[count_ + i] += kb;
    if (endpoint.refused_by_server) {
      const double cost_s = cost.cost(i, arrivals.kb(i));
      const double assumed = cost_s > 0
                                 ? std::min(set_->refused_share, set_->refused_most_s / cost_s)
                                 : set_->refused_share;
      const double share = assumed * cost.refusal_factor();
      const double refused = share * number(a.refused);
      const double refused_kb =
          share * std::max(0.0, kilobytes(a.offered_bytes) - kilobytes(a.admitted_bytes));
      refused_[i] += refused;
      refused_[count_ + i] += refused_kb;
      admitted_[i] += refused;
      admitted_[count_ + i] += refused_kb;
    }
    completed_[i] += closed;
  }
}

double Intake::inflow_per_s(double tick_s) const {
  double requests = 0;
  double kb = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    requests += admitted_[i];
    kb += admitted_[count_ + i];
  }
  return (kb > 0 ? kb : requests) / (gathered_s_ + tick_s);
}

bool Intake::finish(const Signals& signals, Interval& out) {
  const double tick_s = seconds(signals.interval);
  gathered_s_ += tick_s;
  if (signals.periods.known() && signals.throttled_periods.known()) {
    periods_ = std::max(0.0, periods_) + static_cast<double>(*signals.periods);
    throttled_ = std::max(0.0, throttled_) + static_cast<double>(*signals.throttled_periods);
  }
  if (known(signals.cpu_pressure)) {
    pressure_s_ += std::min(1.0, (*signals.cpu_pressure).value) * tick_s;
    pressure_known_s_ += tick_s;
  }
  if (!known(signals.cpu)) {
    blind_s_ += tick_s;
    return false;
  }
  work_s_ +=
      std::min((*signals.cpu).value, kUseMost) * signals.capacity_cores * (tick_s + blind_s_);
  blind_s_ = 0;
  if (gathered_s_ < kLeastInterval_s) return false;
  out.length_s = gathered_s_;
  out.capacity_cores = signals.capacity_cores;
  out.work_s = work_s_;
  out.use = work_s_ / out.capacity_s();
  out.periods = periods_;
  out.throttled = throttled_;
  out.pressure = pressure_known_s_ > 0 ? pressure_s_ / pressure_known_s_ : -1;
  return true;
}

}  // namespace headgate::adaptive
