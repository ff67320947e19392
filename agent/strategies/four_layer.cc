// SPDX-License-Identifier: Apache-2.0
// four_layer: four limiters, one behind the other; an attempt must pass all of them.
//
//   1 cap         at most `connections` live connections
//   2 slow start  for `slow_start` after the first traffic, after a restart of the target's process
//                 and after a quiet window: attempts per second at most
//                 from + (capacity - from) * (1 - exp(-4 p)), p = part of slow_start that is over;
//                 capacity = completions per second / CPU use, as learned so far
//   3 damping     attempts come at more than `damp` times the best completion rate h (and h > 50):
//                 for 15 s at most h + 2 h (1 - exp(-4 p)) a second
//   4 BBR         mean CPU of 5 s above the knee, or memory above 0.85: in flight at most best
//                 completion rate x best response time of 10 s; until 1 s after the last refusal
//
// The knee is where the 99th percentile of the response time starts to rise: of each tick it
// is kept by the CPU use of that time (steps of 0.05, the median of the last 15 ticks); every 5 s
// the knee is the first step whose p99 is more than half above that of the one before, within
// [0.3, knee_max].
//
// Sources: no implementation of the whole is public. Layer 4 is ratelimit/bbr/bbr.go of
// github.com/go-kratos/aegis at 028e85a; layer 2 follows the slow start of Guava's
// SmoothWarmingUp (RateLimiter, guava.dev) with a saturating curve; layer 3 and the knee are
// described here in full.
//
// At its first start on a target that already takes more than `from` it refuses until it has seen
// completions; an upgrade of the agent keeps what was learned.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>

#include "headgate/smoothed.h"

#include "agent/strategies/activity.h"
#include "agent/strategies/demand.h"
#include "agent/strategies/laws.h"
#include "agent/strategies/model_bytes.h"
#include "agent/strategies/parameters.h"
#include "agent/strategies/rate_split.h"
#include "agent/strategies/rolling.h"

namespace headgate {
namespace {

using Kind = ParamSpec::Kind;
using std::chrono::milliseconds;

constexpr std::array kParams{
    ParamSpec{.name = "connections",
              .kind = Kind::kCount,
              .default_value = 1000,
              .minimum = 1,
              .maximum = 1e7,
              .doc = "most live connections"},
    ParamSpec{.name = "slow_start",
              .kind = Kind::kDuration,
              .default_value = 30,
              .minimum = 0,
              .maximum = 3600,
              .doc = "length of the slow start; 0 = none"},
    ParamSpec{.name = "from",
              .kind = Kind::kNumber,
              .default_value = 200,
              .minimum = 1,
              .maximum = 1e6,
              .doc = "attempts per second at which the slow start begins"},
    ParamSpec{.name = "quiet",
              .kind = Kind::kDuration,
              .default_value = 60,
              .minimum = 1,
              .maximum = 86400,
              .doc = "time without an attempt after which it starts slowly again"},
    ParamSpec{.name = "damp",
              .kind = Kind::kNumber,
              .default_value = 3,
              .minimum = 1,
              .maximum = 1000,
              .doc = "attempts per best completion rate above which a burst is damped"},
    ParamSpec{.name = "knee_max",
              .kind = Kind::kRatio,
              .default_value = 0.80,
              .minimum = 0.3,
              .maximum = 1,
              .doc = "CPU use from which BBR is in force, where no knee was found below"},
    ParamSpec{.name = "memory_line",
              .kind = Kind::kRatio,
              .default_value = 0.85,
              .minimum = 0.1,
              .maximum = 1,
              .doc = "share of the memory limit from which BBR is in force"},
};

constexpr Duration kBucket = milliseconds(100);
constexpr Duration kCpuWindow = std::chrono::seconds(5), kCpuBucket = milliseconds(500);
constexpr Duration kDampTime = std::chrono::seconds(15);
constexpr double kDampFromPerS = 50;
constexpr Duration kCoolOff = std::chrono::seconds(1);
constexpr Duration kKneeEvery = std::chrono::seconds(5);
constexpr std::size_t kKneeSteps = 20;
constexpr double kKneeMin = 0.3;
constexpr double kKneeRise = 0.5;
constexpr std::size_t kKneeTicks = 15;    ///< whose p99 a step keeps, the newest
constexpr std::size_t kKneeTicksMin = 8;  ///< that a step needs to be believed
constexpr double kCapacityCpuMin = 0.05;  ///< below it completions / CPU says little
/// The kernel spaces the attempts of a rate out; a tenth of a second of them may come at once.
constexpr double kBurstSeconds = 0.1;

struct Settings {
  double connections, slow_start_s, from_per_s, damp, knee_max, memory_line;
  Duration quiet;
};

struct Model {
  std::uint64_t version;
  std::uint64_t warm;
  double knee;
  double capacity_per_s;
};
constexpr std::uint64_t kModelVersion = 0x4847'344c'0000'0001;  // "HG4L", version 1

/// From 0 at p = 0 towards 1 - exp(-4) at p = 1.
double saturating(double p) { return -std::expm1(-4 * p); }

class FourLayer final : public Strategy {
 public:
  explicit FourLayer(const Settings& settings) : set_(settings), knee_(settings.knee_max) {}

  void decide(const StrategyInput& in, Decision& out) override;

  [[nodiscard]] std::size_t save(std::span<std::byte> out) const override {
    return save_model(out, Model{kModelVersion, warm_ ? 1U : 0U, knee_, capacity_per_s_});
  }
  bool restore(std::span<const std::byte> data) override {
    Model model{};
    if (!load_model(data, kModelVersion, model) || !std::isfinite(model.knee) ||
        !std::isfinite(model.capacity_per_s) || model.capacity_per_s < 0 || model.warm > 1) {
      return false;
    }
    warm_ = model.warm == 1;
    knee_ = std::clamp(model.knee, kKneeMin, set_.knee_max);
    capacity_per_s_ = model.capacity_per_s;
    return true;
  }
  [[nodiscard]] std::vector<Threshold> thresholds() const override {
    return {{"knee", knee_}, {"memory_line", set_.memory_line}};
  }
  [[nodiscard]] std::vector<Threshold> internals() const override {
    return {{"cpu_mean", cpu_.mean().value_or(0)},
            {"capacity_per_s", capacity_per_s_},
            {"rate_per_s", rate_per_s_},
            {"best_rate_per_s", completions_.max_rate_per_s()},
            {"best_response_s", completions_.min_mean().value_or(0)},
            {"warm", warm_ ? 1.0 : 0.0}};
  }

 private:
  /// The p99 of the ticks that ended in one step of the CPU use. Their median stands for it: one
  /// dear request in a hundred makes a mean of them a matter of chance.
  struct Step {
    std::array<double, kKneeTicks> p99_s{};
    std::size_t ticks = 0;
    void add(double p99) { p99_s[ticks++ % kKneeTicks] = p99; }
    [[nodiscard]] bool believed() const { return ticks >= kKneeTicksMin; }
    [[nodiscard]] double median_s() const;
  };
  void learn(const Signals& signals, const Activity& activity);
  void find_knee(Instant at);
  void step_start(const StrategyInput& in, const Activity& activity);
  /// Attempts per second by layers 2 and 3; 0 = no limit.
  double rate_limit(Instant at);
  /// In flight by layer 4; nothing = not in force.
  std::optional<double> flight_limit(const Signals& signals, const Activity& activity);

  Settings set_;
  Rolling cpu_{kCpuBucket, kCpuWindow};  ///< time and CPU use x time
  Rolling arrivals_{kBucket, std::chrono::seconds(5)};
  Rolling completions_{kBucket, std::chrono::seconds(10)};
  Smoothed completions_per_s_{std::chrono::seconds(2)};
  Smoothed cpu_two_s_{std::chrono::seconds(2)};
  double capacity_per_s_ = 0;  ///< 0 = not learned
  Demand demand_;

  bool warm_ = false;
  std::optional<Instant> start_at_, traffic_at_, damp_at_, refused_at_;
  double damp_base_per_s_ = 0;
  double rate_per_s_ = 0;

  double knee_;
  std::array<Step, kKneeSteps> steps_{};
  std::optional<Instant> knee_at_;
};

double FourLayer::Step::median_s() const {
  std::array<double, kKneeTicks> sorted = p99_s;
  const std::size_t n = std::min(ticks, kKneeTicks);
  auto* const middle = sorted.begin() + n / 2;
  std::nth_element(sorted.begin(), middle, sorted.begin() + n);
  return *middle;
}

void FourLayer::learn(const Signals& signals, const Activity& activity) {
  const Instant at = signals.at;
  const double dt_s = seconds(signals.interval);
  arrivals_.add(at, signals.interval, activity.offered);
  completions_.add(at, signals.interval, activity.responses, activity.response_s_sum);
  if (!signals.cpu.known() || !(dt_s > 0)) return;
  const double cpu = (*signals.cpu).value;
  cpu_.add(at, signals.interval, dt_s, cpu * dt_s);
  cpu_two_s_.add(cpu, signals.interval);
  completions_per_s_.add(activity.responses / dt_s, signals.interval);
  if (cpu_two_s_.value() > kCapacityCpuMin && completions_per_s_.value() > 0) {
    capacity_per_s_ = completions_per_s_.value() / cpu_two_s_.value();
  }
  if (activity.responses > 0) {
    const double mean = cpu_.mean().value_or(0);
    const auto index =
        static_cast<std::size_t>(std::clamp(mean * kKneeSteps, 0.0, kKneeSteps - 1.0));
    steps_[index].add(activity.response_s_p99);
  }
}

void FourLayer::find_knee(Instant at) {
  if (knee_at_ && at - *knee_at_ < kKneeEvery) return;
  knee_at_ = at;
  knee_ = set_.knee_max;
  double before_s = 0;
  for (std::size_t i = 0; i < kKneeSteps; ++i) {
    if (!steps_[i].believed()) continue;
    const double p99_s = steps_[i].median_s();
    if (before_s > 0 && p99_s > (1 + kKneeRise) * before_s) {
      knee_ = std::clamp(static_cast<double>(i) / kKneeSteps, kKneeMin, set_.knee_max);
      return;
    }
    before_s = p99_s;
  }
}

void FourLayer::step_start(const StrategyInput& in, const Activity& activity) {
  const Instant at = in.signals.at;
  const bool was_quiet = traffic_at_ && at - *traffic_at_ >= set_.quiet;
  if (in.restarted || was_quiet) {
    warm_ = false;
    start_at_.reset();
    damp_at_.reset();
  }
  if (activity.offered > 0) {
    traffic_at_ = at;
    if (!warm_ && !start_at_) start_at_ = at;
  }
  if (start_at_ && seconds(at - *start_at_) >= set_.slow_start_s) {
    warm_ = true;
    start_at_.reset();
  }
}

double FourLayer::rate_limit(Instant at) {
  if (!warm_) {
    if (!start_at_) return 0;  // no traffic yet
    const double p = seconds(at - *start_at_) / set_.slow_start_s;
    const double to = std::max(set_.from_per_s, capacity_per_s_);
    return set_.from_per_s + (to - set_.from_per_s) * saturating(p);
  }
  if (!damp_at_) {
    const double best = completions_.max_rate_per_s();
    if (best > kDampFromPerS && arrivals_.max_rate_per_s() > set_.damp * best) {
      damp_at_ = at;
      damp_base_per_s_ = best;
    }
  }
  if (!damp_at_) return 0;
  const double p = seconds(at - *damp_at_) / seconds(kDampTime);
  if (p >= 1) {
    damp_at_.reset();
    return 0;
  }
  return damp_base_per_s_ * (1 + 2 * saturating(p));
}

std::optional<double> FourLayer::flight_limit(const Signals& signals, const Activity& activity) {
  const bool above = cpu_.mean().value_or(0) >= knee_ ||
                     signals.memory.value_or(Ratio{0}).value >= set_.memory_line;
  if (!above && (!refused_at_ || signals.at - *refused_at_ > kCoolOff)) {
    refused_at_.reset();
    return std::nullopt;
  }
  const std::optional<double> response_s = completions_.min_mean();
  const double rate_per_s = completions_.max_rate_per_s();
  if (!response_s || !(rate_per_s > 0)) return std::nullopt;
  const double milliseconds_up = std::max(1.0, std::ceil(*response_s * 1e3));
  // Refused while more than this and more than one are in flight, so one more than that may be.
  const double flight = std::max(1.0, std::floor(rate_per_s * milliseconds_up / 1e3)) + 1;
  if (above && activity.in_flight >= flight) refused_at_ = signals.at;
  return flight;
}

void FourLayer::decide(const StrategyInput& in, Decision& out) {
  const Signals& signals = in.signals;
  const Activity activity = activity_of(in);
  demand_.update(in);
  if (in.restarted) {
    completions_.clear();
    arrivals_.clear();
    completions_per_s_.clear();
    cpu_two_s_.clear();
  }
  rate_per_s_ = 0;
  if (!signals.cpu_fast.known()) {
    admit_unknown(out, "four_layer: CPU is not known, everything is admitted");
    return;
  }
  if (!activity.in_flight_known || !activity.responses_known) {
    admit_unknown(out, "four_layer: response times are not seen, everything is admitted");
    return;
  }
  learn(signals, activity);
  find_knee(signals.at);
  step_start(in, activity);
  rate_per_s_ = rate_limit(signals.at);
  const std::optional<double> flight = flight_limit(signals, activity);

  out.circuit_open = false;
  cap_connections(std::min(set_.connections, flight.value_or(set_.connections)), activity, out);
  if (rate_per_s_ > 0) {
    split_rate(rate_per_s_, std::max(1.0, kBurstSeconds * rate_per_s_), in.endpoints,
               demand_.per_second(), out.endpoints);
  }
  out.why = out.state == State::kNormal ? "four_layer: all layers let through"
            : flight                    ? "four_layer: BBR limits what is in flight"
            : !warm_                    ? "four_layer: slow start"
            : damp_at_                  ? "four_layer: a burst is damped"
                                        : "four_layer: the cap on connections is reached";
}

}  // namespace

StrategyInfo four_layer_info() {
  StrategyInfo info;
  info.name = "four_layer";
  info.doc = "in-flight cap, slow start, burst damping, and BBR with a learned latency knee";
  info.params = kParams;
  info.make = [](const Params& params) -> std::unique_ptr<Strategy> {
    const auto number = [&](std::string_view name) { return number_of(params, kParams, name); };
    Settings set{};
    set.connections = number("connections");
    set.slow_start_s = number("slow_start");
    set.from_per_s = number("from");
    set.damp = number("damp");
    set.knee_max = number("knee_max");
    set.memory_line = number("memory_line");
    set.quiet = milliseconds(std::llround(number("quiet") * 1e3));
    return std::make_unique<FourLayer>(set);
  };
  return info;
}

}  // namespace headgate
