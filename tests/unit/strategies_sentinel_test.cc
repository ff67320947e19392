// SPDX-License-Identifier: Apache-2.0
// Numbers by hand from SystemRuleManager (github.com/alibaba/Sentinel at 0c41dae).
#include <gtest/gtest.h>

#include "strategy_harness.h"

namespace headgate {
namespace {

using std::chrono::milliseconds;
using test::make_strategy;
using test::Ticks;

Params of(std::initializer_list<std::pair<const std::string, double>> numbers) {
  Params params;
  for (const auto& [name, value] : numbers) params.numbers[name] = value;
  return params;
}

TEST(Sentinel, LimitsInFlightWhileTheCpuIsAboveItsLine) {
  const auto law = make_strategy("sentinel");
  Ticks ticks(*law);
  // 80 answers in 100 ms at 10 ms: 800/s x 10 ms = 8; refused above 8.
  ticks.traffic(80, 30, 80, 0.010).cpu(0.89).run(10);
  EXPECT_EQ(ticks.decision.connections_max, 0U);
  EXPECT_EQ(ticks.decision.state, State::kNormal);
  ticks.cpu(0.95).run(10);
  EXPECT_EQ(ticks.decision.connections_max, 9U);
  EXPECT_EQ(ticks.decision.state, State::kShedding);
  EXPECT_EQ(ticks.admit(), 1.0);
}

TEST(Sentinel, TakesTheMostCompletionsAndTheLeastResponseOfASecond) {
  const auto law = make_strategy("sentinel");
  Ticks ticks(*law);
  ticks.traffic(100, 30, 100, 0.020).cpu(0.95).run(5);  // 1000/s
  ticks.traffic(40, 30, 40, 0.050).run(5);              // 400/s
  EXPECT_EQ(ticks.decision.connections_max, 21U);       // 1000 x 20 ms, and the one that comes
  ticks.run(6);                                         // the good half second is over a second old
  EXPECT_EQ(ticks.decision.connections_max, 21U) << "400 x 50 ms = 20";
  ticks.traffic(40, 30, 40, 0.100).run(12);
  EXPECT_EQ(ticks.decision.connections_max, 41U) << "a second of queueing raises it: 400 x 100 ms";
}

TEST(Sentinel, AlwaysLetsTwoBeInFlight) {
  const auto law = make_strategy("sentinel");
  Ticks ticks(*law);
  ticks.traffic(1, 5, 1, 0.001).cpu(1).run(10);  // 10/s x 1 ms: the rule asks for more than one
  EXPECT_EQ(ticks.decision.connections_max, 2U);
}

TEST(Sentinel, GoesByLoad1Too) {
  const auto law = make_strategy("sentinel", of({{"load1", 10}, {"cpu", 0}}));
  Ticks ticks(*law);
  ticks.traffic(80, 30, 80, 0.010).cpu(1.0).run(10);
  EXPECT_EQ(ticks.decision.connections_max, 0U) << "load1 is not known";
  ticks.signals.load1 = 10.0;
  ticks.run();
  EXPECT_EQ(ticks.decision.connections_max, 0U) << "not above it";
  ticks.signals.load1 = 10.1;
  ticks.run();
  EXPECT_EQ(ticks.decision.connections_max, 9U);
}

TEST(Sentinel, RefusesAllButTheProbeWhileResponsesAreSlow) {
  const auto law = make_strategy("sentinel", of({{"response", 0.2}}));
  Ticks ticks(*law);
  ticks.traffic(10, 3, 10, 0.2).cpu(0.3).run(10);
  EXPECT_FALSE(ticks.decision.circuit_open) << "at the line";
  ticks.traffic(10, 3, 10, 0.3).run(5);  // half of the second at 0.3: mean 0.25
  EXPECT_TRUE(ticks.decision.circuit_open);
  EXPECT_EQ(ticks.decision.state, State::kOpen);
  EXPECT_EQ(ticks.admit(), 0.0);
  EXPECT_TRUE(ticks.decision.endpoints[0].probe);
  ticks.traffic(0, 0).run(16);  // nothing has ended for longer than a second
  EXPECT_FALSE(ticks.decision.circuit_open);
  EXPECT_EQ(ticks.admit(), 1.0);
}

TEST(Sentinel, CapsConnections) {
  const auto law = make_strategy("sentinel", of({{"connections", 50}}));
  Ticks ticks(*law);
  ticks.traffic(10, 49).cpu(0.3).run();
  EXPECT_EQ(ticks.decision.connections_max, 50U);
  EXPECT_EQ(ticks.decision.state, State::kNormal);
  ticks.traffic(10, 50).run();
  EXPECT_EQ(ticks.decision.state, State::kShedding);
  EXPECT_EQ(ticks.decision.why, "sentinel: more live connections than connections");
}

TEST(Sentinel, TakesTheSmallerOfTwoCaps) {
  const auto law = make_strategy("sentinel", of({{"connections", 5}}));
  Ticks ticks(*law);
  ticks.traffic(80, 30, 80, 0.010).cpu(1).run(10);
  EXPECT_EQ(ticks.decision.connections_max, 5U);
}

TEST(Sentinel, CapsQps) {
  const auto law = make_strategy("sentinel", of({{"qps", 200}}));
  Ticks ticks(*law);
  ticks.traffic(50, 3).refused(30).cpu(0.3).run();
  EXPECT_DOUBLE_EQ(ticks.decision.endpoints[0].rate_per_s, 200);
  EXPECT_EQ(ticks.decision.why, "sentinel: more attempts than qps");
  EXPECT_EQ(ticks.decision.state, State::kShedding);
}

TEST(Sentinel, NamesTheFirstRuleThatIsHit) {
  const auto law = make_strategy("sentinel", of({{"qps", 200}, {"connections", 5}}));
  Ticks ticks(*law);
  ticks.traffic(50, 10).cpu(0.3).run();
  EXPECT_EQ(ticks.decision.why, "sentinel: more live connections than connections");
  ticks.refused(30).run();
  EXPECT_EQ(ticks.decision.why, "sentinel: more attempts than qps") << "both are hit";
}

TEST(Sentinel, AdmitsEverythingWhereItDoesNotKnow) {
  const auto law = make_strategy("sentinel");
  Ticks ticks(*law);
  ticks.traffic(80, 500, 80, 0.010).cpu(1);
  ticks.endpoints[0].activity.responses_known = false;
  ticks.run(20);
  EXPECT_EQ(ticks.decision.connections_max, 0U);
  EXPECT_EQ(ticks.decision.state, State::kUnknown);
  ticks.traffic(80, 500, 80, 0.010).cpu_unknown().run(20);
  EXPECT_EQ(ticks.decision.connections_max, 0U);
  EXPECT_EQ(ticks.admit(), 1.0);
}

}  // namespace
}  // namespace headgate
