// SPDX-License-Identifier: Apache-2.0
// Numbers by hand from the rules of go-zero (core/load/adaptiveshedder.go at 037917d) and Kratos
// aegis (ratelimit/bbr/bbr.go at 028e85a).
#include <array>
#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "strategy_harness.h"

namespace headgate {
namespace {

using std::chrono::milliseconds;
using test::make_strategy;
using test::Ticks;

Params of(std::string variant) {
  Params params;
  params.words["variant"] = std::move(variant);
  return params;
}

double internal(const Strategy& law, std::string_view name) {
  for (const auto& row : law.internals()) {
    if (row.name == name) return row.value;
  }
  ADD_FAILURE() << name;
  return 0;
}

TEST(BbrGoZero, LimitsTo_BestRate_x_BestResponse_x_Overload) {
  const auto law = make_strategy("bbr", of("go_zero"));
  Ticks ticks(*law);
  // 100 answers in 100 ms at 4 ms, then 80 at 10 ms: best rate 1000/s, best response 4 ms, so 4 in
  // flight. CPU 0.95 of 1, line 0.9: factor (1 - 0.95) / (1 - 0.9) = 0.5. Refused above 2.
  ticks.traffic(100, 9, 100, 0.004).cpu(0.95).run(10);
  ticks.traffic(100, 9, 80, 0.010).run(10);
  EXPECT_NEAR(internal(*law, "best_rate_per_s"), 1000, 1e-9);
  EXPECT_NEAR(internal(*law, "best_response_s"), 0.004, 1e-12);
  EXPECT_EQ(ticks.decision.connections_max, 3U);  // two are there and one comes
  EXPECT_EQ(ticks.decision.state, State::kShedding);
  EXPECT_EQ(ticks.admit(), 1.0);
}

TEST(BbrGoZero, AcceptsATenthEvenWhenTheCpuIsFull) {
  const auto law = make_strategy("bbr", of("go_zero"));
  Ticks ticks(*law);
  ticks.traffic(100, 9, 100, 0.100).cpu(1.3).run(2);  // 1000/s x 100 ms = 100, a tenth: 10
  EXPECT_EQ(ticks.decision.connections_max, 11U);
}

TEST(BbrGoZero, MeansTheCpuByAFactorOf095Each250Ms) {
  for (const int tick_ms : {50, 125, 250, 500}) {
    const auto law = make_strategy("bbr", of("go_zero"));
    Ticks ticks(*law);
    ticks.tick(milliseconds(tick_ms)).traffic(0, 0).cpu(0.4).run(500'000 / tick_ms);
    ticks.cpu(1.0).run(2500 / tick_ms);
    // Ten steps of 250 ms: 1 - 0.6 x 0.95^10.
    EXPECT_NEAR(internal(*law, "cpu_mean"), 1 - 0.6 * std::pow(0.95, 10), 1e-6) << tick_ms;
  }
}

TEST(BbrGoZero, StaysInForceForOneSecondIfItRefused) {
  for (const bool refused : {true, false}) {
    const auto law = make_strategy("bbr", of("go_zero"));
    Ticks ticks(*law);
    ticks.traffic(100, 9, 100, 0.004).cpu(0.92).run(3);
    if (refused) ticks.refused(5);
    ticks.run();
    ASSERT_GT(ticks.decision.connections_max, 0U);
    ticks.traffic(100, 9, 100, 0.004).cpu(0.2).run();  // the mean falls below the line
    EXPECT_LT(internal(*law, "cpu_mean"), 0.9);
    EXPECT_EQ(ticks.decision.connections_max > 0, refused);
    ticks.run(8);
    EXPECT_EQ(ticks.decision.connections_max > 0, refused) << "0.9 s";
    ticks.run();
    EXPECT_EQ(ticks.decision.connections_max, 0U) << "1 s";
  }
}

TEST(BbrGoZero, ForgetsABestRateAfterFiveSeconds) {
  const auto law = make_strategy("bbr", of("go_zero"));
  Ticks ticks(*law);
  ticks.traffic(100, 9, 100, 0.004).cpu(0.95).run(1);
  ticks.traffic(50, 9, 50, 0.008).run(50);
  EXPECT_NEAR(internal(*law, "best_rate_per_s"), 1000, 1e-9);
  ticks.run(1);
  EXPECT_NEAR(internal(*law, "best_rate_per_s"), 500, 1e-9);
  EXPECT_NEAR(internal(*law, "best_response_s"), 0.008, 1e-12);
}

TEST(BbrAegis, LimitsToWholeMillisecondsAndNeverBelowTwo) {
  const auto law = make_strategy("bbr", of("aegis"));
  Ticks ticks(*law);
  // 1000/s x ceil(3.2 ms) = 4: refused above 4.
  ticks.traffic(100, 9, 100, 0.0032).cpu(0.81).run(2);
  EXPECT_EQ(ticks.decision.connections_max, 5U);
  const auto idle = make_strategy("bbr", of("aegis"));
  Ticks few(*idle);
  few.traffic(1, 1, 1, 0.001).cpu(0.9).run(2);  // 10/s x 1 ms: "in flight > 1" holds
  EXPECT_EQ(few.decision.connections_max, 2U);
}

TEST(BbrAegis, EndsOneSecondAfterTheFirstRefusal) {
  const auto law = make_strategy("bbr", of("aegis"));
  Ticks ticks(*law);
  ticks.traffic(100, 9, 100, 0.004).cpu(0.81).run(2);
  ticks.refused(3).run();  // the first refusal, at +0
  ticks.traffic(100, 9, 100, 0.004).cpu(0.2).run(10);
  EXPECT_LT(internal(*law, "cpu_mean"), 0.8);
  EXPECT_GT(ticks.decision.connections_max, 0U) << "+1.0 s";
  ticks.run();
  EXPECT_EQ(ticks.decision.connections_max, 0U) << "+1.1 s";
}

TEST(Bbr, IsTheSameAtAnyTick) {
  for (const int tick_ms : {100, 200, 250, 500}) {
    const auto law = make_strategy("bbr", of("go_zero"));
    Ticks ticks(*law);
    const auto answers = static_cast<std::uint64_t>(tick_ms);
    ticks.tick(milliseconds(tick_ms)).traffic(answers, 9, answers, 0.020).cpu(0.95).run(20);
    EXPECT_NEAR(internal(*law, "best_rate_per_s"), 1000, 1e-9) << tick_ms;
    EXPECT_EQ(ticks.decision.connections_max, 11U) << tick_ms;  // 1000 x 20 ms x 0.5
  }
}

TEST(Bbr, AdmitsEverythingWhereItDoesNotKnow) {
  const auto law = make_strategy("bbr");
  Ticks ticks(*law);
  ticks.traffic(100, 500, 100, 0.004).cpu_unknown().run(10);
  EXPECT_EQ(ticks.decision.state, State::kUnknown);
  ticks.cpu(1);
  ticks.endpoints[0].activity.responses_known = false;
  ticks.run(10);
  EXPECT_EQ(ticks.decision.state, State::kUnknown) << "keep-alive: no response times";
  EXPECT_EQ(ticks.decision.connections_max, 0U);
  ticks.traffic(100, 500, 0, 0).run(100);  // known, but nothing completes
  EXPECT_EQ(ticks.decision.connections_max, 0U);
  EXPECT_EQ(ticks.decision.state, State::kNormal);
}

TEST(Bbr, KeepsTheCpuOverARestart) {
  const auto law = make_strategy("bbr");
  Ticks ticks(*law);
  ticks.traffic(100, 9, 100, 0.004).cpu(0.95).run(50);
  std::array<std::byte, 64> bytes{};
  const std::size_t used = law->save(bytes);
  const auto next = make_strategy("bbr");
  ASSERT_TRUE(next->restore(std::span(bytes).first(used)));
  EXPECT_EQ(internal(*next, "cpu_mean"), internal(*law, "cpu_mean"));
}

}  // namespace
}  // namespace headgate
