// SPDX-License-Identifier: Apache-2.0
// The same seed draws the same numbers and the same scenario, for ever: published results hang on
// it.
#include <gtest/gtest.h>

#include "agent/sim/random.h"
#include "agent/sim/scenario.h"

namespace headgate::sim {
namespace {

TEST(SimRandom, NumbersOfASeedAreFixed) {
  Random one(1);
  EXPECT_EQ(one.next(), 0xf9d20113ec80c6d5U);
  EXPECT_EQ(one.next(), 0xd16e236e5cdc6563U);
  EXPECT_EQ(one.next(), 0x68a40f278366062aU);
  Random other(9000);
  EXPECT_EQ(other.next(), 0xb3bbad72b55d07b1U);
}

TEST(SimRandom, DistributionsOfASeedAreFixed) {
  Random random(1001);
  EXPECT_DOUBLE_EQ(random.uniform(), 0.46355700093698016);
  EXPECT_DOUBLE_EQ(random.exponential(), 0.89006238866943277);
  EXPECT_DOUBLE_EQ(random.normal(), -0.74374345645349305);
  EXPECT_EQ(random.poisson(3.5), 5);
  EXPECT_EQ(random.poisson(120), 138);
}

TEST(SimRandom, DistributionsHaveTheirMoments) {
  Random random(7);
  constexpr int kDraws = 100'000;
  double exponential = 0;
  double normal = 0;
  double normal_square = 0;
  double few = 0;
  double many = 0;
  for (int i = 0; i < kDraws; ++i) {
    exponential += random.exponential();
    const double n = random.normal();
    normal += n;
    normal_square += n * n;
    few += random.poisson(0.7);
    many += random.poisson(80);
  }
  EXPECT_NEAR(exponential / kDraws, 1, 0.015);
  EXPECT_NEAR(normal / kDraws, 0, 0.015);
  EXPECT_NEAR(normal_square / kDraws, 1, 0.02);
  EXPECT_NEAR(few / kDraws, 0.7, 0.015);
  EXPECT_NEAR(many / kDraws, 80, 0.15);
  EXPECT_EQ(random.poisson(0), 0);
  EXPECT_EQ(random.poisson(-1), 0);
}

TEST(SimScenario, RandomPodOfASeedIsFixed) {
  const Scenario first = random_scenario(9001);
  EXPECT_EQ(first.capacity_cores, 4);
  EXPECT_EQ(first.workers, 6U);
  EXPECT_EQ(first.tick_s, 0.5);
  EXPECT_NEAR(first.delay_s, 0.046, 0.0005);
  EXPECT_NEAR(first.endpoints[0].rate_per_s, 163, 0.5);
  EXPECT_NEAR(first.endpoints[0].rate.at(15), 11.1, 0.05);
  EXPECT_NEAR(first.endpoints[0].cost.at(29), 4.5, 0.05);
  EXPECT_EQ(first.endpoints[0].cost_per_kb_s, 0);  // blind
  EXPECT_EQ(first.retries, 3);
  EXPECT_TRUE(first.async_ack);
  const Scenario second = random_scenario(9002);
  EXPECT_EQ(second.tick_s, 0.1);
  EXPECT_NEAR(second.endpoints[0].rate_per_s, 838, 0.5);
  EXPECT_EQ(second.retries, 0);
}

TEST(SimScenario, NamesAreFoundAndUnique) {
  ASSERT_EQ(named_scenarios().size(), 49U);
  for (const Scenario& s : named_scenarios()) {
    EXPECT_EQ(find_scenario(s.name), &s);
    EXPECT_FALSE(s.doc.empty()) << s.name;
    EXPECT_GT(s.mean_cost_s(), 0) << s.name;
  }
  EXPECT_EQ(find_scenario("B11"), nullptr);
}

TEST(SimProfile, EachFormHasItsShape) {
  const Profile steps = Profile::Steps{1, {{20, 40, 5}, {30, 50, 7}}};
  EXPECT_EQ(steps.at(19.999), 1);
  EXPECT_EQ(steps.at(20), 5);
  EXPECT_EQ(steps.at(35), 5);  // the first one counts
  EXPECT_EQ(steps.at(40), 7);
  EXPECT_EQ(steps.at(50), 1);
  const Profile line = Profile::Line{{{10, 1}, {20, 3}}};
  EXPECT_EQ(line.at(0), 1);
  EXPECT_EQ(line.at(15), 2);
  EXPECT_EQ(line.at(20), 3);
  EXPECT_EQ(line.at(99), 3);
  const Profile sine = Profile::Sine{1.4, 1.1, 4};
  EXPECT_NEAR(sine.at(1), 2.5, 1e-12);
  EXPECT_NEAR(sine.at(3), 0.3, 1e-12);
  const Profile pulse = Profile::Pulse{1, 6, 10, 1, 10};
  EXPECT_EQ(pulse.at(0.5), 1);
  EXPECT_EQ(pulse.at(20.5), 6);
  EXPECT_EQ(pulse.at(21), 1);
}

}  // namespace
}  // namespace headgate::sim
