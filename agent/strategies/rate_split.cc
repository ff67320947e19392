// SPDX-License-Identifier: Apache-2.0
#include "agent/strategies/rate_split.h"

#include <algorithm>
#include <cmath>

#include "agent/decision/decide.h"

namespace headgate {

void split_rate(double rate_per_s, double burst, std::span<const EndpointInput> endpoints,
                std::span<const double> demand, std::span<EndpointDecision> out) {
  const std::size_t n = std::min({endpoints.size(), demand.size(), out.size()});
  if (n == 0 || !(rate_per_s > 0) || !std::isfinite(rate_per_s)) return;
  double total = 0;
  for (std::size_t i = 0; i < n; ++i) total += demand[i];
  allocate(total > rate_per_s ? 1 - rate_per_s / total : 0.0, endpoints, demand, 0.0, out);
  const double spare = std::max(0.0, rate_per_s - total) / static_cast<double>(n);
  // An endpoint without demand in this tick may have some before the next one.
  const double least = 0.01 * rate_per_s / static_cast<double>(n);
  for (std::size_t i = 0; i < n; ++i) {
    EndpointDecision& endpoint = out[i];
    endpoint.rate_per_s = std::max(demand[i] * endpoint.admit.value() + spare, least);
    endpoint.rate_burst_s = std::max(0.0, burst - 1) / rate_per_s;  // one more is always let in
    endpoint.admit = Probability::always();
    endpoint.reason = HEADGATE_REASON_NONE;
  }
}

}  // namespace headgate
