// SPDX-License-Identifier: Apache-2.0
// aimd: a limit on live connections that rises by a constant while the CPU has room and falls by a
// factor while it has none.
//
//   cpu > cpu_line:  limit *= backoff ^ min(2, dt / 100 ms)
//   else:            limit += rise * dt
//
// The limit is in force while cpu_fast is at least `gate`: an idle target refuses nothing, however
// small the limit has become.
//
// Sources: D. Chiu, R. Jain, "Analysis of the increase and decrease algorithms for congestion
// avoidance in computer networks", Computer Networks and ISDN Systems 17, 1989 (only this pair of
// rules converges to a fair and efficient point); as a concurrency limit: AIMDLimit of
// github.com/Netflix/concurrency-limits at 00f751f, where loss is the signal; here it is the CPU.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "agent/strategies/activity.h"
#include "agent/strategies/laws.h"
#include "agent/strategies/model_bytes.h"
#include "agent/strategies/parameters.h"

namespace headgate {
namespace {

using Kind = ParamSpec::Kind;
constexpr std::array kParams{
    ParamSpec{.name = "cpu_line",
              .kind = Kind::kRatio,
              .default_value = 0.85,
              .minimum = 0.05,
              .maximum = 2,
              .doc = "CPU use of one tick above which the limit falls"},
    ParamSpec{.name = "backoff",
              .kind = Kind::kRatio,
              .default_value = 0.85,
              .minimum = 0.1,
              .maximum = 0.99,
              .doc = "factor on the limit for each 100 ms above cpu_line"},
    ParamSpec{.name = "rise",
              .kind = Kind::kNumber,
              .default_value = 10,
              .minimum = 0.1,
              .maximum = 10000,
              .doc = "connections per second that the limit rises by"},
    ParamSpec{.name = "gate",
              .kind = Kind::kRatio,
              .default_value = 0.70,
              .minimum = 0,
              .maximum = 2,
              .doc = "cpu_fast from which the limit is in force"},
    ParamSpec{.name = "initial",
              .kind = Kind::kCount,
              .default_value = 64,
              .minimum = 1,
              .maximum = 1e6,
              .doc = "limit at the start"},
    ParamSpec{.name = "limit_min",
              .kind = Kind::kCount,
              .default_value = 2,
              .minimum = 1,
              .maximum = 1e6,
              .doc = "the limit never falls below this"},
    ParamSpec{.name = "limit_max",
              .kind = Kind::kCount,
              .default_value = 512,
              .minimum = 1,
              .maximum = 1e6,
              .doc = "nor rises above this; not below limit_min"},
};

struct Settings {
  double cpu_line, backoff, rise_per_s, gate, initial, limit_min, limit_max;
};

struct Model {
  std::uint64_t version;
  double limit;
};
constexpr std::uint64_t kModelVersion = 0x4847'4149'0000'0001;  // "HGAI", version 1

class Aimd final : public Strategy {
 public:
  explicit Aimd(const Settings& settings)
      : set_(settings), limit_(std::clamp(set_.initial, set_.limit_min, set_.limit_max)) {}

  void decide(const StrategyInput& in, Decision& out) override {
    const Activity activity = activity_of(in);
    const Signals& signals = in.signals;
    if (!signals.cpu_fast.known()) {
      admit_unknown(out, "aimd: CPU is not known, everything is admitted");
      return;
    }
    if (!activity.in_flight_known) {
      admit_unknown(out, "aimd: live connections are not counted, everything is admitted");
      return;
    }
    const double dt_s = seconds(signals.interval);
    if (dt_s > 0 && signals.cpu.known()) {
      limit_ = (*signals.cpu).value > set_.cpu_line
                   ? limit_ * std::pow(set_.backoff, std::min(2.0, dt_s / 0.1))
                   : limit_ + set_.rise_per_s * dt_s;
      limit_ = std::clamp(limit_, set_.limit_min, set_.limit_max);
    }
    out.circuit_open = false;
    out.state = State::kNormal;
    if ((*signals.cpu_fast).value < set_.gate) {
      out.why = "aimd: CPU is below gate, the limit is not in force";
      return;
    }
    cap_connections(limit_, activity, out);
    out.why = out.state == State::kShedding ? "aimd: the limit is reached"
                                            : "aimd: fewer connections than the limit";
  }

  [[nodiscard]] std::size_t save(std::span<std::byte> out) const override {
    return save_model(out, Model{kModelVersion, limit_});
  }
  bool restore(std::span<const std::byte> data) override {
    Model model{};
    if (!load_model(data, kModelVersion, model) || !std::isfinite(model.limit)) return false;
    limit_ = std::clamp(model.limit, set_.limit_min, set_.limit_max);
    return true;
  }
  [[nodiscard]] std::vector<Threshold> thresholds() const override {
    return {{"cpu_line", set_.cpu_line}, {"gate", set_.gate}};
  }
  [[nodiscard]] std::vector<Threshold> internals() const override { return {{"limit", limit_}}; }

 private:
  Settings set_;
  double limit_;
};

}  // namespace

StrategyInfo aimd_info() {
  StrategyInfo info;
  info.name = "aimd";
  info.doc = "limit on live connections: additive rise, multiplicative fall by CPU";
  info.params = kParams;
  info.check = [](const Params& params) -> std::string { return check_limits(params, kParams); };
  info.make = [](const Params& params) -> std::unique_ptr<Strategy> {
    const auto number = [&](std::string_view name) { return number_of(params, kParams, name); };
    const double limit_min = number("limit_min");
    return std::make_unique<Aimd>(Settings{number("cpu_line"), number("backoff"), number("rise"),
                                           number("gate"), number("initial"), limit_min,
                                           std::max(limit_min, number("limit_max"))});
  };
  return info;
}

}  // namespace headgate
