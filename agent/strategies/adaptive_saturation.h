// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "agent/strategies/adaptive_connections.h"
#include "agent/strategies/adaptive_settings.h"

namespace headgate::adaptive {

/// Is the CPU full, is it taken away, does anybody wait: the verdicts about one interval, and the
/// capacity that is left.
class Saturation {
 public:
  explicit Saturation(const Settings& settings) : set_(&settings) {}

  /// What the cost model makes of the interval. CPU-seconds.
  struct Model {
    double predicted_s = 0;  ///< work that came in, and the base
    double in_flight_s = 0;  ///< work on all that is there
    double sigma = 0;        ///< relative error
  };
  /// `connections` learns whether what it says goes with what the CPU says.
  void judge(const Interval& interval, const Model& model, Connections& connections);
  void follow_capacity(const Interval& interval);
  /// The process has gone: what was concluded about it goes, the capacity stays.
  void settle(const Interval& interval);
  void forget();  ///< CPU is not known any more

  /// Work may be left over from the interval: the busy window stays open.
  [[nodiscard]] bool saturated() const { return saturated_; }
  [[nodiscard]] bool by_cpu() const { return by_cpu_; }
  [[nodiscard]] bool lost() const { return loss_intervals_ >= set_->pressure_ticks; }
  /// Nobody waits by the counts of connections, and by the CPU somebody must.
  [[nodiscard]] bool contradicted() const { return contradicted_; }
  /// Capacity may have been taken away, and no count of connections can tell.
  [[nodiscard]] bool doubtful() const { return doubtful_; }
  /// Some task has waited for the CPU without a break.
  [[nodiscard]] bool waited_long() const;
  /// CPU-seconds that a full interval does.
  [[nodiscard]] double full_s(const Interval& interval) const {
    return std::min(threshold(), 1.0) * capacity_cores_ * interval.length_s;
  }

  [[nodiscard]] double capacity_cores() const { return capacity_cores_; }
  [[nodiscard]] double share() const { return share_; }  ///< of the nominal capacity
  void restore(double share) { share_ = share; }
  /// No quota throttles in a time in which the CPU is idle enough for calm.
  [[nodiscard]] static bool calm(const Interval& interval);

 private:
  [[nodiscard]] bool hard_quota() const;
  [[nodiscard]] double threshold() const { return hard_quota() ? set_->saturated_at : 1e9; }
  void forget_verdicts();
  void learn_quota(const Interval& interval);
  void judge_loss(const Interval& interval, const Model& model, const Connections& connections);
  void judge_cpu(const Interval& interval);
  [[nodiscard]] bool contradicts(const Interval& interval, const Model& model, bool waits);

  const Settings* set_;
  bool saturated_ = false, by_cpu_ = false, throttled_ = false;
  bool pressed_ = false, proven_ = false, doubtful_ = false, contradicted_ = false;
  unsigned loss_intervals_ = 0;
  double modelled_backlog_s_ = 0;
  double full_for_s_ = 0, waiting_for_s_ = 0;
  double waiting_intervals_ = 0, full_model_s_ = 0, full_done_s_ = 0;
  unsigned soft_intervals_ = 0;
  bool soft_ = false;
  double capacity_cores_ = 0, share_ = 1;  ///< effective
};

}  // namespace headgate::adaptive
