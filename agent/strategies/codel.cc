// SPDX-License-Identifier: Apache-2.0
// codel: controlled delay. It judges by how long a request waits in the server's queue: while the
// queue has not been empty for `interval` it stands, and then a request may wait only `delay`.
//
// In the simulator the queue itself is asked. On a real target the kernel sees when a request comes
// and when its answer begins: what the quickest answer of a tick takes longer than the quickest of
// the last ten seconds is the wait that nobody escapes, and the queue is taken to be empty when
// that is below `delay`. Nothing that waits already can be dropped from outside, so while the queue
// stands no more are let in than are answered within `delay` of waiting:
//
//   in flight <= best completion rate x (least response time + delay)     (Little's law)
//
// Sources: B. Maurer, "Fail at Scale", ACM Queue 13(8), 2015 (M = 5 ms, N = 100 ms, the timeout by
// the time since the queue was empty); K. Nichols, V. Jacobson, "Controlling queue delay", ACM
// Queue 10(5), 2012, and RFC 8289. folly/executors/Codel.cpp of github.com/facebook/folly at
// 1ad98e2 is a third form (smallest delay of an interval); it is not this one.
#include "agent/strategies/codel.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "agent/strategies/activity.h"
#include "agent/strategies/laws.h"
#include "agent/strategies/parameters.h"

namespace headgate {
namespace {

constexpr std::array kParams{
    ParamSpec{.name = "delay",
              .kind = ParamSpec::Kind::kDuration,
              .default_value = 0.005,
              .minimum = 0.0001,
              .maximum = 10,
              .doc = "longest wait in a queue that stands; below interval"},
    ParamSpec{.name = "interval",
              .kind = ParamSpec::Kind::kDuration,
              .default_value = 0.1,
              .minimum = 0.001,
              .maximum = 60,
              .doc = "a queue that was not empty for so long stands; longest wait in any other"},
};

constexpr Duration kBucket = std::chrono::milliseconds(100);
constexpr Duration kRateWindow = std::chrono::seconds(5);
constexpr Duration kLeastBucket = std::chrono::milliseconds(50);
constexpr Duration kLeastWindow = std::chrono::seconds(10);

Duration duration_of(double s) { return std::chrono::nanoseconds(std::llround(s * 1e9)); }

}  // namespace

Codel::Codel(Duration target, Duration interval)
    : queue_(target, interval),
      target_(target),
      interval_(interval),
      completions_(kBucket, kRateWindow),
      least_(kLeastBucket, kLeastWindow) {}

void Codel::decide(const StrategyInput& in, Decision& out) {
  limit_ = 0;
  const bool requests =
      std::any_of(in.endpoints.begin(), in.endpoints.end(),
                  [](const EndpointInput& endpoint) { return endpoint.requests; });
  const Activity activity = activity_of(in);
  if (!requests || !activity.in_flight_known || !activity.responses_known) {
    admit_unknown(out, "codel: how long requests wait is not seen, everything is admitted");
    return;
  }
  const Signals& signals = in.signals;
  const bool answered = activity.responses > 0;
  completions_.add(signals.at, signals.interval, activity.responses, activity.response_s_sum);
  least_.add(signals.at, signals.interval, answered ? 1 : 0,
             answered ? activity.response_s_min : 0);
  const std::optional<double> least_s = least_.min_mean();
  const bool idle = !answered && activity.in_flight < 1;
  const bool quick = answered && least_s && activity.response_s_min - *least_s < seconds(target_);
  if (idle || quick || !empty_at_) empty_at_ = signals.at;

  out.circuit_open = false;
  out.state = State::kNormal;
  out.why = "codel: the queue empties";
  const double rate_per_s = completions_.max_rate_per_s();
  if (signals.at - *empty_at_ <= interval_ || !least_s || !(rate_per_s > 0)) return;
  limit_ = std::ceil(rate_per_s * (*least_s + seconds(target_)));
  cap_connections(limit_, activity, out);
  out.why = out.state == State::kShedding
                ? "codel: the queue stands, and more are in flight than are answered in delay"
                : "codel: the queue stands, but little is in flight";
}

std::vector<Strategy::Threshold> Codel::internals() const {
  return {{"least_response_s", least_.min_mean().value_or(0)},
          {"best_rate_per_s", completions_.max_rate_per_s()},
          {"limit", limit_}};
}

StrategyInfo codel_info() {
  StrategyInfo info;
  info.name = "codel";
  info.doc = "controlled delay: refuses while the standing queue is too old; needs http requests";
  info.params = kParams;
  info.needs_requests = true;
  info.instead = "graded";
  info.check = [](const Params& params) -> std::string {
    return number_of(params, kParams, "delay") >= number_of(params, kParams, "interval")
               ? "delay must be below interval"
               : "";
  };
  info.make = [](const Params& params) -> std::unique_ptr<Strategy> {
    return std::make_unique<Codel>(duration_of(number_of(params, kParams, "delay")),
                                   duration_of(number_of(params, kParams, "interval")));
  };
  return info;
}

}  // namespace headgate
