// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include <gtest/gtest.h>

#include "agent/decision/publish_policy.h"

namespace headgate {
namespace {

using namespace std::chrono_literals;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Decision one_endpoint() {
  Decision decision;
  decision.endpoints.resize(1);
  return decision;
}

headgate_endpoint_policy policy_of(const Decision& decision, const PolicyContext& context = {}) {
  return make_endpoint_policy(decision.endpoints[0], decision, context);
}

std::uint64_t arms(const headgate_endpoint_policy& policy) {
  return policy.flags & HEADGATE_ARM_MASK;
}

TEST(EndpointPolicy, IsIdleWhereEverythingIsAdmitted) {
  PolicyContext context;
  context.max_refuse = Probability::refusing(0.5);  // would only hold back what is armed
  context.observe = true;
  context.exempt_node = true;
  context.exempt_sources = true;
  const auto policy = policy_of(one_endpoint(), context);
  EXPECT_EQ(arms(policy), 0U);
  EXPECT_EQ(policy.admit_q32, HEADGATE_ALWAYS_Q32);
}

TEST(EndpointPolicy, ArmsTheShareAndIsExactAtBothEnds) {
  Decision decision = one_endpoint();
  decision.endpoints[0].admit = Probability::never();
  EXPECT_EQ(policy_of(decision).admit_q32, 0U);
  EXPECT_EQ(arms(policy_of(decision)), HEADGATE_ARM_SHARE);

  decision.endpoints[0].admit = Probability::admitting(0.25);
  EXPECT_EQ(policy_of(decision).admit_q32, 1ULL << 30);
  EXPECT_EQ(arms(policy_of(decision)), HEADGATE_ARM_SHARE);

  decision.endpoints[0].admit = Probability::always();
  EXPECT_EQ(policy_of(decision).admit_q32, 1ULL << 32);
  EXPECT_EQ(arms(policy_of(decision)), 0U);
}

TEST(EndpointPolicy, ArmsTheCircuit) {
  Decision decision = one_endpoint();
  decision.circuit_open = true;
  EXPECT_EQ(arms(policy_of(decision)), HEADGATE_ARM_CIRCUIT);
}

TEST(EndpointPolicy, ArmsACapOfTheTargetWithoutCappingTheEndpoint) {
  Decision decision = one_endpoint();
  decision.connections_max = 100;
  const auto policy = policy_of(decision);
  EXPECT_EQ(arms(policy), HEADGATE_ARM_CONNECTIONS);
  EXPECT_EQ(policy.connections_max, 0U) << "0 = the endpoint has no cap of its own";
  EXPECT_EQ(make_target_policy(decision, {}).connections_max, 100U);
}

TEST(EndpointPolicy, TurnsARateIntoItsInterval) {
  Decision decision = one_endpoint();
  decision.endpoints[0].rate_per_s = 250;
  const auto policy = policy_of(decision);
  EXPECT_EQ(arms(policy), HEADGATE_ARM_RATE);
  EXPECT_EQ(policy.rate_interval_ns, 4'000'000U);  // 1 s / 250
  EXPECT_EQ(policy.rate_burst_ns, 100'000'000U);
}

TEST(EndpointPolicy, TurnsTheBudgetIntoBucketTime) {
  Decision decision = one_endpoint();
  decision.endpoints[0].depth_s = 0.05;
  decision.endpoints[0].charge_request_s = 0.0036;
  decision.endpoints[0].charge_kb_s = 1e-6;
  const auto policy = policy_of(decision);
  EXPECT_EQ(arms(policy), HEADGATE_ARM_BUDGET);
  EXPECT_EQ(policy.depth_ns, 50'000'000U);
  EXPECT_EQ(policy.charge_request_ns, 3'600'000U);
  EXPECT_EQ(policy.charge_kb_ns, 1'000U);
}

TEST(EndpointPolicy, ArmsTheLiveBytesBudgetOfTheTarget) {
  Decision decision = one_endpoint();
  decision.live_bytes_max = 1'000'000;
  EXPECT_EQ(arms(policy_of(decision)), HEADGATE_ARM_MEMORY);
  EXPECT_EQ(make_target_policy(decision, {}).live_bytes_max, 1'000'000U);
}

TEST(EndpointPolicy, LimitsTheRefusedShareOnlyWhereSomethingMayRefuse) {
  Decision decision = one_endpoint();
  decision.endpoints[0].admit = Probability::admitting(0.1);
  PolicyContext context;
  context.max_refuse = Probability::refusing(0.5);
  const auto policy = policy_of(decision, context);
  EXPECT_EQ(arms(policy), HEADGATE_ARM_SHARE | HEADGATE_ARM_MAX_REFUSE);
  EXPECT_EQ(policy.max_refuse_q32, 1ULL << 31);
}

TEST(EndpointPolicy, NumbersThatAreNoneNeverRefuse) {
  for (const double bad : {kNaN, kInf, -kInf, -1.0}) {
    Decision decision = one_endpoint();
    decision.endpoints[0].admit = Probability::admitting(kNaN);
    decision.endpoints[0].rate_per_s = bad;
    decision.endpoints[0].depth_s = bad;
    decision.endpoints[0].charge_request_s = bad;
    EXPECT_EQ(arms(policy_of(decision)), 0U) << bad;

    decision.endpoints[0].depth_s = 0.05;  // a sound depth with a bad charge charges nothing
    decision.endpoints[0].charge_kb_s = bad;
    const auto policy = policy_of(decision);
    EXPECT_EQ(policy.charge_request_ns, 0U) << bad;
    EXPECT_EQ(policy.charge_kb_ns, 0U) << bad;
    EXPECT_EQ(make_target_policy(decision, {}).bucket_charge_max_ns, 0U) << bad;
  }
}

TEST(EndpointPolicy, WordsThatAreNotArmedRefuseNothing) {
  // The flags of the policy before may still be read beside the new words.
  const auto policy = policy_of(one_endpoint());
  EXPECT_EQ(policy.admit_q32, HEADGATE_ALWAYS_Q32);
  EXPECT_EQ(policy.connections_max, 0U);
  EXPECT_EQ(policy.rate_interval_ns, 0U);
  EXPECT_EQ(policy.charge_request_ns, 0U);
  EXPECT_EQ(policy.depth_ns, kUnbounded);
  EXPECT_EQ(policy.rate_burst_ns, kUnbounded);
  EXPECT_EQ(make_target_policy(one_endpoint(), {}).live_bytes_max, kUnbounded);
}

TEST(EndpointPolicy, PacksOneActionAReasonAndAlwaysResetsWhatHasWaited) {
  PolicyContext context;
  context.refuse = HEADGATE_ACTION_DEFER;
  context.may_defer = true;
  const auto policy = policy_of(one_endpoint(), context);
  // Bytes 1 to 6 are DEFER (1), byte 7 (WAITED) and byte 0 (no reason) are RESET (0).
  EXPECT_EQ(policy.actions, 0x0001'0101'0101'0100ULL);
  EXPECT_EQ(action_of(policy.actions, HEADGATE_REASON_BUDGET), HEADGATE_ACTION_DEFER);
  EXPECT_EQ(action_of(policy.actions, HEADGATE_REASON_WAITED), HEADGATE_ACTION_RESET);
  EXPECT_NE(policy.flags & HEADGATE_MAY_DEFER, 0U);
}

// ---- refuse: auto

Decision with_budget(std::uint64_t waiting_max) {
  Decision decision = one_endpoint();
  decision.endpoints[0].charge_request_s = 0.01;
  decision.endpoints[0].depth_s = 0.05;
  decision.waiting_max = waiting_max;
  return decision;
}
PolicyContext automatic(double closes_per_s = 0, bool somebody_waits = false) {
  PolicyContext context;
  context.automatic = true;
  context.may_defer = true;
  context.closes_per_s = closes_per_s;
  context.somebody_waits = somebody_waits;
  return context;
}

TEST(AutoPolicy, BudgetDefersAsManyAsTheLawAllows) {
  const auto policy = policy_of(with_budget(150), automatic());
  EXPECT_EQ(policy.waiting_max, 150U);
  EXPECT_NE(policy.flags & HEADGATE_LAST_TRY_ENTERS, 0U);
  EXPECT_EQ(action_of(policy.actions, HEADGATE_REASON_BUDGET), HEADGATE_ACTION_DEFER);
  EXPECT_NE(policy.flags & HEADGATE_MAY_DEFER, 0U);
  EXPECT_EQ(action_of(policy.actions, HEADGATE_REASON_CONNECTIONS), HEADGATE_ACTION_RESET);
}

TEST(AutoPolicy, CapsAndMemoryDeferWhatClosesInASecond) {
  Decision decision = with_budget(0);
  decision.connections_max = 10;
  decision.live_bytes_max = 1000;
  const auto policy = policy_of(decision, automatic(80.5));
  EXPECT_EQ(policy.waiting_max_other, 80U);
  EXPECT_EQ(action_of(policy.actions, HEADGATE_REASON_CONNECTIONS), HEADGATE_ACTION_DEFER);
  EXPECT_EQ(action_of(policy.actions, HEADGATE_REASON_MEMORY), HEADGATE_ACTION_DEFER);
  EXPECT_EQ(action_of(policy.actions, HEADGATE_REASON_CIRCUIT), HEADGATE_ACTION_DEFER);
  EXPECT_EQ(action_of(policy.actions, HEADGATE_REASON_BUDGET), HEADGATE_ACTION_RESET);
  EXPECT_NE(policy.flags & HEADGATE_MAY_DEFER, 0U);
}

TEST(AutoPolicy, ShareAndRateAndACircuitWithoutABudgetResetAtOnce) {
  Decision decision = one_endpoint();
  decision.circuit_open = true;
  decision.waiting_max = 100;  // there is no budget that it could belong to
  decision.endpoints[0].admit = Probability::admitting(.5);
  decision.endpoints[0].rate_per_s = 10;
  const auto policy = policy_of(decision, automatic(50));
  for (const headgate_reason reason :
       {HEADGATE_REASON_SHARE, HEADGATE_REASON_RATE, HEADGATE_REASON_CIRCUIT,
        HEADGATE_REASON_BUDGET, HEADGATE_REASON_WAITED}) {
    EXPECT_EQ(action_of(policy.actions, reason), HEADGATE_ACTION_RESET) << reason;
  }
}

TEST(AutoPolicy, WhoWaitsGoesOnWaitingAndIsFoundAgain) {
  const auto policy = policy_of(with_budget(0), automatic(0, true));
  EXPECT_EQ(policy.waiting_max, 0U);
  EXPECT_EQ(action_of(policy.actions, HEADGATE_REASON_BUDGET), HEADGATE_ACTION_DEFER);
  EXPECT_NE(policy_of(one_endpoint(), automatic(0, true)).flags & HEADGATE_MAY_DEFER, 0U);
}

TEST(AutoPolicy, IdleGateKeepsNoAges) {
  EXPECT_EQ(policy_of(one_endpoint(), automatic(100)).flags, 0U);
}

TEST(AutoPolicy, ResetsWhereNothingCanBeDeferred) {
  PolicyContext context = automatic(100);
  context.may_defer = false;
  const auto policy = policy_of(with_budget(150), context);
  EXPECT_EQ(policy.actions, 0U);
  EXPECT_EQ(policy.flags & HEADGATE_MAY_DEFER, 0U);
}

TEST(EndpointPolicy, ResetsWhereItMayNotDefer) {
  PolicyContext context;
  context.refuse = HEADGATE_ACTION_DEFER;
  const auto policy = policy_of(one_endpoint(), context);
  EXPECT_EQ(policy.actions, 0U);
  EXPECT_EQ(policy.flags & HEADGATE_MAY_DEFER, 0U);
}

TEST(EndpointPolicy, ProbesUnlessTheLawForbidsIt) {
  Decision decision = one_endpoint();
  EXPECT_EQ(policy_of(decision).probe_interval_ns, 1'000'000'000U);
  decision.endpoints[0].probe = false;
  EXPECT_EQ(policy_of(decision).probe_interval_ns, 0U);
}

TEST(EndpointPolicy, CarriesTheContext) {
  PolicyContext context;
  context.observe = true;
  context.tickets_settled = true;
  context.exempt_node = true;
  context.exempt_sources = true;
  context.target = 7;
  context.level = HEADGATE_LEVEL_ROUTE;
  context.parent = 9;
  context.generation = 42;
  context.connections_legacy = 3;
  context.tickets_written_off = 5;
  const auto policy = policy_of(one_endpoint(), context);
  EXPECT_EQ(policy.flags, HEADGATE_OBSERVE | HEADGATE_TICKETS_SETTLED | HEADGATE_EXEMPT_NODE |
                              HEADGATE_EXEMPT_SOURCES);
  EXPECT_EQ(policy.exempt_interval_ns, 50'000'000U);  // 20 a second
  EXPECT_EQ(policy.exempt_burst_ns, 1'000'000'000U);
  EXPECT_EQ(policy.target, 7U);
  EXPECT_EQ(policy.level, static_cast<__u32>(HEADGATE_LEVEL_ROUTE));
  EXPECT_EQ(policy.parent, 9U);
  EXPECT_EQ(policy.generation, 42U);
  EXPECT_EQ(policy.connections_legacy, 3U);
  EXPECT_EQ(policy.tickets_written_off, 5U);
}

TEST(EndpointPolicy, ARouteIsAnsweredAndHasTheFlagsOfItsPort) {
  Decision decision = one_endpoint();
  decision.endpoints[0].admit = Probability::admitting(0.5);
  decision.connections_max = 10;
  decision.live_bytes_max = 1000;
  PolicyContext context;
  context.level = HEADGATE_LEVEL_ROUTE;
  context.parent = 7;
  context.target = 3;
  context.refuse = HEADGATE_ACTION_HTTP_503;
  context.observe = true;
  context.exempt_node = true;
  context.target_cap = false;
  const auto policy = policy_of(decision, context);
  EXPECT_EQ(policy.level, HEADGATE_LEVEL_ROUTE);
  EXPECT_EQ(policy.parent, 7U);
  EXPECT_EQ(policy.target, 3U) << "whose lease it hangs on";
  for (const headgate_reason reason : {HEADGATE_REASON_CIRCUIT, HEADGATE_REASON_SHARE,
                                       HEADGATE_REASON_BUDGET, HEADGATE_REASON_MEMORY}) {
    EXPECT_EQ(action_of(policy.actions, reason), HEADGATE_ACTION_HTTP_503) << reason;
  }
  EXPECT_EQ(arms(policy), HEADGATE_ARM_SHARE | HEADGATE_ARM_MEMORY)
      << "connections are capped where they come in";
  EXPECT_NE(policy.flags & HEADGATE_OBSERVE, 0U);
  EXPECT_NE(policy.flags & HEADGATE_EXEMPT_NODE, 0U);
  EXPECT_EQ(policy.flags & HEADGATE_MAY_DEFER, 0U);
  EXPECT_EQ(policy.probe_interval_ns, 1'000'000'000U);
}

TEST(TargetPolicy, LeasesFromNow) {
  TargetPolicyContext context;
  context.now = Instant(1000s);
  context.lease = 1500ms;
  const auto policy = make_target_policy(one_endpoint(), context);
  EXPECT_EQ(policy.valid_until_ns, 1'001'500'000'000U);
  EXPECT_EQ(policy.defer_deadline_ns, 8'000'000'000U);
  EXPECT_EQ(policy.waiting_max, 20'000U);
}

TEST(TargetPolicy, HasTheLargestDepthAndChargeOfItsEndpoints) {
  Decision decision;
  decision.endpoints.resize(3);
  decision.endpoints[0].depth_s = 0.02;
  decision.endpoints[0].charge_request_s = 0.010;
  decision.endpoints[1].depth_s = 0.05;
  decision.endpoints[1].charge_request_s = 0.002;
  decision.endpoints[1].charge_kb_s = 0.001;   // 0.002 + 0.001 * 30 kB = 0.032
  decision.endpoints[2].charge_request_s = 9;  // no bucket, so it owes nothing
  TargetPolicyContext context;
  context.largest_request_kb = 30;
  const auto policy = make_target_policy(decision, context);
  EXPECT_EQ(policy.bucket_depth_max_ns, 50'000'000U);
  EXPECT_EQ(policy.bucket_charge_max_ns, 32'000'000U);
}

TEST(SaturatedNs, NeverOverflows) {
  EXPECT_EQ(to_saturated_ns(1.5), 1'500'000'000U);
  EXPECT_EQ(to_saturated_ns(1e300), kUnbounded);
  EXPECT_EQ(to_saturated_ns(kInf), kUnbounded);
  EXPECT_EQ(to_saturated_ns(-1), 0U);
  EXPECT_EQ(to_saturated_ns(kNaN), 0U);
  // The kernel adds the clock, a depth and a charge.
  const std::uint64_t century_ns = 3'155'760'000ULL * 1'000'000'000ULL;
  EXPECT_GT(century_ns + kUnbounded + kUnbounded, kUnbounded);
}

}  // namespace
}  // namespace headgate
