// SPDX-License-Identifier: Apache-2.0
// Numbers by hand from the book's formula max(0, (requests - K accepts) / (requests + 1)), K = 2,
// over ten seconds, and from the ramp (m - 0.7) / 0.3.
#include <gtest/gtest.h>

#include "strategy_harness.h"

namespace headgate {
namespace {

using std::chrono::milliseconds;
using test::make_strategy;
using test::Ticks;

TEST(Sre, ThrottlesClientsByAttemptsAgainstAdmissions) {
  const auto law = make_strategy("sre");
  Ticks ticks(*law);
  // 50 ticks of 100 attempts of which 30 were admitted: (5000 - 2 x 1500) / 5001.
  ticks.traffic(100, 5).refused(70).cpu(0.3).run(50);
  EXPECT_NEAR(ticks.admit(), 1 - 2000.0 / 5001, 1e-12);
  EXPECT_EQ(ticks.decision.state, State::kShedding);
  EXPECT_EQ(ticks.decision.why, "sre: more came in the window than k times what was admitted");
}

TEST(Sre, ThrottlesNothingWhileHalfIsAdmitted) {
  const auto law = make_strategy("sre");
  Ticks ticks(*law);
  ticks.traffic(100, 5).refused(50).cpu(0.3).run(200);
  EXPECT_EQ(ticks.admit(), 1.0);
  EXPECT_EQ(ticks.decision.state, State::kNormal);
}

TEST(Sre, ForgetsAfterTenSeconds) {
  const auto law = make_strategy("sre");
  for (const int tick_ms : {100, 250}) {
    Ticks ticks(*law);
    ticks.tick(milliseconds(tick_ms)).traffic(100, 5).refused(100).cpu(0.3).run(20);
    EXPECT_LT(ticks.admit(), 0.1);
    ticks.traffic(0, 0).run(11'000 / tick_ms);
    EXPECT_EQ(ticks.admit(), 1.0) << tick_ms;
  }
}

TEST(Sre, ThrottlesEachTierByItself) {
  const auto law = make_strategy("sre");
  Ticks ticks(*law, 2);
  ticks.endpoints[1].criticality = Criticality::kSheddable;
  ticks.traffic(100, 5).traffic(100, 5, 0, 0, 1).refused(90, 1).cpu(0.3).run(10);
  EXPECT_EQ(ticks.admit(0), 1.0);
  EXPECT_NEAR(ticks.admit(1), 1 - 800.0 / 1001, 1e-12);  // 1000 - 2 x 100
}

TEST(Sre, KeepsAFloorInFrontOfTheClientFormula) {
  const auto law = make_strategy("sre");
  Ticks ticks(*law);
  ticks.endpoints[0].floor = Probability::admitting(0.4);
  ticks.traffic(100, 5).refused(90).cpu(0.3).run(10);
  EXPECT_NEAR(ticks.admit(), 0.4, 1e-12);
}

TEST(Sre, ShedsOnTheRampFromTheSecondTickOn) {
  const auto law = make_strategy("sre");
  Ticks ticks(*law);
  ticks.traffic(10, 5).cpu(0.85).run();
  EXPECT_EQ(ticks.admit(), 1.0);
  ticks.run();
  EXPECT_NEAR(ticks.admit(), 0.5, 1e-9);  // (0.85 - 0.70) / 0.30
  EXPECT_EQ(ticks.decision.why, "sre: CPU is on the ramp (above enter, not yet below exit)");
}

TEST(Sre, LeavesTheRampBelowExit) {
  const auto law = make_strategy("sre");
  Ticks ticks(*law);
  ticks.traffic(10, 5).cpu(0.85).run(2);
  ticks.cpu(0.75).run(100);
  EXPECT_NEAR(ticks.admit(), 1 - 0.05 / 0.30, 1e-6) << "between exit and enter it stays";
  ticks.cpu(0.4).run(10);
  EXPECT_EQ(ticks.admit(), 1.0);
  EXPECT_EQ(ticks.decision.state, State::kNormal);
}

TEST(Sre, TakesFromTheLowestTierBeforeTheNext) {
  const auto law = make_strategy("sre");
  Ticks ticks(*law, 3);
  ticks.endpoints[0].criticality = Criticality::kCriticalPlus;
  ticks.endpoints[1].criticality = Criticality::kSheddablePlus;
  ticks.endpoints[2].criticality = Criticality::kSheddable;
  for (std::size_t i = 0; i < 3; ++i) ticks.traffic(10, 1, 0, 0, i);
  ticks.cpu(0.85).run(2);  // half of 30: all of the lowest, half of the next
  EXPECT_NEAR(ticks.admit(0), 1.0, 1e-9);
  EXPECT_NEAR(ticks.admit(1), 0.5, 1e-9);
  EXPECT_NEAR(ticks.admit(2), 0.0, 1e-9);
}

TEST(Sre, CapsConnectionsWhereTheyAreCounted) {
  const auto law = make_strategy("sre");
  Ticks ticks(*law);
  ticks.traffic(10, 2000).cpu(0.3).run();
  EXPECT_EQ(ticks.decision.connections_max, 2000U);
  EXPECT_EQ(ticks.decision.state, State::kShedding);
  ticks.endpoints[0].activity.in_flight_known = false;
  ticks.run();
  EXPECT_EQ(ticks.decision.connections_max, 0U);
  EXPECT_EQ(ticks.decision.state, State::kNormal);
}

TEST(Sre, AdmitsEverythingWhereTheCpuIsUnknown) {
  const auto law = make_strategy("sre");
  Ticks ticks(*law);
  ticks.traffic(100, 5).refused(90).cpu(1.0).run(10);
  ticks.cpu_unknown().run();
  EXPECT_EQ(ticks.decision.state, State::kUnknown);
  EXPECT_EQ(ticks.admit(), 1.0);
}

TEST(Sre, SaysWhichLevelsContradict) {
  Params params;
  params.numbers["exit"] = 0.9;
  EXPECT_EQ(find_strategy("sre")->check(params), "exit must be below enter");
}

}  // namespace
}  // namespace headgate
