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
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>

#include "agent/decision/decide.h"
#include "agent/strategies/adaptive_connections.h"
#include "agent/strategies/adaptive_cost.h"
#include "agent/strategies/adaptive_demand.h"
#include "agent/strategies/adaptive_memory.h"
#include "agent/strategies/adaptive_settings.h"
#include "agent/strategies/laws.h"
#include "agent/strategies/parameters.h"

namespace headgate {
namespace {

using adaptive::Arrivals;
using adaptive::Connections;
using adaptive::CostModel;
using adaptive::Interval;
using adaptive::kBytesPerKb;
using adaptive::LiveBudget;
using adaptive::MemoryRule;
using adaptive::Settings;

/// Ticks closer together than this are merged: a sample of a few milliseconds has use 0 or 3.
constexpr double kLeastInterval_s = 0.04;
constexpr double kThrottledUse = 0.7;  ///< two threads use up a quota in bursts well below it
constexpr double kLossMargin = 0.05;   ///< below saturated_at
constexpr double kLossMemory = 0.3;
constexpr double kCapacityReturns_s = 0.5;
constexpr double kLeastCapacity = 0.05;  ///< of the nominal one
constexpr double kModelledLossShare = 0.5;
constexpr double kModelledMemory_s = 0.5;
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
constexpr double kCalmDepthRequests = 14;
constexpr double kCalmDepth_s = 0.1;
constexpr double kAloneRate = 1.05;
constexpr double kBelowSaturation = 0.01;
constexpr unsigned kKeptFull = 3;
constexpr double kKeptHidden = 1.1;
constexpr double kFullLong_s = 1.2;
constexpr double kAlwaysWaiting = 0.9;  ///< cpu.pressure
constexpr double kWaitingLong_s = 0.15;
constexpr double kTellingInterval_s = 0.2;
constexpr unsigned kDoubtfulMost = 5;
constexpr unsigned kSettleIntervals = 5;
constexpr double kWaitingBudget_s = 1.0;
constexpr double kWaitingMost = 20'000;
constexpr double kCountMost = 1e9;
constexpr double kDemandMost = 1e6;  ///< of the capacity
constexpr double kLeastCores = 1e-3;
constexpr double kMostCores = 1e5;
constexpr double kSoftUse = 1.3;  ///< a CFS burst carries at most one quota over
constexpr unsigned kSoftIntervals = 5;
constexpr double kGuardLeast = 16;

constexpr std::array<std::string_view, 2> kProfiles{"default", "spec"};
constexpr std::array<std::string_view, 2> kOnOff{"on", "off"};
constexpr std::array<std::string_view, 3> kQuota{"auto", "hard", "soft"};
using Kind = ParamSpec::Kind;
constexpr std::array kParams{
    ParamSpec{.name = "profile",
              .kind = Kind::kWord,
              .doc = "spec: as the reference vectors were recorded, without connection counts",
              .default_word = "default",
              .words = kProfiles},
    ParamSpec{.name = "saturated_at",
              .kind = Kind::kRatio,
              .default_value = 0.955,
              .minimum = 0.5,
              .maximum = 2,
              .doc = "CPU use from which an interval counts as saturated; at least target + 0.03"},
    ParamSpec{.name = "pressure_loss",
              .kind = Kind::kRatio,
              .default_value = 0.8,
              .minimum = 0.3,
              .maximum = 1,
              .doc = "cpu.pressure above this, twice, with work pending: capacity was taken away"},
    ParamSpec{.name = "quota",
              .kind = Kind::kWord,
              .doc = "soft: the capacity can be exceeded, so use near it is no saturation; auto: "
                     "hard until use is seen 30 % above it",
              .default_word = "auto",
              .words = kQuota},
    ParamSpec{.name = "prior_cost",
              .kind = Kind::kDuration,
              .default_value = 1e-3,
              .minimum = 1e-7,
              .maximum = 10,
              .doc = "CPU time of a request before anything has been learned"},
    ParamSpec{.name = "prior_byte_share",
              .kind = Kind::kRatio,
              .default_value = 0.6,
              .minimum = 0,
              .maximum = 1,
              .doc = "share of it that is attributed to bytes"},
    ParamSpec{.name = "cost_memory",
              .kind = Kind::kDuration,
              .default_value = 1,
              .minimum = 0.3,
              .maximum = 3,
              .doc = "time constant of the cost that all endpoints have in common"},
    ParamSpec{.name = "relative_memory",
              .kind = Kind::kDuration,
              .default_value = 15,
              .minimum = 5,
              .maximum = 60,
              .doc = "time constant of the costs of endpoints and bytes against each other"},
    ParamSpec{.name = "lower_bound_factor",
              .kind = Kind::kNumber,
              .default_value = 1.5,
              .minimum = 1.1,
              .maximum = 10,
              .doc = "saturated for two ticks, and more work done than this times what the model "
                     "expects of all that came in: the cost is raised at once"},
    ParamSpec{.name = "search_growth",
              .kind = Kind::kNumber,
              .default_value = 2,
              .minimum = 1.5,
              .maximum = 5,
              .doc = "factor per tick of the search for a cost that nothing else tells"},
    ParamSpec{.name = "alarm_sigmas",
              .kind = Kind::kNumber,
              .default_value = 2.5,
              .minimum = 1,
              .maximum = 4,
              .doc = "how surprising a saturation must be to start it"},
    ParamSpec{.name = "enter_margin",
              .kind = Kind::kRatio,
              .default_value = 0.04,
              .minimum = 0,
              .maximum = 0.3,
              .doc = "slow predicted demand above target + this, twice, begins to shed"},
    ParamSpec{.name = "exit",
              .kind = Kind::kRatio,
              .default_value = 0.80,
              .minimum = 0.1,
              .maximum = 0.95,
              .doc = "slow predicted demand below this for half a second ends shedding"},
    ParamSpec{.name = "drain",
              .kind = Kind::kDuration,
              .default_value = 0.2,
              .minimum = 0.1,
              .maximum = 1,
              .doc = "time in which a known backlog is worked off"},
    ParamSpec{.name = "probe",
              .kind = Kind::kRatio,
              .default_value = 0.01,
              .minimum = 0.01,
              .maximum = 0.05,
              .doc = "share that shedding always leaves to every endpoint"},
    ParamSpec{.name = "bucket_rate",
              .kind = Kind::kNumber,
              .default_value = 1.06,
              .minimum = 1.03,
              .maximum = 1.15,
              .doc = "rate of the kernel's CPU budget over the budget of the tick"},
    ParamSpec{.name = "bucket_depth",
              .kind = Kind::kDuration,
              .default_value = 0.05,
              .minimum = 0.02,
              .maximum = 0.2,
              .doc = "its depth, about the worst extra delay"},
    ParamSpec{.name = "in_flight_guard",
              .kind = Kind::kDuration,
              .default_value = 0,
              .minimum = 0,
              .maximum = 1,
              .doc = "cap on live connections, as capacity time of their cost; 0: none"},
    ParamSpec{.name = "connections",
              .kind = Kind::kWord,
              .doc = "off: ignore established, closed and in-flight connections",
              .default_word = "on",
              .words = kOnOff},
    ParamSpec{.name = "oom_time",
              .kind = Kind::kDuration,
              .default_value = 10,
              .minimum = 2,
              .maximum = 60,
              .doc = "memory that would reach the limit within this time is shed for"},
    ParamSpec{.name = "leak_open",
              .kind = Kind::kRatio,
              .default_value = 0.97,
              .minimum = 0.5,
              .maximum = 1,
              .doc = "profile spec: level at which the breaker opens in spite of a leak"},
    ParamSpec{.name = "memory_evidence",
              .kind = Kind::kWord,
              .doc = "on: a level alone does not refuse, it takes pressure, hits of the limit or a "
                     "rise towards it; off: the level alone does",
              .default_word = "on",
              .words = kOnOff},
    ParamSpec{.name = "live_share",
              .kind = Kind::kRatio,
              .default_value = 0.75,
              .minimum = 0.2,
              .maximum = 0.95,
              .doc = "share of the memory limit for base and live connections together"},
    ParamSpec{.name = "live_amplification",
              .kind = Kind::kNumber,
              .default_value = 8,
              .minimum = 1,
              .maximum = 100,
              .doc = "bytes of memory per byte that a live connection has sent"},
};

enum class Quota : std::uint8_t { kAuto, kHard, kSoft };

class Adaptive final : public Strategy {
 public:
  Adaptive(const Settings& settings, Quota quota) : set_(settings), quota_(quota) {}

  void decide(const StrategyInput& in, Decision& out) override;
  [[nodiscard]] std::size_t save(std::span<std::byte> out) const override;
  bool restore(std::span<const std::byte> data) override;
  [[nodiscard]] std::vector<Threshold> thresholds() const override;
  [[nodiscard]] std::vector<Threshold> internals() const override;

 private:
  void resize(std::size_t endpoints);
  void take_restored();
  void gather(const StrategyInput& in);
  void clear_gathered();
  [[nodiscard]] bool finish_interval(const StrategyInput& in);
  void step(const StrategyInput& in);
  void judge_saturation();
  void follow_capacity();
  void learn();
  void estimate_demand();
  void set_budget();
  void set_state();
  void step_kept();
  void allocate_shares(const StrategyInput& in);
  void forget_cpu();
  void write(const StrategyInput& in, Decision& out) const;
  void write_bucket(const StrategyInput& in, std::size_t i, EndpointDecision& out) const;
  void write_connections(Decision& out) const;

  [[nodiscard]] bool hard_quota() const;
  [[nodiscard]] double saturated_at() const { return hard_quota() ? set_.saturated_at : 1e9; }
  [[nodiscard]] double search_factor() const;
  /// Cost of a request of endpoint i of the size that is usual there, before the factor.
  [[nodiscard]] double unit(std::size_t i) const {
    return cost_.per_request(i) + cost_.per_kb(i) * arrivals_.kb(i);
  }
  [[nodiscard]] double mean_unit() const;
  [[nodiscard]] double in_flight_work() const;
  [[nodiscard]] bool bucket_ready() const;
  [[nodiscard]] bool alone(const StrategyInput& in) const;

  Settings set_;
  Quota quota_;
  CostModel cost_{set_};
  Connections connections_{set_};
  Arrivals arrivals_{set_};
  MemoryRule memory_{set_};
  LiveBudget live_{set_};

  std::size_t count_ = 0;
  Instant last_at_{};
  bool has_interval_ = false;  ///< an interval has been judged since CPU is known

  // gathered since the last interval that told something
  std::vector<double> admitted_, completed_;          ///< requests [0, n), KB [n, 2n)
  std::vector<double> offered_, offered_kb_, sized_;  ///< per endpoint
  std::vector<std::uint64_t> in_flight_;
  std::vector<bool> sizes_known_;
  double gathered_s_ = 0, blind_s_ = 0, pressure_s_ = 0, pressure_known_s_ = 0;
  Interval interval_;

  // verdicts
  bool saturated_ = false, by_cpu_ = false, throttled_ = false, doubtful_ = false,
       contradiction_ = false;
  unsigned doubtful_intervals_ = 0;
  double full_for_s_ = 0, waiting_for_s_ = 0;
  double in_flight_s_ = 0;  ///< work on all that is there
  double full_model_s_ = 0, full_done_s_ = 0;
  unsigned full_intervals_ = 0;
  unsigned loss_intervals_ = 0, saturated_intervals_ = 0, search_ = 0;
  unsigned soft_intervals_ = 0;
  bool soft_ = false;
  double capacity_cores_ = 0;  ///< effective
  double effective_share_ = 1;
  double modelled_backlog_s_ = 0;
  double backlog_s_ = 0, backlog_before_s_ = 0, predicted_s_ = 0;
  bool told_by_completions_ = false;
  unsigned settle_ = 0;

  // demand, budget, state
  std::vector<double> demand_, share_;
  std::vector<EndpointDecision> scratch_;
  double demand_s_ = 0;  ///< search factor included
  double total_ = 0, slow_ = 0;
  double budget_s_ = 0, rate_cores_ = 0;
  bool shedding_ = false, overloaded_ = false;
  unsigned above_enter_ = 0, above_now_ = 0, below_exit_ = 0;
  std::uint64_t kept_max_ = 0;
  bool kept_full_ = false;

  double target_ = 0.9;
  double memory_shed_ = 0.80, memory_open_ = 0.92, memory_close_ = 0.87;  ///< of the last input
  std::vector<std::string> names_;  ///< of internals(): c0_s, d0_s_per_KB, f0, ...

  struct RestoredEndpoint {
    float per_request, per_kb, kb;
  };
  std::vector<RestoredEndpoint> restored_;
};

void Adaptive::resize(std::size_t endpoints) {
  if (count_ == endpoints && !share_.empty()) return;
  count_ = endpoints;
  cost_.resize(endpoints);
  arrivals_.resize(endpoints);
  admitted_.assign(2 * endpoints, 0.0);
  completed_.assign(2 * endpoints, 0.0);
  for (auto* v : {&offered_, &offered_kb_, &sized_, &demand_}) v->assign(endpoints, 0.0);
  in_flight_.assign(endpoints, 0);
  sizes_known_.assign(endpoints, false);
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
      const RestoredEndpoint& e = restored_[i];
      if (cost_.restore_costs(i, static_cast<double>(e.per_request),
                              static_cast<double>(e.per_kb))) {
        arrivals_.restore(i, -1, static_cast<double>(e.kb));
      }
    }
  } else if (!restored_.empty()) {
    cost_.restore({0, 1, 0, 0, 0.01, 0});
    search_ = 0;
    told_by_completions_ = false;
  }
  restored_.clear();
}

// ---------------------------------------------------------------- what came in

/// Adds the tick to the interval. A connection counts as a request when it is established, not when
/// it is admitted: a listener that is down, SYN cookies and a full accept queue make the two
/// differ, and only the former costs anything. Its size is known when it closes, one service time
/// late.
void Adaptive::gather(const StrategyInput& in) {
  const auto number = [](std::uint64_t n) { return std::min(static_cast<double>(n), kCountMost); };
  const auto kilobytes = [](std::uint64_t bytes) {
    return std::min(static_cast<double>(bytes), 1e15) / kBytesPerKb;
  };
  for (std::size_t i = 0; i < count_; ++i) {
    const EndpointInput& endpoint = in.endpoints[i];
    const EndpointActivity& a = endpoint.activity;
    const bool counted = set_.use_connections && endpoint.tcp && a.in_flight_known;
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
      completed_[count_ + i] += closed * arrivals_.kb(i);
    } else if (counted) {
      const double received = kilobytes(a.received_bytes);
      kb = requests * (closed > 0 ? received / closed : arrivals_.kb(i));
      offered_kb_[i] += received;
      sized_[i] += closed;
      completed_[count_ + i] += received;
    }
    admitted_[count_ + i] += kb;
    completed_[i] += closed;
  }
}

void Adaptive::clear_gathered() {
  for (auto* v : {&admitted_, &completed_, &offered_, &offered_kb_, &sized_}) {
    std::fill(v->begin(), v->end(), 0.0);
  }
  gathered_s_ = blind_s_ = pressure_s_ = pressure_known_s_ = 0;
  interval_.work_s = 0;
  interval_.periods = interval_.throttled = -1;
}

/// True where the ticks gathered are an interval to judge by. A tick that could not be read is
/// merged with the next one, whose usage is the mean over both.
bool Adaptive::finish_interval(const StrategyInput& in) {
  const Signals& signals = in.signals;
  const double tick_s = seconds(signals.interval);
  gathered_s_ += tick_s;
  const auto known = [](const Measured<Ratio>& ratio) {
    return ratio.known() && std::isfinite((*ratio).value) && (*ratio).value >= 0;
  };
  if (signals.periods.known() && signals.throttled_periods.known()) {
    interval_.periods = std::max(0.0, interval_.periods) + static_cast<double>(*signals.periods);
    interval_.throttled =
        std::max(0.0, interval_.throttled) + static_cast<double>(*signals.throttled_periods);
  }
  if (known(signals.cpu_pressure)) {
    pressure_s_ += std::min(1.0, (*signals.cpu_pressure).value) * tick_s;
    pressure_known_s_ += tick_s;
  }
  if (!known(signals.cpu)) {
    blind_s_ += tick_s;
    return false;
  }
  interval_.capacity_cores = signals.capacity_cores;
  interval_.work_s +=
      std::min((*signals.cpu).value, 1e3) * signals.capacity_cores * (tick_s + blind_s_);
  blind_s_ = 0;
  if (gathered_s_ < kLeastInterval_s) return false;
  interval_.length_s = gathered_s_;
  interval_.use = interval_.work_s / interval_.capacity_s();
  interval_.pressure = pressure_known_s_ > 0 ? pressure_s_ / pressure_known_s_ : -1;
  return true;
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

  gather(in);
  double requests = 0;
  double kb = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    requests += admitted_[i];
    kb += admitted_[count_ + i];
  }
  // What kept connections bring is not seen before they close.
  const double inflow =
      connections_.kept() ? -1 : (kb > 0 ? kb : requests) / (gathered_s_ + tick_s);
  memory_.update(in, tick_s, inflow);
  if (set_.live_budget) live_.update(in, tick_s);
  if (set_.deaths && (in.restarted || signals.oom_kills.value_or(0) > 0)) {
    settle_ = kSettleIntervals;
    memory_.restart();
    live_.restart();
  }

  const bool stale = !signals.cpu.known() && !signals.cpu_fast.known();
  if (stale || !(signals.capacity_cores >= kLeastCores && signals.capacity_cores <= kMostCores)) {
    forget_cpu();
  } else if (finish_interval(in)) {
    step(in);
    clear_gathered();
    has_interval_ = true;
  }
  write(in, out);
}

/// Unknown is no evidence: what was learned stays, what was concluded goes.
void Adaptive::forget_cpu() {
  clear_gathered();
  cost_.drop_window();
  has_interval_ = false;
  saturated_ = by_cpu_ = throttled_ = shedding_ = overloaded_ = kept_full_ = false;
  loss_intervals_ = saturated_intervals_ = search_ = 0;
  above_enter_ = above_now_ = below_exit_ = 0;
  effective_share_ = 1;
  modelled_backlog_s_ = backlog_s_ = slow_ = 0;
  kept_max_ = 0;
  std::fill(share_.begin(), share_.end(), 1.0);
}

void Adaptive::step(const StrategyInput& in) {
  if (settle_ > 0) {
    // A death is not thousands of completions, and a server that starts is not a cost.
    --settle_;
    cost_.drop_window();
    saturated_ = by_cpu_ = throttled_ = false;
    saturated_intervals_ = search_ = loss_intervals_ = 0;
    backlog_s_ = modelled_backlog_s_ = 0;
    capacity_cores_ = effective_share_ * interval_.capacity_cores;
  } else {
    cost_.start(admitted_);
    if (set_.use_connections) {
      const bool calm =
          interval_.use < kThrottledUse && interval_.throttled <= 0 && interval_.pressure < 0.5;
      connections_.count(in, interval_.length_s, calm);
      in_flight_s_ = cost_.factor() * in_flight_work();
      connections_.weigh(in_flight_s_);
    }
    judge_saturation();
    follow_capacity();
    if (connections_.kept()) {
      step_kept();
      return;
    }
    kept_max_ = 0;
    kept_full_ = false;
    learn();
  }
  estimate_demand();
  set_budget();
  set_state();
  allocate_shares(in);
}

bool Adaptive::hard_quota() const {
  return quota_ == Quota::kHard || (quota_ == Quota::kAuto && !soft_);
}

void Adaptive::judge_saturation() {
  const double use = interval_.use;
  soft_intervals_ = use > kSoftUse ? soft_intervals_ + 1 : 0;
  if (interval_.throttled > 0) {
    soft_ = false;
  } else if (soft_intervals_ >= kSoftIntervals) {
    soft_ = true;
  }

  predicted_s_ = cost_.factor() * cost_.work(admitted_) + cost_.base_cores() * interval_.length_s;
  backlog_before_s_ = backlog_s_;

  // Every period throttled (Documentation/scheduler/sched-bwc.rst).
  const bool all_throttled = interval_.periods >= 1 && interval_.throttled >= interval_.periods;

  bool loss = interval_.pressure > set_.pressure_loss && use < saturated_at() - kLossMargin;
  const bool pressed = loss;
  doubtful_ = false;
  if (set_.loss_needs_backlog) {
    // Pressure counts the target's own throttling and every short wait for a busy neighbour, so a
    // healthy target reads above 0.8 too. Work that was let in and is not done is the evidence;
    // where it can only be modelled it is needed once, because a cut makes it vanish. A quota that
    // is used up in every period well below what is taken for the capacity needs no other evidence:
    // the capacity is smaller.
    const bool quota_is_smaller = hard_quota() && all_throttled;
    modelled_backlog_s_ =
        std::max(0.0, modelled_backlog_s_ * std::exp(-interval_.length_s / kModelledMemory_s) +
                          predicted_s_ - interval_.work_s);
    const bool proof = connections_.pending_known()
                           ? connections_.proves_loss(interval_)
                           : loss_intervals_ > 0 ||
                                 modelled_backlog_s_ > kModelledLossShare * interval_.capacity_s();
    loss = pressed && (quota_is_smaller || proof);
    doubtful_ = pressed && !connections_.pending_known();
  }
  loss_intervals_ = loss ? loss_intervals_ + 1 : 0;

  // An interval without a period is an idle group's stopped timer: it says nothing, so the verdict
  // before stands.
  if (interval_.periods >= 1 || !set_.hold_verdict) {
    throttled_ = all_throttled && interval_.periods >= set_.min_throttled_periods;
  }
  by_cpu_ = loss_intervals_ >= set_.pressure_ticks || use >= saturated_at() ||
            (hard_quota() && throttled_ && interval_.periods >= 0 && use > kThrottledUse);
  contradiction_ = false;
  if (set_.use_connections) {
    // Nobody waits, but the CPU is full (or taken away) and by the model more was let in than is
    // done, or less than would fill it; or it is full for longer than chance keeps it so: then the
    // server answers before it works, and in flight is no evidence.
    const double full_s = std::min(saturated_at(), 1.0) * capacity_cores_ * interval_.length_s;
    const bool waits = connections_.keeps_window_open(interval_);
    const bool full = by_cpu_ && !waits;
    const bool always_waiting = full && interval_.pressure > kAlwaysWaiting;
    full_for_s_ = full ? full_for_s_ + interval_.length_s : 0;
    waiting_for_s_ = always_waiting ? waiting_for_s_ + interval_.length_s : 0;
    full_done_s_ = full ? full_done_s_ + full_s : 0;
    // Since it is full: what was there and what has come in.
    full_model_s_ = full ? full_model_s_ + predicted_s_ : in_flight_s_;
    const bool undone = modelled_backlog_s_ > kModelledLossShare * interval_.capacity_s();
    const bool too_little = full_model_s_ * (1 + set_.alarm_sigmas * cost_.sigma()) < full_done_s_;
    const bool for_long = full_for_s_ > kFullLong_s || waiting_for_s_ > kWaitingLong_s;
    contradiction_ = ((by_cpu_ || pressed) && undone) || (by_cpu_ && too_little) ||
                     (for_long && in_flight_s_ < full_s);
    contradiction_ = contradiction_ && !waits;
    connections_.judge(contradiction_, interval_);
  }
  // Where it can be seen that nobody waits, a full CPU is no reason to keep the window open.
  saturated_ = set_.use_connections && connections_.pending_known()
                   ? connections_.keeps_window_open(interval_) || contradiction_ ||
                         loss_intervals_ >= set_.pressure_ticks
                   : by_cpu_;
}

void Adaptive::follow_capacity() {
  const double nominal = interval_.capacity_cores;
  const double used = interval_.work_s / interval_.length_s;
  double effective = effective_share_ * nominal;
  if (loss_intervals_ >= set_.pressure_ticks) {
    effective = loss_intervals_ == set_.pressure_ticks
                    ? used
                    : effective + kLossMemory * (used - effective);
  } else if (loss_intervals_ == 0) {
    effective += std::min(1.0, interval_.length_s / kCapacityReturns_s) * (nominal - effective);
  }
  capacity_cores_ = std::clamp(effective, kLeastCapacity * nominal, nominal);
  effective_share_ = capacity_cores_ / nominal;
}

double Adaptive::in_flight_work() const {
  double sum = 0;
  for (std::size_t i = 0; i < count_; ++i) sum += static_cast<double>(in_flight_[i]) * unit(i);
  return sum;
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

void Adaptive::learn() {
  cost_.add(admitted_, interval_);
  doubtful_intervals_ = doubtful_ && !saturated_ ? doubtful_intervals_ + 1 : 0;
  if (doubtful_intervals_ > 0 && doubtful_intervals_ <= kDoubtfulMost) {
    return;  // was the work done or taken away? the window stays open until that is seen
  }
  if (!saturated_) {
    cost_.close(admitted_, interval_, !shedding_, search_, saturated_intervals_);
    saturated_intervals_ = search_ = 0;
    backlog_s_ = 0;
    return;
  }
  ++saturated_intervals_;
  if (saturated_intervals_ >= 2) cost_.apply_lower_bound(interval_);
  if (set_.use_connections && connections_.pending_known() && !contradiction_) {
    // Completions tell the cost under saturation: no search. At a cold start, and in a tick long
    // enough for many, they count at once.
    // Saturated with nobody waiting, either the server answers before it works or it is only just
    // saturated: completions say nothing then.
    const bool at_once = !bucket_ready() || (interval_.length_s >= kTellingInterval_s &&
                                             connections_.surely_waiting(interval_));
    const bool usable =
        connections_.keeps_window_open(interval_) && (saturated_intervals_ >= 2 || at_once);
    told_by_completions_ |= cost_.learn_completions(cost_.work(completed_), mean_unit(), interval_,
                                                    saturated_intervals_ == 1, usable);
    connections_.weigh(cost_.factor() * in_flight_work());
    backlog_s_ = connections_.pending_s();
    search_ = 0;
    return;
  }
  backlog_s_ = cost_.backlog_s();
  const double could_s = std::min(saturated_at(), 1.0) * capacity_cores_ * interval_.length_s;
  const double available = backlog_before_s_ + predicted_s_;
  const double doubt = set_.alarm_sigmas * cost_.sigma() * predicted_s_;
  // Long ticks: work that has waited without a break for a quarter of a second is no chance either.
  const bool surely =
      saturated_intervals_ >= 3 || (saturated_intervals_ >= 2 && waiting_for_s_ > kWaitingLong_s);
  if (search_ > 0 || available + doubt < could_s || (surely && available < could_s)) {
    ++search_;
  }
}

/// The first step only arms: one saturated interval may be chance. Long ticks search in longer
/// steps.
double Adaptive::search_factor() const {
  if (search_ == 0) return 1;
  const bool fine = interval_.length_s < 0.2;
  const double growth = fine ? set_.search_growth : 1.2 * set_.search_growth;
  return std::min(set_.search_max, std::pow(growth, search_ - 1.0) * (fine ? 1.0 : 1.6));
}

void Adaptive::estimate_demand() {
  const double search = search_factor();
  total_ = demand_s_ = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    arrivals_.update(i, offered_[i], offered_kb_[i], sized_[i], interval_.length_s);
    if (set_.use_connections && !sizes_known_[i] && arrivals_.kb(i) > 0) {
      cost_.size_known(i, arrivals_.kb(i));
    }
    const double expected = arrivals_.per_second(i) * interval_.length_s;
    demand_[i] = cost_.factor() * expected * unit(i);
    total_ += demand_[i];
    demand_[i] *= search;
    demand_s_ += demand_[i];
  }
  total_ =
      (total_ + cost_.base_cores() * interval_.length_s) / (capacity_cores_ * interval_.length_s);
  total_ = std::min(total_, kDemandMost);
  slow_ += std::min(1.0, interval_.length_s) * (total_ - slow_);
}

void Adaptive::set_budget() {
  // As much as the bucket holds may wait at any time: that is no backlog to be worked off.
  const double usual = set_.calm_bucket ? set_.bucket_depth_s * capacity_cores_ : 0.0;
  const double drain = search_ == 0 ? std::max(0.0, backlog_s_ - usual) *
                                          std::min(1.0, interval_.length_s / set_.drain_s)
                                    : 0.0;
  budget_s_ =
      std::max(0.0, (target_ * capacity_cores_ - cost_.base_cores()) * interval_.length_s - drain);
}

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
                backlog_s_ > kOverloadBacklog * nominal || loss_intervals_ >= set_.pressure_ticks;
}

/// Connections that live on: a new one costs nothing at once and may bring any number of requests,
/// so the budget is a number of them, and it stands before the load comes.
void Adaptive::step_kept() {
  cost_.drop_window();
  saturated_intervals_ = search_ = 0;
  backlog_s_ = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    arrivals_.update(i, offered_[i], offered_kb_[i], sized_[i], interval_.length_s);
  }
  connections_.learn_kept(interval_, cost_.base_cores());
  Interval effective = interval_;
  effective.capacity_cores = capacity_cores_;
  kept_max_ = connections_.kept_max(target_, effective, cost_.base_cores());
  full_intervals_ = by_cpu_ ? full_intervals_ + 1 : 0;
  if (full_intervals_ >= kKeptFull && kept_max_ > 0) {
    // A full CPU hides what they would take; nobody comes in before their number has fallen.
    const double most = target_ / kKeptHidden * connections_.in_flight();
    kept_max_ = std::min(kept_max_, static_cast<std::uint64_t>(std::max(1.0, most)));
  }
  kept_full_ = kept_max_ > 0 && connections_.in_flight() >= static_cast<double>(kept_max_);
  total_ = interval_.use / effective_share_;
  total_ = std::min(total_, kDemandMost);
  slow_ += std::min(1.0, interval_.length_s) * (total_ - slow_);
  budget_s_ = std::max(0.0, (target_ * capacity_cores_ - cost_.base_cores()) * interval_.length_s);
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
  const bool tight = set_.calm_bucket ? overloaded_ : shedding_;
  // Beside shares the bucket only cuts peaks; alone it holds the target, and must leave room below
  // saturation, where nothing can be learned.
  const double slack =
      !alone(in) ? set_.bucket_rate
      : saturated_intervals_ >= 2
          ? 1.0
          : std::clamp((set_.saturated_at - kBelowSaturation) / target_, 1.0, kAloneRate);
  rate_cores_ = tight || loss_intervals_ >= set_.pressure_ticks
                    ? std::max(budget_s_ / interval_.length_s * slack,
                               kLeastRateShare * interval_.capacity_cores)
                    : interval_.capacity_cores - cost_.base_cores();
}

// ---------------------------------------------------------------- the decision

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
  if (out.circuit_open) {
    out.state = State::kOpen;
    out.why = "memory is above memory.open, and rises or stalls";
    for (EndpointDecision& endpoint : out.endpoints) {
      endpoint.admit = Probability::never();
      endpoint.reason = HEADGATE_REASON_CIRCUIT;
    }
    return;
  }
  const double by_memory = memory_.admit() < 1 ? std::max(set_.probe, memory_.admit()) : 1.0;
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
  write_connections(out);

  out.state = State::kShedding;
  if (by_memory < 1) {
    out.why = memory_.probing() ? "memory is flat: admission is tried step by step"
                                : "memory is high or would soon reach its limit";
  } else if (!has_interval_) {
    out.state = State::kNormal;
    out.why = "CPU is not known, memory is below its thresholds";
  } else if (kept_full_) {
    out.why = "as many kept connections as the CPU budget carries";
  } else if (loss_intervals_ >= set_.pressure_ticks) {
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

/// In seconds of bucket time: the kernel's bucket runs by the clock, at the rate of the tick.
void Adaptive::write_bucket(const StrategyInput& in, std::size_t i, EndpointDecision& out) const {
  if (!(rate_cores_ > 0)) return;
  const double factor = cost_.factor() * search_factor();
  const double work = factor * unit(i);
  if (!(work > 0)) return;
  const double per_core_s = 1 / rate_cores_;
  if (sizes_known_[i]) {
    out.charge_request_s = factor * cost_.per_request(i) * per_core_s;
    out.charge_kb_s = factor * cost_.per_kb(i) * per_core_s;
  } else {
    out.charge_request_s = work * per_core_s;
  }
  const double nominal = interval_.capacity_cores;
  double depth = std::max(set_.bucket_depth_s * nominal, kLeastDepthRequests * work);
  if (set_.calm_bucket && !overloaded_) {
    // Chance alone brings half a dozen requests at once at three quarters of the capacity; a bucket
    // of fewer would refuse a healthy target.
    depth = std::max(depth, std::min(kCalmDepthRequests * work, kCalmDepth_s * nominal));
  }
  if (count_ > 1) depth *= 0.4 + 0.2 * static_cast<double>(in.endpoints[i].criticality);
  out.depth_s = depth * per_core_s;
}

void Adaptive::write_connections(Decision& out) const {
  if (!has_interval_) return;
  if (kept_max_ > 0) {
    out.connections_max = kept_max_;
    return;
  }
  const double unit_s = cost_.factor() * search_factor() * mean_unit();
  if (!bucket_ready() || !(unit_s > 0)) return;
  if (set_.in_flight_guard_s > 0 && connections_.counted()) {
    const double most = set_.in_flight_guard_s * interval_.capacity_cores / unit_s;
    out.connections_max = static_cast<std::uint64_t>(
        std::clamp(most, std::max(kGuardLeast, 2 * connections_.workers()), 1e6));
  }
  if (set_.waiting) {
    // What waits longer than this would miss its deadline at equal chances.
    const double most = kWaitingBudget_s * budget_s_ / interval_.length_s / unit_s;
    out.waiting_max = static_cast<std::uint64_t>(std::clamp(most, 0.0, kWaitingMost));
  }
}

// ---------------------------------------------------------------- what outlives the agent

struct ModelHeader {
  std::uint64_t version;
  std::int64_t at_ns;
  CostModel::State cost;
  double effective_share, slow, base_bytes, workers;
  std::uint32_t search, shedding, told, kept;
  std::uint32_t endpoints, reserved;
};
constexpr std::uint64_t kModelVersion = 0x4847'4144'0000'0001;  // "HGAD", version 1

std::size_t Adaptive::save(std::span<std::byte> out) const {
  const std::size_t bytes = sizeof(ModelHeader) + count_ * sizeof(RestoredEndpoint);
  if (count_ == 0 || bytes > out.size()) return 0;
  ModelHeader header{};
  header.version = kModelVersion;
  header.at_ns = last_at_.time_since_epoch().count();
  header.cost = cost_.state();
  header.effective_share = effective_share_;
  header.slow = slow_;
  header.base_bytes = live_.base_bytes();
  header.workers = connections_.workers();
  header.search = search_;
  header.shedding = shedding_ ? 1 : 0;
  header.told = told_by_completions_ ? 1 : 0;
  header.kept = connections_.seen_kept() ? 1 : 0;
  header.endpoints = static_cast<std::uint32_t>(count_);
  std::memcpy(out.data(), &header, sizeof header);
  for (std::size_t i = 0; i < count_; ++i) {
    const RestoredEndpoint endpoint{static_cast<float>(cost_.per_request(i)),
                                    static_cast<float>(cost_.per_kb(i)),
                                    static_cast<float>(arrivals_.kb(i))};
    std::memcpy(out.data() + sizeof header + i * sizeof endpoint, &endpoint, sizeof endpoint);
  }
  return bytes;
}

bool Adaptive::restore(std::span<const std::byte> data) {
  ModelHeader header{};
  if (data.size() < sizeof header) return false;
  std::memcpy(&header, data.data(), sizeof header);
  const auto within = [](double v, double least, double most) {
    return std::isfinite(v) && v >= least && v <= most;
  };
  if (header.version != kModelVersion || header.shedding > 1 || header.told > 1 ||
      header.kept > 1 || header.search > 1000 || header.endpoints == 0 ||
      data.size() < sizeof header + header.endpoints * sizeof(RestoredEndpoint) ||
      !within(header.effective_share, kLeastCapacity, 1) || !within(header.slow, 0, 1e6) ||
      !within(header.base_bytes, -1, 1e18) || !within(header.workers, 0, 1e9)) {
    return false;
  }
  std::vector<RestoredEndpoint> endpoints(header.endpoints);
  std::memcpy(endpoints.data(), data.data() + sizeof header,
              endpoints.size() * sizeof(RestoredEndpoint));
  for (const RestoredEndpoint& e : endpoints) {
    const auto sound = [&](float v) { return within(static_cast<double>(v), 0, 1e9); };
    if (!sound(e.per_request) || !sound(e.per_kb) || !sound(e.kb)) return false;
  }
  if (!cost_.restore(header.cost)) return false;
  last_at_ = Instant(Duration(header.at_ns));
  effective_share_ = header.effective_share;
  slow_ = header.slow;
  live_.restore_base(header.base_bytes);
  connections_.restore(header.workers, header.kept == 1);
  search_ = header.search;
  shedding_ = header.shedding == 1;
  told_by_completions_ = header.told == 1;
  restored_ = std::move(endpoints);
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
  std::vector<Threshold> out{{"sat", saturated_ ? 1.0 : 0.0},
                             {"esc", static_cast<double>(search_)},
                             {"E", search_factor()},
                             {"g", cost_.factor()},
                             {"base_cores", cost_.base_cores()},
                             {"Bhat_cpus", backlog_s_},
                             {"W_cores", budget_s_ * per_s},
                             {"bucket_rate_cores", rate_cores_},
                             {"state", shedding_ ? 1.0 : 0.0}};
  const double by_memory = memory_.open()        ? 0.0
                           : memory_.admit() < 1 ? std::max(set_.probe, memory_.admit())
                                                 : 1.0;
  for (std::size_t i = 0; i < count_; ++i) {
    out.push_back({names_[3 * i], cost_.per_request(i)});
    out.push_back({names_[3 * i + 1], cost_.per_kb(i)});
    out.push_back({names_[3 * i + 2], std::min(share_[i], by_memory)});
  }
  out.push_back({"capacity_cores", capacity_cores_});
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
  info.params = kParams;
  info.make = [](const Params& params) -> std::unique_ptr<Strategy> {
    const auto number = [&](std::string_view name) { return number_of(params, kParams, name); };
    const auto is = [&](std::string_view name, std::string_view word) {
      return word_of(params, kParams, name) == word;
    };
    Settings set;
    set.saturated_at = number("saturated_at");
    set.pressure_loss = number("pressure_loss");
    set.prior_cost_s = number("prior_cost");
    set.prior_byte_share = number("prior_byte_share");
    set.cost_memory_s = number("cost_memory");
    set.relative_memory_s = number("relative_memory");
    set.lower_bound_factor = number("lower_bound_factor");
    set.search_growth = number("search_growth");
    set.alarm_sigmas = number("alarm_sigmas");
    set.enter_margin = number("enter_margin");
    set.exit = number("exit");
    set.drain_s = number("drain");
    set.probe = number("probe");
    set.bucket_rate = number("bucket_rate");
    set.bucket_depth_s = number("bucket_depth");
    set.in_flight_guard_s = number("in_flight_guard");
    set.use_connections = is("connections", "on");
    set.safe_oom_s = number("oom_time");
    set.leak_open = number("leak_open");
    set.careful_memory = is("memory_evidence", "on");
    set.live_share = number("live_share");
    set.live_amplification = number("live_amplification");
    if (is("profile", "spec")) set.to_spec();
    return std::make_unique<Adaptive>(set, is("quota", "hard")   ? Quota::kHard
                                           : is("quota", "soft") ? Quota::kSoft
                                                                 : Quota::kAuto);
  };
  return info;
}

}  // namespace headgate
