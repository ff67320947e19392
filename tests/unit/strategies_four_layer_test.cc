// SPDX-License-Identifier: Apache-2.0
// Numbers by hand from the four rules at the head of four_layer.cc.
#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "strategy_harness.h"

namespace headgate {
namespace {

using std::chrono::milliseconds;
using test::make_strategy;
using test::Ticks;

double internal(const Strategy& law, std::string_view name) {
  for (const auto& row : law.internals()) {
    if (row.name == name) return row.value;
  }
  ADD_FAILURE() << name;
  return 0;
}

Params warm() {
  Params params;
  params.numbers["slow_start"] = 0;
  return params;
}

double rate(const Ticks& ticks) { return ticks.decision.endpoints[0].rate_per_s; }

TEST(FourLayer, StartsSlowlyTowardsTheCapacityItSees) {
  const auto law = make_strategy("four_layer");
  Ticks ticks(*law);
  // 50 answers in 100 ms at CPU 0.25: 500/s / 0.25 = a capacity of 2000/s.
  ticks.traffic(50, 5, 50, 0.010).cpu(0.25).run();
  EXPECT_NEAR(rate(ticks), 200, 1e-9);
  ticks.run(75);  // 7.5 s of 30: 200 + 1800 x (1 - e^-1)
  EXPECT_NEAR(rate(ticks), 200 + 1800 * (1 - std::exp(-1)), 1e-6);
  EXPECT_EQ(ticks.decision.endpoints[0].rate_burst_s, 0.1 - 1 / rate(ticks));
  ticks.run(224);
  EXPECT_NEAR(rate(ticks), 200 + 1800 * (1 - std::exp(-4 * 29.9 / 30)), 1e-6);
  ticks.run();
  EXPECT_EQ(rate(ticks), 0) << "warm";
  EXPECT_EQ(ticks.decision.state, State::kNormal);
}

TEST(FourLayer, StartsWhenTrafficComesAndAgainAfterAQuietWindow) {
  const auto law = make_strategy("four_layer");
  Ticks ticks(*law);
  ticks.traffic(0, 0).cpu(0.05).run(1000);
  EXPECT_EQ(rate(ticks), 0);
  ticks.traffic(50, 5, 50, 0.010).cpu(0.25).run(301);
  ASSERT_EQ(rate(ticks), 0);
  ticks.traffic(0, 0).cpu(0.05).run(599);
  ticks.traffic(50, 5, 50, 0.010).cpu(0.25).run();
  EXPECT_EQ(internal(*law, "warm"), 0) << "60 s after the last attempt";
  EXPECT_NEAR(rate(ticks), 200, 1e-9);
  ticks.run(301);
  ASSERT_EQ(internal(*law, "warm"), 1);
  ticks.traffic(0, 0).cpu(0.05).run(590);
  ticks.traffic(50, 5, 50, 0.010).cpu(0.25).run();
  EXPECT_EQ(internal(*law, "warm"), 1) << "59.1 s are not quiet enough";
}

TEST(FourLayer, DampsABurstOfArrivals) {
  const auto law = make_strategy("four_layer", warm());
  Ticks ticks(*law);
  ticks.traffic(50, 5, 50, 0.010).cpu(0.25).run(20);  // best 500/s
  ASSERT_EQ(rate(ticks), 0);
  ticks.traffic(150, 5, 50, 0.010).run();  // 1500/s is not more than three times that
  EXPECT_EQ(rate(ticks), 0);
  ticks.traffic(151, 5, 50, 0.010).run();
  EXPECT_NEAR(rate(ticks), 500, 1e-9);
  ticks.traffic(50, 5, 50, 0.010).run(75);  // 7.5 s of 15: 500 + 1000 x (1 - e^-2)
  EXPECT_NEAR(rate(ticks), 500 + 1000 * (1 - std::exp(-2)), 1e-6);
  ticks.run(75);
  EXPECT_EQ(rate(ticks), 0);
}

TEST(FourLayer, DoesNotDampWhereLittleCompletes) {
  const auto law = make_strategy("four_layer", warm());
  Ticks ticks(*law);
  ticks.traffic(5, 5, 5, 0.010).cpu(0.25).run(20);  // 50/s is not above 50
  ticks.traffic(500, 5, 5, 0.010).run(5);
  EXPECT_EQ(rate(ticks), 0);
}

TEST(FourLayer, LimitsInFlightAboveTheKnee) {
  const auto law = make_strategy("four_layer", warm());
  Ticks ticks(*law);
  ticks.traffic(100, 30, 100, 0.0091).cpu(0.79).run(60);
  EXPECT_EQ(ticks.decision.connections_max, 1000U) << "the hard cap";
  // CPU 0.9 until the mean of 5 s passes 0.80: 1000/s x ceil(9.1 ms) = 10, refused above 10.
  ticks.cpu(0.90).run(50);
  EXPECT_EQ(ticks.decision.connections_max, 11U);
  EXPECT_EQ(ticks.decision.state, State::kShedding);
  EXPECT_EQ(ticks.decision.why, "four_layer: BBR limits what is in flight");
  EXPECT_EQ(ticks.admit(), 1.0);
}

TEST(FourLayer, LimitsInFlightForMemory) {
  const auto law = make_strategy("four_layer", warm());
  Ticks ticks(*law);
  ticks.traffic(100, 30, 100, 0.010).cpu(0.3).memory(0.84).run(10);
  EXPECT_EQ(ticks.decision.connections_max, 1000U);
  ticks.memory(0.85).run();
  EXPECT_EQ(ticks.decision.connections_max, 11U);
}

TEST(FourLayer, StaysInForceForOneSecondAfterTheLastRefusal) {
  const auto law = make_strategy("four_layer", warm());
  Ticks ticks(*law);
  ticks.traffic(100, 30, 100, 0.010).cpu(0.3).memory(0.9).run(10);
  ticks.memory(0.5).run(10);
  EXPECT_EQ(ticks.decision.connections_max, 11U) << "1.0 s";
  ticks.run();
  EXPECT_EQ(ticks.decision.connections_max, 1000U) << "1.1 s";
}

TEST(FourLayer, LearnsTheKneeOfTheResponseTime) {
  const auto law = make_strategy("four_layer", warm());
  Ticks ticks(*law);
  EXPECT_EQ(law->thresholds()[0].value, 0.80);
  ticks.traffic(50, 3, 50, 0.010).cpu(0.42).run(60);
  ticks.traffic(50, 3, 50, 0.014).cpu(0.57).run(100);
  EXPECT_EQ(law->thresholds()[0].value, 0.80) << "14 ms is not half above 10 ms";
  // One busy tick lifts the mean of 5 s from 0.57 to 0.6026, so that it skips the rest of its step.
  ticks.traffic(50, 3, 50, 0.022).cpu(2.2).run();
  ticks.cpu(0.62).run(120);
  EXPECT_EQ(law->thresholds()[0].value, 0.60) << "22 ms is";
  EXPECT_EQ(ticks.decision.connections_max, 12U) << "500/s x 22 ms: in force from there on";
}

TEST(FourLayer, KeepsAKneeOutOfTheMedianOfItsTicks) {
  // One dear request in a hundred: every second tick its p99 is ten times the other's.
  const auto law = make_strategy("four_layer", warm());
  Ticks ticks(*law);
  for (int i = 0; i < 60; ++i) {
    ticks.traffic(50, 3, 50, i % 2 == 0 ? 0.010 : 0.100).cpu(0.42).run();
  }
  for (int i = 0; i < 120; ++i) {
    ticks.traffic(50, 3, 50, i % 3 == 0 ? 0.100 : 0.010).cpu(0.52).run();
  }
  EXPECT_EQ(law->thresholds()[0].value, 0.80);
}

TEST(FourLayer, StartsSlowlyAgainWhenTheProcessIsNew) {
  const auto law = make_strategy("four_layer");
  Signals signals;
  signals.at = Instant(std::chrono::seconds(1000));
  signals.interval = milliseconds(100);
  signals.cpu = signals.cpu_fast = signals.cpu_slow = Ratio{0.25};
  std::array<EndpointInput, 1> endpoints;
  endpoints[0].activity = {.offered = 50,
                           .admitted = 50,
                           .in_flight = 5,
                           .in_flight_known = true,
                           .responses = 50,
                           .response_s_sum = 0.5,
                           .response_s_min = 0.01,
                           .response_s_p99 = 0.01,
                           .responses_known = true};
  Decision out;
  out.endpoints.resize(1);
  const auto run = [&](bool restarted) {
    signals.at += signals.interval;
    out.reset();
    law->decide({.signals = signals, .endpoints = endpoints, .restarted = restarted}, out);
  };
  for (int i = 0; i < 301; ++i) run(false);
  ASSERT_EQ(out.endpoints[0].rate_per_s, 0);
  run(true);
  EXPECT_NEAR(out.endpoints[0].rate_per_s, 200, 1e-9);
}

TEST(FourLayer, AdmitsEverythingWhereItDoesNotKnow) {
  const auto law = make_strategy("four_layer");
  Ticks ticks(*law);
  ticks.traffic(500, 5000, 100, 0.010).cpu_unknown().memory(0.99).run(10);
  EXPECT_EQ(ticks.decision.state, State::kUnknown);
  EXPECT_EQ(ticks.decision.connections_max, 0U);
  EXPECT_EQ(rate(ticks), 0);
  ticks.cpu(1);
  ticks.endpoints[0].activity.responses_known = false;
  ticks.run(10);
  EXPECT_EQ(ticks.decision.state, State::kUnknown);
  EXPECT_EQ(rate(ticks), 0);
}

TEST(FourLayer, DoesNotStartSlowlyAfterAnUpgradeOfTheAgent) {
  const auto law = make_strategy("four_layer");
  Ticks ticks(*law);
  ticks.traffic(50, 5, 50, 0.010).cpu(0.25).run(301);
  std::array<std::byte, 64> bytes{};
  const std::size_t used = law->save(bytes);
  const auto next = make_strategy("four_layer");
  ASSERT_TRUE(next->restore(std::span(bytes).first(used)));
  Ticks after(*next);
  after.traffic(50, 5, 50, 0.010).cpu(0.25).run();
  EXPECT_EQ(rate(after), 0);
  EXPECT_EQ(internal(*next, "capacity_per_s"), 2000);
}

}  // namespace
}  // namespace headgate
