// SPDX-License-Identifier: Apache-2.0
// bbr: while the CPU is above its line, no more requests in flight than the best completion rate
// times the best response time of the last seconds: what the target has been seen to carry without
// a queue (the bandwidth-delay product of TCP BBR).
//
//   max_flight = max over buckets of completions/s * min over buckets of the mean response time
//
// go_zero: window 5 s, CPU line 0.90 on a mean of factor 0.95 each 250 ms; above the line
// max_flight
//   is multiplied by (1 - cpu) / (1 - line), at least 0.1. In force for 1 s after the last tick
//   above the line if something was refused.
// aegis: window 10 s, line 0.80 on a mean of factor 0.95 each 500 ms; the response time is rounded
//   up to a millisecond. Below the line it stays in force until 1 s after the first refusal.
//
// Sources: core/load/adaptiveshedder.go of github.com/zeromicro/go-zero at 037917d;
// ratelimit/bbr/bbr.go of github.com/go-kratos/aegis at 028e85a; N. Cardwell et al., "BBR:
// congestion-based congestion control", ACM Queue 14(5), 2016.
//
// Different here: go-zero also asks that a mean of the requests in flight over the last ten
// completions is above the limit; ten completions are less than a tick, and the kernel judges every
// attempt by the count of its moment. Both means of the CPU begin with the first value instead of
// 0. Where nothing has completed in the window nothing is known and everything is admitted.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>

#include "headgate/smoothed.h"

#include "agent/strategies/activity.h"
#include "agent/strategies/laws.h"
#include "agent/strategies/model_bytes.h"
#include "agent/strategies/parameters.h"
#include "agent/strategies/rolling.h"

namespace headgate {
namespace {

using Kind = ParamSpec::Kind;
using std::chrono::milliseconds;

constexpr std::array<std::string_view, 2> kVariants{"go_zero", "aegis"};
constexpr std::array kParams{
    ParamSpec{.name = "variant",
              .kind = Kind::kWord,
              .doc = "whose rules: go-zero's or Kratos aegis'",
              .default_word = "go_zero",
              .words = kVariants},
    ParamSpec{.name = "cpu_line",
              .kind = Kind::kRatio,
              .default_value = 0,
              .minimum = 0,
              .maximum = 0.99,
              .doc = "smoothed CPU use from which the limit is in force; 0 = the variant's own, "
                     "0.90 or 0.80"},
    ParamSpec{.name = "window",
              .kind = Kind::kDuration,
              .default_value = 0,
              .minimum = 0,
              .maximum = 60,
              .doc = "how long the best rate and the best response time count; 0 = the variant's "
                     "own, 5 s or 10 s"},
};

constexpr Duration kBucket = milliseconds(100);
constexpr Duration kCoolOff = std::chrono::seconds(1);
constexpr double kOverloadFactorMin = 0.1;

struct Settings {
  bool aegis;
  double cpu_line;
  Duration window;
};

struct Model {
  std::uint64_t version;
  double cpu, cpu_weight;
};
constexpr std::uint64_t kModelVersion = 0x4847'4242'0000'0001;  // "HGBB", version 1

/// Time constant of a mean that keeps 0.95 each `period`: -period / ln 0.95.
Duration mean_of(Duration period) {
  return Duration(std::llround(-static_cast<double>(period.count()) / std::log(0.95)));
}

class Bbr final : public Strategy {
 public:
  explicit Bbr(const Settings& settings)
      : set_(settings),
        cpu_(mean_of(settings.aegis ? milliseconds(500) : milliseconds(250))),
        completions_(kBucket, settings.window) {}

  void decide(const StrategyInput& in, Decision& out) override;

  [[nodiscard]] std::size_t save(std::span<std::byte> out) const override {
    return cpu_.started() ? save_model(out, Model{kModelVersion, cpu_.value(), cpu_.weight()}) : 0;
  }
  bool restore(std::span<const std::byte> data) override {
    Model model{};
    return load_model(data, kModelVersion, model) && model.cpu >= 0 &&
           cpu_.restore(model.cpu, model.cpu_weight);
  }
  [[nodiscard]] std::vector<Threshold> thresholds() const override {
    return {{"cpu_line", set_.cpu_line}};
  }
  [[nodiscard]] std::vector<Threshold> internals() const override {
    return {{"cpu_mean", cpu_.value()},
            {"best_rate_per_s", completions_.max_rate_per_s()},
            {"best_response_s", completions_.min_mean().value_or(0)},
            {"limit", limit_}};
  }

 private:
  [[nodiscard]] bool in_force(Instant at, bool above, bool refused);
  [[nodiscard]] std::optional<double> max_flight() const;

  Settings set_;
  Smoothed cpu_;
  Rolling completions_;
  bool capped_ = false;  ///< in the tick before
  std::optional<Instant> above_at_;
  bool dropped_ = false;               ///< go_zero: refused since the line was passed
  std::optional<Instant> dropped_at_;  ///< aegis: first refusal
  double limit_ = 0;                   ///< 0 = not in force
};

bool Bbr::in_force(Instant at, bool above, bool refused) {
  if (set_.aegis) {
    if (above && refused && !dropped_at_) dropped_at_ = at;
    if (above) return true;
    if (dropped_at_ && at - *dropped_at_ > kCoolOff) dropped_at_.reset();
    return dropped_at_.has_value();
  }
  if (above) above_at_ = at;
  dropped_ = dropped_ || refused;
  if (above) return true;
  const bool hot = dropped_ && above_at_ && at - *above_at_ < kCoolOff;
  if (!hot) dropped_ = false;
  return hot;
}

std::optional<double> Bbr::max_flight() const {
  const std::optional<double> response_s = completions_.min_mean();
  const double rate_per_s = completions_.max_rate_per_s();
  if (!response_s || !(rate_per_s > 0)) return std::nullopt;
  if (set_.aegis) {
    const double milliseconds_up = std::max(1.0, std::ceil(*response_s * 1e3));
    return std::max(1.0, std::floor(rate_per_s * milliseconds_up / 1e3));
  }
  const double factor = (1 - cpu_.value()) / (1 - set_.cpu_line);
  return std::max(1.0, rate_per_s * *response_s) * std::clamp(factor, kOverloadFactorMin, 1.0);
}

void Bbr::decide(const StrategyInput& in, Decision& out) {
  const Signals& signals = in.signals;
  const Activity activity = activity_of(in);
  if (signals.cpu.known()) cpu_.add((*signals.cpu).value, signals.interval);
  completions_.add(signals.at, signals.interval, activity.responses, activity.response_s_sum);
  limit_ = 0;
  const bool refused = capped_ && activity.refused > 0;
  capped_ = false;

  if (!signals.cpu_fast.known() || !cpu_.started()) {
    admit_unknown(out, "bbr: CPU is not known, everything is admitted");
    return;
  }
  if (!activity.in_flight_known || !activity.responses_known) {
    admit_unknown(out, "bbr: response times are not seen, everything is admitted");
    return;
  }
  out.circuit_open = false;
  out.state = State::kNormal;
  if (!in_force(signals.at, cpu_.value() >= set_.cpu_line, refused)) {
    out.why = "bbr: CPU is below cpu_line";
    return;
  }
  const std::optional<double> flight = max_flight();
  if (!flight) {
    out.why = "bbr: CPU is above cpu_line, but nothing has completed in the window";
    return;
  }
  // An attempt is refused while more than max_flight are there, so one more than that may be.
  limit_ = std::floor(*flight) + 1;
  cap_connections(limit_, activity, out);
  capped_ = true;
  out.why = out.state == State::kShedding ? "bbr: more in flight than best rate x best response"
                                          : "bbr: CPU is above cpu_line, but little is in flight";
}

}  // namespace

StrategyInfo bbr_info() {
  StrategyInfo info;
  info.name = "bbr";
  info.doc = "go-zero's and Kratos' BBR: in flight against best pass rate x best latency";
  info.params = kParams;
  info.make = [](const Params& params) -> std::unique_ptr<Strategy> {
    Settings set{};
    set.aegis = word_of(params, kParams, "variant") == "aegis";
    const double line = number_of(params, kParams, "cpu_line");
    set.cpu_line = line > 0 ? line : set.aegis ? 0.80 : 0.90;
    const double window_s = number_of(params, kParams, "window");
    set.window = milliseconds(window_s > 0 ? std::llround(window_s * 1e3)
                              : set.aegis  ? 10000
                                           : 5000);
    return std::make_unique<Bbr>(set);
  };
  return info;
}

}  // namespace headgate
