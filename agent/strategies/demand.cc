// SPDX-License-Identifier: Apache-2.0
#include "agent/strategies/demand.h"

namespace headgate {

void Demand::update(const StrategyInput& in) {
  if (smoothed_.size() != in.endpoints.size()) {
    smoothed_.assign(in.endpoints.size(), Smoothed(kTimeConstant));
    per_second_.assign(in.endpoints.size(), 0.0);
  }
  const double dt_s = seconds(in.signals.interval);
  if (!(dt_s > 0)) return;
  for (std::size_t i = 0; i < smoothed_.size(); ++i) {
    const double offered = static_cast<double>(in.endpoints[i].activity.offered);
    smoothed_[i].add(offered / dt_s, in.signals.interval);
    per_second_[i] = smoothed_[i].value();
  }
}

}  // namespace headgate
