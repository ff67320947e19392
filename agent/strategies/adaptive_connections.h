// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "headgate/strategy.h"

#include "agent/strategies/adaptive_settings.h"

namespace headgate::adaptive {

/// What the counts of connections (sock_ops) say about work that is pending.
///
/// A connection in flight is pending work only where its life is its service. That is not so where
/// connections are kept alive (told by their life in calm times), and not where the server answers
/// before it works (the CPU stays saturated with hardly anybody in flight). In both cases in flight
/// is no evidence, and the search for unexplained saturation does its work instead.
class Connections {
 public:
  explicit Connections(const Settings& settings) : set_(&settings) {}

  /// One tick, before the verdict about saturation. `calm`: CPU says that nothing waits.
  void count(const StrategyInput& in, double interval_s, bool calm);
  /// `cost_s`: CPU-seconds of everything in flight. Returns the part that is not in service.
  void weigh(double cost_s);
  /// `contradiction`: what the CPU and the cost model say does not go with nobody waiting.
  void judge(bool contradiction, const Interval& interval);
  /// Cores that one live connection takes, for kept connections.
  void learn_kept(const Interval& interval, double base_cores);

  /// Counts are there, every endpoint with traffic has them, and in flight is pending work.
  [[nodiscard]] bool pending_known() const { return all_counted_ && !kept_ && credible_; }
  [[nodiscard]] bool counted() const { return any_counted_; }
  [[nodiscard]] bool kept() const { return any_counted_ && kept_; }
  [[nodiscard]] double in_flight() const { return in_flight_; }
  /// Beyond those in service.
  [[nodiscard]] double waiting() const;
  [[nodiscard]] double pending_s() const { return pending_s_; }
  [[nodiscard]] bool keeps_window_open(const Interval& interval) const;
  [[nodiscard]] bool proves_loss(const Interval& interval) const;
  /// So many that no server only decodes them at once, and a good part of an interval's
  /// work.
  [[nodiscard]] bool surely_waiting(const Interval& interval) const;
  [[nodiscard]] double workers() const { return workers_; }
  [[nodiscard]] bool seen_kept() const { return kept_; }
  void restore(double workers, bool kept) {
    workers_ = workers;
    kept_ = kept;
  }
  /// How many kept connections the budget carries; 0 = not known.
  [[nodiscard]] std::uint64_t kept_max(double target, const Interval& interval,
                                       double base_cores) const;

 private:
  const Settings* set_;
  bool any_counted_ = false;
  bool all_counted_ = false;
  double unseen_work_s_ = 0;  ///< so long there may be work on requests that are not counted
  bool kept_ = false;
  bool credible_ = true;
  double in_flight_ = 0;
  double pending_s_ = 0;
  double workers_ = 0;  ///< median in flight while nothing waits: connections in service
  double calm_s_ = 0;   ///< without interruption
  double mean_in_flight_ = 0, closed_per_s_ = 0;
  double unexplained_s_ = 0;  ///< saturated with nothing pending
  double doubt_left_s_ = 0, doubt_s_ = 0;
  double credible_for_s_ = 1e9;
  double kept_work_s_ = 0, kept_time_s_ = 0;  ///< CPU-seconds over connection-seconds
};

}  // namespace headgate::adaptive
