// SPDX-License-Identifier: Apache-2.0
#include "agent/decision/decide.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace headgate {
namespace {

/// A bad number is no demand, so it attracts no refusals.
double usable(double demand) { return std::isfinite(demand) && demand > 0 ? demand : 0.0; }

}  // namespace

void allocate(double refuse_share, std::span<const EndpointInput> endpoints,
              std::span<const double> demand, double minimum, std::span<EndpointDecision> out) {
  const double share = Probability::refusing(refuse_share).value();
  const double least = Probability::refusing(minimum).value();
  const std::size_t n = std::min({endpoints.size(), demand.size(), out.size()});

  double total = 0;
  for (std::size_t i = 0; i < n; ++i) total += usable(demand[i]);

  const auto write = [&](std::size_t i, double admit) {
    out[i].admit = Probability::admitting(std::max(admit, least));
    out[i].reason =
        out[i].admit < Probability::always() ? HEADGATE_REASON_SHARE : HEADGATE_REASON_NONE;
  };
  if (share <= 0 || !(total > 0) || !std::isfinite(total)) {
    for (std::size_t i = 0; i < n; ++i) write(i, 1 - share);
    return;
  }

  // First round: the least critical class gives what is above its floors, then the next one. A
  // class without demand costs nothing to close, and is closed before a more critical one gives.
  double need = share * total;
  for (std::uint8_t tier = 0; tier < static_cast<std::uint8_t>(Criticality::kCount); ++tier) {
    const auto in_tier = [&](std::size_t i) {
      return endpoints[i].criticality == static_cast<Criticality>(tier);
    };
    double available = 0;
    for (std::size_t i = 0; i < n; ++i) {
      if (in_tier(i)) available += usable(demand[i]) * (1 - endpoints[i].floor.value());
    }
    const double part = need <= 0 ? 0.0 : need >= available ? 1.0 : need / available;
    need = std::max(0.0, need - available);
    for (std::size_t i = 0; i < n; ++i) {
      if (in_tier(i)) write(i, 1 - part * (1 - endpoints[i].floor.value()));
    }
  }

  // Second round: the floors together are more than there is, so everybody gives the same part.
  if (need <= total * 1e-12) return;
  double kept = 0;
  for (std::size_t i = 0; i < n; ++i) kept += usable(demand[i]) * out[i].admit.value();
  if (!(kept > 0)) return;
  const double factor = std::max(0.0, 1 - need / kept);
  for (std::size_t i = 0; i < n; ++i) write(i, out[i].admit.value() * factor);
}

}  // namespace headgate
