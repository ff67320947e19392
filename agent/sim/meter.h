// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "agent/sim/scenario.h"

namespace headgate::sim {

/// What an experiment is judged by.
struct Metrics {
  /// Work done before the client's timeout over what could have been done with at most 200 ms of
  /// buffering: sum of min(offered, capacity) in windows of 200 ms. Above 1 where a longer buffer
  /// was used, or retries brought work back.
  double goodput = 0;
  double useful_work_s = 0;  ///< CPU-seconds
  double p99_delay_ms = 0;   ///< of finished requests, beyond their own work
  double p50_delay_ms = 0;
  double peak_backlog_s = 0;  ///< CPU-seconds admitted and not done
  /// Seconds in which more than 105 % of the capacity was admitted: windows of 100 ms, for Poisson
  /// arrivals the last ten of them.
  double danger_s = 0;
  int flips = 0;  ///< changes between "more than 1 % refused" and not, in windows of 100 ms
  double total_variation = 0;    ///< of the refused share, from window to window
  double time_to_protect_s = 0;  ///< from the onset until less than 0.25 s of capacity waits
  /// From the end of the overload to the first 3 s with less than 1 % refused and no backlog. The
  /// share is that of the last second: 1.1 s means 0.1 s.
  double time_to_recover_s = 0;
  double refused_share = 0;        ///< of the work offered
  double false_refused_share = 0;  ///< of the requests offered outside the overload and 5 s after
  int oom_kills = 0;
  double memory_peak_mib = 0;
  /// 1 - work that another class should have got over work admitted, against the ideal allocation
  /// by criticality and floors of the same amount.
  double adherence = 1;
  std::vector<double> admitted_share;  ///< of each endpoint's work
};

/// What is drawn over time: one window of 100 ms.
struct Window {
  double end_s = 0;
  double offered_cores = 0;
  double admitted_cores = 0;
  double cpu = 0;  ///< last usage read by the agent, over the limit
  double backlog_s = 0;
  double refused_share = 0;
  double memory = 0;  ///< of the limit
};

/// Counts as the experiment runs.
class Meter {
 public:
  explicit Meter(const Scenario& scenario, bool keeps_windows);

  void offered(std::uint32_t endpoint, double work_s, bool first_attempt);
  void admitted(std::uint32_t endpoint, double work_s);
  void refused();
  /// Was admitted, and then refused out of the queue.
  void withdrawn(std::uint32_t endpoint, double work_s);
  void finished(double work_s, double delay_s, bool useful);
  void lost(double work_s) { metrics_.useful_work_s -= work_s; }
  /// Last of each tick.
  struct PodNow {
    double capacity_cores = 0;
    double backlog_s = 0;
    double memory_mib = 0;
    double cpu = 0;
  };
  void end_tick(std::int64_t tick, const PodNow& pod);
  [[nodiscard]] Metrics result(int oom_kills);
  [[nodiscard]] std::vector<Window> take_windows() { return std::move(windows_); }

 private:
  void end_window(double now_s, const PodNow& pod);
  void end_flip_window();
  void judge_recovery(double now_s, bool backlogged);
  void end_allocation_window();

  const Scenario& scenario_;
  bool keeps_windows_;
  std::int64_t delay_ticks_;
  Metrics metrics_;
  std::vector<float> delays_s_;
  std::vector<Window> windows_;

  // windows of 100 ms
  double offered_s_ = 0, admitted_s_ = 0;
  double arrivals_ = 0, refusals_ = 0;
  std::deque<double> admitted_second_;
  double admitted_second_s_ = 0;
  // the same, later by the delay of decisions
  double flip_arrivals_ = 0, flip_refusals_ = 0;
  bool refusing_ = false;
  double last_share_ = 0;
  // windows of 200 ms
  double first_offered_s_ = 0, possible_s_ = 0, optimum_s_ = 0;
  // recovery
  double last_bad_s_ = -1, last_unrecovered_s_ = -1;
  int clean_windows_ = 0;
  bool recovered_ = false;
  std::deque<std::pair<double, double>> last_second_;
  double calm_arrivals_ = 0, calm_refusals_ = 0;
  // per endpoint, whole and of this second
  std::vector<double> total_offered_s_, total_admitted_s_;
  std::vector<double> second_offered_s_, second_admitted_s_;
  double misallocated_s_ = 0, allocated_s_ = 0;
};

}  // namespace headgate::sim
