// SPDX-License-Identifier: Apache-2.0
#include "agent/strategies/pending_work.h"

#include <limits>

namespace headgate {
namespace {

/// Weight of the calm life after one second: 1 - exp(-1 s / 5 s).
constexpr double kOneSecondSeen = 0.18;

}  // namespace

void PendingWork::update(const StrategyInput& in, bool calm) {
  wait_s_.reset();
  std::uint64_t in_flight = 0;
  std::uint64_t closed = 0;
  bool seen = false;
  for (const EndpointInput& endpoint : in.endpoints) {
    const EndpointActivity& activity = endpoint.activity;
    if (endpoint.tcp && activity.in_flight_known) {
      seen = true;
      in_flight += activity.in_flight;
      closed += activity.closed;
    } else if (activity.offered > 0) {
      return;  // work that cannot be seen
    }
  }
  const double dt_s = seconds(in.signals.interval);
  if (!seen || !(dt_s > 0)) return;

  completions_per_second_.add(static_cast<double>(closed) / dt_s, in.signals.interval);
  const double rate = completions_per_second_.value();
  const double wait = in_flight == 0 ? 0.0
                      : rate > 0     ? static_cast<double>(in_flight) / rate
                                     : std::numeric_limits<double>::infinity();
  if (calm && rate > 1) calm_life_.add(wait, in.signals.interval);
  if (calm_life_.weight() >= kOneSecondSeen && calm_life_.value() < kServiceLifeSeconds) {
    wait_s_ = wait;
  }
}

}  // namespace headgate
