// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "strategy_harness.h"

namespace headgate {
namespace {

using test::make_strategy;
using test::Ticks;

Params of(double limit) {
  Params params;
  params.numbers["limit"] = limit;
  return params;
}

TEST(Concurrency, CapsTheConnectionsOfTheTarget) {
  const auto law = make_strategy("concurrency", of(40));
  Ticks ticks(*law, 2);
  ticks.traffic(10, 20).traffic(10, 19, 0, 0, 1).cpu(0.1).run();
  EXPECT_EQ(ticks.decision.connections_max, 40U);
  EXPECT_EQ(ticks.decision.state, State::kNormal);
  EXPECT_EQ(ticks.admit(), 1.0);
  ticks.traffic(10, 20, 0, 0, 1).run();  // 20 + 20
  EXPECT_EQ(ticks.decision.connections_max, 40U);
  EXPECT_EQ(ticks.decision.state, State::kShedding);
}

TEST(Concurrency, IsTheSameWithoutCpuAndWithoutTraffic) {
  const auto law = make_strategy("concurrency", of(40));
  Ticks ticks(*law);
  ticks.traffic(0, 0).cpu_unknown().tick(std::chrono::milliseconds(500)).run();
  EXPECT_EQ(ticks.decision.connections_max, 40U);
  EXPECT_EQ(ticks.decision.state, State::kNormal);
}

TEST(Concurrency, AdmitsEverythingWhereConnectionsAreNotCounted) {
  const auto law = make_strategy("concurrency", of(1));
  Ticks ticks(*law);
  ticks.traffic(1000, 1000).endpoints[0].activity.in_flight_known = false;
  ticks.cpu(2).run();
  EXPECT_EQ(ticks.decision.connections_max, 0U);
  EXPECT_EQ(ticks.decision.state, State::kUnknown);
  EXPECT_FALSE(ticks.decision.why.empty());
}

TEST(Concurrency, LetsOneUncountedEndpointMakeTheSumUnknown) {
  const auto law = make_strategy("concurrency", of(1));
  Ticks ticks(*law, 2);
  ticks.traffic(10, 10);  // the other one is TCP and not counted
  ticks.run();
  EXPECT_EQ(ticks.decision.state, State::kUnknown);
  ticks.endpoints[1].tcp = false;  // datagrams have no connections
  ticks.run();
  EXPECT_EQ(ticks.decision.connections_max, 1U);
}

TEST(Concurrency, RefusesNothingUntilItIsGivenALimit) {
  const auto law = make_strategy("concurrency");
  Ticks ticks(*law);
  ticks.traffic(1000, 100000).cpu(2).run();
  EXPECT_EQ(ticks.decision.connections_max, 0U);
  EXPECT_EQ(ticks.decision.state, State::kNormal);
}

}  // namespace
}  // namespace headgate
