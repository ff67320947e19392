// SPDX-License-Identifier: Apache-2.0
// The kernel's verdict and published words within the simulator, and the driver around them.
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "agent/sim/baselines.h"
#include "agent/sim/kernel_gate.h"
#include "agent/sim/simulate.h"
#include "agent/sim/strategy_guard.h"
#include "agent/strategies/registry.h"

namespace headgate::sim {
namespace {

constexpr Duration kLease = std::chrono::seconds(60);

Decision decision_for(std::size_t endpoints) {
  Decision decision;
  decision.endpoints.resize(endpoints);
  for (EndpointDecision& e : decision.endpoints) e.probe = false;
  return decision;
}

int admitted(KernelGate& gate, int attempts, double gap_s, double size_kb = 0, double from_s = 0) {
  int count = 0;
  for (int i = 0; i < attempts; ++i) {
    count += gate.admits({0, size_kb, from_s + i * gap_s}) ? 1 : 0;
  }
  return count;
}

TEST(SimKernelGate, AdmitsAllBeforeAndWithoutADecisionThatRefuses) {
  KernelGate gate(1);
  EXPECT_EQ(admitted(gate, 100, 0.001), 100);
  gate.publish(decision_for(1), 0, kLease);
  EXPECT_EQ(admitted(gate, 100, 0.001), 100);
}

TEST(SimKernelGate, ShareIsExact) {
  KernelGate gate(1);
  Decision decision = decision_for(1);
  decision.endpoints[0].admit = Probability::admitting(0.25);
  decision.endpoints[0].reason = HEADGATE_REASON_SHARE;
  gate.publish(decision, 0, kLease);
  EXPECT_NEAR(admitted(gate, 1000, 0.001), 250, 1);
}

/// 2 ms of bucket time a request and 3 more a kB: 10 kB cost 32 ms, so in 10 s 312 come in, and
/// the burst of the depth.
TEST(SimKernelGate, BudgetChargesRequestsAndKilobytes) {
  KernelGate gate(1);
  Decision decision = decision_for(1);
  decision.endpoints[0].charge_request_s = 0.002;
  decision.endpoints[0].charge_kb_s = 0.003;
  decision.endpoints[0].depth_s = 0.05;
  EXPECT_TRUE(gate.admits({0, 10, 0}));  // a size has been seen: debts are bounded with it
  gate.publish(decision, 0, kLease);
  EXPECT_NEAR(admitted(gate, 10'000, 0.001, 10), 10 / 0.032, 3);
}

/// The debt is a time. What one request of 10 kB owes at a hundredth of the rate would shut the
/// faster bucket for 9 s; it may owe the depth and one charge.
TEST(SimKernelGate, ADebtOfASlowBucketDoesNotShutAFastOne) {
  KernelGate gate(1);
  Decision decision = decision_for(1);
  decision.endpoints[0].charge_kb_s = 1;
  decision.endpoints[0].depth_s = 0.05;
  gate.publish(decision, 0, kLease);
  EXPECT_TRUE(gate.admits({0, 10, 0})) << "the largest so far, charged in full";
  EXPECT_FALSE(gate.admits({0, 10, 9}));
  decision.endpoints[0].charge_kb_s = 0.01;
  gate.publish(decision, 1, kLease);
  EXPECT_FALSE(gate.admits({0, 10, 1}));
  EXPECT_TRUE(gate.admits({0, 10, 1.11}));
}

TEST(SimKernelGate, ARequestLargerThanAnyBeforeIsChargedInFull) {
  KernelGate gate(1);
  Decision decision = decision_for(1);
  decision.endpoints[0].charge_kb_s = 0.01;
  decision.endpoints[0].depth_s = 0.05;
  EXPECT_TRUE(gate.admits({0, 1, 0}));
  gate.publish(decision, 0, kLease);
  EXPECT_TRUE(gate.admits({0, 100, 0}));
  EXPECT_FALSE(gate.admits({0, 1, 0.9}));
  EXPECT_TRUE(gate.admits({0, 1, 0.96}));
}

TEST(SimKernelGate, ConnectionsAreCappedByWhatIsInFlight) {
  KernelGate gate(2);
  Decision decision = decision_for(2);
  decision.endpoints[0].connections_max = 5;
  gate.publish(decision, 0, kLease);
  const std::vector<double> few{4, 100};
  gate.see_load({few, 0});
  EXPECT_TRUE(gate.admits({0, 0, 0}));
  const std::vector<double> enough{5, 100};
  gate.see_load({enough, 0});
  EXPECT_FALSE(gate.admits({0, 0, 0}));
  EXPECT_TRUE(gate.admits({1, 0, 0}));
}

TEST(SimKernelGate, LiveBytesAreCapped) {
  KernelGate gate(1);
  Decision decision = decision_for(1);
  decision.live_bytes_max = 1000;
  gate.publish(decision, 0, kLease);
  const std::vector<double> one{1};
  gate.see_load({one, 999});
  EXPECT_TRUE(gate.admits({0, 0, 0}));
  gate.see_load({one, 1000});
  EXPECT_FALSE(gate.admits({0, 0, 0}));
}

TEST(SimKernelGate, OpensWhenTheLeaseRunsOut) {
  KernelGate gate(1);
  Decision decision = decision_for(1);
  decision.circuit_open = true;
  gate.publish(decision, 0, std::chrono::seconds(1));
  EXPECT_FALSE(gate.admits({0, 0, 0.5}));
  EXPECT_TRUE(gate.admits({0, 0, 1.5}));
}

/// Writes down what it is shown, and admits all.
struct Recorder final : Guard {
  std::vector<Observation> seen;
  std::vector<double> at_s;
  bool admits(const Attempt& /*attempt*/) override { return true; }
  void observe(const Observation& observation, double now_s) override {
    seen.push_back(observation);
    at_s.push_back(now_s);
  }
};

TEST(SimDriver, ObservationsAreWhatTheKernelWouldShow) {
  const Scenario* s = find_scenario("S0-seed");
  Recorder guard;
  (void)simulate(*s, guard, {});
  ASSERT_EQ(guard.seen.size(), 1199U);  // the last one is not delivered any more
  EXPECT_NEAR(guard.at_s[0], 0.11, 1e-9);
  const Observation& first = guard.seen[0];
  EXPECT_NEAR(first.at_s, 0.1, 1e-9);
  ASSERT_TRUE(first.signals.cpu.known());
  EXPECT_NEAR((*first.signals.cpu).value, 0.5, 0.05);  // noise
  EXPECT_EQ(first.signals.periods.value_or(99), 1U);
  EXPECT_EQ(first.signals.throttled_periods.value_or(99), 0U);
  EXPECT_NEAR((*first.signals.memory).value, 150.0 / 512, 0.001);
  EXPECT_EQ(first.signals.capacity_cores, 2);
  EXPECT_EQ(first.endpoints[0].offered, 50U);
  EXPECT_EQ(first.endpoints[0].admitted, 50U);
  EXPECT_NEAR(static_cast<double>(first.endpoints[0].admitted_bytes), 500 * 1024, 1);
  EXPECT_TRUE(first.endpoints[0].in_flight_known);
  EXPECT_NEAR(static_cast<double>(first.endpoints[0].closed), 50, 1);
  EXPECT_NEAR(first.endpoints[0].response_s_sum / static_cast<double>(first.endpoints[0].responses),
              0.002, 1e-4);
  // Overloaded and not protected: the quota is used up in every period, and work waits.
  const Observation& late = guard.seen[400];
  EXPECT_NEAR((*late.signals.cpu).value, 1, 0.1);
  EXPECT_EQ(late.signals.throttled_periods.value_or(0), late.signals.periods.value_or(9));
  EXPECT_GT((*late.signals.cpu_pressure).value, 0.99);
  EXPECT_GT(late.endpoints[0].in_flight, 10'000U);
}

TEST(SimDriver, EarlyAnswersHideWhatIsInFlight) {
  Recorder guard;
  (void)simulate(*find_scenario("ASYNC-B5"), guard, {});
  for (const Observation& o : guard.seen) {
    EXPECT_LE(o.endpoints[0].in_flight, 4U);
    EXPECT_EQ(o.endpoints[0].closed, o.endpoints[0].admitted);
  }
}

TEST(SimDriver, LongConnectionsAreSeenAndTheirRequestsAreNot) {
  Recorder guard;
  (void)simulate(*find_scenario("CONNnew"), guard, {});
  EXPECT_NEAR(static_cast<double>(guard.seen[0].endpoints[0].in_flight), 60, 3);
  const Observation& late = guard.seen[700];
  EXPECT_GT(late.endpoints[0].in_flight, 150U);
  EXPECT_FALSE(late.endpoints[0].sizes_known);
  EXPECT_FALSE(late.endpoints[0].responses_known);
  std::uint64_t came = 0;
  std::uint64_t left = 0;
  for (std::size_t i = 0; i <= 700; ++i) {
    came += guard.seen[i].endpoints[0].established;
    left += guard.seen[i].endpoints[0].closed;
  }
  EXPECT_EQ(60 + came - left, late.endpoints[0].in_flight);
}

TEST(SimDriver, KillsAreARestart) {
  Recorder guard;
  const Outcome outcome = simulate(*find_scenario("MEMstall"), guard, {});
  std::uint64_t kills = 0;
  int restarts = 0;
  for (const Observation& o : guard.seen) {
    kills += o.signals.oom_kills.value_or(0);
    restarts += o.restarted ? 1 : 0;
  }
  EXPECT_EQ(outcome.metrics.oom_kills, 2);
  EXPECT_EQ(kills, 2U);
  EXPECT_EQ(restarts, 2);
}

TEST(SimDriver, SameSeedSameOutcomeOtherSeedOther) {
  const auto run = [](std::uint64_t seed) {
    const StrategyInfo* graded = find_strategy("graded");
    const Scenario* s = find_scenario("RETRY3");
    StrategyGuard guard(graded->make({}), *s, {});
    return simulate(*s, guard, {.seed = seed}).metrics;
  };
  const Metrics once = run(1);
  const Metrics again = run(1);
  const Metrics other = run(2);
  EXPECT_EQ(once.goodput, again.goodput);
  EXPECT_EQ(once.peak_backlog_s, again.peak_backlog_s);
  EXPECT_EQ(once.total_variation, again.total_variation);
  EXPECT_NE(once.goodput, other.goodput);
}

/// The one strategy whose effect is known beforehand.
TEST(SimDriver, FixedShareIsAdmitted) {
  const StrategyInfo* fixed = find_strategy("fixed");
  const Scenario* s = find_scenario("B10");
  Params params;
  params.numbers["admit"] = 0.3;
  StrategyGuard guard(fixed->make(params), *s, {});
  const Outcome outcome = simulate(*s, guard, {.keeps_windows = true, .keeps_ticks = true});
  EXPECT_NEAR(1 - outcome.metrics.refused_share, 0.3, 0.005);
  EXPECT_EQ(outcome.windows.size(), 600U);
  ASSERT_EQ(outcome.ticks.size(), 599U);
  EXPECT_EQ(outcome.ticks[0].decision.endpoints[0].admit, Probability::admitting(0.3));
}

}  // namespace
}  // namespace headgate::sim
