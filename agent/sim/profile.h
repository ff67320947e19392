// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <variant>
#include <vector>

namespace headgate::sim {

/// A number over the time of a scenario, in seconds: a factor on a rate or a cost, cores, kB/s.
class Profile {
 public:
  struct Step {
    double from_s = 0;  ///< included
    double to_s = 0;    ///< not included
    double value = 0;
    bool operator==(const Step&) const = default;
  };
  struct Point {
    double at_s = 0;
    double value = 0;
    bool operator==(const Point&) const = default;
  };
  /// `otherwise` where no step holds; of steps that overlap the first one counts.
  struct Steps {
    double otherwise = 1;
    std::vector<Step> steps;
    bool operator==(const Steps&) const = default;
  };
  /// Linear between the points, level before the first and after the last; times rise.
  struct Line {
    std::vector<Point> points;
    bool operator==(const Line&) const = default;
  };
  struct Sine {
    double mean = 1;
    double amplitude = 0;
    double period_s = 1;
    bool operator==(const Sine&) const = default;
  };
  /// `high` in the first width_s of each period that begins at a multiple of it, after after_s.
  struct Pulse {
    double low = 1;
    double high = 1;
    double period_s = 1;
    double width_s = 0;
    double after_s = -1;
    bool operator==(const Pulse&) const = default;
  };
  using Form = std::variant<Steps, Line, Sine, Pulse>;

  // Implicit: a number is a profile, and so is each form.
  Profile(double constant) : form_(Steps{constant, {}}) {}  // NOLINT
  Profile(Steps steps) : form_(std::move(steps)) {}         // NOLINT
  Profile(Line line) : form_(std::move(line)) {}            // NOLINT
  Profile(const Sine& sine) : form_(sine) {}                // NOLINT
  Profile(const Pulse& pulse) : form_(pulse) {}             // NOLINT

  [[nodiscard]] double at(double time_s) const;
  [[nodiscard]] const Form& form() const { return form_; }
  bool operator==(const Profile&) const = default;

 private:
  Form form_;
};

/// `value` from `from_s` to `to_s`, else `otherwise`.
[[nodiscard]] Profile step(double otherwise, double from_s, double to_s, double value);

}  // namespace headgate::sim
