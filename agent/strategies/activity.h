// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "headgate/strategy.h"

namespace headgate {

/// What came to all endpoints of a target in one tick.
struct Activity {
  double offered = 0;  ///< distinct attempts
  double admitted = 0;
  double refused = 0;
  double closed = 0;

  /// Live connections of the TCP endpoints; known where every one of them counts its own.
  bool in_flight_known = false;
  double in_flight = 0;

  /// What ended in this tick; known where every TCP endpoint knows it.
  bool responses_known = false;
  double responses = 0;
  double response_s_sum = 0;
  double response_s_min = 0;  ///< meaningful where responses > 0
  double response_s_p99 = 0;  ///< the largest of the endpoints'; meaningful where responses > 0
};
[[nodiscard]] Activity activity_of(const StrategyInput& in);

/// Everything is admitted because the law cannot judge; `why` is a static text.
void admit_unknown(Decision& out, std::string_view why);

/// Caps the live connections of the target: at most `limit`, rounded up, never below 1. The kernel
/// judges each attempt against the count of that moment, so a cap holds between two ticks. The
/// state is "shedding" while the cap is reached or `activity` has refusals.
void cap_connections(double limit, const Activity& activity, Decision& out);

}  // namespace headgate
