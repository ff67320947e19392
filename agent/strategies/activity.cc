// SPDX-License-Identifier: Apache-2.0
#include "agent/strategies/activity.h"

#include <algorithm>
#include <cmath>

namespace headgate {

Activity activity_of(const StrategyInput& in) {
  Activity total;
  bool tcp_seen = false;
  bool all_in_flight = true;
  bool all_responses = true;
  for (const EndpointInput& endpoint : in.endpoints) {
    const EndpointActivity& one = endpoint.activity;
    total.offered += static_cast<double>(one.offered);
    total.admitted += static_cast<double>(one.admitted);
    total.refused += static_cast<double>(one.refused);
    total.closed += static_cast<double>(one.closed);
    if (!endpoint.tcp) continue;
    tcp_seen = true;
    all_in_flight = all_in_flight && one.in_flight_known;
    all_responses = all_responses && one.responses_known;
    total.in_flight += static_cast<double>(one.in_flight);
    if (!one.responses_known || one.responses == 0) continue;
    const bool first = total.responses == 0;
    total.responses += static_cast<double>(one.responses);
    total.response_s_sum += one.response_s_sum;
    total.response_s_min =
        first ? one.response_s_min : std::min(total.response_s_min, one.response_s_min);
    total.response_s_p99 = std::max(total.response_s_p99, one.response_s_p99);
  }
  total.in_flight_known = tcp_seen && all_in_flight;
  total.responses_known = tcp_seen && all_responses;
  return total;
}

void admit_unknown(Decision& out, std::string_view why) {
  out.state = State::kUnknown;
  out.circuit_open = false;
  out.why = why;
}

void cap_connections(double limit, const Activity& activity, Decision& out) {
  if (!std::isfinite(limit)) return;
  // A cap is reached by a live count that is a whole number: 7.2 admits the eighth.
  const double cap = std::clamp(std::ceil(limit), 1.0, 1e15);
  out.connections_max = static_cast<std::uint64_t>(cap);
  const bool binds = activity.in_flight >= cap || activity.refused > 0;
  out.state = binds ? State::kShedding : State::kNormal;
}

}  // namespace headgate
