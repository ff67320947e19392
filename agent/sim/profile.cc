// SPDX-License-Identifier: Apache-2.0
#include "agent/sim/profile.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace headgate::sim {
namespace {

double value_of(const Profile::Steps& form, double time_s) {
  for (const Profile::Step& step : form.steps) {
    if (time_s >= step.from_s && time_s < step.to_s) return step.value;
  }
  return form.otherwise;
}

double value_of(const Profile::Line& form, double time_s) {
  const auto& points = form.points;
  const auto right =
      std::upper_bound(points.begin(), points.end(), time_s,
                       [](double t, const Profile::Point& point) { return t < point.at_s; });
  if (right == points.begin()) return points.empty() ? 1 : points.front().value;
  if (right == points.end()) return points.back().value;
  const Profile::Point& left = *(right - 1);
  return left.value +
         (right->value - left.value) * (time_s - left.at_s) / (right->at_s - left.at_s);
}

double value_of(const Profile::Sine& form, double time_s) {
  return form.mean + form.amplitude * std::sin(2 * std::numbers::pi * time_s / form.period_s);
}

double value_of(const Profile::Pulse& form, double time_s) {
  const bool high = time_s > form.after_s && std::fmod(time_s, form.period_s) < form.width_s;
  return high ? form.high : form.low;
}

}  // namespace

double Profile::at(double time_s) const {
  return std::visit([&](const auto& form) { return value_of(form, time_s); }, form_);
}

Profile step(double otherwise, double from_s, double to_s, double value) {
  return Profile::Steps{otherwise, {{from_s, to_s, value}}};
}

}  // namespace headgate::sim
