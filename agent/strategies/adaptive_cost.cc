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
/// A factor found under saturation keeps this much weight: the first closed window outweighs it.
constexpr double kProvisionalWeight = 0.1;
/// An endpoint has told what it costs by so much of the work of so many (kWarmWindows) windows.
constexpr double kNoticed = 0.1;
/// Cheaper at most in one window, if it has many of them: else half of it, and of a single one,
/// which may not be done yet, nothing.
constexpr double kNewcomerChange = 4;
constexpr double kNewcomerMany = 4;
constexpr double kNewcomerFew = 2;
constexpr double kNewcomerDearest = 2;  ///< times the dearest known one
constexpr double kRefusalFactorMin = 0.02;
constexpr double kRefusalFactorMax = 3;
constexpr double kRefusalMemory_s = 10;
constexpr double kRefusalVaries = 0.1;  ///< 0: always the same mix, 1: no two alike
constexpr double kMixMemory_s = 5;
constexpr double kRidge = 0.05;
constexpr int kSweeps = 3;
/// Of more costs each is corrected once a window: the next one goes on from there.
constexpr std::size_t kManyCosts = 8;
constexpr double kShortWindow_s = 0.2;
constexpr double kCostLeast_s = 1e-7;
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
  before_.assign(dims, 0.0);
  mix_.assign(dims, 0.0);
  window_.assign(dims, 0.0);
  window_refused_.assign(dims, 0.0);
  acquaintances_.assign(endpoints, {});
  seen_count_ = known_count_ = 0;
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
  window_refused_[j] = window_refused_[i] * kb;
  mix_[j] = mix_[i] * kb;
}

double CostModel::work(std::span<const double> x) const {
  double sum = 0;
  for (std::size_t j = 0; j < 2 * count_; ++j) sum += cost_[j] * x[j];
  return sum;
}

double CostModel::work_of(std::size_t i) const {
  return cost_[i] * window_[i] + cost_[count_ + i] * window_[count_ + i];
}

/// Work that nobody expected, in a window with an endpoint that has hardly been seen before, is
/// more likely of that one than of all: else the first second of a flood on a new route makes every
/// other one dear, and the critical one is refused for it. Within reason: of what would make it
/// many times as dear as the dearest known, the rest is everybody's.
bool CostModel::explain_by_newcomers(double work_s) {
  if (!set_.newcomers || known_count_ == count_) return false;
  double known = 0, fresh = 0, requests = 0, dearest = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    (newcomer(i) ? fresh : known) += work_of(i);
    if (newcomer(i)) requests += window_[i];
    dearest = std::max(dearest, acquaintances_[i].usual);
  }
  if (!(dearest > 0) || !(fresh > 0)) return false;
  double scale = (work_s / factor_ - known) / fresh;
  if (scale > 1) {
    scale = std::max(1.0, std::min(scale, kNewcomerDearest * dearest * requests / fresh));
  } else if (fresh < kNoticed * (known + fresh) || requests < kNewcomerFew) {
    return false;
  }
  scale = std::max(scale, (requests < kNewcomerMany ? 2 : 1) / kNewcomerChange);
  for (std::size_t i = 0; i < count_; ++i) {
    if (!newcomer(i) || !(window_[i] > 0)) continue;  // who was not there has explained nothing
    cost_[i] = std::min(kCostMost_s, cost_[i] * scale);
    cost_[count_ + i] = std::min(kCostMost_s, cost_[count_ + i] * scale);
  }
  // What has been completed was summed up at the old cost.
  for (Completions& recent : completions_) recent.work_s = recent.model = 0;
  return true;
}

/// What refusals cost beside what is let in: least squares in the two, forgetting; the mix of both
/// varies from window to window. Where it has not, what was assumed stands.
void CostModel::learn_refusals(double work_s) {
  const double refused_model = any_refused_ ? work(window_refused_) : 0;
  if (!(refused_model > 0)) return;
  const double keep = std::exp(-window_s_ / kRefusalMemory_s);
  const double y = work_s;
  const double a = work(window_) - refused_model;
  const double r = refused_model / refusal_factor_;
  Mix& m = refusal_mix_;
  m = {.aa = m.aa * keep + a * a,
       .ar = m.ar * keep + a * r,
       .rr = m.rr * keep + r * r,
       .ay = m.ay * keep + a * y,
       .ry = m.ry * keep + r * y};
  const double determinant = m.aa * m.rr - m.ar * m.ar;
  if (determinant < kRefusalVaries * m.aa * m.rr) return;
  const double admitted = (m.ay * m.rr - m.ry * m.ar) / determinant;
  const double refused = (m.ry * m.aa - m.ay * m.ar) / determinant;
  if (!(admitted > 0)) return;
  const double found = std::clamp(refused / admitted, kRefusalFactorMin, kRefusalFactorMax);
  refusal_factor_ += std::min(1.0, window_s_) * (found - refusal_factor_);
}

bool CostModel::mostly_refused() const {
  return any_refused_ && work(window_refused_) > 0.5 * work(window_);
}

double CostModel::sigma() const { return std::sqrt(sigma2_); }

void CostModel::add(std::span<const double> admitted, std::span<const double> refused,
                    const Interval& interval) {
  least_use_cores_ = std::min(least_use_cores_ * (1 + interval.length_s / 60),
                              interval.use * interval.capacity_cores);
  for (std::size_t i = 0; i < count_; ++i) {
    if (acquaintances_[i].seen || !(admitted[i] > 0)) continue;
    cost_[i] = std::min(kCostMost_s, per_request(i));
    cost_[count_ + i] = std::min(kCostMost_s, per_kb(i));
    acquaintances_[i].seen = true;
    ++seen_count_;
  }
  for (std::size_t j = 0; j < 2 * count_; ++j) {
    window_[j] += admitted[j];
    window_refused_[j] += refused[j];
    any_refused_ |= refused[j] > 0;
  }
  window_work_s_ += interval.work_s;
  window_s_ += interval.length_s;
}

void CostModel::drop_window() {
  std::fill(window_.begin(), window_.end(), 0.0);
  std::fill(window_refused_.begin(), window_refused_.end(), 0.0);
  any_refused_ = false;
  window_work_s_ = window_s_ = 0;
  for (Completions& recent : completions_) recent.work_s = recent.model = 0;
}

void CostModel::close(std::span<const double> admitted, const Interval& interval, bool calm,
                      unsigned search, unsigned saturated_intervals) {
  const double capacity_s = interval.capacity_cores * window_s_;
  const double work_s = std::max(0.0, window_work_s_ - base_cores_ * window_s_);
  double model = work(window_);
  if (factor_ * model > kInformative * capacity_s) {
    if (mostly_refused()) {
      // It says nothing of what is let in: taken for evidence of that it halved the costs, let in
      // four times too much, and so on.
      learn_refusals(work_s);
      // They cannot have cost more than all that was done.
      const double most = work_s / (factor_ * work(window_refused_));
      if (most < 1) {
        refusal_factor_ = std::max(kRefusalFactorMin, refusal_factor_ * std::max(0.5, most));
      }
      drop_window();
      return;
    }
    if (explain_by_newcomers(work_s)) model = work(window_);
  }
  const bool informative = factor_ * model > kInformative * capacity_s;
  const double before = factor_;
  if (informative) {
    learn_refusals(work_s);
    for (std::size_t i = 0; i < count_; ++i) {
      Acquaintance& known = acquaintances_[i];
      if (newcomer(i) && work_of(i) >= kNoticed * model) {
        known_count_ += ++known.windows == kWarmWindows;
      }
      if (!newcomer(i) && window_[i] > 0) known.usual = work_of(i) / window_[i];
    }
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
  // What came in lately, or this window alone: one that has only cheap requests would have their
  // new cost make all the others dearer.
  const std::vector<double>& mix = steady() ? mix_ : window_;
  const double mix_keep = std::exp(-window_s_ / kMixMemory_s);
  for (std::size_t j = 0; j < 2 * count_; ++j) mix_[j] = mix_[j] * mix_keep + window_[j];
  const double explained = work(mix) * factor_;
  if (calm && interval.use < 0.8 && saturated_intervals == 0 && search == 0) {
    learn_base(work(admitted), interval);
  }
  learn_relative();
  const double model_now = work(mix);
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
  const auto explained = [&] { return done <= margin * factor_ * work(window_); };
  if (explained() || done <= 0.5 * interval.capacity_s()) return false;
  if (mostly_refused()) return false;  // whose fault it is cannot be told
  if (explain_by_newcomers(done) && explained()) return true;
  set_factor(done / work(window_), interval.capacity_cores);
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
  // A window tells little where its requests are few: no cost doubles or halves by one alone.
  const bool steadily = steady();
  if (steadily) before_ = cost_;
  for (int sweep = 0; sweep < sweeps; ++sweep) {
    for (std::size_t j = 0; j < dims; ++j) {
      double found = std::clamp(cost_[j] + gradient_[j] * weight_[j], 0.0, kCostMost_s);
      if (steadily && before_[j] > 0) {
        found = std::clamp(found, 0.5 * before_[j], 2 * before_[j]);
        if (found < kCostLeast_s) found = 0;
      }
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
  Acquaintance& known = acquaintances_[i];
  seen_count_ += known.seen ? 0 : 1;
  known_count_ += newcomer(i) ? 1 : 0;
  known = {.seen = true, .windows = kWarmWindows, .usual = known.usual};
  started_ = restored_ = true;
  return true;
}

}  // namespace headgate::adaptive
