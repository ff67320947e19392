// SPDX-License-Identifier: Apache-2.0
// Numbers by hand from the two rules (Chiu and Jain 1989): + 10 a second, x 0.85 each 100 ms.
#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "strategy_harness.h"

namespace headgate {
namespace {

using std::chrono::milliseconds;
using test::make_strategy;
using test::Ticks;

double limit_of(const Strategy& law) { return law.internals().front().value; }

TEST(Aimd, RisesByAConstantAndFallsByAFactor) {
  const auto law = make_strategy("aimd");
  Ticks ticks(*law);
  ticks.traffic(10, 5).cpu(0.5).run();  // 64 at the start
  EXPECT_DOUBLE_EQ(limit_of(*law), 65);
  ticks.cpu(0.86).run();
  EXPECT_DOUBLE_EQ(limit_of(*law), 55.25);  // 65 x 0.85
  ticks.run();
  EXPECT_DOUBLE_EQ(limit_of(*law), 46.9625);
  ticks.cpu(0.85).run();  // not above the line
  EXPECT_DOUBLE_EQ(limit_of(*law), 47.9625);
}

TEST(Aimd, GoesByTimeAndNotByTicks) {
  const auto law = make_strategy("aimd");
  Ticks ticks(*law);
  ticks.tick(milliseconds(250)).traffic(10, 5).cpu(0.5).run();
  EXPECT_DOUBLE_EQ(limit_of(*law), 66.5);
  ticks.cpu(0.9).run();  // two steps at most: one look has seen one overload
  EXPECT_DOUBLE_EQ(limit_of(*law), 66.5 * 0.85 * 0.85);
  ticks.tick(milliseconds(150)).run();
  EXPECT_NEAR(limit_of(*law), 66.5 * 0.85 * 0.85 * std::pow(0.85, 1.5), 1e-12);
  ticks.tick(Duration::zero()).run();  // no time, no step
  EXPECT_NEAR(limit_of(*law), 66.5 * 0.85 * 0.85 * std::pow(0.85, 1.5), 1e-12);
}

TEST(Aimd, StaysWithinItsBounds) {
  const auto law = make_strategy("aimd");
  Ticks ticks(*law);
  ticks.traffic(10, 5).cpu(0.2).run(1000);
  EXPECT_EQ(limit_of(*law), 512);
  ticks.cpu(1).run(1000);
  EXPECT_EQ(limit_of(*law), 2);
}

TEST(Aimd, CapsConnectionsFromTheGateOn) {
  const auto law = make_strategy("aimd");
  Ticks ticks(*law);
  ticks.traffic(10, 60).cpu(/*fast=*/0.69, 0).run();
  EXPECT_EQ(ticks.decision.connections_max, 0U);
  ticks.cpu(/*fast=*/0.70, 0);
  ticks.signals.cpu = Ratio{0.9};
  ticks.run();  // 65 x 0.85 = 55.25: the 56th comes in, the 57th does not
  EXPECT_EQ(ticks.decision.connections_max, 56U);
  EXPECT_EQ(ticks.decision.state, State::kShedding) << "60 are there";
  EXPECT_EQ(ticks.admit(), 1.0);
}

TEST(Aimd, AdmitsEverythingWhereItDoesNotKnow) {
  const auto law = make_strategy("aimd");
  Ticks ticks(*law);
  ticks.traffic(10, 1000).cpu_unknown().run(10);
  EXPECT_EQ(ticks.decision.state, State::kUnknown);
  EXPECT_EQ(ticks.decision.connections_max, 0U);
  EXPECT_DOUBLE_EQ(limit_of(*law), 64);
  ticks.cpu(0.99);
  ticks.endpoints[0].activity.in_flight_known = false;
  ticks.run(10);
  EXPECT_EQ(ticks.decision.state, State::kUnknown);
  EXPECT_EQ(ticks.decision.connections_max, 0U);
}

TEST(Aimd, KeepsItsLimitOverOneUnreadTick) {
  const auto law = make_strategy("aimd");
  Ticks ticks(*law);
  ticks.traffic(10, 5).cpu(0.9).run();
  ticks.signals.cpu = Unknown::kIo;
  ticks.run();
  EXPECT_DOUBLE_EQ(limit_of(*law), 54.4);
  EXPECT_EQ(ticks.decision.connections_max, 55U);
}

TEST(Aimd, KeepsItsLimitOverARestart) {
  const auto law = make_strategy("aimd");
  Ticks ticks(*law);
  ticks.traffic(10, 5).cpu(0.9).run(5);
  std::array<std::byte, 64> bytes{};
  const std::size_t used = law->save(bytes);
  ASSERT_GT(used, 0U);
  const auto next = make_strategy("aimd");
  ASSERT_TRUE(next->restore(std::span(bytes).first(used)));
  EXPECT_EQ(limit_of(*next), limit_of(*law));
  EXPECT_FALSE(next->restore(std::span(bytes).first(used - 1)));
  bytes[0] ^= std::byte{1};
  EXPECT_FALSE(next->restore(bytes));
  EXPECT_EQ(law->save(std::span(bytes).first(used - 1)), 0U);
}

TEST(Aimd, SaysWhichBoundsContradict) {
  Params params;
  params.numbers["limit_min"] = 600;
  EXPECT_EQ(find_strategy("aimd")->check(params), "limit_max must not be below limit_min");
}

}  // namespace
}  // namespace headgate
