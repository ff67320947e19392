// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "agent/strategies/adaptive_settings.h"

namespace headgate::adaptive {

/// What a request costs: CPU-seconds(endpoint, KB) = factor x (per_request + per_kb x KB), and a
/// base that the target uses without any request.
///
/// It is learned on busy windows, from one unsaturated interval to the next: at both ends nothing
/// waits, so the CPU used in between is exactly the base plus the cost of what was let in. Inside a
/// regulated window usage is constant whatever the cost, so a plain regression there would put
/// everything into the base and believe that requests are free; hence the three parts apart: the
/// base only at light load, the common factor as a ratio of sums, the relative costs on usage over
/// the factor.
class CostModel {
 public:
  explicit CostModel(const Settings& settings) : set_(settings) {}

  /// Allocates; only when the number of endpoints changes.
  void resize(std::size_t endpoints);
  [[nodiscard]] std::size_t endpoints() const { return count_; }

  /// What came in during an interval: requests of endpoint i at [i], their KB at [n + i].
  void start(std::span<const double> admitted);
  /// Sizes of endpoint i were not known before: part of its cost is attributed to bytes, and what
  /// was learned so far counts as requests of this size.
  void size_known(std::size_t i, double kb);

  [[nodiscard]] double work(std::span<const double> x) const;  ///< before the factor
  [[nodiscard]] double per_request(std::size_t i) const { return cost_[i] * assumed(i); }
  [[nodiscard]] double per_kb(std::size_t i) const { return cost_[count_ + i] * assumed(i); }
  /// Of one request of this size, before the factor.
  [[nodiscard]] double unit(std::size_t i, double kb) const {
    return (cost_[i] + cost_[count_ + i] * kb) * assumed(i);
  }
  /// CPU-seconds of it.
  [[nodiscard]] double cost(std::size_t i, double kb) const { return factor_ * unit(i, kb); }
  [[nodiscard]] double factor() const { return factor_; }
  /// What a refusal costs, in what was assumed of it.
  [[nodiscard]] double refusal_factor() const { return refusal_factor_; }
  [[nodiscard]] double base_cores() const { return base_cores_; }
  [[nodiscard]] double sigma() const;
  /// Windows that told something; the bucket waits for ten.
  [[nodiscard]] unsigned windows() const { return windows_; }

  // One interval: add(), then either close() or saturated() things. `refused`: the part of
  // `admitted` that stands for calls which the server refused itself.
  void add(std::span<const double> admitted, std::span<const double> refused,
           const Interval& interval);
  /// An unsaturated interval ends the window. `calm`: no overload is being regulated.
  void close(std::span<const double> admitted, const Interval& interval, bool calm, unsigned search,
             unsigned saturated_intervals);
  /// Forget the window without learning from it.
  void drop_window();

  /// The endpoint's part of the work of the open window, before the factor.
  [[nodiscard]] double work_of(std::size_t i) const;
  /// Work of the open window that the model expects and the target has not done yet.
  [[nodiscard]] double backlog_s() const;
  /// The work done cannot exceed the work let in: raises the factor where it does. A3.
  bool apply_lower_bound(const Interval& interval);
  /// Completions tell the cost while nothing else can. Returns true where they did.
  /// `completed`: as `admitted`, of what ended; `first`: a saturated stretch begins.
  bool learn_completions(double completed_work, double unit_work, const Interval& interval,
                         bool first, bool usable);

  struct State {
    double base_cores, factor, factor_work, factor_model, sigma2;
    unsigned windows;
    unsigned reserved = 0;  ///< no padding: it is saved byte by byte
  };
  static_assert(sizeof(State) == 5 * sizeof(double) + 2 * sizeof(unsigned));
  [[nodiscard]] State state() const {
    return {base_cores_, factor_, sum_work_, sum_model_, sigma2_, windows_, 0};
  }
  bool restore(const State& state);
  bool restore_costs(std::size_t i, double per_request, double per_kb);

 private:
  static constexpr unsigned kWarmWindows = 3;  ///< that have told something

  void set_factor(double factor, double capacity_cores);
  void learn_base(double model_work, const Interval& interval);
  void learn_relative();
  /// What the common factor has found is no evidence of an endpoint that has never been seen.
  [[nodiscard]] double assumed(std::size_t i) const {
    if (acquaintances_[i].seen) return 1;
    return set_.newcomers && windows_ >= kWarmWindows ? 1 / factor_ : 1;
  }
  [[nodiscard]] bool newcomer(std::size_t i) const {
    return acquaintances_[i].windows < kWarmWindows;
  }
  bool explain_by_newcomers(double work_s);
  [[nodiscard]] bool mostly_refused() const;
  /// With one endpoint the only relative cost is that of a request to a KB, and what grows by half
  /// in a tick is to be believed.
  [[nodiscard]] bool steady() const { return set_.steady_relative && seen_count_ > 1; }
  void learn_refusals(double work_s);
  [[nodiscard]] double& scatter(std::size_t a, std::size_t b) {
    return scatter_[a * 2 * count_ + b];
  }

  const Settings& set_;
  std::size_t count_ = 0;
  bool started_ = false, restored_ = false;
  std::vector<double> cost_;     ///< [0, n): per request, [n, 2n): per KB
  std::vector<double> scatter_;  ///< sum of x x', forgetting
  std::vector<double> moment_;   ///< sum of x times usage over factor
  std::vector<double> gradient_, weight_, before_, mix_;
  std::vector<double> window_;          ///< sum of x since the window began
  std::vector<double> window_refused_;  ///< the part of it that stands for refusals
  bool any_refused_ = false;
  /// What is known of an endpoint.
  struct Acquaintance {
    bool seen = false;
    unsigned windows = 0;  ///< that told of it
    double usual = 0;      ///< work of a request, once it is no newcomer
  };
  std::vector<Acquaintance> acquaintances_;
  std::size_t seen_count_ = 0, known_count_ = 0;
  double window_work_s_ = 0;
  double window_s_ = 0;

  double factor_ = 1;
  double refusal_factor_ = 1;
  struct Mix {
    double aa = 0, ar = 0, rr = 0, ay = 0, ry = 0;
  } refusal_mix_;  ///< moments of admitted and refused work and of the work done
  double sum_work_ = 0, sum_model_ = 0;  ///< factor = their ratio
  double sigma2_ = 0.01;                 ///< variance of the innovation of one interval
  unsigned windows_ = 0;
  unsigned surprises_ = 0;  ///< in a row

  double base_cores_ = 0;
  double least_use_cores_ = 1e9;
  double base_weight_ = 0, base_x_ = 0, base_y_ = 0, base_xx_ = 0, base_xy_ = 0;

  struct Completions {
    double memory_s;
    double doubt;  ///< standard deviations
    double work_s = 0, model = 0;
  };
  std::array<Completions, 2> completions_{
      {{.memory_s = 0.5, .doubt = 2}, {.memory_s = 3, .doubt = 1}}};
};

}  // namespace headgate::adaptive
