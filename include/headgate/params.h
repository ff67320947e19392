// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace headgate {

/// One number that a strategy can be given in the configuration: `strategy: {name: N, enter: 0.8}`.
/// The table is the only place that knows names, ranges and defaults: the configuration's errors,
/// its JSON schema and `check` are all made from it.
struct ParamSpec {
  enum class Kind : std::uint8_t { kRatio, kDuration, kCount, kNumber, kWord };

  std::string_view name;
  Kind kind = Kind::kNumber;
  double default_value = 0;  ///< kDuration: seconds
  double minimum = 0;
  double maximum = 1;
  std::string_view doc;
  std::string_view default_word{};            ///< kWord
  std::span<const std::string_view> words{};  ///< kWord: what is allowed
};

/// One point of a piecewise linear map from a level to a refused share.
struct CurvePoint {
  double level = 0;
  double refuse = 0;
  bool operator==(const CurvePoint&) const = default;
};

/// The values given for a strategy; what is not given has the default of its ParamSpec.
struct Params {
  std::map<std::string, double, std::less<>> numbers;
  std::map<std::string, std::string, std::less<>> words;
  std::vector<CurvePoint> points;  ///< only for strategies with takes_points
  std::vector<std::string> parts;  ///< only for hybrid: names in order
  bool operator==(const Params&) const = default;
};

}  // namespace headgate
