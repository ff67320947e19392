// SPDX-License-Identifier: Apache-2.0
// Numbers by hand from the rules at the head of klimiter.cc: target 0.85, 5 s, at most 0.05 a loop.
#include <array>

#include <gtest/gtest.h>

#include "strategy_harness.h"

namespace headgate {
namespace {

using std::chrono::milliseconds;
using test::make_strategy;
using test::Ticks;

constexpr int kLoop = 50;  ///< ticks of 100 ms

TEST(Klimiter, FallsByTheNeedOnceInFiveSeconds) {
  const auto law = make_strategy("klimiter");
  Ticks ticks(*law);
  ticks.traffic(10, 0).cpu(0.88).run(kLoop - 1);
  EXPECT_EQ(ticks.admit(), 1.0);
  ticks.run();
  EXPECT_NEAR(ticks.admit(), 0.85 / 0.88, 1e-9);
  EXPECT_EQ(ticks.decision.state, State::kShedding);
}

TEST(Klimiter, FallsByNoMoreThanAStep) {
  const auto law = make_strategy("klimiter");
  Ticks ticks(*law);
  ticks.traffic(10, 0).cpu(1.0).run(kLoop);
  EXPECT_NEAR(ticks.admit(), 0.95, 1e-9);
  ticks.run(kLoop);
  EXPECT_NEAR(ticks.admit(), 0.90, 1e-9);
  ticks.run(100 * kLoop);
  EXPECT_NEAR(ticks.admit(), 0.01, 1e-9);
}

TEST(Klimiter, IsTheSameAtAnyTick) {
  for (const int tick_ms : {100, 250, 500}) {
    const auto law = make_strategy("klimiter");
    Ticks ticks(*law);
    ticks.tick(milliseconds(tick_ms)).traffic(10, 0).cpu(1.0).run(10'000 / tick_ms);
    EXPECT_NEAR(ticks.admit(), 0.90, 1e-9) << tick_ms;
  }
}

TEST(Klimiter, RisesSlowly) {
  const auto law = make_strategy("klimiter");
  Ticks ticks(*law);
  ticks.traffic(10, 0).cpu(1.0).run(10 * kLoop);
  ASSERT_NEAR(ticks.admit(), 0.50, 1e-9);
  ticks.cpu(0.80).run(kLoop);  // 0.5 x (0.85 - 0.80) / 0.80
  EXPECT_NEAR(ticks.admit(), 0.53125, 1e-9);
  ticks.cpu(0.10).run(kLoop);  // room for 7.5 times as much: a fifth is the most
  EXPECT_NEAR(ticks.admit(), 0.53125 * 1.2, 1e-9);
  ticks.run(10 * kLoop);
  EXPECT_EQ(ticks.admit(), 1.0);
  EXPECT_EQ(ticks.decision.state, State::kNormal);
}

TEST(Klimiter, LearnsWhichEndpointIsDear) {
  const auto law = make_strategy("klimiter");
  Ticks ticks(*law, 2);
  // Attempts of the first cost 1 ms of CPU, of the second 9 ms; the loops differ in what comes.
  for (int loop = 0; loop < 300; ++loop) {
    const std::uint64_t a = loop % 2 == 0 ? 40 : 10;
    const std::uint64_t b = loop % 2 == 0 ? 2 : 6;
    ticks.traffic(a, 0).traffic(b, 0, 0, 0, 1);
    ticks.cpu((static_cast<double>(a) * 0.001 + static_cast<double>(b) * 0.009) / 0.1).run(kLoop);
  }
  const auto learned = law->internals();
  EXPECT_NEAR(learned[1].value, 0.001, 1e-4);
  EXPECT_NEAR(learned[4].value, 0.009, 9e-4);
}

TEST(Klimiter, AsksTheLeastCriticalFirstAndKeepsItsFloor) {
  const auto law = make_strategy("klimiter");
  Ticks ticks(*law, 2);
  ticks.endpoints[1].criticality = Criticality::kSheddable;
  ticks.endpoints[1].floor = Probability::admitting(0.97);
  ticks.traffic(10, 0).traffic(10, 0, 0, 0, 1).cpu(0.87).run(kLoop);
  // need = 0.02 / 0.87 = 0.02299 of the CPU, half of which is each one's. The sheddable one gives
  // 0.03 x 0.5 = 0.015; the rest, 0.00799, costs the other 0.01598 of its share.
  EXPECT_NEAR(ticks.admit(1), 0.97, 1e-9);
  EXPECT_NEAR(ticks.admit(0), 1 - (0.02 / 0.87 - 0.015) / 0.5, 1e-9);
}

TEST(Klimiter, GoesBelowFloorsOnlyInTheSecondRound) {
  const auto law = make_strategy("klimiter");
  Ticks ticks(*law, 2);
  for (EndpointInput& endpoint : ticks.endpoints) endpoint.floor = Probability::admitting(0.99);
  ticks.traffic(10, 0).traffic(10, 0, 0, 0, 1).cpu(0.86).run(kLoop);
  // need = 0.01163: 0.01 above the floors, the rest below them, from the first one in order.
  EXPECT_NEAR((ticks.admit(0) + ticks.admit(1)) / 2, 0.85 / 0.86, 1e-9);
  EXPECT_LT(std::min(ticks.admit(0), ticks.admit(1)), 0.99);
  ticks.cpu(1.0).run(kLoop);
  EXPECT_GT(std::min(ticks.admit(0), ticks.admit(1)), 0.93) << "a step is a step in both rounds";
}

TEST(Klimiter, AsksMoreOfTheOneAboveItsBaseline) {
  const auto law = make_strategy("klimiter");
  Ticks ticks(*law, 2);
  ticks.traffic(10, 0).traffic(10, 0, 0, 0, 1).cpu(0.5).run(2 * kLoop);
  // The second comes with three times its baseline. need 0.01 of 0.86: parts 1/4 and 3/4 of the
  // CPU, excess 1 and 3: it gives 3 x need / (0.25 x 1 + 0.75 x 3), the first a third of that.
  ticks.traffic(30, 0, 0, 0, 1).cpu(0.86).run(kLoop);
  const double need = 0.01 / 0.86;
  EXPECT_NEAR(1 - ticks.admit(0), need / 2.5, 2e-4);
  EXPECT_NEAR(1 - ticks.admit(1), 3 * need / 2.5, 2e-4);
}

TEST(Klimiter, DoesNothingWithoutTraffic) {
  const auto law = make_strategy("klimiter");
  Ticks ticks(*law);
  ticks.traffic(0, 0).cpu(1.0).run(10 * kLoop);
  EXPECT_EQ(ticks.admit(), 1.0) << "nothing of the load is ours";
}

TEST(Klimiter, AdmitsEverythingWhereTheCpuIsUnknown) {
  const auto law = make_strategy("klimiter");
  Ticks ticks(*law);
  ticks.traffic(10, 0).cpu(1.0).run(4 * kLoop);
  ticks.cpu_unknown().run(10 * kLoop);
  EXPECT_EQ(ticks.admit(), 1.0);
  EXPECT_EQ(ticks.decision.state, State::kUnknown);
}

TEST(Klimiter, KeepsWhatItHasLearnedOverARestart) {
  const auto law = make_strategy("klimiter");
  Ticks ticks(*law, 2);
  ticks.traffic(10, 0).traffic(10, 0, 0, 0, 1).cpu(1.0).run(4 * kLoop);
  std::array<std::byte, 432> bytes{};
  const std::size_t used = law->save(bytes);
  ASSERT_GT(used, 0U);
  const auto next = make_strategy("klimiter");
  ASSERT_TRUE(next->restore(std::span(bytes).first(used)));
  Ticks after(*next, 2);
  after.traffic(10, 0).traffic(10, 0, 0, 0, 1).cpu(1.0).run();
  EXPECT_EQ(after.admit(0), ticks.admit(0));
  EXPECT_FALSE(next->restore(std::span(bytes).first(20)));
}

}  // namespace
}  // namespace headgate
