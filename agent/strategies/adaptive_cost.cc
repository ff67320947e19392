// SPDX-License-Identifier: Apache-2.0
#include "agent/strategies/adaptive_cost.h"

#include <algorithm>
#include <cmath>

namespace headgate::adaptive {
namespace {

constexpr double kFactorMin = 0.02;
constexpr double kFactorMax = 200;
/// A window of less work than this share of the capacity says nothing about costs: after a hard cut
/// nearly empty windows would teach that requests are free.
constexpr double kInformative = 0.02;
/// From this share on one window is enough to believe that the cost has jumped.
constexpr double kTelling = 0.15;
constexpr unsigned kWarmWindows = 3;
/// A factor found under saturation keeps this much weight: the first closed window outweighs it.
constexpr double kProvisionalWeight = 0.1;
constexpr double kRidge = 0.05;
constexpr int kSweeps = 3;
/// Of more costs each is corrected once a window: the next one goes on from there.
constexpr std::size_t kManyCosts = 8;
constexpr double kShortWindow_s = 0.2;
constexpr double kCostMost_s = 1e5;
constexpr double kBaseMemory_s = 60;
constexpr double kRestoredWindows = 50;
constexpr double kBaseMaxShare = 0.2;  ///< of the capacity

double clamp_factor(double factor) { return std::clamp(factor, kFactorMin, kFactorMax); }

}  // namespace

void CostModel::resize(std::size_t endpoints) {
  count_ = endpoints;
  const std::size_t dims = 2 * endpoints;
  cost_.assign(dims, 0.0);
  scatter_.assign(dims * dims, 0.0);
  moment_.assign(dims, 0.0);
  gradient_.assign(dims, 0.0);
  weight_.assign(dims, 0.0);
  window_.assign(dims, 0.0);
  drop_window();
  started_ = restored_ = false;
}

void CostModel::start(std::span<const double> admitted) {
  if (started_) return;
  double total = 0;
  for (std::size_t i = 0; i < count_; ++i) total += admitted[i];
  if (!(total > 0)) return;
  started_ = true;
  for (std::size_t i = 0; i < count_; ++i) {
    const double kb = admitted[i] > 0 ? admitted[count_ + i] / admitted[i] : 0.0;
    cost_[i] = kb > 0 ? set_.prior_cost_s * (1 - set_.prior_byte_share) : set_.prior_cost_s;
    cost_[count_ + i] =
        kb > 0 ? std::min(kCostMost_s, set_.prior_cost_s * set_.prior_byte_share / kb) : 0.0;
  }
}

void CostModel::size_known(std::size_t i, double kb) {
  const std::size_t j = count_ + i;
  if (!started_ || !(kb > 0) || cost_[j] > 0) return;
  cost_[j] = std::min(kCostMost_s, cost_[i] * set_.prior_byte_share / kb);
  cost_[i] *= 1 - set_.prior_byte_share;
  for (std::size_t a = 0; a < 2 * count_; ++a) {
    scatter(a, j) = scatter(a, i) * kb;
    scatter(j, a) = scatter(i, a) * kb;
  }
  scatter(j, j) = scatter(i, i) * kb * kb;
  moment_[j] = moment_[i] * kb;
  window_[j] = window_[i] * kb;
}

double CostModel::work(std::span<const double> x) const {
  double sum = 0;
  for (std::size_t j = 0; j < 2 * count_; ++j) sum += cost_[j] * x[j];
  return sum;
}

double CostModel::sigma() const { return std::sqrt(sigma2_); }

void CostModel::add(std::span<const double> admitted, const Interval& interval) {
  least_use_cores_ = std::min(least_use_cores_ * (1 + interval.length_s / 60),
                              interval.use * interval.capacity_cores);
  for (std::size_t j = 0; j < 2 * count_; ++j) window_[j] += admitted[j];
  window_work_s_ += interval.work_s;
  window_s_ += interval.length_s;
}

void CostModel::drop_window() {
  std::fill(window_.begin(), window_.end(), 0.0);
  window_work_s_ = window_s_ = 0;
  for (Completions& recent : completions_) recent.work_s = recent.model = 0;
}

void CostModel::close(std::span<const double> admitted, const Interval& interval, bool calm,
                      unsigned search, unsigned saturated_intervals) {
  const double capacity_s = interval.capacity_cores * window_s_;
  const double model = work(window_);
  const bool informative = factor_ * model > kInformative * capacity_s;
  const double before = factor_;
  if (informative) {
    const double work_s = std::max(0.0, window_work_s_ - base_cores_ * window_s_);
    // Linear, it cannot fall below -1, so once sigma is above 0.33 no fall of the cost is a
    // surprise any more; the logarithm treats half and double alike.
    const double ratio = work_s / model / factor_;
    const double innovation = set_.log_innovation ? std::log(std::max(0.05, ratio)) : ratio - 1;
    const bool telling = factor_ * model > kTelling * capacity_s;
    const bool surprise = innovation * innovation > 9 * sigma2_ && std::fabs(innovation) > 0.1;
    surprises_ = surprise && telling ? surprises_ + 1 : 0;
    if (saturated_intervals == 0 && windows_ >= kWarmWindows) {
      const double most = set_.log_innovation && surprise ? 0.09 : 0.25;
      sigma2_ += std::min(1.0, 0.5 * interval.length_s) *
                 (std::min(innovation * innovation, most) - sigma2_);
    }
    const bool anew =
        search >= 2 || saturated_intervals >= 4 || windows_ < kWarmWindows || surprises_ >= 2;
    const double keep = anew ? 0.0 : std::exp(-window_s_ / set_.cost_memory_s);
    sum_work_ = sum_work_ * keep + work_s;
    sum_model_ = sum_model_ * keep + model;
    factor_ = clamp_factor(sum_work_ / sum_model_);
    if (windows_ >= kWarmWindows && factor_ < 0.5 * before) {
      factor_ = 0.5 * before;  // what is admitted may at most double in one interval
      sum_work_ = factor_ * sum_model_;
    }
  }

  const double factor_before_relative = factor_;
  const double explained = model * factor_;
  if (calm && interval.use < 0.8 && saturated_intervals == 0 && search == 0) {
    learn_base(work(admitted), interval);
  }
  learn_relative();
  const double model_now = work(window_);
  if (model_now > 1e-9 && explained > 1e-9) {
    // The new relative costs must explain this window as the old ones did.
    factor_ = clamp_factor(explained / model_now);
    sum_model_ *= model_now / (explained / factor_before_relative);
  }
  drop_window();
  if (informative || !set_.informative_only) ++windows_;
}

double CostModel::backlog_s() const {
  return std::max(0.0, factor_ * work(window_) + base_cores_ * window_s_ - window_work_s_);
}

void CostModel::set_factor(double factor, double capacity_cores) {
  factor_ = clamp_factor(factor);
  sum_model_ = kProvisionalWeight * capacity_cores / factor_;
  sum_work_ = sum_model_ * factor_;
}

bool CostModel::apply_lower_bound(const Interval& interval) {
  const double model = work(window_);
  if (!(set_.lower_bound_factor > 0) || !(model > 0)) return false;
  const double done = window_work_s_ - base_cores_ * window_s_;
  // The longer the window, the less is chance, and what waited when it began.
  const double margin =
      1 + (set_.lower_bound_factor - 1) * std::min(1.0, kShortWindow_s / window_s_);
  if (done <= margin * factor_ * model || done <= 0.5 * interval.capacity_s()) {
    return false;
  }
  set_factor(done / model, interval.capacity_cores);
  return true;
}

bool CostModel::learn_completions(double completed_work, double unit_work, const Interval& interval,
                                  bool first, bool usable) {
  const double done_s = std::max(0.0, interval.work_s - base_cores_ * interval.length_s);
  bool told = false;
  for (Completions& recent : completions_) {
    if (first) recent.work_s = recent.model = 0;
    const double keep = std::exp(-interval.length_s / recent.memory_s);
    recent.work_s = recent.work_s * keep + done_s;
    recent.model = recent.model * keep + completed_work;
    if (!usable || told || !(recent.model > 4 * unit_work)) continue;
    const double found = recent.work_s / recent.model;
    // The more have ended the less is chance: a jump is seen in the last half second, an error of
    // 15 %, which would let a backlog stand for good, in the last seconds.
    const double chance =
        std::clamp(recent.doubt / std::sqrt(recent.model / unit_work), recent.doubt * 0.05, 0.26);
    if (std::fabs(std::log(std::max(0.01, found / factor_))) > chance) {
      set_factor(found, interval.capacity_cores);
      told = true;
    }
  }
  return usable && completions_[0].model > 4 * unit_work;
}

/// Regression of usage on model work, with its slope shrunk half-way towards the factor. Only at
/// light load: under regulation usage does not move, and all of it would be taken for the base.
void CostModel::learn_base(double model_work, const Interval& interval) {
  const double length_s = interval.length_s;
  const double keep = std::exp(-length_s / kBaseMemory_s);
  const double x = model_work / length_s;
  const double y = interval.work_s / length_s;
  base_weight_ = base_weight_ * keep + 1;
  base_x_ = base_x_ * keep + x;
  base_y_ = base_y_ * keep + y;
  base_xx_ = base_xx_ * keep + x * x;
  base_xy_ = base_xy_ * keep + x * y;
  const double mean_x = base_x_ / base_weight_;
  const double mean_y = base_y_ / base_weight_;
  const double variance = base_xx_ / base_weight_ - mean_x * mean_x;
  const double covariance = base_xy_ / base_weight_ - mean_x * mean_y;
  if (base_weight_ < 20 || variance < 0.0004 * mean_x * mean_x + 1e-9) return;
  const double slope = (covariance + variance * factor_) / (2 * variance);
  const double most = std::min(kBaseMaxShare * interval.capacity_cores, least_use_cores_);
  const double found = std::clamp(mean_y - slope * mean_x, 0.0, most);
  base_cores_ += std::min(1.0, length_s / 10) * (found - base_cores_);
}

/// Recursive non-negative ridge regression, three sweeps of coordinate descent (Lawson and Hanson,
/// Solving Least Squares Problems, 1974, has the problem). The ridge pulls each cost towards its
/// last value, so what did not vary stays as it was.
void CostModel::learn_relative() {
  const std::size_t dims = 2 * count_;
  const double keep = std::exp(-window_s_ / set_.relative_memory_s);
  const double target = std::max(0.0, window_work_s_ - base_cores_ * window_s_) / factor_;
  if (restored_) {
    // As if the restored costs had been seen in some windows like this one.
    for (std::size_t j = 0; j < dims; ++j) {
      scatter(j, j) = kRestoredWindows * window_[j] * window_[j];
      moment_[j] = scatter(j, j) * cost_[j];
    }
    restored_ = false;
  }
  // In one pass over the rows, which are the columns: the sums, and with them the gradient. The
  // loops have no chain of additions to wait for, which is most of what 8 endpoints would cost.
  for (std::size_t a = 0; a < dims; ++a) {
    gradient_[a] = moment_[a] = moment_[a] * keep + window_[a] * target;
  }
  double* const gradient = gradient_.data();
  const double* const window = window_.data();
  for (std::size_t a = 0; a < dims; ++a) {
    double* const row = &scatter_[a * dims];
    const double seen = window[a];
    const double cost = cost_[a];
    for (std::size_t b = 0; b < dims; ++b) row[b] = row[b] * keep + seen * window[b];
    for (std::size_t b = 0; b < dims; ++b) gradient[b] -= row[b] * cost;
    weight_[a] = row[a] < 1e-12 ? 0.0 : 1 / ((1 + kRidge) * row[a]);
  }
  const int sweeps = dims > kManyCosts ? 1 : kSweeps;
  for (int sweep = 0; sweep < sweeps; ++sweep) {
    for (std::size_t j = 0; j < dims; ++j) {
      const double found = std::clamp(cost_[j] + gradient_[j] * weight_[j], 0.0, kCostMost_s);
      const double change = found - cost_[j];
      if (change == 0) continue;
      cost_[j] = found;
      const double* const row = &scatter_[j * dims];
      for (std::size_t q = 0; q < dims; ++q) gradient[q] -= row[q] * change;
    }
  }
}

bool CostModel::restore(const State& state) {
  const auto sound = [](double v, double least, double most) {
    return std::isfinite(v) && v >= least && v <= most;
  };
  if (!sound(state.base_cores, 0, 1e4) || !sound(state.factor, kFactorMin, kFactorMax) ||
      !sound(state.factor_work, 0, 1e30) || !sound(state.factor_model, 0, 1e30) ||
      !sound(state.sigma2, 0, 1)) {
    return false;
  }
  base_cores_ = state.base_cores;
  factor_ = state.factor;
  sum_work_ = state.factor_work;
  sum_model_ = state.factor_model;
  sigma2_ = state.sigma2;
  windows_ = state.windows;
  return true;
}

bool CostModel::restore_costs(std::size_t i, double per_request, double per_kb) {
  const auto sound = [](double v) { return std::isfinite(v) && v >= 0 && v <= 2 * kCostMost_s; };
  if (i >= count_ || !sound(per_request) || !sound(per_kb)) return false;
  cost_[i] = per_request;
  cost_[count_ + i] = per_kb;
  started_ = restored_ = true;
  return true;
}

}  // namespace headgate::adaptive
