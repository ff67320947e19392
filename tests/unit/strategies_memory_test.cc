// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "strategy_harness.h"

namespace headgate {
namespace {

using test::make_strategy;
using test::Ticks;

class MemoryRules : public testing::Test {
 protected:
  std::unique_ptr<Strategy> strategy = make_strategy("graded");
  Ticks ticks{*strategy};
};

TEST_F(MemoryRules, DoNotOpenForActivePageCache_A31) {
  // Case A31: limit 1 GiB, current 1020 MiB, of it inactive 10 MiB: 0.986. No pressure, no hits.
  ticks.cpu(0.3).memory(0.986).run(50);
  EXPECT_EQ(ticks.decision.state, State::kNormal);
  EXPECT_EQ(ticks.admit(), 1.0);
}

TEST_F(MemoryRules, OpenWithPressureBesideTheLevel) {
  ticks.cpu(0.3).memory(0.93, 0, /*pressure=*/0.02).run();
  EXPECT_EQ(ticks.decision.state, State::kOpen);
  EXPECT_TRUE(ticks.decision.circuit_open);
  EXPECT_TRUE(ticks.decision.endpoints[0].probe) << "never shut for good";
}

TEST_F(MemoryRules, OpenWithHitsOfTheLimitBesideTheLevel) {
  ticks.cpu(0.3).memory(0.93, 0, 0, /*hits=*/1).run();
  EXPECT_EQ(ticks.decision.state, State::kOpen);
}

TEST_F(MemoryRules, OpenWithAnOomKillBesideTheLevel) {
  ticks.cpu(0.3).memory(0.93);
  ticks.signals.oom_kills = std::uint64_t{1};
  ticks.run();
  EXPECT_EQ(ticks.decision.state, State::kOpen);
}

TEST_F(MemoryRules, DoNotTakeUnknownForEvidence) {
  ticks.cpu(0.3).memory(0.99);
  ticks.signals.memory_pressure = Unknown::kUnsupported;
  ticks.signals.memory_limit_hits = Unknown::kMissing;
  ticks.signals.oom_kills = Unknown::kMissing;
  ticks.run(50);
  EXPECT_EQ(ticks.decision.state, State::kNormal);
}

TEST_F(MemoryRules, ForgetEvidenceAfterASecond) {
  ticks.cpu(0.3).memory(0.70, 0, 0, /*hits=*/1).run();  // a hit at a level that is no reason
  ticks.memory(0.70).run(10);
  ticks.memory(0.95).run();
  EXPECT_EQ(ticks.decision.state, State::kNormal);
}

TEST_F(MemoryRules, StayShutUntilClose) {
  // Pressure goes on; the level falls from 0.93 through 0.88 (shut) to 0.86 (below close).
  ticks.cpu(0.3).memory(0.93, 0, 0.1).run();
  ticks.memory(0.88, 0, 0.1).run(100);
  EXPECT_EQ(ticks.decision.state, State::kOpen);
  ticks.memory(0.86, 0, 0.1).run();
  EXPECT_NE(ticks.decision.state, State::kOpen);
}

TEST_F(MemoryRules, ProbeOpenWithin2sAtAFlatLevelWithAnIdleCpu_H01) {
  // Case H01: the load is gone, CPU 0.04, the heap stays. Shut with evidence, then flat.
  ticks.memory_open = 0.75;
  ticks.memory_close = 0.70;
  ticks.memory_shed = 0.70;
  ticks.cpu(0.9, 0.7).memory(0.77, /*slope=*/0.1, /*pressure=*/0.2).run(3);
  ASSERT_EQ(ticks.decision.state, State::kOpen);
  ticks.cpu(0.04).memory(0.77);
  ticks.run(14);  // 1.4 s
  EXPECT_EQ(ticks.decision.state, State::kOpen);
  ticks.run(1);  // 1.5 s
  EXPECT_EQ(ticks.decision.state, State::kShedding) << "admission comes back step by step";
  ticks.run(5);  // 2 s
  EXPECT_NEAR(ticks.admit(), 1 - 0.95 * 0.5, 1e-9) << "half of the second of reopening";
  ticks.run(5);
  EXPECT_EQ(ticks.decision.state, State::kNormal);
  EXPECT_EQ(ticks.admit(), 1.0);
  ticks.run(100);
  EXPECT_EQ(ticks.decision.state, State::kNormal) << "the level alone does not shut it again";
}

TEST_F(MemoryRules, ShutAgainWhenReopeningBringsNewEvidence) {
  ticks.cpu(0.3).memory(0.95, 0, 0.2).run();
  ticks.memory(0.95).run(16);
  ASSERT_EQ(ticks.decision.state, State::kShedding);
  ticks.memory(0.95, 0, 0, /*hits=*/4).run();
  EXPECT_EQ(ticks.decision.state, State::kOpen);
}

TEST_F(MemoryRules, HoldWhileMemoryStillRises) {
  ticks.cpu(0.04).memory(0.93, 0, 0.1).run();
  ticks.memory(0.94, /*slope=*/0.02).run(100);
  EXPECT_EQ(ticks.decision.state, State::kOpen);
}

TEST_F(MemoryRules, HoldForABusyCpuButNotForGood) {
  // A busy CPU may still work on what was let in: 10 s, no longer.
  ticks.cpu(0.75).memory(0.93, 0, 0.1).run();
  ticks.memory(0.93).run(99);
  EXPECT_EQ(ticks.decision.state, State::kOpen);
  ticks.run(1);
  EXPECT_NE(ticks.decision.state, State::kOpen);
}

TEST_F(MemoryRules, ShedByTheLevelBetweenShedAndOpenWhileItStalls) {
  // (0.86 - 0.80) / 0.12 of 0.95 = 0.475.
  ticks.cpu(0.3).memory(0.86, 0, 0.05).run();
  EXPECT_EQ(ticks.decision.state, State::kShedding);
  EXPECT_NEAR(ticks.admit(), 0.525, 1e-9);
}

TEST_F(MemoryRules, WorkWithoutCpu) {
  ticks.cpu_unknown().memory(0.93, 0, 0.1).run();
  EXPECT_EQ(ticks.decision.state, State::kOpen);
  ticks.memory(0.5).run();
  EXPECT_EQ(ticks.decision.state, State::kNormal);
}

TEST_F(MemoryRules, EndWhenTheLevelIsUnknown) {
  ticks.cpu(0.3).memory(0.93, 0, 0.1).run();
  ASSERT_EQ(ticks.decision.state, State::kOpen);
  ticks.signals.memory = Unknown::kGone;
  ticks.run();
  EXPECT_EQ(ticks.decision.state, State::kNormal);
}

TEST(MemoryRulesWithoutEvidence, OpenByTheLevelAloneAndStillLetGoWhenFlat) {
  Params params;
  params.words["memory_evidence"] = "off";
  const auto strategy = make_strategy("graded", params);
  Ticks ticks(*strategy);
  ticks.cpu(0.04).memory(0.93).run();
  EXPECT_EQ(ticks.decision.state, State::kOpen);
  ticks.run(14);
  EXPECT_EQ(ticks.decision.state, State::kOpen);
  ticks.run(1);  // flat and idle for 1.5 s
  EXPECT_EQ(ticks.decision.state, State::kShedding);
  ticks.run(50);
  EXPECT_EQ(ticks.decision.state, State::kNormal);
  ticks.memory(0.939).run(10);
  EXPECT_EQ(ticks.decision.state, State::kNormal) << "not yet one hundredth higher";
  ticks.memory(0.945, /*slope=*/0.05).run();
  EXPECT_EQ(ticks.decision.state, State::kOpen);
}

}  // namespace
}  // namespace headgate
