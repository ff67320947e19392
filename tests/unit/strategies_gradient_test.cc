// SPDX-License-Identifier: Apache-2.0
// Numbers by hand from the update of Gradient2Limit (github.com/Netflix/concurrency-limits):
// smoothing 0.2, queue 4, tolerance 1.5, at least 20.
#include <array>

#include <gtest/gtest.h>

#include "strategy_harness.h"

namespace headgate {
namespace {

using std::chrono::milliseconds;
using test::make_strategy;
using test::Ticks;

double limit_of(const Strategy& law) { return law.internals()[0].value; }
double long_of(const Strategy& law) { return law.internals()[1].value; }

TEST(Gradient, GrowsByTheQueueWhileNothingQueues) {
  const auto law = make_strategy("gradient");
  Ticks ticks(*law);
  // 20 in flight is at least half of 20: 0.8 x 20 + 0.2 x (20 x 1 + 4) = 20.8.
  ticks.traffic(50, 20, 50, 0.010).run();
  EXPECT_NEAR(limit_of(*law), 20.8, 1e-12);
  EXPECT_EQ(ticks.decision.connections_max, 21U);
  ticks.run();
  EXPECT_NEAR(limit_of(*law), 21.6, 1e-12);
  EXPECT_NEAR(long_of(*law), 0.010, 1e-12);
}

TEST(Gradient, FallsByTheGradientAtMostToHalf) {
  Params params;
  params.numbers["limit_min"] = 2;
  const auto law = make_strategy("gradient", params);
  std::array<std::byte, 64> bytes{};
  Ticks ticks(*law);
  ticks.traffic(50, 400, 50, 0.010).run(100);  // 2 + 100 x 0.8
  ASSERT_NEAR(limit_of(*law), 82, 1e-9);
  ASSERT_GT(law->save(bytes), 0U);
  // A window at 20 ms: long = 10 + (20 - 10) x 2 / 601 = 10.0333 ms, 1.5 x long / short = 0.7525;
  // 0.8 x 82 + 0.2 x (82 x 0.7525 + 4) = 78.741.
  ticks.traffic(50, 400, 50, 0.020).run();
  EXPECT_NEAR(long_of(*law), 0.010 + 0.010 * 2 / 601, 1e-12);
  EXPECT_NEAR(limit_of(*law), 0.8 * 82 + 0.2 * (82 * 1.5 * (0.010 + 0.02 / 601) / 0.020 + 4), 1e-9);
  EXPECT_NEAR(limit_of(*law), 78.741, 1e-3);
  // At 1 s the gradient would be 0.015: a half is the most. 0.8 x L + 0.2 x (L / 2 + 4).
  const double before = limit_of(*law);
  ticks.traffic(50, 400, 50, 1.0).run();
  EXPECT_NEAR(limit_of(*law), 0.8 * before + 0.2 * (before / 2 + 4), 1e-9);
}

TEST(Gradient, TakesThePlainMeanOfTheFirstTenWindows) {
  const auto law = make_strategy("gradient");
  Ticks ticks(*law);
  ticks.traffic(50, 5, 50, 0.010).run(4);
  ticks.traffic(50, 5, 50, 0.020).run(4);
  EXPECT_NEAR(long_of(*law), 0.015, 1e-12);
}

TEST(Gradient, DriftsDownWhenLatencyComesBack) {
  const auto law = make_strategy("gradient");
  Ticks ticks(*law);
  ticks.traffic(50, 5, 50, 0.100).run(10);
  // Long 100 ms against short 10 ms: the mean moves by 2 / 601 and is then cut by 0.95.
  ticks.traffic(50, 5, 50, 0.010).run();
  EXPECT_NEAR(long_of(*law), (0.100 - 0.090 * 2 / 601) * 0.95, 1e-12);
}

TEST(Gradient, DoesNotGrowWhileTheApplicationIsTheLimit) {
  const auto law = make_strategy("gradient");
  Ticks ticks(*law);
  ticks.traffic(50, 9, 50, 0.010).run(100);  // 9 < 20 / 2
  EXPECT_EQ(limit_of(*law), 20);
  ticks.refused(1).run();  // few are left at the end of the tick, but the limit was reached
  EXPECT_NEAR(limit_of(*law), 20.8, 1e-12);
}

TEST(Gradient, WaitsForTenAnswersAndForItsWindow) {
  const auto law = make_strategy("gradient");
  Ticks ticks(*law);
  ticks.traffic(4, 30, 4, 0.010).run(2);
  EXPECT_EQ(limit_of(*law), 20) << "8 answers";
  ticks.run();
  EXPECT_NEAR(limit_of(*law), 20.8, 1e-12) << "12 answers";
  ticks.tick(milliseconds(40)).traffic(40, 30, 40, 0.010).run(2);
  EXPECT_NEAR(limit_of(*law), 20.8, 1e-12) << "80 ms";
  ticks.run();
  EXPECT_NEAR(limit_of(*law), 21.6, 1e-12) << "120 ms";
  ticks.tick(milliseconds(500)).run();
  EXPECT_NEAR(limit_of(*law), 22.4, 1e-12) << "a long tick is one window";
}

TEST(Gradient, StandsStillWithoutTraffic) {
  const auto law = make_strategy("gradient");
  Ticks ticks(*law);
  ticks.traffic(0, 0).run(1000);
  EXPECT_EQ(limit_of(*law), 20);
  EXPECT_EQ(ticks.decision.state, State::kNormal);
  ticks.cpu_unknown().run();
  EXPECT_EQ(ticks.decision.connections_max, 20U) << "it does not go by the CPU";
}

TEST(Gradient, AdmitsEverythingWhereResponseTimesAreNotSeen) {
  const auto law = make_strategy("gradient");
  Ticks ticks(*law);
  ticks.traffic(1000, 1000);
  ticks.endpoints[0].activity.responses_known = false;
  ticks.run(10);
  EXPECT_EQ(ticks.decision.state, State::kUnknown);
  EXPECT_EQ(ticks.decision.connections_max, 0U);
}

TEST(Gradient, KeepsWhatItHasLearnedOverARestart) {
  const auto law = make_strategy("gradient");
  Ticks ticks(*law);
  ticks.traffic(50, 400, 50, 0.010).run(20);
  std::array<std::byte, 64> bytes{};
  const std::size_t used = law->save(bytes);
  const auto next = make_strategy("gradient");
  ASSERT_TRUE(next->restore(std::span(bytes).first(used)));
  EXPECT_EQ(limit_of(*next), limit_of(*law));
  EXPECT_EQ(long_of(*next), long_of(*law));
  EXPECT_FALSE(next->restore(std::span(bytes).first(8)));
}

}  // namespace
}  // namespace headgate
