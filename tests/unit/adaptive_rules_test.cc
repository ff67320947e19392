// SPDX-License-Identifier: Apache-2.0
// The rules of adaptive one by one: what went wrong with laws of this kind, and what prevents it.
#include <array>
#include <cstring>

#include <gtest/gtest.h>

#include "headgate/bpf_abi.h"

#include "adaptive_records.h"

namespace headgate {
namespace {

constexpr double kCores = 2;
constexpr double kCost_s = 0.002;  // 100 requests a tick are the capacity

/// A target told tick by tick; the work of what came in is done in the same tick unless said.
class Target {
 public:
  explicit Target(const Params& params = {}, std::size_t endpoints = 1)
      : strategy(find_strategy("adaptive")->make(params)), inputs(endpoints) {
    signals.at = Instant(std::chrono::seconds(1000));
    signals.interval = std::chrono::milliseconds(100);
    signals.capacity_cores = kCores;
    signals.periods = std::uint64_t{1};
    signals.throttled_periods = std::uint64_t{0};
    signals.cpu_pressure = Ratio{0};
    signals.memory = Ratio{0.3};
    signals.memory_limit_bytes = std::uint64_t{512} << 20U;
    signals.memory_pressure = Ratio{0};
    signals.memory_limit_hits = std::uint64_t{0};
    signals.oom_kills = std::uint64_t{0};
    for (EndpointInput& input : inputs) input.activity.in_flight_known = true;
  }
  Target& cpu(double use, bool throttled = false) {
    signals.cpu = signals.cpu_fast = signals.cpu_slow = Ratio{use};
    signals.throttled_periods = std::uint64_t{throttled ? 1U : 0U};
    return *this;
  }
  Target& uncounted() {
    for (EndpointInput& input : inputs) input.activity.in_flight_known = false;
    return *this;
  }
  Target& traffic(std::uint64_t offered, std::uint64_t admitted, std::uint64_t closed,
                  std::uint64_t in_flight, std::size_t endpoint = 0) {
    EndpointActivity& activity = inputs[endpoint].activity;
    activity.offered = offered;
    activity.admitted = activity.established = admitted;
    activity.closed = closed;
    activity.in_flight = in_flight;
    return *this;
  }
  const Decision& run(int ticks = 1) {
    for (int i = 0; i < ticks; ++i) {
      signals.at += signals.interval;
      decision = Decision{};
      decision.endpoints.resize(inputs.size());
      strategy->decide({.signals = signals,
                        .endpoints = inputs,
                        .restarted = restarted,
                        .bucket_enforced = bucket_enforced},
                       decision);
      restarted = false;
    }
    return decision;
  }
  /// At `load` of the capacity for some seconds, arrivals a little uneven, everything served.
  Target& calm(double load = 0.6, int ticks = 60) {
    for (int i = 0; i < ticks; ++i) {
      const auto n = static_cast<std::uint64_t>(std::llround(100 * load)) +
                     static_cast<std::uint64_t>(i % 5) - 2;
      traffic(n, n, n, 1).cpu(static_cast<double>(n) * kCost_s / (kCores * 0.1)).run();
    }
    return *this;
  }
  [[nodiscard]] double internal(std::string_view name) const {
    for (const auto& value : strategy->internals()) {
      if (value.name == name) return value.value;
    }
    ADD_FAILURE() << "no internal " << name;
    return 0;
  }
  [[nodiscard]] double admit(std::size_t i = 0) const {
    return decision.endpoints[i].admit.value();
  }
  /// CPU-seconds that one attempt is charged.
  [[nodiscard]] double charged_s(std::size_t i = 0) const {
    return decision.endpoints[i].charge_request_s * internal("bucket_rate_cores");
  }
  /// The bucket of this decision, empty: how many of `n` attempts at one instant it lets in.
  [[nodiscard]] int lets_in_at_once(int n) const {
    const EndpointDecision& gate = decision.endpoints[0];
    double owed_s = 0;
    int admitted = 0;
    for (int i = 0; i < n; ++i) {
      if (gate.depth_s > 0 && owed_s > gate.depth_s) continue;
      owed_s += gate.charge_request_s;
      ++admitted;
    }
    return admitted;
  }

  std::unique_ptr<Strategy> strategy;
  Signals signals;
  std::vector<EndpointInput> inputs;
  Decision decision;
  bool restarted = false;
  bool bucket_enforced = true;
};

TEST(Adaptive, LearnsWhatARequestCosts) {
  Target target;
  target.calm();
  EXPECT_NEAR(target.charged_s(), kCost_s, 0.02 * kCost_s);
  EXPECT_NEAR(target.internal("base_cores"), 0, 0.01);
  EXPECT_EQ(target.decision.state, State::kNormal);
}

TEST(Adaptive, BelievesTheCostOfTheAdmittedNotThatRequestsAreFreeUnderRegulation) {
  Target target;
  target.calm();
  for (int i = 0; i < 600; ++i) {  // a minute at the target, usage constant whatever is admitted
    target.traffic(500, 90, 90, 2).cpu(0.9).run();
  }
  EXPECT_NEAR(target.charged_s(), kCost_s, 0.05 * kCost_s);
  EXPECT_LT(target.internal("base_cores"), 0.1);
}

TEST(Adaptive, CountsUsageAboveOneAndAThrottledPeriodAsSaturation) {
  Target target;
  target.uncounted().calm();
  for (int i = 0; i < 20; ++i) {  // sampling against the period: 0.8 and 1.2 in turn
    target.traffic(100, 100, 0, 0).cpu(i % 2 == 0 ? 0.8 : 1.2, true).run();
    EXPECT_EQ(target.internal("sat"), 1);
  }
  EXPECT_LT(target.internal("g"), 2.5) << "mass lost by clipping would have raised it";
}

TEST(Adaptive, AnIntervalWithoutAPeriodKeepsTheVerdict) {
  Target target;
  target.uncounted().calm();
  target.traffic(100, 100, 0, 0).cpu(0.9, true).run();
  ASSERT_EQ(target.internal("sat"), 1);
  target.signals.periods = target.signals.throttled_periods = std::uint64_t{0};
  target.run();
  EXPECT_EQ(target.internal("sat"), 1);
  target.signals.periods = target.signals.throttled_periods = Unknown::kAbsent;
  target.run();
  EXPECT_EQ(target.internal("sat"), 0) << "unknown is no evidence";
}

TEST(Adaptive, SearchesByDoublingForACostThatNothingElseTellsAndThenKnowsItExactly) {
  Target target;
  target.uncounted().calm(0.7);
  // ten times the cost, blind: 70 requests are 1.4 s of work, 0.2 s are done a tick
  target.traffic(70, 70, 0, 0).cpu(1.0, true);
  double before = 0;
  for (int i = 0; i < 6; ++i) {
    target.run();
    EXPECT_GE(target.internal("E"), before);
    before = target.internal("E");
    target.traffic(70, 0, 0, 0);
  }
  EXPECT_GE(before, 16);
  EXPECT_LT(target.admit() * 70 * kCost_s * 10, 0.2) << "less than the capacity comes in";
  target.cpu(0.5).run();  // 1.3 s done by now, 70 x 20 ms
  EXPECT_EQ(target.internal("E"), 1);
  EXPECT_NEAR(target.internal("g") * target.internal("c0_s"), 1.3 / 70, 0.1 * 1.3 / 70);
}

TEST(Adaptive, OneSaturatedIntervalOnlyArms) {
  Target target;
  target.uncounted().calm(0.7);
  target.traffic(70, 70, 70, 1).cpu(1.2).run();  // the garbage collector
  EXPECT_EQ(target.internal("E"), 1);
  EXPECT_EQ(target.admit(), 1);
  EXPECT_GT(target.lets_in_at_once(70), 40);
}

TEST(Adaptive, CompletionsTellTheCostInTheSecondTickWithoutASearch) {
  Target target;
  target.calm(0.7);
  target.traffic(70, 70, 10, 60).cpu(1.0, true).run();
  target.traffic(70, 70, 10, 120).run();
  EXPECT_EQ(target.internal("E"), 1);
  EXPECT_NEAR(target.charged_s(), 0.02, 0.006) << "0.4 s for 20 completions";
  EXPECT_LT(target.internal("W_cores"), 0.1) << "what waits is worked off first";
}

TEST(Adaptive, OneLongTickOfCompletionsIsEnough) {
  Target target;
  target.signals.interval = std::chrono::milliseconds(500);
  for (int i = 0; i < 40; ++i) {
    const auto n = static_cast<std::uint64_t>(350 + i % 5 - 2);
    target.traffic(n, n, n, 1).cpu(static_cast<double>(n) * kCost_s / kCores / 0.5).run();
  }
  target.traffic(350, 350, 100, 250).cpu(1.0, true).run();
  EXPECT_NEAR(target.charged_s(), 0.01, 0.001) << "1 s of work for 100 completions";
}

TEST(Adaptive, AServerThatAnswersBeforeItWorksIsSearchedFor) {
  Target target;
  target.calm(0.7);
  // acknowledged at once, the work is done later: nobody in flight, the CPU full
  for (int i = 0; i < 8; ++i) {
    const auto n = static_cast<std::uint64_t>(70 * target.admit());
    target.traffic(70, n, n, 0).cpu(1.0, true).run();
  }
  EXPECT_GE(target.internal("E"), 4);
}

TEST(Adaptive, TheWorkDoneCannotExceedTheWorkLetIn) {
  Target target;
  target.uncounted().calm(0.2);
  target.traffic(12, 12, 0, 0).cpu(1.0, true).run();  // 12 x 2 ms are expected, 200 ms done
  target.traffic(12, 12, 0, 0).cpu(1.0, true).run();
  EXPECT_GE(target.internal("g") * target.internal("c0_s"), 0.4 / 24 * 0.9);
}

TEST(Adaptive, ANearlyEmptyWindowTeachesNothingAndAdmissionGrowsBySteps) {
  Target target;
  target.uncounted().calm(0.7);
  const double before = target.internal("g");
  target.traffic(1000, 1, 0, 0).cpu(0.0).run(5);  // after a hard cut, before the first comes in
  EXPECT_GT(target.internal("g"), 0.9 * before);
  target.traffic(1000, 40, 0, 0).cpu(0.02).run();
  EXPECT_GE(target.internal("g"), 0.49 * before) << "at most doubled in one interval";
}

TEST(Adaptive, CapacityThatIsTakenAwayIsSeenByPressureAndWorkPending) {
  Target target;
  target.calm();
  target.signals.cpu_pressure = Ratio{0.95};
  for (std::uint64_t i = 1; i < 5; ++i) target.traffic(60, 60, 20, 40 * i).cpu(0.2).run();
  EXPECT_LT(target.internal("capacity_cores"), 0.3 * kCores);
  EXPECT_EQ(target.decision.state, State::kShedding);
}

TEST(Adaptive, CapacityThatIsTakenAwayIsSeenWithoutCountsByWorkNotDone) {
  Target target;
  target.uncounted().calm();
  target.signals.cpu_pressure = Ratio{0.95};
  for (int i = 0; i < 6; ++i) target.traffic(60, 60, 0, 0).cpu(0.2).run();
  EXPECT_LT(target.internal("capacity_cores"), 0.3 * kCores);
}

TEST(Adaptive, AQuotaUsedUpInEveryPeriodBelowTheCapacityIsASmallerCapacity) {
  Target target;
  target.calm();
  target.signals.cpu_pressure = Ratio{0.95};
  target.traffic(30, 30, 30, 1).cpu(0.5, true).run(4);  // nobody waits: it answers at once
  EXPECT_NEAR(target.internal("capacity_cores"), 0.5 * kCores, 0.05);
}

TEST(Adaptive, ManyInFlightUnderAFullCpuWaitWhateverWasConcludedBefore) {
  Target target;
  target.calm(0.7);
  for (int i = 0; i < 8; ++i) target.traffic(70, 70, 70, 0).cpu(1.0, true).run();
  ASSERT_GE(target.internal("E"), 4) << "taken for a server that answers before it works";
  for (std::uint64_t i = 1; i < 5; ++i) target.traffic(70, 70, 20, 50 * i).run();
  EXPECT_EQ(target.internal("E"), 1) << "completions count again";
  EXPECT_GT(target.internal("Bhat_cpus"), 0);
}

TEST(Adaptive, WorkThatHasWaitedForLongIsNotNobodyWaiting) {
  Target target;
  target.calm(0.7);
  target.signals.cpu_pressure = Ratio{1};
  // By the model 0.95 of what the CPU does: not little enough to tell by itself.
  for (int i = 0; i < 3; ++i) target.traffic(95, 95, 95, 0).cpu(1.0, true).run();
  EXPECT_EQ(target.internal("sat"), 1);
}

/// Completions say 13 % more than the model: too little for half a second to tell, and enough to
/// keep a backlog for good.
TEST(Adaptive, ASmallErrorUnderLastingSaturationIsCorrected) {
  Target target;
  target.calm(0.7);
  for (int i = 0; i < 20; ++i) target.traffic(100, 30, 30, 40).cpu(0.6, true).run();
  ASSERT_NEAR(target.charged_s(), 0.6 * 0.2 / 30, 1e-4);
  for (int i = 0; i < 40; ++i) target.traffic(100, 30, 30, 40).cpu(0.68, true).run();
  EXPECT_NEAR(target.charged_s(), 0.68 * 0.2 / 30, 0.06 * 0.68 * 0.2 / 30);
}

TEST(Adaptive, PressureAloneTakesNothing) {
  for (const bool counted : {true, false}) {
    Target target;
    if (!counted) target.uncounted();
    target.calm();
    target.signals.cpu_pressure = Ratio{0.95};
    for (int i = 0; i < 50; ++i) {
      target.traffic(60, 60, 60, 1).cpu(0.6).run();
      ASSERT_EQ(target.internal("capacity_cores"), kCores) << "everything is done in time";
      ASSERT_EQ(target.admit(), 1);
    }
  }
}

TEST(Adaptive, ARequestLargerThanTheBucketIsNotStarved) {
  Target target;
  for (int i = 0; i < 40; ++i) target.traffic(1, 1, 1, 0).cpu(0.6).run();  // 0.12 s each
  for (int i = 0; i < 40; ++i) target.traffic(20, 2, 2, 0).cpu(0.9).run();
  const EndpointDecision& gate = target.decision.endpoints[0];
  EXPECT_GE(gate.depth_s, 3 * gate.charge_request_s * 0.999);
}

TEST(Adaptive, TheBucketHoldsABurstBetweenTicksWhileTheStateIsNormal) {
  Target target;
  target.calm();
  ASSERT_EQ(target.decision.state, State::kNormal);
  const int in = target.lets_in_at_once(5000);
  EXPECT_LT(in * kCost_s, 0.11 * kCores) << "x50 in one instant: a tenth of a second of work";
  EXPECT_GE(in, 14) << "chance brings that many at three quarters of the capacity";
}

TEST(Adaptive, OneEndpointIsRefusedByTheBucketAlone) {
  Target target;
  target.calm();
  target.traffic(1000, 90, 90, 2).cpu(0.9).run(10);
  EXPECT_EQ(target.decision.state, State::kShedding);
  EXPECT_EQ(target.admit(), 1) << "no coin, no share: the bucket counts";
  EXPECT_NEAR(target.internal("bucket_rate_cores"), 1.05 * 0.9 * kCores, 0.02);
  target.bucket_enforced = false;
  target.run();
  EXPECT_NEAR(target.admit(), 0.09, 0.02) << "where no hook charges it, a share must do";
}

TEST(Adaptive, TheLeastCriticalGivesFirstAndFloorsHold) {
  Target target({}, 4);
  const std::array<double, 4> floors{0, 0.2, 0.5, 0.8};
  for (std::size_t i = 0; i < 4; ++i) {
    target.inputs[i].criticality = static_cast<Criticality>(i);
    target.inputs[i].floor = Probability::refusing(floors[i]);
  }
  for (int t = 0; t < 60; ++t) {
    for (std::size_t i = 0; i < 4; ++i) target.traffic(15, 15, 15, 0, i);
    target.cpu(0.6).run();
  }
  for (int t = 0; t < 10; ++t) {
    for (std::size_t i = 0; i < 4; ++i) target.traffic(45, 22, 22, 0, i);
    target.cpu(0.9).run();
  }
  EXPECT_EQ(target.admit(0), 0.01) << "the probe";
  EXPECT_NEAR(target.admit(1), 0.2, 0.01) << "its floor";
  // 180 are offered, 90 fit; 45 and 36 have been given
  EXPECT_NEAR(target.admit(2), 1 - 9 / 45.0, 0.03);
  EXPECT_EQ(target.admit(3), 1);
  EXPECT_GT(target.decision.endpoints[3].depth_s, 2 * target.decision.endpoints[0].depth_s);
}

TEST(Adaptive, AServerThatIsDownDoesNotTeachThatRequestsAreFree) {
  Target target;
  target.calm();
  for (int i = 0; i < 20; ++i) {  // admitted, but nothing listens: no connection is established
    target.traffic(60, 60, 0, 0);
    target.inputs[0].activity.established = 0;
    target.cpu(0.0).run();
  }
  EXPECT_NEAR(target.charged_s(), kCost_s, 0.05 * kCost_s);
}

TEST(Adaptive, TheCostIsKeptOverIdleTimes) {
  Target target;
  target.calm();
  target.traffic(0, 0, 0, 0).cpu(0.001).run(6000);
  EXPECT_NEAR(target.charged_s(), kCost_s, 0.05 * kCost_s);
}

TEST(Adaptive, BytesAtCloseTellThatRequestsHaveGrown) {
  Target target;
  for (int i = 0; i < 100; ++i) {
    const auto kb = static_cast<std::uint64_t>(4 + i % 3);
    target.traffic(60, 60, 60, 1);
    target.inputs[0].activity.received_bytes = 60 * kb * 1024;
    target.cpu(60 * (0.0005 + 0.0003 * static_cast<double>(kb)) / (kCores * 0.1)).run();
  }
  const double before = target.charged_s();
  target.traffic(60, 60, 60, 1);
  target.inputs[0].activity.received_bytes = 60ULL * 50 * 1024;
  target.cpu(0.9).run();
  EXPECT_GT(target.charged_s(), 5 * before) << "in the tick in which the first big ones close";
}

TEST(Adaptive, DatagramsAreChargedBySizeAndLearnedFromWhatWasAdmitted) {
  Target target;
  target.uncounted();
  target.inputs[0].tcp = false;
  for (int i = 0; i < 100; ++i) {
    const auto kb = static_cast<std::uint64_t>(1 + i % 4);
    target.traffic(200, 200, 0, 0);
    target.inputs[0].activity.established = 0;
    target.inputs[0].activity.sizes_known = true;
    target.inputs[0].activity.offered_bytes = target.inputs[0].activity.admitted_bytes =
        200 * kb * 1024;
    target.cpu(200 * (0.0001 + 0.0001 * static_cast<double>(kb)) / (kCores * 0.1)).run();
  }
  const EndpointDecision& gate = target.decision.endpoints[0];
  const double rate = target.internal("bucket_rate_cores");
  EXPECT_NEAR(gate.charge_request_s * rate, 1e-4, 2e-5);
  EXPECT_NEAR(gate.charge_kb_s * rate, 1e-4, 2e-5);
}

TEST(Adaptive, KeptConnectionsAreCappedByCountBeforeTheLoadComes) {
  Target target;
  for (int i = 0; i < 200; ++i) {  // 50 live ones, each a hundredth of a core, few come and go
    target.traffic(1, 1, i % 2 == 0 ? 1 : 0, 50).cpu(0.5 / kCores).run();
  }
  EXPECT_EQ(target.decision.state, State::kNormal);
  EXPECT_NEAR(static_cast<double>(target.decision.connections_max), 0.9 * kCores / 0.01, 20);
  EXPECT_EQ(target.admit(), 1);
  target.traffic(500, 130, 0, 180).cpu(0.9).run(40);
  EXPECT_EQ(target.decision.state, State::kShedding) << "as many as the budget carries";
}

TEST(Adaptive, TheGuardStandsFromTheStartAndIsLiftedSlowly) {
  for (const char* profile : {"default", "spec"}) {
    Params params = test::with_profile(profile);
    params.numbers["in_flight_guard"] = 0.05;
    Target target(params);
    target.traffic(1000, 1000, 0, 1000).cpu(1.0, true).run();
    EXPECT_EQ(target.decision.connections_max, 100U) << "0.1 CPU-s of the cost assumed";
    target.calm(0.6, 200);
    EXPECT_NEAR(static_cast<double>(target.decision.connections_max), 0.1 / kCost_s, 3);
    for (int i = 0; i < 5; ++i) target.traffic(60, 60, 60, 1).cpu(0.3).run();  // half the cost
    EXPECT_LT(target.decision.connections_max, 60U);
    target.run(200);
    EXPECT_NEAR(static_cast<double>(target.decision.connections_max), 0.2 / kCost_s, 6);
  }
}

TEST(Adaptive, WhatIsInServiceIsNoBacklog) {
  Target target;
  for (int i = 0; i < 400; ++i) target.traffic(60, 60, 60, 20).cpu(0.6).run();  // they wait for I/O
  EXPECT_NEAR(target.internal("workers"), 20, 1);
  EXPECT_EQ(target.internal("Bhat_cpus"), 0);
  EXPECT_EQ(target.internal("sat"), 0);
  EXPECT_EQ(target.decision.state, State::kNormal);
}

TEST(Adaptive, ADeathIsNotThousandsOfCompletions) {
  for (const bool by_kill : {true, false}) {
    Target target;
    target.calm();
    const double before = target.charged_s();
    if (by_kill) {
      target.signals.oom_kills = std::uint64_t{1};
    } else {
      target.restarted = true;
    }
    target.traffic(60, 0, 4000, 0).cpu(0.7).run();
    target.signals.oom_kills = std::uint64_t{0};
    target.traffic(60, 60, 60, 1).cpu(1.2, true).run(4);  // it starts: the CPU is full of that
    EXPECT_NEAR(target.charged_s(), before, 0.01 * before);
  }
}

TEST(Adaptive, AColdStartAtX10IsProtectedWithinASecond) {
  Target target;
  for (std::uint64_t i = 0; i < 10; ++i) {
    const auto n = static_cast<std::uint64_t>(
        1000 * std::min(1.0, target.decision.endpoints.empty() ? 1.0 : target.admit()));
    target.traffic(1000, n, 100, 900 * (i + 1)).cpu(1.0, true).run();
  }
  EXPECT_EQ(target.decision.state, State::kShedding);
  EXPECT_LE(target.lets_in_at_once(1000), 100);
  EXPECT_NEAR(target.charged_s(), kCost_s, 0.2 * kCost_s) << "completions count from the start";
}

TEST(Adaptive, LiveBytesAreBudgetedAndNeverToNothing) {
  Target target;
  target.signals.memory = Ratio{0.1};
  target.calm();
  const double limit = 512.0 * 1048576;
  EXPECT_NEAR(static_cast<double>(target.decision.live_bytes_max), (0.75 - 0.1) * limit / 8,
              0.02 * limit / 8);
  target.signals.memory = Ratio{0.9};
  target.traffic(60, 60, 60, 1).cpu(0.6).run(300);
  EXPECT_NEAR(static_cast<double>(target.decision.live_bytes_max), 0.05 * limit / 8, 1);
  target.inputs[0].activity.closed = 1;
  target.inputs[0].activity.received_bytes = 20 << 20U;
  target.run();
  EXPECT_GE(target.decision.live_bytes_max, 40U << 20U) << "two of the largest seen";
  target.signals.memory_limit_bytes = Unknown::kNoLimit;
  target.signals.memory = Unknown::kNoLimit;
  target.run();
  EXPECT_EQ(target.decision.live_bytes_max, 0U) << "no limit, no budget";
}

TEST(Adaptive, AsManyMayWaitAsTheBudgetServesInASecond) {
  Target target;
  target.calm();
  EXPECT_NEAR(static_cast<double>(target.decision.waiting_max), 0.9 * kCores / kCost_s, 30);
}

// ---------------------------------------------------------------- memory

/// Memory told tick by tick at 0.6 load.
void memory_tick(Target& target, double level) {
  target.signals.memory = Ratio{level};
  target.traffic(60, 60, 60, 1).cpu(0.6).run();
}

TEST(Adaptive, AHighLevelAloneIsNoReason) {
  Target target;
  target.signals.memory = Ratio{0.986};  // active page cache
  target.calm(0.6, 200);
  EXPECT_FALSE(target.decision.circuit_open);
  EXPECT_EQ(target.admit(), 1);
}

TEST(Adaptive, ARiseTowardsTheLimitIsShedForBeforeItIsReached) {
  Target target;
  target.calm();
  double level = 0.3;
  for (int i = 0; i < 200 && level < 1; ++i) {
    level += 0.005 * target.admit();  // a stalled exporter keeps what comes in
    memory_tick(target, level);
  }
  EXPECT_LT(level, 0.97);
  EXPECT_LT(target.admit(), 0.2);
}

TEST(Adaptive, AFlatLevelIsProbedAndAnIdleRuntimeIsReopened) {
  Target target;
  target.calm();
  double level = 0.3;
  while (level < 0.93) memory_tick(target, level += 0.01);
  ASSERT_TRUE(target.decision.circuit_open);
  for (int i = 0; i < 20; ++i) {  // the load is gone, the heap stays
    target.traffic(0, 0, 0, 0).cpu(0.02).run();
  }
  EXPECT_FALSE(target.decision.circuit_open) << "within two seconds";
  target.traffic(60, 60, 60, 1).cpu(0.6).run(20);
  EXPECT_EQ(target.admit(), 1);
}

TEST(Adaptive, AProbeThatCostsMemoryIsFollowedByALongerWait) {
  Target target;
  target.calm();
  double level = 0.3;
  int probes = 0;
  bool was_probing = false;
  for (int i = 0; i < 600; ++i) {
    const bool probing = target.decision.circuit_open ? false : target.admit() > 0.05;
    if (probing && !was_probing) ++probes;
    was_probing = probing;
    level += 0.006 * (target.decision.circuit_open ? 0 : target.admit());
    memory_tick(target, level);
    target.cpu(0.1);
  }
  EXPECT_LT(level, 0.99) << "no kill in a minute";
  EXPECT_GE(probes, 2);
  EXPECT_LE(probes, 7);
}

TEST(Adaptive, ALeakIsNotShedFor) {
  Target target;
  target.calm();
  double level = 0.3;
  double refused = 0;
  for (int i = 0; i < 300 && level < 1; ++i) {
    level += 0.002;
    const auto n = static_cast<std::uint64_t>(60 + 12 * std::sin(1.7 * i));
    target.signals.memory = Ratio{level + 1e-4 * std::sin(3.1 * i)};
    target.traffic(n, n, n, 1).cpu(0.6).run();
    refused += 1 - target.admit();
    EXPECT_FALSE(target.decision.circuit_open);
  }
  EXPECT_LT(refused / 300, 0.01);
  EXPECT_EQ(target.internal("memory_leak"), 1);
}

TEST(Adaptive, WhatMemoryGivesBackIsUsedAtOnce) {
  Target target;
  target.calm();
  double level = 0.3;
  while (level < 0.93) memory_tick(target, level += 0.01);
  ASSERT_TRUE(target.decision.circuit_open);
  for (int i = 0; i < 5; ++i) memory_tick(target, level -= 0.01);
  EXPECT_FALSE(target.decision.circuit_open) << "0.88 and falling";
  EXPECT_GT(target.admit(), 0.8);
}

// ---------------------------------------------------------------- unknown

TEST(Adaptive, NothingKnownAdmitsEverything) {
  Target target;
  target.calm();
  target.traffic(1000, 90, 90, 5).cpu(0.9).run(10);
  ASSERT_GT(target.decision.endpoints[0].depth_s, 0);
  target.signals.cpu = target.signals.cpu_fast = target.signals.cpu_slow = Unknown::kStale;
  target.signals.memory = Unknown::kGone;
  target.run();
  EXPECT_EQ(target.decision.state, State::kUnknown);
  EXPECT_EQ(target.admit(), 1);
  EXPECT_EQ(target.decision.endpoints[0].depth_s, 0) << "the bucket is off";
  EXPECT_EQ(target.decision.connections_max, 0U);
}

TEST(Adaptive, ATickThatCannotBeReadIsMergedWithTheNext) {
  Target target;
  target.calm();
  for (int i = 0; i < 60; ++i) {
    target.traffic(60, 60, 60, 1);
    target.signals.cpu = Unknown::kIo;
    target.run();
    EXPECT_EQ(target.decision.state, State::kNormal);
    EXPECT_GT(target.decision.endpoints[0].depth_s, 0) << "what was decided stands";
    target.signals.cpu = Ratio{0.6};  // the mean over both
    target.run();
  }
  EXPECT_NEAR(target.charged_s(), kCost_s, 0.02 * kCost_s);
}

TEST(Adaptive, TheSameSampleTwiceIsLearnedOnce) {
  Target target;
  target.calm();
  const double before = target.internal("g");
  const Instant at = target.signals.at;
  target.signals.at = at - target.signals.interval;
  target.traffic(0, 0, 0, 0).cpu(0.9).run();
  EXPECT_EQ(target.signals.at, at);
  EXPECT_EQ(target.internal("g"), before);
  EXPECT_GT(target.decision.endpoints[0].depth_s, 0);
}

// ---------------------------------------------------------------- a restart of the agent

TEST(Adaptive, ARestartGoesOnWithWhatWasLearned) {
  Target before({}, 2);
  for (int i = 0; i < 60; ++i) {
    before.traffic(40, 40, 40, 1, 0).traffic(20 + static_cast<std::uint64_t>(i % 3), 20, 20, 0, 1);
    before.inputs[0].activity.received_bytes = 40 * 8 * 1024;
    before.cpu(0.6).run();
  }
  for (int i = 0; i < 5; ++i) {
    before.traffic(400, 60, 60, 4, 0).traffic(200, 30, 30, 2, 1).cpu(0.9).run();
  }
  std::array<std::byte, HEADGATE_MODEL_BYTES - 64> model{};
  const std::size_t used = before.strategy->save(model);
  ASSERT_GT(used, 0U);

  Target after({}, 2);
  after.signals.at = before.signals.at;
  after.inputs[0].activity.received_bytes = before.inputs[0].activity.received_bytes;
  ASSERT_TRUE(after.strategy->restore(std::span(model).first(used)));
  after.traffic(400, 60, 60, 4, 0).traffic(200, 30, 30, 2, 1).cpu(0.9).run();
  before.run();
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(after.charged_s(i), before.charged_s(i), 0.1 * before.charged_s(i));
    EXPECT_NEAR(after.admit(i), before.admit(i), 0.05) << i;
  }
  EXPECT_EQ(after.decision.state, State::kShedding) << "at once, not after a cold start";
}

TEST(Adaptive, AModelOfAnotherKindIsNotTaken) {
  Target target;
  target.calm();
  std::array<std::byte, HEADGATE_MODEL_BYTES - 64> model{};
  const std::size_t used = target.strategy->save(model);
  Target fresh;
  EXPECT_FALSE(fresh.strategy->restore(std::span(model).first(used - 1)));
  EXPECT_FALSE(fresh.strategy->restore({}));
  std::array<std::byte, HEADGATE_MODEL_BYTES - 64> damaged = model;
  const double nan = std::nan("");
  std::memcpy(damaged.data() + 16, &nan, sizeof nan);
  EXPECT_FALSE(fresh.strategy->restore(std::span(damaged).first(used)));
  Target two({}, 2);
  EXPECT_TRUE(two.strategy->restore(std::span(model).first(used)));
  two.traffic(60, 60, 60, 1).cpu(0.6).run();
  EXPECT_EQ(two.decision.endpoints[0].depth_s, 0) << "another number of endpoints: cold";
}

TEST(Adaptive, TooManyEndpointsForTheModelAreNotSaved) {
  Target target({}, 64);
  target.traffic(60, 60, 60, 1).cpu(0.6).run(20);
  std::array<std::byte, HEADGATE_MODEL_BYTES - 64> model{};
  EXPECT_EQ(target.strategy->save(model), 0U);
}

}  // namespace
}  // namespace headgate
