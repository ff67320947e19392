// SPDX-License-Identifier: Apache-2.0
// sentinel: Alibaba Sentinel's system rules. Each that is given is tried in this order, and the
// first that is hit refuses:
//
//   qps          more attempts per second than this
//   connections  more live connections than this
//   response     mean response time of the last second above this
//   load1, cpu   above its line and more in flight than
//                max(1, most completions per second * least response time) of the last second
//
// qps, connections and the last rule are caps that the kernel judges per attempt. While the
// response rule is hit only the probe comes in.
//
// Source: SystemRuleManager and StatisticNode of github.com/alibaba/Sentinel at 0c41dae
// (sentinel-core/.../slots/system), wiki "System adaptive protection".
//
// Different here: in Sentinel the rule for the CPU refuses everything above its line; here both
// lines ask for requests in flight beside them, as its rule for load1 does, because a CPU at its
// line without a queue is a well used one. Its qps counts successes, here attempts are capped.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>

#include "headgate/smoothed.h"

#include "agent/strategies/activity.h"
#include "agent/strategies/demand.h"
#include "agent/strategies/laws.h"
#include "agent/strategies/parameters.h"
#include "agent/strategies/rate_split.h"
#include "agent/strategies/rolling.h"

namespace headgate {
namespace {

using Kind = ParamSpec::Kind;
constexpr std::array kParams{
    ParamSpec{.name = "cpu",
              .kind = Kind::kRatio,
              .default_value = 0.90,
              .minimum = 0,
              .maximum = 2,
              .doc = "line of the CPU use of the last second; 0 = rule off"},
    ParamSpec{.name = "load1",
              .kind = Kind::kNumber,
              .default_value = 0,
              .minimum = 0,
              .maximum = 100000,
              .doc = "line of the node's load1, about 2.5 x its cores; 0 = rule off"},
    ParamSpec{.name = "response",
              .kind = Kind::kDuration,
              .default_value = 0,
              .minimum = 0,
              .maximum = 600,
              .doc = "largest mean response time of the last second; 0 = rule off"},
    ParamSpec{.name = "connections",
              .kind = Kind::kCount,
              .default_value = 0,
              .minimum = 0,
              .maximum = 1e7,
              .doc = "most live connections; 0 = rule off"},
    ParamSpec{.name = "qps",
              .kind = Kind::kNumber,
              .default_value = 0,
              .minimum = 0,
              .maximum = 1e7,
              .doc = "most attempts per second; 0 = rule off"},
};

constexpr Duration kWindow = std::chrono::seconds(1);
constexpr Duration kBucket = std::chrono::milliseconds(500);  // SampleCountProperty: two a second
/// A burst of a tenth of a second is no breach of a rule about a second.
constexpr double kBurstSeconds = 0.1;

struct Settings {
  double cpu, load1, response_s, connections, qps;
};

class Sentinel final : public Strategy {
 public:
  explicit Sentinel(const Settings& settings) : set_(settings) {}

  void decide(const StrategyInput& in, Decision& out) override;

  [[nodiscard]] std::vector<Threshold> thresholds() const override { return {{"cpu", set_.cpu}}; }
  [[nodiscard]] std::vector<Threshold> internals() const override {
    return {{"cpu_second", cpu_.value()},
            {"most_completions_per_s", completions_.max_rate_per_s()},
            {"least_response_s", least_response_s().value_or(0)},
            {"mean_response_s", completions_.mean().value_or(0)}};
  }

 private:
  [[nodiscard]] std::optional<double> least_response_s() const { return least_.min_mean(); }
  [[nodiscard]] bool line_passed(const Signals& signals) const {
    return (set_.load1 > 0 && signals.load1.value_or(0) > set_.load1) ||
           (set_.cpu > 0 && cpu_.started() && cpu_.value() > set_.cpu);
  }

  Settings set_;
  Smoothed cpu_{kWindow};
  Rolling completions_{kBucket, kWindow};
  Rolling least_{std::chrono::milliseconds(50), kWindow};  ///< smallest response time of each tick
  Demand demand_;
};

void Sentinel::decide(const StrategyInput& in, Decision& out) {
  const Signals& signals = in.signals;
  const Activity activity = activity_of(in);
  demand_.update(in);
  if (signals.cpu.known()) cpu_.add((*signals.cpu).value, signals.interval);
  if (!signals.cpu_fast.known()) cpu_.clear();
  completions_.add(signals.at, signals.interval, activity.responses, activity.response_s_sum);
  const bool answered = activity.responses > 0;
  least_.add(signals.at, signals.interval, answered ? 1 : 0,
             answered ? activity.response_s_min : 0);

  out.circuit_open = false;
  out.state = State::kNormal;
  out.why = "sentinel: no rule is hit";
  if (set_.qps > 0) {
    split_rate(set_.qps, std::max(1.0, kBurstSeconds * set_.qps), in.endpoints,
               demand_.per_second(), out.endpoints);
    if (activity.refused > 0) {
      out.state = State::kShedding;
      out.why = "sentinel: more attempts than qps";
    }
  }
  // What is not known hits no rule.
  double cap = 0;
  if (set_.connections > 0 && activity.in_flight_known) {
    cap = set_.connections;
    out.why = out.state == State::kNormal && activity.in_flight >= cap
                  ? "sentinel: more live connections than connections"
                  : out.why;
  }
  if (set_.response_s > 0 && activity.responses_known &&
      completions_.mean().value_or(0) > set_.response_s) {
    out.circuit_open = true;
    out.state = State::kOpen;
    out.why = "sentinel: the mean response time is above response";
    for (EndpointDecision& endpoint : out.endpoints) {
      endpoint.admit = Probability::never();
      endpoint.reason = HEADGATE_REASON_CIRCUIT;
    }
    return;
  }
  const bool seen = activity.in_flight_known && activity.responses_known;
  if (seen && line_passed(signals)) {
    const double rate_per_s = completions_.max_rate_per_s();
    const std::optional<double> least_s = least_response_s();
    if (rate_per_s > 0 && least_s) {
      // Refused while more are in flight than this, so one more than it may be.
      const double flight = std::floor(std::max(1.0, rate_per_s * *least_s)) + 1;
      if (!(cap > 0) || flight < cap) {
        cap = flight;
        out.why = "sentinel: load1 or CPU is above its line, in flight is limited";
      }
    }
  }
  if (cap > 0) {
    const bool by_rate = out.state == State::kShedding;
    cap_connections(cap, activity, out);
    if (by_rate) out.state = State::kShedding;
  } else if (!seen && set_.qps <= 0) {
    admit_unknown(out, "sentinel: response times are not seen, everything is admitted");
  }
}

}  // namespace

StrategyInfo sentinel_info() {
  StrategyInfo info;
  info.name = "sentinel";
  info.doc =
      "Sentinel's system rules: load1 or CPU with in flight, response time, connections, QPS";
  info.params = kParams;
  info.make = [](const Params& params) -> std::unique_ptr<Strategy> {
    const auto number = [&](std::string_view name) { return number_of(params, kParams, name); };
    return std::make_unique<Sentinel>(Settings{number("cpu"), number("load1"), number("response"),
                                               number("connections"), number("qps")});
  };
  return info;
}

}  // namespace headgate
