// SPDX-License-Identifier: Apache-2.0
#include "agent/strategies/adaptive_demand.h"

#include <algorithm>
#include <cmath>

namespace headgate::adaptive {
namespace {

/// Below so many requests an interval the count is mostly chance.
constexpr double kFew = 25;
constexpr double kKbMost = 1e8;

}  // namespace

void Arrivals::resize(std::size_t endpoints) { endpoint_.assign(endpoints, Endpoint{}); }

void Arrivals::update(std::size_t i, double offered, double offered_kb, double sized,
                      double interval_s) {
  Endpoint& e = endpoint_[i];
  const double before = e.per_second < 0 ? offered : e.per_second * interval_s;
  double weight = 0.5;
  if (set_->low_rate_smoothing) weight = std::clamp(before / kFew, 0.1, 0.5);
  double expected = before + weight * (offered - before);
  // Poisson: three standard deviations are more than chance. Where few come they still happen every
  // few seconds, so there it takes two in a row; the bucket covers the first.
  const bool jump = std::fabs(offered - before) > 3 * std::sqrt(std::max(1.0, before));
  const bool many = std::max(offered, before) > kFew;
  if (jump && (many || e.jumped || !set_->low_rate_smoothing)) expected = offered;
  e.jumped = jump;
  e.per_second = expected / interval_s;

  const double kb = sized > 0 ? std::min(offered_kb / sized, kKbMost) : e.kb;
  if (e.kb <= 0) {
    e.kb = kb;
  } else {
    e.kb += (std::fabs(kb - e.kb) > 0.3 * e.kb ? 1.0 : 0.3) * (kb - e.kb);
  }
}

}  // namespace headgate::adaptive
