// SPDX-License-Identifier: Apache-2.0
#include <array>

#include <gtest/gtest.h>

#include "strategy_harness.h"

namespace headgate {
namespace {

using test::make_strategy;
using test::Ticks;

class GradedTest : public testing::Test {
 protected:
  std::unique_ptr<Strategy> strategy = make_strategy("graded");
  Ticks ticks{*strategy};
};

TEST_F(GradedTest, LeavesAHealthyTargetAlone) {
  ticks.cpu(0.75).run(100);
  EXPECT_EQ(ticks.decision.state, State::kNormal);
  EXPECT_EQ(ticks.admit(), 1.0);
}

// What a person reads beside "normal" must be true of the numbers beside it.
TEST_F(GradedTest, SaysWhyNothingIsRefused) {
  ticks.cpu(0.3).memory(0.4).run();
  EXPECT_EQ(ticks.decision.why, "CPU and memory are below their thresholds");
  ticks.cpu_unknown().memory(0.4).run();
  EXPECT_EQ(ticks.decision.why, "CPU is unknown and refuses nothing; memory is below memory.shed");
  ticks.cpu(0.3).memory(0.95).run(3);
  EXPECT_EQ(ticks.decision.state, State::kNormal);
  EXPECT_EQ(ticks.decision.why,
            "CPU is below its thresholds; memory is above memory.shed, but neither rises nor "
            "stalls");
  ticks.memory(0.4);
  ticks.signals.throttled = Ratio{0.5};
  ticks.run();
  EXPECT_EQ(ticks.decision.state, State::kNormal);
  EXPECT_EQ(ticks.decision.why,
            "CPU is throttled, but below its thresholds; memory is below memory.shed");
  ticks.cpu(0.81).run();
  EXPECT_EQ(ticks.decision.state, State::kNormal) << "for one tick only";
  EXPECT_EQ(ticks.decision.why.substr(0, 30), "CPU is above a threshold, but ");
}

TEST_F(GradedTest, BeginsToShedInTheSecondTickAboveEnter) {
  ticks.cpu(0.81).run();
  EXPECT_EQ(ticks.decision.state, State::kNormal);
  ticks.run();
  EXPECT_EQ(ticks.decision.state, State::kShedding);
}

TEST_F(GradedTest, NeedsTheTicksInARow) {
  for (int i = 0; i < 5; ++i) {
    ticks.cpu(0.81).run();
    ticks.cpu(0.79).run();
  }
  EXPECT_EQ(ticks.decision.state, State::kNormal);
}

TEST_F(GradedTest, RefusesByTheCurveWhileShedding) {
  // (slow - 0.70) / 0.20 of 0.95: 0.82 -> 0.57 refused, 0.72 -> 0.095, 1.0 -> 0.95.
  ticks.cpu(0.82).run(2);
  EXPECT_NEAR(ticks.admit(), 0.43, 1e-9);
  ticks.cpu(0.72).run();
  EXPECT_NEAR(ticks.admit(), 0.905, 1e-9);
  ticks.cpu(/*fast=*/0.5, /*slow=*/1.0).run();
  EXPECT_NEAR(ticks.admit(), 0.05, 1e-9);
  EXPECT_EQ(ticks.decision.endpoints[0].reason, HEADGATE_REASON_SHARE);
}

TEST_F(GradedTest, GoesOnSheddingBetweenExitAndEnter) {
  ticks.cpu(0.85).run(2);
  ticks.cpu(0.75).run(50);
  EXPECT_EQ(ticks.decision.state, State::kShedding);
  ticks.cpu(0.69).run();
  EXPECT_EQ(ticks.decision.state, State::kShedding);
  ticks.run();
  EXPECT_EQ(ticks.decision.state, State::kNormal);
}

TEST_F(GradedTest, OpensTheCircuitInTheSecondFastTick) {
  ticks.cpu(/*fast=*/0.90, /*slow=*/0.65).run();
  EXPECT_FALSE(ticks.decision.circuit_open);
  ticks.run();
  EXPECT_TRUE(ticks.decision.circuit_open);
  EXPECT_EQ(ticks.decision.state, State::kOpen);
  EXPECT_EQ(ticks.admit(), 0.0);
  EXPECT_TRUE(ticks.decision.endpoints[0].probe);
  EXPECT_EQ(ticks.decision.endpoints[0].reason, HEADGATE_REASON_CIRCUIT);
}

TEST_F(GradedTest, ClosesTheCircuitBelow085) {
  ticks.cpu(0.95, 0.85).run(2);
  ticks.cpu(0.86, 0.85).run();
  EXPECT_EQ(ticks.decision.state, State::kOpen);
  ticks.cpu(0.84, 0.85).run();
  EXPECT_EQ(ticks.decision.state, State::kShedding) << "slow is above exit";
  ticks.cpu(0.95, 0.65).run(2);
  ticks.cpu(0.60, 0.65).run();
  EXPECT_EQ(ticks.decision.state, State::kNormal) << "slow is below exit";
}

TEST_F(GradedTest, AdmitsEverythingWhereNothingIsKnown_A35) {
  // Case A35: p was 0.95 at slow = 0.97; then the files vanish and the means are stale.
  ticks.cpu(0.5, 0.97).run(2);
  ASSERT_EQ(ticks.decision.state, State::kShedding);
  ticks.cpu_unknown().run();
  EXPECT_EQ(ticks.decision.state, State::kUnknown);
  EXPECT_EQ(ticks.admit(), 1.0);
  EXPECT_FALSE(ticks.decision.circuit_open);
}

TEST_F(GradedTest, UnknownCpuDoesNotHoldTheCircuitOpen) {
  ticks.cpu(0.95).memory(0.5).run(2);
  ASSERT_TRUE(ticks.decision.circuit_open);
  ticks.cpu_unknown().run();
  EXPECT_EQ(ticks.decision.state, State::kNormal) << "memory is known and low";
  ticks.cpu(0.95).run();
  EXPECT_EQ(ticks.decision.state, State::kNormal) << "the count starts anew";
}

TEST_F(GradedTest, RefusesNothingOnABusyHostWithAnIdleTarget_H03) {
  // Only the target's own use counts; waiting for others' CPU is pressure, not load.
  ticks.signals.cpu_pressure = Ratio{1.0};
  ticks.signals.throttled = Ratio{0};
  ticks.cpu(0.02).run(100);
  EXPECT_EQ(ticks.decision.state, State::kNormal);
  EXPECT_EQ(ticks.admit(), 1.0);
}

TEST_F(GradedTest, TakesFromTheLeastCriticalAndLeavesTheProbe) {
  // slow = 1.0: 0.95 of 40 a tick = 38 must go. Sheddable gives its 20 but for the probe of 1 %;
  // critical keeps a floor of 0.5 in the first round (it gives 10) and the 8 that are missing come
  // from the 10 that are left: 10 - 8 = 2 of 20.
  Ticks two(*strategy, 2);
  two.endpoints[0].criticality = Criticality::kCritical;
  two.endpoints[0].floor = Probability::refusing(0.5);
  two.endpoints[1].criticality = Criticality::kSheddable;
  two.endpoints[0].activity.offered = two.endpoints[1].activity.offered = 20;
  two.cpu(/*fast=*/0.8, /*slow=*/1.0).run(2);
  EXPECT_NEAR(two.admit(1), 0.01, 0.002);
  EXPECT_NEAR(two.admit(0), 0.10, 0.01);
}

/// A target whose connections live as long as their service: 84 a second, one or two at a time.
class GradedWithInFlight : public GradedTest {
 protected:
  void SetUp() override {
    in_flight(2, 8);
    ticks.cpu(0.6).run(30);  // life: 2 / 80 per second = 25 ms
  }
  void in_flight(std::uint64_t live, std::uint64_t closed_in_this_tick) {
    EndpointActivity& activity = ticks.endpoints[0].activity;
    activity.offered = activity.admitted = activity.established = 8;
    activity.in_flight = live;
    activity.closed = closed_in_this_tick;
    activity.in_flight_known = true;
  }
};

TEST_F(GradedWithInFlight, DoesNotOpenTheCircuitForABurstWithNoQueueBehindIt_H04) {
  // Case H04: within a quota the ratio jitters up to its cap. 5 live at 80 a second = 63 ms.
  in_flight(5, 8);
  ticks.cpu(/*fast=*/1.0, /*slow=*/0.70).run(10);
  EXPECT_EQ(ticks.decision.state, State::kNormal);
}

TEST_F(GradedWithInFlight, OpensTheCircuitInOneTickForAQueueOf250ms) {
  // 40 live, completions from 80 to 140 a second: 40 / 91 = 0.44 s.
  in_flight(40, 14);
  ticks.cpu(/*fast=*/0.84, /*slow=*/0.62);
  ticks.signals.cpu = Ratio{1.0};
  ticks.run();
  EXPECT_EQ(ticks.decision.state, State::kOpen);
}

TEST_F(GradedWithInFlight, DoesNotOpenForAQueueAlone) {
  // A queue with an idle CPU waits for something else (a slow backend): refusing would not help.
  // 30 / 80 per second = 0.375 s, a wait that would open the circuit at a full CPU.
  in_flight(30, 8);
  ticks.cpu(0.3).run();
  EXPECT_EQ(ticks.decision.state, State::kNormal);
}

TEST_F(GradedWithInFlight, ClosesTheCircuitWhenTheQueueIsAlmostGone) {
  in_flight(40, 14);
  ticks.cpu(1.0, 0.75).run(3);
  ASSERT_EQ(ticks.decision.state, State::kOpen);
  in_flight(10, 14);  // 10 / 120 = 83 ms, below half of 250 ms, though the CPU is still full
  ticks.run(3);
  EXPECT_EQ(ticks.decision.state, State::kShedding);
}

TEST_F(GradedTest, TakesIdleConnectionsForNoQueue) {
  // 200 keep-alive connections that live for 100 s: their number says nothing about waiting, so
  // neither does it open the circuit in one tick nor forbid it in the second.
  EndpointActivity& activity = ticks.endpoints[0].activity;
  activity.in_flight = 200;
  activity.in_flight_known = true;
  for (int tick = 0; tick < 100; ++tick) {
    activity.offered = activity.closed = tick % 5 == 0 ? 1 : 0;
    ticks.cpu(0.6).run();
  }
  ticks.cpu(/*fast=*/1.0, /*slow=*/0.62).run();
  EXPECT_EQ(ticks.decision.state, State::kNormal);
  ticks.run();
  EXPECT_EQ(ticks.decision.state, State::kOpen);
}

TEST_F(GradedWithInFlight, KeepsItsStateOverARestart) {
  in_flight(40, 14);
  ticks.cpu(1.0, 0.88).run(3);
  ASSERT_EQ(ticks.decision.state, State::kOpen);
  std::array<std::byte, HEADGATE_MODEL_BYTES> model{};
  const std::size_t bytes = strategy->save(model);
  ASSERT_GT(bytes, 0U);

  const auto restarted = make_strategy("graded");
  ASSERT_TRUE(restarted->restore(std::span(model).first(bytes)));
  Ticks after(*restarted);
  after.endpoints = ticks.endpoints;
  after.cpu(1.0, 0.88).run();
  EXPECT_EQ(after.decision.state, State::kOpen) << "a cold start would be normal for one tick more";
}

TEST_F(GradedTest, RefusesAModelItDoesNotUnderstand) {
  std::array<std::byte, HEADGATE_MODEL_BYTES> model{};
  const std::size_t bytes = strategy->save(model);
  model[8] = std::byte{0xff};  // a state that does not exist
  EXPECT_FALSE(strategy->restore(std::span(model).first(bytes)));
  model.fill(std::byte{0});
  EXPECT_FALSE(strategy->restore(model));
  EXPECT_FALSE(strategy->restore(std::span(model).first(3)));
}

TEST_F(GradedTest, NamesItsThresholds) {
  ticks.memory_open = 0.95;
  ticks.run();
  double enter = 0, memory_open = 0;
  for (const Strategy::Threshold& threshold : strategy->thresholds()) {
    if (threshold.name == "enter") enter = threshold.value;
    if (threshold.name == "memory_open") memory_open = threshold.value;
  }
  EXPECT_EQ(enter, 0.80);
  EXPECT_EQ(memory_open, 0.95);
}

TEST(Graded, TakesItsParameters) {
  Params params;
  params.numbers = {{"enter", 0.5},     {"exit", 0.4},      {"consecutive", 4},
                    {"shed_from", 0.4}, {"shed_full", 0.6}, {"refuse_max", 0.5}};
  const auto strategy = make_strategy("graded", params);
  Ticks ticks(*strategy);
  ticks.cpu(0.55).run(3);
  EXPECT_EQ(ticks.decision.state, State::kNormal);
  ticks.run();
  EXPECT_EQ(ticks.decision.state, State::kShedding);
  EXPECT_NEAR(ticks.admit(), 1 - 0.5 * 0.75, 1e-9);  // (0.55 - 0.4) / 0.2 of 0.5
}

}  // namespace
}  // namespace headgate
