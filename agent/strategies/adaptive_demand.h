// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "headgate/strategy.h"

#include "agent/strategies/adaptive_settings.h"

namespace headgate::adaptive {

/// What each endpoint is going to be offered: requests per second and KB per request. Fast (weight
/// one half), with a jump where the change is more than chance, because the estimate is what the
/// admitted share is computed from; counted in front of the gate, it does not depend on it.
class Arrivals {
 public:
  explicit Arrivals(const Settings& settings) : set_(&settings) {}

  void resize(std::size_t endpoints);
  /// `offered` and `offered_kb` (sum) of the interval; `sized`: how many requests the KB are of.
  void update(std::size_t i, double offered, double offered_kb, double sized, double interval_s);

  [[nodiscard]] double per_second(std::size_t i) const { return endpoint_[i].per_second; }
  [[nodiscard]] double kb(std::size_t i) const { return endpoint_[i].kb; }
  void restore(std::size_t i, double per_second, double kb) {
    endpoint_[i].per_second = per_second;
    endpoint_[i].kb = kb;
  }

 private:
  struct Endpoint {
    double per_second = -1;  ///< < 0: nothing yet
    double kb = 0;
    bool jumped = false;  ///< in the interval before
  };
  const Settings* set_;
  std::vector<Endpoint> endpoint_;
};

}  // namespace headgate::adaptive
