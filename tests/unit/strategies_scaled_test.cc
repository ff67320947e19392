// SPDX-License-Identifier: Apache-2.0
// Numbers by hand from Envoy's ScaledTrigger: (pressure - from) / (full - from).
#include <cmath>

#include <gtest/gtest.h>

#include "strategy_harness.h"

namespace headgate {
namespace {

using std::chrono::milliseconds;
using test::make_strategy;
using test::Ticks;

TEST(Scaled, RefusesLinearlyBetweenItsCpuThresholds) {
  for (const auto& [cpu, refused] :
       {std::pair{0.80, 0.0}, {0.83, 0.2}, {0.875, 0.5}, {0.95, 1.0}, {1.30, 1.0}}) {
    const auto law = make_strategy("scaled");
    Ticks ticks(*law);
    ticks.traffic(10, 0).cpu(cpu).run(3);
    EXPECT_NEAR(ticks.admit(), 1 - refused, 1e-9) << cpu;
    EXPECT_EQ(ticks.decision.state, refused > 1e-9 ? State::kShedding : State::kNormal) << cpu;
  }
}

TEST(Scaled, MeansTheCpuByAFactorOf07Each250Ms) {
  for (const int tick_ms : {50, 125, 250, 500}) {
    const auto law = make_strategy("scaled");
    Ticks ticks(*law);
    ticks.tick(milliseconds(tick_ms)).traffic(10, 0).cpu(0.5).run(100'000 / tick_ms);
    ticks.cpu(1.0).run(1000 / tick_ms);
    // Four steps of 250 ms: 1 - 0.5 x 0.7^4 = 0.87995, of the ramp 0.53.
    EXPECT_NEAR(ticks.admit(), 1 - (0.5 - 0.5 * std::pow(0.7, 4) - 0.3) / 0.15, 1e-5) << tick_ms;
  }
}

TEST(Scaled, RefusesByTheLevelOfMemoryToo) {
  const auto law = make_strategy("scaled");
  Ticks ticks(*law);
  ticks.traffic(10, 0).cpu(0.2).memory(0.90).run();
  EXPECT_NEAR(ticks.admit(), 0.5, 1e-9);  // (0.90 - 0.85) / 0.10
  EXPECT_EQ(ticks.decision.why, "scaled: memory is above memory_from");
  ticks.memory(0.95).run();
  EXPECT_EQ(ticks.admit(), 0.0);
  EXPECT_TRUE(ticks.decision.endpoints[0].probe) << "never shut for good";
  ticks.memory(0.84).run();
  EXPECT_EQ(ticks.admit(), 1.0);
}

TEST(Scaled, TakesTheResourceThatRefusesMore) {
  const auto law = make_strategy("scaled");
  Ticks ticks(*law);
  ticks.traffic(10, 0).cpu(0.83).memory(0.93).run();
  EXPECT_NEAR(ticks.admit(), 1 - 0.8, 1e-9);  // CPU 0.2, memory 0.8
}

TEST(Scaled, TakesFromTheLeastCriticalFirst) {
  const auto law = make_strategy("scaled");
  Ticks ticks(*law, 2);
  ticks.endpoints[1].criticality = Criticality::kSheddable;
  ticks.traffic(20, 0).traffic(20, 0, 0, 0, 1).cpu(0.875).run();
  EXPECT_NEAR(ticks.admit(0), 1.0, 1e-9);
  EXPECT_NEAR(ticks.admit(1), 0.0, 1e-9);
}

TEST(Scaled, AdmitsEverythingWhereItDoesNotKnow) {
  const auto law = make_strategy("scaled");
  Ticks ticks(*law);
  ticks.traffic(10, 0).cpu(1.0).run(10);
  ASSERT_EQ(ticks.admit(), 0.0);
  ticks.cpu_unknown().run();  // memory has no limit
  EXPECT_EQ(ticks.decision.state, State::kUnknown);
  EXPECT_EQ(ticks.admit(), 1.0);
  ticks.memory(0.5).run();
  EXPECT_EQ(ticks.decision.state, State::kNormal);
  ticks.cpu(0.5).run();
  EXPECT_EQ(ticks.admit(), 1.0) << "the CPU of before is forgotten";
}

TEST(Scaled, SaysWhichThresholdsContradict) {
  Params params;
  params.numbers["cpu_from"] = 0.96;
  EXPECT_EQ(find_strategy("scaled")->check(params), "cpu_from must be below cpu_full");
  params = {};
  params.numbers["memory_full"] = 0.5;
  EXPECT_EQ(find_strategy("scaled")->check(params), "memory_from must be below memory_full");
}

}  // namespace
}  // namespace headgate
