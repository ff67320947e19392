// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "headgate/clock.h"

namespace headgate {

/// Exponential mean by time constant. The first value starts it and its weight then wears off as
/// the weights of an exponential mean that began with it demand (bias correction), so one odd first
/// value is outweighed by the second and third instead of standing for a whole time constant.
///   weight' = keep * weight + (1 - keep),  value' = value + (1 - keep) / weight' * (x - value),
///   keep = exp(-dt / tau)
/// For a long series this is the ordinary exponential mean. A late value is one value: it gets the
/// weight of the time that it stands for.
class Smoothed {
 public:
  constexpr explicit Smoothed(Duration time_constant) : tau_s_(seconds(time_constant)) {}

  /// A value that is not finite, or a time that does not pass, changes nothing.
  void add(double value, Duration dt) {
    const double dt_s = seconds(dt);
    if (!(dt_s > 0) || !std::isfinite(value)) return;
    const double fresh = -std::expm1(-dt_s / tau_s_);
    weight_ = (1 - fresh) * weight_ + fresh;
    value_ += fresh / weight_ * (value - value_);
  }
  void clear() {
    value_ = 0;
    weight_ = 0;
  }
  /// For a restart; what add() cannot have made is refused.
  bool restore(double value, double weight) {
    if (!std::isfinite(value) || !(weight >= 0 && weight <= 1)) return false;
    value_ = value;
    weight_ = weight;
    return true;
  }

  [[nodiscard]] bool started() const { return weight_ > 0; }
  [[nodiscard]] double value() const { return value_; }
  /// In [0, 1]: 1 - exp(-time seen / time constant).
  [[nodiscard]] double weight() const { return weight_; }

 private:
  double tau_s_;
  double value_ = 0;
  double weight_ = 0;
};

}  // namespace headgate
