// SPDX-License-Identifier: Apache-2.0
// Numbers by hand from the definition of a token bucket (ITU-T I.371, annex A; RFC 2697).
#include <gtest/gtest.h>

#include "strategy_harness.h"

namespace headgate {
namespace {

using test::make_strategy;
using test::Ticks;

Params of(double rate, double burst) {
  Params params;
  params.numbers["rate"] = rate;
  params.numbers["burst"] = burst;
  return params;
}

TEST(TokenBucket, GivesItsRateAndBurstToTheOnlyEndpoint) {
  const auto law = make_strategy("token_bucket", of(100, 10));
  Ticks ticks(*law);
  ticks.traffic(/*offered=*/50, 0).cpu(0.1).run();
  EXPECT_DOUBLE_EQ(ticks.decision.endpoints[0].rate_per_s, 100);
  // Nine more than the first at 10 ms each: ten at once.
  EXPECT_DOUBLE_EQ(ticks.decision.endpoints[0].rate_burst_s, 0.09);
  EXPECT_EQ(ticks.admit(), 1.0) << "the rate refuses, not a coin";
  EXPECT_EQ(ticks.decision.state, State::kNormal);
}

TEST(TokenBucket, IsTheSameUnderAnyLoadAndWithoutSignals) {
  const auto law = make_strategy("token_bucket", of(100, 1));
  Ticks ticks(*law);
  for (const Duration tick : {std::chrono::milliseconds(100), std::chrono::milliseconds(500)}) {
    ticks.tick(tick).traffic(1000, 0).cpu_unknown().run();
    EXPECT_NEAR(ticks.decision.endpoints[0].rate_per_s, 100, 1e-9);
    EXPECT_DOUBLE_EQ(ticks.decision.endpoints[0].rate_burst_s, 0);
    ticks.traffic(0, 0).cpu(3).run(100);
    EXPECT_NEAR(ticks.decision.endpoints[0].rate_per_s, 100, 1e-9);
  }
}

TEST(TokenBucket, TakesWhatDoesNotFitFromTheLeastCritical) {
  // 80 and 60 attempts a second for 100: the 40 that are too many are the sheddable endpoint's.
  const auto law = make_strategy("token_bucket", of(100, 10));
  Ticks ticks(*law, 2);
  ticks.endpoints[0].criticality = Criticality::kCritical;
  ticks.endpoints[1].criticality = Criticality::kSheddable;
  ticks.traffic(8, 0).traffic(6, 0, 0, 0, /*endpoint=*/1).run();
  EXPECT_NEAR(ticks.decision.endpoints[0].rate_per_s, 80, 1e-9);
  EXPECT_NEAR(ticks.decision.endpoints[1].rate_per_s, 20, 1e-9);
  EXPECT_EQ(ticks.admit(0), 1.0);
  EXPECT_EQ(ticks.admit(1), 1.0);
}

TEST(TokenBucket, KeepsFloors) {
  // A floor of 0.5 leaves 30 of the 60; the critical one then gives 10.
  const auto law = make_strategy("token_bucket", of(100, 10));
  Ticks ticks(*law, 2);
  ticks.endpoints[1].criticality = Criticality::kSheddable;
  ticks.endpoints[1].floor = Probability::admitting(0.5);
  ticks.traffic(8, 0).traffic(6, 0, 0, 0, 1).run();
  EXPECT_NEAR(ticks.decision.endpoints[0].rate_per_s, 70, 1e-9);
  EXPECT_NEAR(ticks.decision.endpoints[1].rate_per_s, 30, 1e-9);
}

TEST(TokenBucket, LeavesTheSpareRateToEverybody) {
  // 30 and 20 attempts a second: half of the 50 to spare for each.
  const auto law = make_strategy("token_bucket", of(100, 10));
  Ticks ticks(*law, 2);
  ticks.traffic(3, 0).traffic(2, 0, 0, 0, 1).run();
  EXPECT_NEAR(ticks.decision.endpoints[0].rate_per_s, 55, 1e-9);
  EXPECT_NEAR(ticks.decision.endpoints[1].rate_per_s, 45, 1e-9);
}

TEST(TokenBucket, DoesNotShutAnEndpointThatHasNoDemandNow) {
  const auto law = make_strategy("token_bucket", of(100, 10));
  Ticks ticks(*law, 2);
  ticks.traffic(20, 0).traffic(0, 0, 0, 0, 1).run();
  EXPECT_NEAR(ticks.decision.endpoints[0].rate_per_s, 100, 1e-9);
  EXPECT_NEAR(ticks.decision.endpoints[1].rate_per_s, 0.5, 1e-9) << "0 would be no cap at all";
}

TEST(TokenBucket, SaysThatItRefuses) {
  const auto law = make_strategy("token_bucket", of(100, 10));
  Ticks ticks(*law);
  ticks.traffic(50, 0).refused(40).run();
  EXPECT_EQ(ticks.decision.state, State::kShedding);
  EXPECT_EQ(ticks.decision.why, "token_bucket: more attempts than rate");
}

TEST(TokenBucket, RefusesNothingUntilItIsGivenARate) {
  const auto law = make_strategy("token_bucket");
  Ticks ticks(*law);
  ticks.traffic(100000, 100000).cpu(2).run();
  EXPECT_EQ(ticks.decision.endpoints[0].rate_per_s, 0);
  EXPECT_EQ(ticks.decision.state, State::kNormal);
}

}  // namespace
}  // namespace headgate
