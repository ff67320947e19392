// SPDX-License-Identifier: Apache-2.0
// adaptive: learn what a request costs, admit what the budget pays for, let the kernel enforce it.
//
//   saturated? -> learn the cost -> demand (cost x arrivals) -> budget -> state -> shares, bucket
//
// A share of the arrivals multiplies what comes in, but the cost per request does not depend on it,
// so the estimate is not inside a loop with the gate: no gain to tune, any delay is tolerated. Two
// things are outside of the model and have rules of their own: a saturation that the admitted work
// does not explain (completions tell the new cost where they can be seen, else the assumed cost is
// doubled until the queue is gone), and capacity that is taken away (pressure with work pending).
//
// profile: spec is the form in which the reference vectors were recorded; the defaults add what
// real collectors in real cgroups taught.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "agent/decision/decide.h"
#include "agent/strategies/adaptive_connections.h"
#include "agent/strategies/adaptive_cost.h"
#include "agent/strategies/adaptive_demand.h"
#include "agent/strategies/adaptive_intake.h"
#include "agent/strategies/adaptive_memory.h"
#include "agent/strategies/adaptive_parameters.h"
#include "agent/strategies/adaptive_saturation.h"
#include "agent/strategies/adaptive_saved.h"
#include "agent/strategies/adaptive_settings.h"
#include "agent/strategies/laws.h"

namespace headgate {
namespace {

using adaptive::Arrivals;
using adaptive::Connections;
using adaptive::CostModel;
using adaptive::Intake;
using adaptive::Interval;
using adaptive::LiveBudget;
using adaptive::MemoryRule;
using adaptive::Saturation;
using adaptive::Saved;
using adaptive::Settings;

constexpr double kEnterAtOnce = 1.05;
constexpr double kBacklogShare = 0.05;  ///< seconds of capacity
constexpr double kOverloadBacklog = 0.1;
constexpr double kExitAfter_s = 0.5;
constexpr double kFewArrivals = 25;
constexpr double kFull = 0.995;
constexpr unsigned kWindowsForBucket = 10;
constexpr unsigned kInformedWindowsForBucket = 5;
constexpr double kLeastRateShare = 0.03;
constexpr double kLeastDepthRequests = 3;
constexpr double kLeastClassRequests = 1.6;
constexpr double kCalmDepthRequests = 14;
constexpr double kCalmDearest = 4;
constexpr double kCalmDepth_s = 0.1;
constexpr double kAloneRate = 1.05;
constexpr double kBelowSaturation = 0.01;
constexpr unsigned kKeptFull = 3;
constexpr double kKeptHidden = 1.1;
constexpr double kTellingInterval_s = 0.2;
constexpr unsigned kDoubtfulMost = 5;
constexpr unsigned kSettleIntervals = 5;
constexpr double kWaitingBudget_s = 1.0;
constexpr double kWaitingMost = 20'000;
constexpr double kDemandMost = 1e6;  ///< of the capacity
constexpr double kLeastCores = 1e-3;
constexpr double kMostCores = 1e5;
/// So long, while it has let in at least this share of the work, a lower class alone is searched.
constexpr double kLowerFirst_s = 2;
constexpr double kCouldBe = 0.15;
constexpr double kGuardLeast = 16;
constexpr double kGuardMemory_s = 5;

class Adaptive final : public Strategy {
 public:
  explicit Adaptive(const Settings& settings) : set_(settings) {}

  void decide(const StrategyInput& in, Decision& out) override;
  [[nodiscard]] std::size_t save(std::span<std::byte> out) const override;
  bool restore(std::span<const std::byte> data) override;
  [[nodiscard]] std::vector<Threshold> thresholds() const override;
  [[nodiscard]] std::vector<Threshold> internals() const override;

 private:
  void resize(std::size_t endpoints);
  void take_restored();
  void step(const StrategyInput& in);
  void see(const StrategyInput& in);
  void judge();
  void learn();
  void learn_saturated();
  void estimate_demand();
  void set_budget();
  void set_state();
  void allocate_shares(const StrategyInput& in);
  void set_rate(const StrategyInput& in);
  void step_kept();
  void settle();
  void forget_cpu();
  void update_memory(const StrategyInput& in, double tick_s);
  void write(const StrategyInput& in, Decision& out) const;
  void write_bucket(const StrategyInput& in, std::size_t i, EndpointDecision& out) const;
  void stack_depths(const StrategyInput& in, std::span<EndpointDecision> out) const;
  void write_connections(Decision& out) const;
  void write_state(Decision& out) const;

  void spare_higher_classes(const StrategyInput& in);
  [[nodiscard]] double search_factor() const;
  /// Of endpoint i: 1 where a lower class is searched first.
  [[nodiscard]] double search_factor(std::size_t i) const {
    return spared_[i] ? 1 : search_factor();
  }
  /// Cost of a request of endpoint i of the size that is usual there, before the factor.
  [[nodiscard]] double unit(std::size_t i) const { return cost_.unit(i, arrivals_.kb(i)); }
  [[nodiscard]] double mean_unit() const;
  [[nodiscard]] double in_flight_s() const;
  [[nodiscard]] double memory_share() const;
  [[nodiscard]] bool bucket_ready() const;
  [[nodiscard]] bool alone(const StrategyInput& in) const;

  Settings set_;
  Intake intake_{set_};
  Saturation saturation_{set_};
  Connections connections_{set_};
  CostModel cost_{set_};
  Arrivals arrivals_{set_};
  MemoryRule memory_{set_};
  LiveBudget live_{set_};

  std::size_t count_ = 0;
  Instant last_at_{};
  Interval interval_;
  bool has_interval_ = false;  ///< an interval has been judged since CPU is known
  unsigned settle_ = 0;        ///< intervals after a death that tell nothing

  // learning
  unsigned saturated_intervals_ = 0, doubtful_intervals_ = 0, search_ = 0;
  double predicted_s_ = 0, present_s_ = 0;  ///< work that came in, and on all that is there
  double backlog_s_ = 0, backlog_before_s_ = 0;
  bool told_by_completions_ = false;
  double searching_s_ = 0;
  std::vector<bool> spared_;

  // demand, budget, state
  std::vector<double> demand_, share_;
  std::vector<EndpointDecision> scratch_;
  double demand_s_ = 0;                     ///< search factor included
  double dearest_s_ = 0;                    ///< of a request of what comes in
  double unit_s_ = 0, guarded_unit_s_ = 0;  ///< CPU-seconds a request; for the guard
  double total_ = 0, slow_ = 0;
  double budget_s_ = 0, rate_cores_ = 0;
  bool shedding_ = false, overloaded_ = false;
  unsigned above_enter_ = 0, above_now_ = 0, below_exit_ = 0;

  // kept connections
  unsigned full_intervals_ = 0;
  std::uint64_t kept_max_ = 0;
  bool kept_full_ = false;

  double target_ = 0.9;
  double memory_shed_ = 0.80, memory_open_ = 0.92, memory_close_ = 0.87;  ///< of the last input
  std::vector<std::string> names_;  ///< of internals(): c0_s, d0_s_per_KB, f0, ...
  std::vector<Saved::Endpoint> restored_;
  mutable std::vector<Saved::Endpoint> saved_;  ///< room for save(), which must not allocate
};

void Adaptive::resize(std::size_t endpoints) {
  if (count_ == endpoints && !share_.empty()) return;
  count_ = endpoints;
  cost_.resize(endpoints);
  arrivals_.resize(endpoints);
  intake_.resize(endpoints);
  demand_.assign(endpoints, 0.0);
  spared_.assign(endpoints, false);
  saved_.resize(endpoints);
  share_.assign(endpoints, 1.0);
  scratch_.assign(endpoints, EndpointDecision{});
  names_.clear();
  for (std::size_t i = 0; i < endpoints; ++i) {
    const std::string n = std::to_string(i);
    names_.push_back("c" + n + "_s");
    names_.push_back("d" + n + "_s_per_KB");
    names_.push_back("f" + n);
  }
  take_restored();
}

/// Costs are kept by the order of the endpoints, so another number of them starts cold.
void Adaptive::take_restored() {
  if (restored_.size() == count_) {
    for (std::size_t i = 0; i < count_; ++i) {
      const Saved::Endpoint& e = restored_[i];
      if (cost_.restore_costs(i, static_cast<double>(e.per_request),
                              static_cast<double>(e.per_kb))) {
        arrivals_.restore(i, -1, static_cast<double>(e.kb));
      }
    }
  } else if (!restored_.empty()) {
    cost_.restore({0, 1, 0, 0, 0.01, 0, 0});
    search_ = 0;
    told_by_completions_ = false;
  }
  restored_.clear();
}

// ---------------------------------------------------------------- one interval

void Adaptive::decide(const StrategyInput& in, Decision& out) {
  resize(in.endpoints.size());
  target_ = std::isfinite(in.target.value) ? std::clamp(in.target.value, 0.05, 2.0) : 0.9;
  memory_shed_ = in.memory_shed;
  memory_open_ = in.memory_open;
  memory_close_ = in.memory_close;
  const Signals& signals = in.signals;
  const double tick_s = seconds(signals.interval);
  if (!(tick_s > 0) || signals.at == last_at_) {
    write(in, out);  // nothing new
    return;
  }
  last_at_ = signals.at;

  intake_.add(in, arrivals_, cost_);
  update_memory(in, tick_s);
  const bool stale = !signals.cpu.known() && !signals.cpu_fast.known();
  if (stale || !(signals.capacity_cores >= kLeastCores && signals.capacity_cores <= kMostCores)) {
    forget_cpu();
  } else if (intake_.finish(signals, interval_)) {
    step(in);
    intake_.clear();
    has_interval_ = true;
  }
  write(in, out);
}

/// 9. Memory, a budget of its own.
void Adaptive::update_memory(const StrategyInput& in, double tick_s) {
  // What kept connections bring is not seen before they close.
  memory_.update(in, tick_s, connections_.kept() ? -1 : intake_.inflow_per_s(tick_s));
  if (set_.live_budget) live_.update(in, tick_s);
  if (set_.deaths && (in.restarted || in.signals.oom_kills.value_or(0) > 0)) {
    settle_ = kSettleIntervals;
    memory_.restart();
    live_.restart();
  }
}

/// The numbers are those of the published description of the law; 9, memory, is beside it.
void Adaptive::step(const StrategyInput& in) {
  if (settle_ > 0) {
    settle();
  } else {
    see(in);
    judge();  // 1
    if (connections_.kept()) {
      step_kept();
      return;
    }
    learn();  // 2, 3, 4
    spare_higher_classes(in);
  }
  estimate_demand();    // 5
  set_budget();         // 6
  set_state();          // 7
  allocate_shares(in);  // 8
  set_rate(in);         // 10
}

void Adaptive::see(const StrategyInput& in) {
  cost_.start(intake_.admitted());
  present_s_ = in_flight_s();
  if (set_.count_connections) {
    connections_.count(in, interval_.length_s, Saturation::calm(interval_));
    connections_.weigh(present_s_);
  }
  predicted_s_ =
      cost_.factor() * cost_.work(intake_.admitted()) + cost_.base_cores() * interval_.length_s;
  backlog_before_s_ = backlog_s_;
  kept_max_ = 0;
  kept_full_ = false;
}

/// 1. Is it saturated, and how much capacity is there?
void Adaptive::judge() {
  saturation_.judge(interval_, {predicted_s_, present_s_, cost_.sigma()}, connections_);
  saturation_.follow_capacity(interval_);
}

/// A death is not thousands of completions, and a server that starts is not a cost.
void Adaptive::settle() {
  --settle_;
  cost_.drop_window();
  saturation_.settle(interval_);
  saturated_intervals_ = search_ = 0;
  backlog_s_ = 0;
}

/// Unknown is no evidence: what was learned stays, what was concluded goes.
void Adaptive::forget_cpu() {
  intake_.clear();
  cost_.drop_window();
  saturation_.forget();
  has_interval_ = shedding_ = overloaded_ = kept_full_ = false;
  saturated_intervals_ = search_ = 0;
  above_enter_ = above_now_ = below_exit_ = 0;
  backlog_s_ = slow_ = 0;
  kept_max_ = 0;
  std::fill(share_.begin(), share_.end(), 1.0);
}

/// CPU-seconds of all that is there.
double Adaptive::in_flight_s() const {
  double sum = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    sum += static_cast<double>(intake_.in_flight(i)) * unit(i);
  }
  return cost_.factor() * sum;
}

double Adaptive::mean_unit() const {
  double sum = 0;
  double rate = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    const double r = std::max(0.0, arrivals_.per_second(i));
    sum += r * unit(i);
    rate += r;
  }
  return rate > 0 ? sum / rate : 0.0;
}

/// 2. The busy window; 3. an unsaturated interval closes it.
void Adaptive::learn() {
  cost_.add(intake_.admitted(), intake_.refused(), interval_);
  const bool saturated = saturation_.saturated();
  doubtful_intervals_ = saturation_.doubtful() && !saturated ? doubtful_intervals_ + 1 : 0;
  if (doubtful_intervals_ > 0 && doubtful_intervals_ <= kDoubtfulMost) {
    return;  // was the work done or taken away? the window stays open until that is seen
  }
  if (saturated) {
    ++saturated_intervals_;
    learn_saturated();
    return;
  }
  cost_.close(intake_.admitted(), interval_, !shedding_, search_, saturated_intervals_);
  saturated_intervals_ = search_ = 0;
  backlog_s_ = 0;
}

/// 4. In a saturated interval the cost is told by completions where they can be seen, else searched
/// for where the model cannot explain the saturation.
void Adaptive::learn_saturated() {
  if (saturated_intervals_ >= 2) cost_.apply_lower_bound(interval_);
  if (set_.use_connections && connections_.pending_known() && !saturation_.contradicted()) {
    // At a cold start, and in a tick long enough for many, they count at once. Saturated with
    // nobody waiting, either the server answers before it works or it is only just saturated:
    // completions say nothing then.
    const bool at_once = !bucket_ready() || (interval_.length_s >= kTellingInterval_s &&
                                             connections_.surely_waiting(interval_));
    const bool usable =
        connections_.keeps_window_open(interval_) && (saturated_intervals_ >= 2 || at_once);
    told_by_completions_ |= cost_.learn_completions(cost_.work(intake_.completed()), mean_unit(),
                                                    interval_, saturated_intervals_ == 1, usable);
    connections_.weigh(in_flight_s());
    backlog_s_ = connections_.pending_s();
    search_ = 0;
    return;
  }
  backlog_s_ = cost_.backlog_s();
  const double full_s = saturation_.full_s(interval_);
  const double available_s = backlog_before_s_ + predicted_s_;
  const double doubt_s = set_.alarm_sigmas * cost_.sigma() * predicted_s_;
  const bool surely =
      saturated_intervals_ >= 3 || (saturated_intervals_ >= 2 && saturation_.waited_long());
  if (search_ > 0 || available_s + doubt_s < full_s || (surely && available_s < full_s)) ++search_;
}

/// The first step only arms: one saturated interval may be chance. Long ticks search in longer
/// steps.
double Adaptive::search_factor() const {
  if (search_ == 0 || set_.search_growth <= 1) return 1;
  const bool fine = interval_.length_s < 0.2;
  const double growth = fine ? set_.search_growth : 1.2 * set_.search_growth;
  return std::min(set_.search_max, std::pow(growth, search_ - 1.0) * (fine ? 1.0 : 1.6));
}

/// What the search cannot know is whose cost has risen. As long as a lower class has let in enough
/// to be the one, it pays; after that all do. Else the search, which goes on until what is already
/// in has been worked off, would refuse the critical class for what the sheddable one has brought.
void Adaptive::spare_higher_classes(const StrategyInput& in) {
  searching_s_ = search_ > 0 ? searching_s_ + interval_.length_s : 0;
  std::fill(spared_.begin(), spared_.end(), false);
  if (!set_.lower_first || search_ == 0 || searching_s_ > kLowerFirst_s) return;
  double all = 0;
  for (std::size_t i = 0; i < count_; ++i) all += cost_.work_of(i);
  for (const Criticality lowest :
       {Criticality::kSheddable, Criticality::kSheddablePlus, Criticality::kCritical}) {
    double work = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      if (in.endpoints[i].criticality <= lowest) work += cost_.work_of(i);
    }
    if (work < kCouldBe * all) continue;
    for (std::size_t i = 0; i < count_; ++i) spared_[i] = in.endpoints[i].criticality > lowest;
    return;
  }
}

/// 5. What the next interval will be offered, and what that costs.
void Adaptive::estimate_demand() {
  double requests = 0;
  total_ = demand_s_ = dearest_s_ = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    arrivals_.update(i, intake_.offered(i), intake_.offered_kb(i), intake_.sized(i),
                     interval_.length_s);
    if (set_.use_connections && !intake_.sizes_known(i) && arrivals_.kb(i) > 0) {
      cost_.size_known(i, arrivals_.kb(i));
    }
    const double expected = arrivals_.per_second(i) * interval_.length_s;
    requests += expected;
    const double each_s = cost_.factor() * unit(i);
    demand_[i] = expected * each_s;
    if (expected > 0) dearest_s_ = std::max(dearest_s_, each_s);
    total_ += demand_[i];
    demand_[i] *= search_factor(i);
    demand_s_ += demand_[i];
  }
  // The guard gets tight at once and wide slowly: a cost read too low for a moment must not lift
  // it.
  unit_s_ = requests > 0 ? total_ / requests : 0.0;
  guarded_unit_s_ +=
      std::min(1.0, interval_.length_s / kGuardMemory_s) * (unit_s_ - guarded_unit_s_);
  total_ = (total_ + cost_.base_cores() * interval_.length_s) /
           (saturation_.capacity_cores() * interval_.length_s);
  total_ = std::min(total_, kDemandMost);
  slow_ += std::min(1.0, interval_.length_s) * (total_ - slow_);
}

/// 6. CPU-seconds to let in.
void Adaptive::set_budget() {
  // As much as the bucket holds may wait at any time: that is no backlog to be worked off.
  const double usual = set_.calm_bucket ? set_.bucket_depth_s * saturation_.capacity_cores() : 0.0;
  const double drain = search_ == 0 ? std::max(0.0, backlog_s_ - usual) *
                                          std::min(1.0, interval_.length_s / set_.drain_s)
                                    : 0.0;
  // What refusing takes is not there for those who are let in. It was no more than has been done.
  const double done_s = std::max(0.0, interval_.work_s - cost_.base_cores() * interval_.length_s);
  const double refusing_s = std::min(done_s, cost_.factor() * cost_.work(intake_.refused()));
  budget_s_ = std::max(
      0.0, (target_ * saturation_.capacity_cores() - cost_.base_cores()) * interval_.length_s -
               drain - refusing_s);
}

/// 7. Shedding or not; and overload, for which the bucket is tight.
void Adaptive::set_state() {
  const double nominal = interval_.capacity_cores;
  double arrivals = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    arrivals += arrivals_.per_second(i) * interval_.length_s;
  }
  above_now_ = total_ > kEnterAtOnce ? above_now_ + 1 : 0;
  const bool few = set_.low_rate_smoothing && arrivals < kFewArrivals;
  const bool now = above_now_ >= (few ? 2U : 1U);
  above_enter_ = slow_ > target_ + set_.enter_margin ? above_enter_ + 1 : 0;
  if (!shedding_ &&
      (now || search_ > 0 || backlog_s_ > kBacklogShare * nominal || above_enter_ >= 2)) {
    shedding_ = true;
    below_exit_ = 0;
  }
  overloaded_ = now || search_ > 0 || slow_ > target_ + set_.enter_margin ||
                backlog_s_ > kOverloadBacklog * nominal || saturation_.lost();
}

/// Connections that live on: a new one costs nothing at once and may bring any number of requests,
/// so the budget is a number of them, and it stands before the load comes.
void Adaptive::step_kept() {
  cost_.drop_window();
  saturated_intervals_ = search_ = 0;
  backlog_s_ = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    arrivals_.update(i, intake_.offered(i), intake_.offered_kb(i), intake_.sized(i),
                     interval_.length_s);
  }
  connections_.learn_kept(interval_, cost_.base_cores());
  Interval effective = interval_;
  effective.capacity_cores = saturation_.capacity_cores();
  kept_max_ = connections_.kept_max(target_, effective, cost_.base_cores());
  full_intervals_ = saturation_.by_cpu() ? full_intervals_ + 1 : 0;
  if (full_intervals_ >= kKeptFull && kept_max_ > 0) {
    // A full CPU hides what they would take; nobody comes in before their number has fallen.
    const double most = target_ / kKeptHidden * connections_.in_flight();
    kept_max_ = std::min(kept_max_, static_cast<std::uint64_t>(std::max(1.0, most)));
  }
  kept_full_ = kept_max_ > 0 && connections_.in_flight() >= static_cast<double>(kept_max_);
  total_ = interval_.use / saturation_.share();
  total_ = std::min(total_, kDemandMost);
  slow_ += std::min(1.0, interval_.length_s) * (total_ - slow_);
  budget_s_ = std::max(
      0.0, (target_ * saturation_.capacity_cores() - cost_.base_cores()) * interval_.length_s);
  shedding_ = overloaded_ = false;
  std::fill(share_.begin(), share_.end(), 1.0);
  rate_cores_ = interval_.capacity_cores - cost_.base_cores();
}

bool Adaptive::bucket_ready() const {
  return cost_.windows() >=
             (set_.informative_only ? kInformedWindowsForBucket : kWindowsForBucket) ||
         told_by_completions_;
}

/// One endpoint and a live bucket: the bucket alone refuses. At 15 arrivals a tick their estimate
/// is off by 15 %, and a share computed from it would refuse a healthy target now and then; the
/// bucket counts.
bool Adaptive::alone(const StrategyInput& in) const {
  if (!set_.bucket_alone || !in.bucket_enforced || !bucket_ready() || search_ > 0) return false;
  std::size_t active = 0;
  for (std::size_t i = 0; i < count_; ++i) active += arrivals_.per_second(i) > 0.5 ? 1 : 0;
  return active <= 1;
}

/// 8. By criticality, floors, and a second round in which all give the same.
void Adaptive::allocate_shares(const StrategyInput& in) {
  const double need_s = shedding_ && !alone(in) ? demand_s_ - budget_s_ : 0.0;
  bool full = memory_.admit() >= kFull;
  if (need_s > 1e-12) {
    allocate(need_s / demand_s_, in.endpoints, demand_, 0, scratch_);
    for (std::size_t i = 0; i < count_; ++i) {
      share_[i] = std::max(scratch_[i].admit.value(), set_.probe);
      if (share_[i] < kFull) full = false;
    }
  } else {
    std::fill(share_.begin(), share_.end(), 1.0);
  }
  if (shedding_) {
    below_exit_ = full && slow_ < set_.exit ? below_exit_ + 1 : 0;
    if (below_exit_ * interval_.length_s >= kExitAfter_s) shedding_ = false;
  }
}

/// 10. Beside shares the bucket only cuts peaks; alone it holds the target, and must leave room
/// below saturation, where nothing can be learned.
void Adaptive::set_rate(const StrategyInput& in) {
  const bool tight = set_.calm_bucket ? overloaded_ : shedding_;
  const double slack =
      !alone(in) ? set_.bucket_rate
      : saturated_intervals_ >= 2
          ? 1.0
          : std::clamp((set_.saturated_at - kBelowSaturation) / target_, 1.0, kAloneRate);
  rate_cores_ = tight || saturation_.lost() ? std::max(budget_s_ / interval_.length_s * slack,
                                                       kLeastRateShare * interval_.capacity_cores)
                                            : interval_.capacity_cores - cost_.base_cores();
}

// ---------------------------------------------------------------- the decision

/// What memory allows; the probe lives on except where the breaker is open.
double Adaptive::memory_share() const {
  if (memory_.open()) return 0;
  return memory_.admit() < 1 ? std::max(set_.probe, memory_.admit()) : 1.0;
}

void Adaptive::write(const StrategyInput& in, Decision& out) const {
  const bool memory_known = in.signals.memory.known();
  out.circuit_open = memory_.open();
  out.live_bytes_max = live_.bytes_max();
  out.connections_max = 0;
  out.waiting_max = 0;
  if (!has_interval_ && !memory_known) {
    out.state = State::kUnknown;
    out.why = "neither CPU nor memory is known: everything is admitted";
    out.circuit_open = false;
    return;
  }
  if (memory_.open()) {
    out.state = State::kOpen;
    out.why = "memory is above memory.open, and rises or stalls";
    for (EndpointDecision& endpoint : out.endpoints) {
      endpoint.admit = Probability::never();
      endpoint.reason = HEADGATE_REASON_CIRCUIT;
    }
    return;
  }
  const double by_memory = memory_share();
  for (std::size_t i = 0; i < out.endpoints.size() && i < count_; ++i) {
    EndpointDecision& endpoint = out.endpoints[i];
    endpoint.admit = Probability::admitting(std::min(share_[i], by_memory));
    if (endpoint.admit < Probability::always()) {
      endpoint.reason = by_memory < share_[i] ? HEADGATE_REASON_MEMORY : HEADGATE_REASON_SHARE;
    }
    if (has_interval_ && bucket_ready()) write_bucket(in, i, endpoint);
    // A probe that lives on for half a minute is no probe, and these are not needed: what a kept
    // connection costs is seen from those that are there.
    endpoint.probe = !(kept_full_ && full_intervals_ >= kKeptFull);
  }
  if (set_.class_depths) stack_depths(in, out.endpoints);
  write_connections(out);
  write_state(out);
}

void Adaptive::write_state(Decision& out) const {
  out.state = State::kShedding;
  if (memory_share() < 1) {
    out.why = memory_.probing() ? "memory is flat: admission is tried step by step"
                                : "memory is high or would soon reach its limit";
  } else if (!has_interval_) {
    out.state = State::kNormal;
    out.why = "CPU is not known, memory is below its thresholds";
  } else if (kept_full_) {
    out.why = "as many kept connections as the CPU budget carries";
  } else if (saturation_.lost()) {
    out.why = "CPU is taken away (cpu.pressure, work pending): admitted is what is left of it";
  } else if (search_ > 0) {
    out.why = "saturated beyond what was admitted: the cost has risen, searching for it";
  } else if (shedding_) {
    out.why = "demand (learned cost x arrivals) is above the CPU budget";
  } else {
    out.state = State::kNormal;
    out.why = memory_.leaking() ? "demand is within the CPU budget; memory leaks whatever comes in"
                                : "demand is within the CPU budget";
  }
}

/// 10. In seconds of bucket time: the kernel's bucket runs by the clock, at the rate of the tick.
void Adaptive::write_bucket(const StrategyInput& in, std::size_t i, EndpointDecision& out) const {
  if (!(rate_cores_ > 0)) return;
  const double factor = cost_.factor() * search_factor(i);
  const double work = factor * unit(i);
  if (!(work > 0)) return;
  const double per_core_s = 1 / rate_cores_;
  if (intake_.sizes_known(i)) {
    out.charge_request_s = factor * cost_.per_request(i) * per_core_s;
    out.charge_kb_s = factor * cost_.per_kb(i) * per_core_s;
  } else {
    out.charge_request_s = work * per_core_s;
  }
  const double nominal = interval_.capacity_cores;
  double depth = std::max(set_.bucket_depth_s * nominal, kLeastDepthRequests * work);
  const bool calm = set_.calm_bucket && !overloaded_;
  if (calm) {
    // Chance alone brings half a dozen requests at once at three quarters of the capacity; a bucket
    // of fewer would refuse a healthy target.
    depth = std::max(depth, std::min(kCalmDepthRequests * work, kCalmDepth_s * nominal));
  }
  if (count_ > 1) depth *= 0.4 + 0.2 * static_cast<double>(in.endpoints[i].criticality);
  if (set_.class_depths) depth = std::max(depth, kLeastClassRequests * work);
  if (calm && set_.class_depths) {
    // All owe to one bucket: what a few dear ones of another class owe is no reason to refuse here.
    depth = std::max(depth, std::min(kCalmDearest * dearest_s_, kCalmDepth_s * nominal));
  }
  out.depth_s = depth * per_core_s;
}

/// All classes owe to one bucket. A single dear request of a low class may owe more than the depth
/// of a high class with cheap ones, and would refuse it: so the depth of each class begins above
/// what those below it can owe, which is their depth and one request more.
void Adaptive::stack_depths(const StrategyInput& in, std::span<EndpointDecision> out) const {
  if (!(rate_cores_ > 0)) return;
  double below_s = 0;
  for (const Criticality tier : {Criticality::kSheddable, Criticality::kSheddablePlus,
                                 Criticality::kCritical, Criticality::kCriticalPlus}) {
    double most_s = below_s;
    for (std::size_t i = 0; i < out.size() && i < count_; ++i) {
      if (in.endpoints[i].criticality != tier || !(out[i].depth_s > 0)) continue;
      out[i].depth_s += below_s;
      if (arrivals_.per_second(i) > 0) {
        const double charge_s = cost_.factor() * search_factor(i) * unit(i) / rate_cores_;
        most_s = std::max(most_s, out[i].depth_s + charge_s);
      }
    }
    below_s = most_s;
  }
}

void Adaptive::write_connections(Decision& out) const {
  if (!has_interval_) return;
  if (kept_max_ > 0) {
    out.connections_max = kept_max_;
    return;
  }
  const double unit_s = search_factor() * unit_s_;
  if (!(unit_s > 0)) return;
  if (set_.in_flight_guard_s > 0 && connections_.counted()) {
    const double most =
        set_.in_flight_guard_s * interval_.capacity_cores / std::max(unit_s, guarded_unit_s_);
    out.connections_max = static_cast<std::uint64_t>(
        std::clamp(most, std::max(kGuardLeast, 2 * connections_.workers()), 1e6));
  }
  if (set_.waiting && bucket_ready()) {
    // What waits longer than this would miss its deadline at equal chances.
    const double most = kWaitingBudget_s * budget_s_ / interval_.length_s / unit_s;
    out.waiting_max = static_cast<std::uint64_t>(std::clamp(most, 0.0, kWaitingMost));
  }
}

// ---------------------------------------------------------------- what outlives the agent

std::size_t Adaptive::save(std::span<std::byte> out) const {
  Saved::Header header{};
  header.at_ns = last_at_.time_since_epoch().count();
  header.cost = cost_.state();
  header.effective_share = saturation_.share();
  header.slow = slow_;
  header.base_bytes = live_.base_bytes();
  header.workers = connections_.workers();
  header.search = search_;
  header.shedding = shedding_ ? 1 : 0;
  header.told = told_by_completions_ ? 1 : 0;
  header.kept = connections_.seen_kept() ? 1 : 0;
  for (std::size_t i = 0; i < count_; ++i) {
    saved_[i] = {static_cast<float>(cost_.per_request(i)), static_cast<float>(cost_.per_kb(i)),
                 static_cast<float>(arrivals_.kb(i))};
  }
  return Saved::write(header, saved_, out);
}

bool Adaptive::restore(std::span<const std::byte> data) {
  std::optional<Saved> saved = Saved::read(data);
  if (!saved || !cost_.restore(saved->header.cost)) return false;
  const Saved::Header& header = saved->header;
  last_at_ = Instant(Duration(header.at_ns));
  saturation_.restore(header.effective_share);
  slow_ = header.slow;
  live_.restore_base(header.base_bytes);
  connections_.restore(header.workers, header.kept == 1);
  search_ = header.search;
  shedding_ = header.shedding == 1;
  told_by_completions_ = header.told == 1;
  restored_ = std::move(saved->endpoints);
  if (!share_.empty()) take_restored();
  return true;
}

std::vector<Strategy::Threshold> Adaptive::thresholds() const {
  return {{"target", target_},
          {"enter", target_ + set_.enter_margin},
          {"exit", set_.exit},
          {"saturated_at", set_.saturated_at},
          {"memory_shed", memory_shed_},
          {"memory_open", memory_open_},
          {"memory_close", memory_close_}};
}

std::vector<Strategy::Threshold> Adaptive::internals() const {
  const double per_s = interval_.length_s > 0 ? 1 / interval_.length_s : 0.0;
  std::vector<Threshold> out{{"sat", saturation_.saturated() ? 1.0 : 0.0},
                             {"esc", static_cast<double>(search_)},
                             {"E", search_factor()},
                             {"g", cost_.factor()},
                             {"refusal", cost_.refusal_factor()},
                             {"base_cores", cost_.base_cores()},
                             {"Bhat_cpus", backlog_s_},
                             {"W_cores", budget_s_ * per_s},
                             {"bucket_rate_cores", rate_cores_},
                             {"state", shedding_ ? 1.0 : 0.0}};
  const double by_memory = memory_share();
  for (std::size_t i = 0; i < count_; ++i) {
    out.push_back({names_[3 * i], cost_.per_request(i)});
    out.push_back({names_[3 * i + 1], cost_.per_kb(i)});
    out.push_back({names_[3 * i + 2], std::min(share_[i], by_memory)});
  }
  out.push_back({"capacity_cores", saturation_.capacity_cores()});
  out.push_back({"sigma", cost_.sigma()});
  out.push_back({"slow_demand", slow_});
  out.push_back({"in_flight", connections_.in_flight()});
  out.push_back({"workers", connections_.workers()});
  out.push_back({"kept_max", static_cast<double>(kept_max_)});
  out.push_back({"memory_admit", memory_.admit()});
  out.push_back({"memory_leak", memory_.leaking() ? 1.0 : 0.0});
  out.push_back({"live_bytes_max", static_cast<double>(live_.bytes_max())});
  return out;
}

}  // namespace

StrategyInfo adaptive_info() {
  StrategyInfo info;
  info.name = "adaptive";
  info.doc = "learns the CPU cost per request and admits what the budget pays for";
  info.params = adaptive::parameters();
  info.make = [](const Params& params) -> std::unique_ptr<Strategy> {
    return std::make_unique<Adaptive>(adaptive::settings_of(params));
  };
  return info;
}

}  // namespace headgate
