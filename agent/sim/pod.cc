// SPDX-License-Identifier: Apache-2.0
#include "agent/sim/pod.h"

#include <algorithm>
#include <cmath>

namespace headgate::sim {
namespace {

constexpr std::int64_t kPeriodTicks = 100;  // cpu.max of every container runtime: 100 ms
constexpr std::int64_t kPeriodPhaseTicks = 63;
constexpr double kPeriodS = kPeriodTicks * kTickS;
constexpr double kNothing_s = 1e-12;
/// What other threads may owe, and what refusals may: they do not pile up for ever.
constexpr double kMostBackgroundS = 0.3;
constexpr double kMostRefusalsS = 5;

}  // namespace

Pod::Pod(const Scenario& scenario)
    : scenario_(scenario),
      mean_cost_s_(scenario.mean_cost_s()),
      workers_(scenario.workers, kIdle),
      quota_left_s_(scenario.capacity_cores * kPeriodS),
      memory_mib_(scenario.memory_base_mib) {}

void Pod::begin_tick(std::int64_t tick) {
  now_s_ = static_cast<double>(tick) * kTickS;
  cores_ = scenario_.capacity_cores * scenario_.capacity.at(now_s_);
  if ((tick + kPeriodPhaseTicks) % kPeriodTicks == 0) {
    if (throttled_now_) ++throttled_periods_;
    ++periods_;
    throttled_now_ = false;
    quota_left_s_ = cores_ * kPeriodS;
  }
}

RequestHandle Pod::admit(std::uint32_t endpoint, float size_kb, float work_s,
                         std::int16_t attempt) {
  std::uint32_t place = 0;
  if (free_.empty()) {
    place = static_cast<std::uint32_t>(store_.size());
    store_.emplace_back();
  } else {
    place = free_.back();
    free_.pop_back();
  }
  const std::uint32_t use = store_[place].use + 1;
  store_[place] = {work_s,  work_s, size_kb, static_cast<float>(now_s_), endpoint, use,
                   attempt, false,  false};
  queue_.push_back(place);
  backlog_s_ += work_s;
  backlog_kb_ += size_kb;
  ++in_flight_;
  return {place, use};
}

Request* Pod::find(RequestHandle handle) {
  Request& request = store_[handle.place];
  return request.use == handle.use && !request.ended ? &request : nullptr;
}

void Pod::serve(PodEvents& events) {
  const double physical_s = static_cast<double>(scenario_.workers) * kTickS;
  double left_s = scenario_.hard_quota ? std::min(quota_left_s_, physical_s)
                                       : std::min(physical_s, 2 * cores_ * kTickS);
  if (is_down()) left_s = 0;
  used_s_ = 0;
  denied_ = false;

  background_s_ += scenario_.background_cores.at(now_s_) * kTickS;
  const double background_s = std::min({background_s_, left_s, physical_s});
  background_s_ = std::min(background_s_ - background_s, kMostBackgroundS);
  const double refusals_s = std::min(refusals_s_, left_s - background_s);
  refusals_s_ = std::min(refusals_s_ - refusals_s, kMostRefusalsS);
  left_s -= background_s;
  left_s -= refusals_s;
  used_s_ += background_s;
  used_s_ += refusals_s;

  for (std::uint32_t& worker : workers_) work_on(worker, left_s, events);

  if (denied_ || (!queue_.empty() && left_s <= kNothing_s)) {
    pressure_s_ += kTickS;
    if (scenario_.hard_quota && quota_left_s_ - used_s_ <= 1e-9) {
      throttled_s_ += kTickS;
      throttled_now_ = true;
    }
  }
  quota_left_s_ = std::max(0.0, quota_left_s_ - used_s_);
  usage_s_ += used_s_;
}

/// One worker for one tick.
void Pod::work_on(std::uint32_t& worker, double& left_s, PodEvents& events) {
  double tick_left_s = kTickS;
  while (tick_left_s > kNothing_s) {
    if (worker == kIdle && !next_request(worker, events)) return;
    if (left_s <= kNothing_s) {
      denied_ = true;
      return;
    }
    Request& request = store_[worker];
    const double done_s = std::min({static_cast<double>(request.left_s), tick_left_s, left_s});
    request.left_s = static_cast<float>(request.left_s - done_s);
    tick_left_s -= done_s;
    left_s -= done_s;
    used_s_ += done_s;
    backlog_s_ -= done_s;
    if (static_cast<double>(request.left_s) > 1e-9) continue;
    request.ended = true;
    --in_flight_;
    backlog_kb_ -= request.size_kb;
    retained_kb_ += request.size_kb;
    events.finished(request, now_s_ + (kTickS - tick_left_s));
    free_.push_back(worker);
    worker = kIdle;
  }
}

bool Pod::next_request(std::uint32_t& worker, PodEvents& events) {
  while (!queue_.empty()) {
    const std::uint32_t place = queue_.front();
    queue_.pop_front();
    Request& request = store_[place];
    if (!events.refuses_waiting(now_s_ - request.arrived_s)) {
      worker = place;
      return true;
    }
    backlog_s_ -= request.left_s;
    backlog_kb_ -= request.size_kb;
    --in_flight_;
    request.ended = true;
    events.refused_waiting(request);
    free_.push_back(place);
  }
  events.queue_is_empty();
  return false;
}

double Pod::account_memory() {
  leaked_mib_ += scenario_.leak_mib_per_s.at(now_s_) * kTickS;
  retained_kb_ = std::max(0.0, retained_kb_ - scenario_.drain_kb_per_s.at(now_s_) * kTickS);
  memory_mib_ = scenario_.memory_base_mib +
                scenario_.memory_per_kb_mib * (backlog_kb_ + retained_kb_) + leaked_mib_;
  if (!scenario_.oom_kills || memory_mib_ <= scenario_.memory_limit_mib || is_down()) return -1;
  return kill();
}

/// What waits and what was retained is lost.
double Pod::kill() {
  ++kills_;
  down_until_s_ = now_s_ + scenario_.restart_s;
  const auto drop = [&](std::uint32_t place) {
    store_[place].ended = true;
    free_.push_back(place);
  };
  for (const std::uint32_t place : queue_) drop(place);
  queue_.clear();
  for (std::uint32_t& worker : workers_) {
    if (worker != kIdle) drop(worker);
    worker = kIdle;
  }
  double cores = 0;
  double kb_per_s = 0;
  for (const EndpointLoad& e : scenario_.endpoints) {
    cores += e.rate_per_s * e.mean_cost_s();
    kb_per_s += e.rate_per_s * e.size_kb;
  }
  const double lost_s = retained_kb_ * cores / std::max(1e-9, kb_per_s);
  backlog_s_ = backlog_kb_ = retained_kb_ = leaked_mib_ = in_flight_ = refusals_s_ = 0;
  return lost_s;
}

}  // namespace headgate::sim
