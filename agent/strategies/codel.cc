// SPDX-License-Identifier: Apache-2.0
// codel: controlled delay. It judges by how long a request has waited in the server's queue, which
// only the server knows until requests themselves are seen; so it runs in the simulator, and for a
// real target it says that it does not know and admits everything.
//
// Sources: B. Maurer, "Fail at Scale", ACM Queue 13(8), 2015 (M = 5 ms, N = 100 ms, the timeout by
// the time since the queue was empty); K. Nichols, V. Jacobson, "Controlling queue delay", ACM
// Queue 10(5), 2012, and RFC 8289. folly/executors/Codel.cpp of github.com/facebook/folly at
// 1ad98e2 is a third form (smallest delay of an interval); it is not this one.
#include "agent/strategies/codel.h"

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

Duration duration_of(double s) { return std::chrono::nanoseconds(std::llround(s * 1e9)); }

}  // namespace

void Codel::decide(const StrategyInput& /*in*/, Decision& out) {
  admit_unknown(out, "codel: how long requests wait is not seen, everything is admitted");
}

StrategyInfo codel_info() {
  StrategyInfo info;
  info.name = "codel";
  info.doc = "controlled delay: refuses while the standing queue is too old; simulator only";
  info.params = kParams;
  info.simulated_only = true;
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
