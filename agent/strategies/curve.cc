// SPDX-License-Identifier: Apache-2.0
// curve (plan A): one signal, one piecewise linear map to a refused share, no memory of its own.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "agent/decision/decide.h"
#include "agent/strategies/demand.h"
#include "agent/strategies/laws.h"
#include "agent/strategies/parameters.h"

namespace headgate {
namespace {

constexpr std::array<std::string_view, 3> kSignals{"cpu_slow", "cpu_fast", "memory"};
constexpr std::array kParams{
    ParamSpec{.name = "signal",
              .kind = ParamSpec::Kind::kWord,
              .doc = "the level that is mapped",
              .default_word = "cpu_slow",
              .words = kSignals},
};
const std::array kDefaultPoints{CurvePoint{0.70, 0}, CurvePoint{0.90, 0.95}};

/// Linear between the points; below the first nothing is refused, above the last as much as there.
/// At a level with two points (a step) the later one counts.
double refuse_at(std::span<const CurvePoint> points, double level) {
  if (points.empty() || !(level >= points.front().level)) return 0;
  const auto above =
      std::upper_bound(points.begin(), points.end(), level,
                       [](double value, const CurvePoint& point) { return value < point.level; });
  const CurvePoint& left = *(above - 1);
  if (above == points.end()) return left.refuse;
  const double part = (level - left.level) / (above->level - left.level);
  return left.refuse + part * (above->refuse - left.refuse);
}

class Curve final : public Strategy {
 public:
  Curve(std::string_view signal, std::vector<CurvePoint> points)
      : signal_(signal), points_(std::move(points)) {
    std::erase_if(points_, [](const CurvePoint& point) {
      return !std::isfinite(point.level) || !std::isfinite(point.refuse);
    });
    std::stable_sort(points_.begin(), points_.end(),
                     [](const CurvePoint& a, const CurvePoint& b) { return a.level < b.level; });
  }

  void decide(const StrategyInput& in, Decision& out) override {
    demand_.update(in);
    const Measured<Ratio>& level = signal_ == "memory"     ? in.signals.memory
                                   : signal_ == "cpu_fast" ? in.signals.cpu_fast
                                                           : in.signals.cpu_slow;
    out.circuit_open = false;
    if (!level.known()) {
      out.state = State::kUnknown;
      out.why = "curve: the signal is not known, everything is admitted";
      return;
    }
    const double refuse = refuse_at(points_, (*level).value);
    out.state = refuse > 0 ? State::kShedding : State::kNormal;
    out.why = refuse > 0 ? "curve: the signal is on the curve" : "curve: the signal is below it";
    allocate(refuse, in.endpoints, demand_.per_second(), 0.0, out.endpoints);
  }

  [[nodiscard]] std::vector<Threshold> thresholds() const override {
    if (points_.empty()) return {};
    return {{"curve_first", points_.front().level}, {"curve_last", points_.back().level}};
  }

 private:
  std::string_view signal_;  ///< one of kSignals
  std::vector<CurvePoint> points_;
  Demand demand_;
};

}  // namespace

StrategyInfo curve_info() {
  StrategyInfo info;
  info.name = "curve";
  info.doc = "maps one level (CPU or memory) to a refused share, linear between the points";
  info.params = kParams;
  info.takes_points = true;
  info.check = [](const Params& params) -> std::string {
    const std::vector<CurvePoint>& points = params.points;
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (!(points[i].level >= 0) || !(points[i].refuse >= 0 && points[i].refuse <= 1)) {
        return "a point is [level, refuse] with level >= 0 and refuse in [0, 1]";
      }
      if (i > 0 && !(points[i].level >= points[i - 1].level)) {
        return "the levels of points must not fall";
      }
    }
    return {};
  };
  info.make = [](const Params& params) -> std::unique_ptr<Strategy> {
    std::vector<CurvePoint> points = params.points;
    if (points.empty()) points.assign(kDefaultPoints.begin(), kDefaultPoints.end());
    return std::make_unique<Curve>(word_of(params, kParams, "signal"), std::move(points));
  };
  return info;
}

}  // namespace headgate
