// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "strategy_harness.h"

namespace headgate {
namespace {

using test::make_strategy;
using test::Ticks;

TEST(Fixed, AdmitsItsShareAtEveryEndpointWhateverTheLoad) {
  Params params;
  params.numbers["admit"] = 0.7;
  const auto fixed = make_strategy("fixed", params);
  Ticks ticks(*fixed, 2);
  ticks.endpoints[0].criticality = Criticality::kCriticalPlus;
  ticks.endpoints[0].floor = Probability::always();
  ticks.endpoints[1].criticality = Criticality::kSheddable;
  for (const double load : {0.0, 5.0}) {
    ticks.cpu(load).run();
    EXPECT_EQ(ticks.admit(0), 0.7);
    EXPECT_EQ(ticks.admit(1), 0.7);
    EXPECT_EQ(ticks.decision.state, State::kShedding);
  }
}

TEST(Fixed, AdmitsNothingAtAllAtZero) {
  Params params;
  params.numbers["admit"] = 0;
  const auto fixed = make_strategy("fixed", params);
  Ticks ticks(*fixed);
  ticks.run();
  EXPECT_EQ(ticks.admit(), 0.0);
  EXPECT_FALSE(ticks.decision.endpoints[0].probe);
  EXPECT_FALSE(ticks.decision.circuit_open);
}

TEST(Fixed, AdmitsEverythingByDefault) {
  const auto fixed = make_strategy("fixed");
  Ticks ticks(*fixed);
  ticks.cpu_unknown().run();
  EXPECT_EQ(ticks.admit(), 1.0);
  EXPECT_EQ(ticks.decision.state, State::kNormal);
}

Params curve_of(std::vector<CurvePoint> points, std::string signal = "cpu_slow") {
  Params params;
  params.points = std::move(points);
  params.words["signal"] = std::move(signal);
  return params;
}

TEST(Curve, IsLinearBetweenItsPointsAndFlatBeyond) {
  const auto curve = make_strategy("curve", curve_of({{0.70, 0}, {0.90, 0.80}, {1.00, 1.0}}));
  Ticks ticks(*curve);
  const std::pair<double, double> rows[] = {
      {0.69, 0},    {0.70, 0},    {0.80, 0.40},  // half of the way to 0.80
      {0.90, 0.80}, {0.95, 0.90}, {1.00, 1.0},  {1.40, 1.0}};
  for (const auto& [level, refused] : rows) {
    ticks.cpu(level).run();
    EXPECT_NEAR(ticks.admit(), 1 - refused, 1e-12) << level;
    EXPECT_EQ(ticks.decision.state, refused > 0 ? State::kShedding : State::kNormal) << level;
  }
}

TEST(Curve, TakesTheLaterOfTwoPointsAtOneLevel) {
  const auto curve = make_strategy("curve", curve_of({{0.80, 0}, {0.80, 1.0}}));
  Ticks ticks(*curve);
  ticks.cpu(0.799).run();
  EXPECT_EQ(ticks.admit(), 1.0);
  ticks.cpu(0.80).run();
  EXPECT_EQ(ticks.admit(), 0.0);
}

TEST(Curve, LooksAtTheSignalThatIsNamed) {
  const std::vector<CurvePoint> points{{0.5, 0}, {1.0, 1.0}};
  const auto slow = make_strategy("curve", curve_of(points, "cpu_slow"));
  const auto fast = make_strategy("curve", curve_of(points, "cpu_fast"));
  const auto memory = make_strategy("curve", curve_of(points, "memory"));
  for (const auto& [strategy, refused] :
       {std::pair{slow.get(), 0.2}, {fast.get(), 0.6}, {memory.get(), 0.8}}) {
    Ticks ticks(*strategy);
    ticks.cpu(/*fast=*/0.8, /*slow=*/0.6).memory(0.9).run();
    EXPECT_NEAR(ticks.admit(), 1 - refused, 1e-12);
  }
}

TEST(Curve, AdmitsEverythingWhereItsSignalIsUnknown) {
  const auto curve = make_strategy("curve", curve_of({{0.1, 1.0}}, "memory"));
  Ticks ticks(*curve);
  ticks.cpu(0.99).run();  // memory has no limit
  EXPECT_EQ(ticks.admit(), 1.0);
  EXPECT_EQ(ticks.decision.state, State::kUnknown);
}

TEST(Curve, TakesFromTheLeastCriticalFirst) {
  // Half of 40 attempts a tick = 20: all that the sheddable endpoint has.
  const auto curve = make_strategy("curve", curve_of({{0.5, 0.5}}));
  Ticks ticks(*curve, 2);
  ticks.endpoints[0].criticality = Criticality::kCritical;
  ticks.endpoints[1].criticality = Criticality::kSheddable;
  ticks.endpoints[0].activity.offered = 20;
  ticks.endpoints[1].activity.offered = 20;
  ticks.cpu(0.6).run();
  EXPECT_NEAR(ticks.admit(0), 1.0, 1e-12);
  EXPECT_NEAR(ticks.admit(1), 0.0, 1e-12);
}

}  // namespace
}  // namespace headgate
