// SPDX-License-Identifier: Apache-2.0
// sre: two stages. The server's: a CPU ramp that takes from the lowest of Google's four tiers of
// criticality before it touches the next. The client's adaptive throttling in front of it, for the
// clients that do not have it, separately for each tier: with the attempts R and the admitted A of
// the last window it refuses
//
//   p = max(0, (R - k * A) / (R + 1))
//
// so that what comes to the server is at most about k times what it takes. An endpoint's floor is
// kept by both.
//
//   ramp: mean m of the CPU, factor 0.7 each 100 ms; on after two ticks above 0.80, off after two
//   below 0.70; refuses clamp((m - 0.70) / (1.00 - 0.70), 0, 1)
//
// Source: B. Beyer et al. (ed.), "Site Reliability Engineering", O'Reilly 2016, chapter 21
// "Handling Overload" (A. Mestrovic): "Client-Side Throttling" (the formula, K = 2) and
// "Criticality", sre.google/sre-book/handling-overload. The ramp is this project's: the book leaves
// the server's rule open.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "headgate/smoothed.h"

#include "agent/decision/decide.h"
#include "agent/strategies/activity.h"
#include "agent/strategies/demand.h"
#include "agent/strategies/laws.h"
#include "agent/strategies/parameters.h"
#include "agent/strategies/rolling.h"

namespace headgate {
namespace {

using Kind = ParamSpec::Kind;
constexpr std::array kParams{
    ParamSpec{.name = "k",
              .kind = Kind::kNumber,
              .default_value = 2,
              .minimum = 1,
              .maximum = 100,
              .doc = "attempts let through to the server's stage for each one that it admits"},
    ParamSpec{.name = "window",
              .kind = Kind::kDuration,
              .default_value = 10,
              .minimum = 1,
              .maximum = 300,
              .doc = "how long attempts and admissions count for k"},
    ParamSpec{.name = "enter",
              .kind = Kind::kRatio,
              .default_value = 0.80,
              .minimum = 0.05,
              .maximum = 2,
              .doc = "smoothed CPU use above which the ramp is on"},
    ParamSpec{.name = "exit",
              .kind = Kind::kRatio,
              .default_value = 0.70,
              .minimum = 0.05,
              .maximum = 2,
              .doc = "below which it is off; below enter"},
    ParamSpec{.name = "shed_from",
              .kind = Kind::kRatio,
              .default_value = 0.70,
              .minimum = 0,
              .maximum = 2,
              .doc = "smoothed CPU use at which the ramp refuses nothing"},
    ParamSpec{.name = "shed_full",
              .kind = Kind::kRatio,
              .default_value = 1.00,
              .minimum = 0.05,
              .maximum = 2,
              .doc = "at which it refuses everything; above shed_from"},
    ParamSpec{.name = "connections",
              .kind = Kind::kCount,
              .default_value = 2000,
              .minimum = 0,
              .maximum = 1e7,
              .doc = "most live connections, where they are counted; 0 = no cap"},
};

/// -100 ms / ln 0.7
constexpr Duration kCpuTimeConstant = std::chrono::microseconds(280'367);
constexpr Duration kBucket = std::chrono::milliseconds(100);
constexpr unsigned kTicksInARow = 2;
constexpr std::size_t kTiers = static_cast<std::size_t>(Criticality::kCount);

struct Settings {
  double k, enter, exit, shed_from, shed_full, connections;
  Duration window;
};

class Sre final : public Strategy {
 public:
  explicit Sre(const Settings& settings) : set_(settings), tiers_(kTiers, Tier(settings.window)) {}

  void decide(const StrategyInput& in, Decision& out) override;

  [[nodiscard]] std::vector<Threshold> thresholds() const override {
    return {{"enter", set_.enter}, {"exit", set_.exit}};
  }
  [[nodiscard]] std::vector<Threshold> internals() const override {
    return {{"cpu_mean", cpu_.value()}, {"ramp", ramp()}};
  }

 private:
  struct Tier {
    explicit Tier(Duration window) : attempts(kBucket, window), admitted(kBucket, window) {}
    Rolling attempts, admitted;
    double refuse = 0;
  };
  void step_ramp();
  [[nodiscard]] double ramp() const {
    return on_ ? std::clamp((cpu_.value() - set_.shed_from) / (set_.shed_full - set_.shed_from),
                            0.0, 1.0)
               : 0;
  }

  Settings set_;
  Smoothed cpu_{kCpuTimeConstant};
  bool on_ = false;
  unsigned in_a_row_ = 0;
  std::vector<Tier> tiers_;
  Demand demand_;
};

void Sre::step_ramp() {
  const bool passed = on_ ? cpu_.value() < set_.exit : cpu_.value() > set_.enter;
  in_a_row_ = passed ? in_a_row_ + 1 : 0;
  if (in_a_row_ >= kTicksInARow) {
    on_ = !on_;
    in_a_row_ = 0;
  }
}

void Sre::decide(const StrategyInput& in, Decision& out) {
  const Signals& signals = in.signals;
  demand_.update(in);
  for (std::size_t t = 0; t < kTiers; ++t) {
    double attempts = 0;
    double admitted = 0;
    for (const EndpointInput& endpoint : in.endpoints) {
      if (static_cast<std::size_t>(endpoint.criticality) != t) continue;
      attempts += static_cast<double>(endpoint.activity.offered);
      admitted += static_cast<double>(endpoint.activity.admitted);
    }
    Tier& tier = tiers_[t];
    tier.attempts.add(signals.at, signals.interval, attempts);
    tier.admitted.add(signals.at, signals.interval, admitted);
    const double r = tier.attempts.count();
    tier.refuse = std::max(0.0, (r - set_.k * tier.admitted.count()) / (r + 1));
  }

  if (!signals.cpu_fast.known()) {
    cpu_.clear();
    on_ = false;
    in_a_row_ = 0;
    admit_unknown(out, "sre: CPU is not known, everything is admitted");
    return;
  }
  if (signals.cpu.known()) cpu_.add((*signals.cpu).value, signals.interval);
  step_ramp();

  out.circuit_open = false;
  bool refuses = false;
  allocate(ramp(), in.endpoints, demand_.per_second(), 0.0, out.endpoints);
  for (std::size_t i = 0; i < out.endpoints.size(); ++i) {
    EndpointDecision& endpoint = out.endpoints[i];
    const double by_server = endpoint.admit.value();
    const double by_both =
        by_server * (1 - tiers_[static_cast<std::size_t>(in.endpoints[i].criticality)].refuse);
    endpoint.admit = Probability::admitting(
        std::max(by_both, std::min(by_server, in.endpoints[i].floor.value())));
    const bool thinned = endpoint.admit < Probability::always();
    endpoint.reason = thinned ? HEADGATE_REASON_SHARE : HEADGATE_REASON_NONE;
    refuses = refuses || thinned;
  }
  const Activity activity = activity_of(in);
  bool full = false;
  if (set_.connections > 0 && activity.in_flight_known) {
    cap_connections(set_.connections, activity, out);
    full = activity.in_flight >= set_.connections;
  }
  out.state = refuses || full ? State::kShedding : State::kNormal;
  out.why = out.state == State::kNormal ? "sre: CPU is below enter, and what came was admitted"
            : on_     ? "sre: CPU is on the ramp (above enter, not yet below exit)"
            : refuses ? "sre: more came in the window than k times what was admitted"
                      : "sre: the cap on connections is reached";
}

}  // namespace

StrategyInfo sre_info() {
  StrategyInfo info;
  info.name = "sre";
  info.doc = "Google SRE: a CPU ramp by tiers, and client throttling by accepts against requests";
  info.params = kParams;
  info.check = [](const Params& params) -> std::string {
    const auto number = [&](std::string_view name) { return number_of(params, kParams, name); };
    if (number("exit") >= number("enter")) return "exit must be below enter";
    if (number("shed_from") >= number("shed_full")) return "shed_from must be below shed_full";
    return {};
  };
  info.make = [](const Params& params) -> std::unique_ptr<Strategy> {
    const auto number = [&](std::string_view name) { return number_of(params, kParams, name); };
    Settings set{};
    set.k = number("k");
    set.enter = number("enter");
    set.exit = std::min(number("exit"), set.enter);
    set.shed_from = number("shed_from");
    set.shed_full = std::max(number("shed_full"), set.shed_from + 1e-3);
    set.connections = number("connections");
    set.window = std::chrono::milliseconds(std::llround(number("window") * 1e3));
    return std::make_unique<Sre>(set);
  };
  return info;
}

}  // namespace headgate
