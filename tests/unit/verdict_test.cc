// SPDX-License-Identifier: Apache-2.0
// The verdict as the kernel makes it (bpf/lib/verdict.h), compiled natively. Both variants, with
// atomics and with a spin lock, must say the same: every test runs on each.
#include "bpf/lib/verdict.h"

#include <rapidcheck.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace headgate {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kSecond = 1'000 * kMs;
constexpr std::uint64_t kStart = 1'000 * kSecond;
constexpr std::uint64_t kNever = 1ULL << 62;

std::uint64_t all_actions(headgate_action action) {
  std::uint64_t actions = 0;
  for (unsigned reason = 1; reason < HEADGATE_REASON_COUNT; ++reason) {
    actions |= static_cast<std::uint64_t>(action) << (8 * reason);
  }
  return actions;
}

std::uint64_t q32(double share) {
  return static_cast<std::uint64_t>(share * static_cast<double>(HEADGATE_ALWAYS_Q32) + 0.5);
}

/// One endpoint of one target: its policies, its state in the kernel, and the clock.
struct Gate {
  explicit Gate(bool use_lock) : locked(use_lock ? 1 : 0) {
    target.valid_until_ns = kNever;
    target.waiting_max = 1000;
    policy.waiting_max = policy.waiting_max_other = kNever;
    target.defer_deadline_ns = 8 * kSecond;
    policy.defer_deadline_ns = 8 * kSecond;
    policy.actions = all_actions(HEADGATE_ACTION_RESET);
  }

  std::uint32_t judge() {
    return headgate_judge(&policy, &target, &state, &target_state, now, 0, locked);
  }
  headgate_answer answer(std::uint32_t reason, std::uint32_t exempt = 0,
                         const headgate_age* age = nullptr, std::uint64_t size_kb = 0) {
    return headgate_resolve(&policy, &target, &state, &target_state, reason, exempt, age, now,
                            size_kb, locked);
  }
  /// A whole try: the cause, ROOM included.
  std::uint32_t attempt(std::uint32_t exempt = 0) {
    const std::uint32_t reason = judge();
    return reason == HEADGATE_REASON_NONE ? std::uint32_t{HEADGATE_CAUSE_ROOM}
                                          : answer(reason, exempt).cause;
  }

  headgate_endpoint_policy policy{};
  headgate_target_policy target{};
  headgate_endpoint_state state{};
  headgate_target_state target_state{};
  std::uint64_t now = kStart;
  int locked;
};

class Verdict : public ::testing::TestWithParam<bool> {
 protected:
  Gate gate{GetParam()};

  /// Arms everything so that each reason would refuse.
  void close_everything() {
    gate.policy.flags = HEADGATE_ARM_CIRCUIT | HEADGATE_ARM_CONNECTIONS | HEADGATE_ARM_RATE |
                        HEADGATE_ARM_SHARE | HEADGATE_ARM_MEMORY | HEADGATE_ARM_BUDGET;
    gate.policy.connections_max = 1;
    gate.state.in_flight = 1;
    gate.policy.rate_interval_ns = kSecond;
    gate.state.rate_tat_ns = kStart + kSecond;
    gate.policy.admit_q32 = 0;
    gate.target.live_bytes_max = 100;
    gate.target_state.live_bytes = 100;
    gate.policy.charge_request_ns = kMs;
    gate.target.bucket_charge_max_ns = kMs;
    gate.target_state.bucket_tat_ns = kStart + kMs;
  }
};
INSTANTIATE_TEST_SUITE_P(Variants, Verdict, ::testing::Values(false, true),
                         [](const auto& variant) { return variant.param ? "Locked" : "Atomic"; });

TEST_P(Verdict, ReasonsComeInTheOrderOfTheDesign) {
  close_everything();
  const std::vector<std::pair<std::uint64_t, std::uint32_t>> order = {
      {HEADGATE_ARM_CIRCUIT, HEADGATE_REASON_CIRCUIT},
      {HEADGATE_ARM_CONNECTIONS, HEADGATE_REASON_CONNECTIONS},
      {HEADGATE_ARM_SHARE, HEADGATE_REASON_SHARE},
      {HEADGATE_ARM_RATE, HEADGATE_REASON_RATE},
      {HEADGATE_ARM_MEMORY, HEADGATE_REASON_MEMORY},
      {HEADGATE_ARM_BUDGET, HEADGATE_REASON_BUDGET},
  };
  for (const auto& [arm, reason] : order) {
    EXPECT_EQ(gate.judge(), reason);
    gate.policy.flags &= ~arm;  // the next one is reached only without it
  }
  EXPECT_EQ(gate.judge(), HEADGATE_REASON_NONE);
}

TEST_P(Verdict, WhatIsNotArmedRefusesNothing) {
  close_everything();
  gate.policy.flags = HEADGATE_OBSERVE | HEADGATE_TICKETS_SETTLED | HEADGATE_EXEMPT_NODE |
                      HEADGATE_EXEMPT_SOURCES | HEADGATE_MAY_DEFER;
  EXPECT_EQ(gate.judge(), HEADGATE_REASON_NONE);
}

TEST_P(Verdict, IdleGateChangesNoState) {
  gate.policy.flags = HEADGATE_MAY_DEFER;
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(gate.judge(), HEADGATE_REASON_NONE);
  }
  EXPECT_EQ(gate.state.share_q32 | gate.state.refuse_credit_q32 | gate.state.rate_tat_ns |
                gate.target_state.bucket_tat_ns,
            0U);
}

TEST_P(Verdict, ShareOfNothingAndOfEverythingIsExact) {
  gate.policy.flags = HEADGATE_ARM_SHARE;
  for (const std::uint64_t share : {std::uint64_t{0}, std::uint64_t{HEADGATE_ALWAYS_Q32}}) {
    gate.policy.admit_q32 = share;
    for (int i = 0; i < 1000; ++i) {
      EXPECT_EQ(gate.judge(), share == 0 ? HEADGATE_REASON_SHARE : HEADGATE_REASON_NONE);
    }
  }
}

/// From any point of the accumulator (also where it is about to wrap), of any n attempts in a row
/// n * share are admitted, to one.
RC_GTEST_PROP(VerdictProperty, ShareIsExactToOneOverAnyRun, ()) {
  Gate gate(*rc::gen::arbitrary<bool>());
  gate.policy.flags = HEADGATE_ARM_SHARE;
  gate.policy.admit_q32 = *rc::gen::oneOf(
      rc::gen::inRange<std::uint64_t>(0, HEADGATE_ALWAYS_Q32 + 1),
      rc::gen::element<std::uint64_t>(0, 1, HEADGATE_ALWAYS_Q32 - 1, HEADGATE_ALWAYS_Q32));
  gate.state.share_q32 = *rc::gen::oneOf(
      rc::gen::arbitrary<std::uint64_t>(), rc::gen::just(~std::uint64_t{0}),
      rc::gen::inRange<std::uint64_t>(~std::uint64_t{0} - (8ULL << 32), ~std::uint64_t{0}));
  const auto attempts = *rc::gen::inRange<std::uint64_t>(1, 2000);
  std::uint64_t admitted = 0;
  for (std::uint64_t i = 0; i < attempts; ++i) {
    admitted += gate.judge() == HEADGATE_REASON_NONE ? 1 : 0;
  }
  const double exact =
      static_cast<double>(attempts) * static_cast<double>(gate.policy.admit_q32) / 4294967296.0;
  RC_ASSERT(static_cast<double>(admitted) > exact - 1 - 1e-6);
  RC_ASSERT(static_cast<double>(admitted) < exact + 1 + 1e-6);
}

TEST_P(Verdict, RateChecksBeforeItCharges) {
  gate.policy.flags = HEADGATE_ARM_RATE;
  gate.policy.rate_interval_ns = 10 * kMs;  // 100/s
  gate.policy.rate_burst_ns = 30 * kMs;
  int admitted = 0;
  for (int i = 0; i < 100; ++i) {
    admitted += gate.judge() == HEADGATE_REASON_NONE ? 1 : 0;
  }
  EXPECT_EQ(admitted, 4);  // the burst of 3, and the one that was due
  gate.now += 10 * kMs;
  EXPECT_EQ(gate.judge(), HEADGATE_REASON_NONE);
  EXPECT_EQ(gate.judge(), HEADGATE_REASON_RATE);
}

TEST_P(Verdict, ShareAndRateDoNotMultiply) {
  gate.policy.flags = HEADGATE_ARM_RATE | HEADGATE_ARM_SHARE;
  gate.policy.rate_interval_ns = 20 * kMs;  // 50/s
  gate.policy.rate_burst_ns = 100 * kMs;
  gate.policy.admit_q32 = HEADGATE_ALWAYS_Q32 / 2;
  int admitted = 0;
  for (int i = 0; i < 1000; ++i) {  // 100/s for 10 s: the share alone fits into the cap
    gate.now += 10 * kMs;
    admitted += gate.judge() == HEADGATE_REASON_NONE ? 1 : 0;
  }
  EXPECT_NEAR(admitted, 500, 1);
}

TEST_P(Verdict, RateIsExactOverTime) {
  gate.policy.flags = HEADGATE_ARM_RATE;
  gate.policy.rate_interval_ns = 10 * kMs;
  gate.policy.rate_burst_ns = 100 * kMs;
  int admitted = 0;
  for (int i = 0; i < 10'000; ++i) {  // 1000/s for 10 s
    gate.now += kMs;
    admitted += gate.judge() == HEADGATE_REASON_NONE ? 1 : 0;
  }
  EXPECT_NEAR(admitted, 1000 + 11, 1);
}

TEST_P(Verdict, RequestLargerThanTheBucketIsNotStarved) {
  gate.policy.flags = HEADGATE_ARM_BUDGET;
  gate.policy.charge_request_ns = kSecond;
  gate.policy.depth_ns = kMs;
  gate.target.bucket_depth_max_ns = kMs;
  gate.target.bucket_charge_max_ns = kSecond;
  EXPECT_EQ(gate.judge(), HEADGATE_REASON_NONE);
  gate.now += 998 * kMs;
  EXPECT_EQ(gate.judge(), HEADGATE_REASON_BUDGET);
  gate.now += kMs;
  EXPECT_EQ(gate.judge(), HEADGATE_REASON_NONE);
}

TEST_P(Verdict, BudgetIsOneForAllEndpointsOfATarget) {
  gate.policy.flags = HEADGATE_ARM_BUDGET;
  gate.policy.charge_request_ns = 10 * kMs;
  gate.policy.depth_ns = 0;
  gate.target.bucket_depth_max_ns = 50 * kMs;
  gate.target.bucket_charge_max_ns = 10 * kMs;
  Gate high(GetParam());
  high.policy = gate.policy;
  high.policy.depth_ns = 50 * kMs;
  // the high class fills the bucket; what the low class asks for must not free any of it
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(headgate_judge(&high.policy, &gate.target, &high.state, &gate.target_state, gate.now,
                             0, gate.locked),
              HEADGATE_REASON_NONE);
  }
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(gate.judge(), HEADGATE_REASON_BUDGET);
  }
  EXPECT_EQ(headgate_judge(&high.policy, &gate.target, &high.state, &gate.target_state, gate.now, 0,
                           gate.locked),
            HEADGATE_REASON_BUDGET);
}

/// Debts made under the charges of an older policy are cut to what the present one can owe: after
/// that much time there is room again, however many are refused meanwhile.
TEST_P(Verdict, OldDebtIsClampedWhileAttemptsAreRefused) {
  gate.policy.flags = HEADGATE_ARM_BUDGET;
  gate.policy.charge_request_ns = 10 * kMs;
  gate.policy.depth_ns = 50 * kMs;
  gate.target.bucket_depth_max_ns = 50 * kMs;
  gate.target.bucket_charge_max_ns = 10 * kMs;
  gate.target_state.bucket_tat_ns = kStart + 1000 * kSecond;
  EXPECT_EQ(gate.judge(), HEADGATE_REASON_BUDGET);
  gate.now += 9 * kMs;
  EXPECT_EQ(gate.judge(), HEADGATE_REASON_BUDGET);
  gate.now += kMs;
  EXPECT_EQ(gate.judge(), HEADGATE_REASON_NONE);
}

TEST_P(Verdict, OldDebtOfTheRateIsClampedToo) {
  gate.policy.flags = HEADGATE_ARM_RATE;
  gate.policy.rate_interval_ns = 10 * kMs;
  gate.policy.rate_burst_ns = 20 * kMs;
  gate.state.rate_tat_ns = kStart + 1000 * kSecond;
  EXPECT_EQ(gate.judge(), HEADGATE_REASON_RATE);
  gate.now += 10 * kMs;
  EXPECT_EQ(gate.judge(), HEADGATE_REASON_NONE);
}

TEST_P(Verdict, UnboundedDepthAndBurstDoNotOverflow) {
  gate.policy.flags = HEADGATE_ARM_BUDGET | HEADGATE_ARM_RATE;
  gate.policy.depth_ns = kNever;
  gate.policy.charge_request_ns = kSecond;
  gate.target.bucket_depth_max_ns = kNever;
  gate.target.bucket_charge_max_ns = kSecond;
  gate.policy.rate_burst_ns = kNever;
  gate.policy.rate_interval_ns = kSecond;
  for (int i = 0; i < 10'000; ++i) {
    ASSERT_EQ(gate.judge(), HEADGATE_REASON_NONE);
  }
}

TEST_P(Verdict, ConnectionsCountLiveLegacyAndTickets) {
  gate.policy.flags = HEADGATE_ARM_CONNECTIONS;
  gate.policy.connections_max = 10;
  gate.state.in_flight = 4;
  gate.policy.connections_legacy = 3;
  gate.state.tickets_issued = 100;
  gate.state.tickets_settled = 90;
  gate.policy.tickets_written_off = 8;  // 2 outstanding
  EXPECT_EQ(gate.judge(), HEADGATE_REASON_NONE);
  gate.state.tickets_issued++;
  EXPECT_EQ(gate.judge(), HEADGATE_REASON_CONNECTIONS);
}

TEST_P(Verdict, CountersReadInTheMiddleOfAnUpdateAreNotBelowZero) {
  gate.policy.flags = HEADGATE_ARM_CONNECTIONS;
  gate.policy.connections_max = 1;
  gate.state.in_flight = ~std::uint64_t{0};  // closed was counted, established not yet
  gate.state.tickets_settled = 1;            // settled before it was issued
  EXPECT_EQ(gate.judge(), HEADGATE_REASON_NONE);
  gate.policy.connections_max = 0;
  gate.target.connections_max = 1;
  gate.target_state.in_flight = ~std::uint64_t{0};
  gate.target_state.tickets_settled = 1;
  EXPECT_EQ(gate.judge(), HEADGATE_REASON_NONE);
}

TEST_P(Verdict, CapOfTheTargetCountsTicketsToo) {
  gate.policy.flags = HEADGATE_ARM_CONNECTIONS;
  gate.target.connections_max = 10;
  gate.target_state.in_flight = 4;
  gate.target.connections_legacy = 3;
  gate.target_state.tickets_issued = 100;
  gate.target_state.tickets_settled = 90;
  gate.target.tickets_written_off = 8;
  EXPECT_EQ(gate.judge(), HEADGATE_REASON_NONE);
  gate.target_state.tickets_issued++;
  EXPECT_EQ(gate.judge(), HEADGATE_REASON_CONNECTIONS);
}

TEST_P(Verdict, MemoryRefusesAtItsBudget) {
  gate.policy.flags = HEADGATE_ARM_MEMORY;
  gate.target.live_bytes_max = 1000;
  for (const auto& [live, reason] :
       {std::pair<std::uint64_t, std::uint32_t>{999, HEADGATE_REASON_NONE},
        {1000, HEADGATE_REASON_MEMORY},
        {~std::uint64_t{0} - 5, HEADGATE_REASON_NONE}}) {  // below zero: in the middle of an update
    gate.target_state.live_bytes = live;
    EXPECT_EQ(gate.judge(), reason) << live;
  }
}

TEST_P(Verdict, ExpiredLeaseAdmitsWhateverTheReason) {
  close_everything();
  gate.target.valid_until_ns = gate.now;
  EXPECT_EQ(gate.attempt(), HEADGATE_CAUSE_REFUSED);  // valid to the last nanosecond
  ++gate.now;
  for (std::uint32_t reason = 1; reason < HEADGATE_REASON_COUNT; ++reason) {
    const headgate_answer answer = gate.answer(reason);
    EXPECT_EQ(answer.verdict, HEADGATE_ADMIT);
    EXPECT_EQ(answer.cause, HEADGATE_CAUSE_STALE);
  }
  gate.target.valid_until_ns = 0;
  EXPECT_EQ(gate.attempt(), HEADGATE_CAUSE_STALE);
}

TEST_P(Verdict, WhatMayLetAnAttemptInComesInOrder) {
  gate.policy.flags = HEADGATE_ARM_CIRCUIT | HEADGATE_OBSERVE | HEADGATE_ARM_MAX_REFUSE;
  gate.policy.probe_interval_ns = kSecond;
  gate.target.valid_until_ns = kStart - 1;
  EXPECT_EQ(gate.attempt(HEADGATE_EXEMPT_KIND_SOURCE), HEADGATE_CAUSE_STALE);
  gate.target.valid_until_ns = kNever;
  EXPECT_EQ(gate.attempt(HEADGATE_EXEMPT_KIND_SOURCE), HEADGATE_CAUSE_EXEMPT);
  EXPECT_EQ(gate.attempt(), HEADGATE_CAUSE_PROBE);
  EXPECT_EQ(gate.attempt(), HEADGATE_CAUSE_OBSERVED);
  gate.policy.flags &= ~HEADGATE_OBSERVE;
  EXPECT_EQ(gate.attempt(), HEADGATE_CAUSE_CAPPED);
  gate.policy.flags &= ~HEADGATE_ARM_MAX_REFUSE;
  EXPECT_EQ(gate.attempt(), HEADGATE_CAUSE_REFUSED);
}

TEST_P(Verdict, OneProbeInTheIntervalInEveryState) {
  close_everything();
  gate.policy.probe_interval_ns = kSecond;
  int probes = 0;
  for (int i = 0; i < 10'000; ++i) {  // 10 s at 1000/s
    gate.now += kMs;
    probes += gate.attempt() == HEADGATE_CAUSE_PROBE ? 1 : 0;
  }
  EXPECT_EQ(probes, 10);
  gate.policy.probe_interval_ns = 0;
  gate.now += 100 * kSecond;
  EXPECT_EQ(gate.attempt(), HEADGATE_CAUSE_REFUSED);
}

TEST_P(Verdict, ClockThatIsBehindGivesNoProbe) {
  close_everything();
  gate.policy.probe_interval_ns = kSecond;
  gate.state.probe_last_ns = gate.now + 1;  // another CPU was a tick ahead
  EXPECT_EQ(gate.attempt(), HEADGATE_CAUSE_REFUSED);
}

/// max_refuse: of any n attempts no more than n * share + 8 are refused, and not many fewer when
/// everything would be.
RC_GTEST_PROP(VerdictProperty, MaxRefuseIsNeitherExceededNorStarved, ()) {
  Gate gate(*rc::gen::arbitrary<bool>());
  const double share = *rc::gen::map(rc::gen::inRange(0, 1001), [](int v) { return v / 1000.0; });
  gate.policy.flags = HEADGATE_ARM_CIRCUIT | HEADGATE_ARM_MAX_REFUSE;
  gate.policy.max_refuse_q32 = q32(share);
  // a calm time first: what is saved up meanwhile must stay bounded
  const int calm = *rc::gen::inRange(0, 500);
  gate.policy.flags = HEADGATE_ARM_SHARE | HEADGATE_ARM_MAX_REFUSE;
  gate.policy.admit_q32 = HEADGATE_ALWAYS_Q32;
  for (int i = 0; i < calm; ++i) {
    RC_ASSERT(gate.attempt() == HEADGATE_CAUSE_ROOM);
  }
  gate.policy.flags = HEADGATE_ARM_CIRCUIT | HEADGATE_ARM_MAX_REFUSE;
  const int attempts = *rc::gen::inRange(1, 3000);
  int refused = 0;
  for (int i = 0; i < attempts; ++i) {
    const std::uint32_t cause = gate.attempt();
    RC_ASSERT(cause == HEADGATE_CAUSE_REFUSED || cause == HEADGATE_CAUSE_CAPPED);
    refused += cause == HEADGATE_CAUSE_REFUSED ? 1 : 0;
    RC_ASSERT(refused <= (i + 1) * share + 8 + 1e-3);
  }
  RC_ASSERT(refused >= attempts * share - 1 - 1e-3);
}

/// Another CPU is between taking a refusal and giving it back: the credit is below zero for a
/// moment, and an attempt in this moment must still add to it.
TEST_P(Verdict, CreditBelowZeroStillGrows) {
  gate.policy.flags = HEADGATE_ARM_CIRCUIT | HEADGATE_ARM_MAX_REFUSE;
  gate.policy.max_refuse_q32 = HEADGATE_ALWAYS_Q32 / 2;
  gate.state.refuse_credit_q32 = -HEADGATE_ALWAYS_Q32;
  (void)gate.judge();
  EXPECT_EQ(gate.state.refuse_credit_q32, -(HEADGATE_ALWAYS_Q32 / 2));
}

TEST_P(Verdict, ExemptNetworkIsAlwaysLetIn) {
  close_everything();
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(gate.attempt(HEADGATE_EXEMPT_KIND_SOURCE), HEADGATE_CAUSE_EXEMPT);
  }
}

TEST_P(Verdict, NodeAddressesAreExemptUpToTheirRate) {
  close_everything();
  gate.policy.exempt_interval_ns = 50 * kMs;  // 20/s
  gate.policy.exempt_burst_ns = kSecond;
  int exempt = 0;
  for (int i = 0; i < 10'000; ++i) {  // 10 s at 1000/s
    gate.now += kMs;
    exempt += gate.attempt(HEADGATE_EXEMPT_KIND_NODE) == HEADGATE_CAUSE_EXEMPT ? 1 : 0;
  }
  EXPECT_NEAR(exempt, 10 * 20 + 21, 1);
  gate.policy.exempt_interval_ns = 0;  // no limit
  EXPECT_EQ(gate.attempt(HEADGATE_EXEMPT_KIND_NODE), HEADGATE_CAUSE_EXEMPT);
}

TEST_P(Verdict, ExemptAndProbesAreChargedToTheBudget) {
  gate.policy.flags = HEADGATE_ARM_BUDGET | HEADGATE_ARM_CIRCUIT;
  gate.policy.charge_request_ns = 10 * kMs;
  gate.policy.depth_ns = 100 * kMs;
  gate.target.bucket_depth_max_ns = 100 * kMs;
  gate.target.bucket_charge_max_ns = 10 * kMs;
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(gate.attempt(HEADGATE_EXEMPT_KIND_SOURCE), HEADGATE_CAUSE_EXEMPT);
  }
  gate.policy.probe_interval_ns = kSecond;
  EXPECT_EQ(gate.attempt(), HEADGATE_CAUSE_PROBE);
  EXPECT_EQ(gate.target_state.bucket_tat_ns, kStart + 60 * kMs);
  for (int i = 0; i < 1000; ++i) {  // however many are exempt, the debt is bounded
    (void)gate.attempt(HEADGATE_EXEMPT_KIND_SOURCE);
  }
  EXPECT_LE(gate.target_state.bucket_tat_ns, kStart + 120 * kMs);
}

TEST_P(Verdict, EachReasonHasItsAction) {
  gate.policy.flags = HEADGATE_ARM_CIRCUIT;
  for (std::uint32_t reason = 1; reason < HEADGATE_REASON_COUNT; ++reason) {
    for (const auto& [action, verdict] : {std::pair{HEADGATE_ACTION_RESET, HEADGATE_RESET},
                                          {HEADGATE_ACTION_DEFER, HEADGATE_DEFER},
                                          {HEADGATE_ACTION_DROP, HEADGATE_DROP}}) {
      // the neighbours have another action, so that a shift by one would show
      const std::uint64_t other =
          action == HEADGATE_ACTION_RESET ? HEADGATE_ACTION_DROP : HEADGATE_ACTION_RESET;
      gate.policy.actions = all_actions(static_cast<headgate_action>(other));
      gate.policy.actions &= ~(0xffULL << (8 * reason));
      gate.policy.actions |= static_cast<std::uint64_t>(action) << (8 * reason);
      EXPECT_EQ(gate.answer(reason).verdict, verdict) << reason;
    }
  }
}

// ------------------------------------------------------------------------------- defer

struct Waited {
  std::vector<unsigned> silent_s;     ///< tries answered by silence
  std::optional<unsigned> expired_s;  ///< the try answered by RST
};

/// A client whose kernel tries at these seconds, until it is answered.
Waited wait_through(Gate& gate, const std::vector<unsigned>& tries_s) {
  gate.policy.flags = HEADGATE_ARM_CIRCUIT | HEADGATE_MAY_DEFER;
  gate.policy.actions = all_actions(HEADGATE_ACTION_DEFER);
  Waited out;
  std::optional<headgate_age> age;
  for (const unsigned at_s : tries_s) {
    // late by a jiffy each, as timers are
    gate.now = kStart + at_s * kSecond + at_s * 4 * kMs;
    const headgate_answer answer = gate.answer(gate.judge(), 0, age ? &*age : nullptr);
    if (answer.verdict == HEADGATE_RESET) {
      EXPECT_EQ(answer.cause, HEADGATE_CAUSE_EXPIRED);
      out.expired_s = at_s;
      return out;
    }
    EXPECT_EQ(answer.verdict, HEADGATE_DEFER);
    out.silent_s.push_back(at_s);
    age = headgate_age{age ? age->first_ns : gate.now, gate.now, 0, 0};
  }
  return out;
}

TEST_P(Verdict, DeferredIsResetAtTheLastTryBeforeTheDeadline) {
  const std::vector<unsigned> doubling = {0, 1, 3, 7, 15, 31};
  const std::vector<unsigned> linear = {0, 1, 2, 3, 4, 5, 7, 11, 19};  // tcp_syn_linear_timeouts 4
  Waited waited = wait_through(gate, doubling);
  EXPECT_EQ(waited.expired_s, 7U);
  EXPECT_EQ(waited.silent_s, (std::vector<unsigned>{0, 1, 3}));
  waited = wait_through(gate, linear);
  EXPECT_EQ(waited.expired_s, 7U);
  EXPECT_EQ(waited.silent_s, (std::vector<unsigned>{0, 1, 2, 3, 4, 5}));
}

/// refuse: auto. Whoever was told to wait is served, at the cost of those that come later.
TEST_P(Verdict, LastTryBeforeTheDeadlineEntersWhereItIsAsked) {
  gate.policy.flags = HEADGATE_ARM_BUDGET | HEADGATE_MAY_DEFER | HEADGATE_LAST_TRY_ENTERS;
  gate.policy.actions = all_actions(HEADGATE_ACTION_DEFER);
  gate.policy.defer_deadline_ns = gate.target.defer_deadline_ns = 8 * kSecond;
  gate.policy.charge_request_ns = 20 * kMs;
  gate.policy.depth_ns = gate.target.bucket_depth_max_ns = 10 * kMs;
  gate.target.bucket_charge_max_ns = 20 * kMs;
  const auto at = [&](std::uint64_t age_s, std::uint64_t gap_s, headgate_reason reason) {
    gate.now = kStart + age_s * kSecond;
    gate.target_state.bucket_tat_ns = gate.now + 30 * kMs;  // no room
    const headgate_age age{kStart, gate.now - gap_s * kSecond, 0, 0};
    return gate.answer(reason, 0, &age);
  };
  EXPECT_EQ(at(3, 2, HEADGATE_REASON_BUDGET).verdict, HEADGATE_DEFER);
  const headgate_answer last = at(7, 4, HEADGATE_REASON_BUDGET);
  EXPECT_EQ(last.verdict, HEADGATE_ADMIT);
  EXPECT_EQ(last.cause, HEADGATE_CAUSE_LAST_TRY);
  EXPECT_GT(gate.target_state.bucket_tat_ns, gate.now + 30 * kMs) << "charged, though no room";
  // After the deadline its client may have gone; and no other reason gives way.
  EXPECT_EQ(at(9, 4, HEADGATE_REASON_BUDGET).cause, HEADGATE_CAUSE_EXPIRED);
  EXPECT_EQ(at(7, 4, HEADGATE_REASON_MEMORY).cause, HEADGATE_CAUSE_EXPIRED);
  EXPECT_EQ(at(7, 4, HEADGATE_REASON_CIRCUIT).cause, HEADGATE_CAUSE_EXPIRED);
  gate.policy.flags &= ~HEADGATE_LAST_TRY_ENTERS;
  EXPECT_EQ(at(7, 4, HEADGATE_REASON_BUDGET).cause, HEADGATE_CAUSE_EXPIRED);
}

/// refuse: auto resets for most reasons. Who was told to wait, because of the budget, goes on
/// waiting when the reason has become another one; but none of these gives way at the last try.
TEST_P(Verdict, WhoWaitsGoesOnWaitingWhateverTheReasonIsByThen) {
  gate.policy.flags =
      HEADGATE_ARM_BUDGET | HEADGATE_ARM_SHARE | HEADGATE_MAY_DEFER | HEADGATE_LAST_TRY_ENTERS;
  gate.policy.actions = std::uint64_t{HEADGATE_ACTION_DEFER} << (8 * HEADGATE_REASON_BUDGET);
  gate.policy.defer_deadline_ns = gate.target.defer_deadline_ns = 8 * kSecond;
  const auto at = [&](std::uint64_t age_s, std::uint64_t gap_s, headgate_reason reason) {
    gate.now = kStart + age_s * kSecond;
    const headgate_age age{kStart, gate.now - gap_s * kSecond, 0, 0};
    return gate.answer(reason, 0, &age);
  };
  for (const headgate_reason reason : {HEADGATE_REASON_SHARE, HEADGATE_REASON_RATE,
                                       HEADGATE_REASON_MEMORY, HEADGATE_REASON_CIRCUIT}) {
    EXPECT_EQ(at(3, 2, reason).verdict, HEADGATE_DEFER) << reason;
    EXPECT_EQ(gate.answer(reason).verdict, HEADGATE_RESET) << "one that is new, " << reason;
    EXPECT_EQ(at(7, 4, reason).cause, HEADGATE_CAUSE_EXPIRED) << reason;
  }
}

/// A share is low for memory's sake, too, and is judged before memory and rate.
TEST_P(Verdict, WhatIsFullInMemoryIsNotEnteredAtTheLastTry) {
  gate.policy.flags = HEADGATE_ARM_SHARE | HEADGATE_ARM_MEMORY | HEADGATE_ARM_BUDGET |
                      HEADGATE_MAY_DEFER | HEADGATE_LAST_TRY_ENTERS;
  gate.policy.actions = std::uint64_t{HEADGATE_ACTION_DEFER} << (8 * HEADGATE_REASON_BUDGET);
  gate.policy.defer_deadline_ns = gate.target.defer_deadline_ns = 8 * kSecond;
  gate.policy.charge_request_ns = 1;
  gate.policy.depth_ns = gate.target.bucket_depth_max_ns = kSecond;
  gate.target.live_bytes_max = 1000;
  gate.target_state.live_bytes = 10'000'000;
  for (const double admit : {0.0, 0.1, 0.9}) {
    gate.policy.admit_q32 = static_cast<std::uint64_t>(admit * 4294967296.0);
    int entered = 0;
    for (int i = 0; i < 1000; ++i) {
      gate.now = kStart + 7 * kSecond + static_cast<std::uint64_t>(i);
      const headgate_age age{gate.now - 7 * kSecond, gate.now - 4 * kSecond, 0, 0};
      const auto reason = gate.judge();
      ASSERT_NE(reason, HEADGATE_REASON_NONE) << "memory is full";
      entered += gate.answer(reason, 0, &age).verdict == HEADGATE_ADMIT ? 1 : 0;
    }
    EXPECT_EQ(entered, 0) << admit;
  }
}

/// Whatever the deadline and the timer: nobody is left waiting past it, and nobody is reset while a
/// further try was sure to come before it.
RC_GTEST_PROP(VerdictProperty, NobodyWaitsPastTheDeadline, ()) {
  Gate gate(*rc::gen::arbitrary<bool>());
  const auto deadline_ms = *rc::gen::inRange<std::uint64_t>(3100, 30'000);
  gate.policy.defer_deadline_ns = deadline_ms * kMs;
  gate.target.defer_deadline_ns = gate.policy.defer_deadline_ns;
  const std::vector<unsigned> tries =
      *rc::gen::element(std::vector<unsigned>{0, 1, 3, 7, 15, 31, 63},
                        std::vector<unsigned>{0, 1, 2, 3, 4, 5, 7, 11, 19, 35});
  const Waited waited = wait_through(gate, tries);
  RC_ASSERT(waited.expired_s.has_value());
  RC_ASSERT(*waited.expired_s * 1004 <= deadline_ms);
  const unsigned last_gap = *waited.expired_s - waited.silent_s.back();
  RC_ASSERT((*waited.expired_s + 2 * last_gap) * 1004 + 4 >= deadline_ms);
}

TEST_P(Verdict, NoMoreMayWaitThanTheCap) {
  gate.policy.flags = HEADGATE_ARM_CIRCUIT | HEADGATE_MAY_DEFER;
  gate.policy.actions = all_actions(HEADGATE_ACTION_DEFER);
  gate.target.waiting_max = 10;
  gate.target_state.waiting_started = 30;
  gate.target_state.waiting_settled = 15;
  gate.target.waiting_written_off = 6;
  EXPECT_EQ(gate.attempt(), HEADGATE_CAUSE_REFUSED);
  EXPECT_EQ(gate.answer(HEADGATE_REASON_CIRCUIT).verdict, HEADGATE_DEFER);  // 9 wait
  gate.target_state.waiting_started++;
  EXPECT_EQ(gate.answer(HEADGATE_REASON_CIRCUIT).verdict, HEADGATE_RESET);
  // who waits already goes on waiting
  const headgate_age age{gate.now - kSecond, gate.now - kSecond, 0, 0};
  EXPECT_EQ(gate.answer(HEADGATE_REASON_CIRCUIT, 0, &age).verdict, HEADGATE_DEFER);
  gate.target_state.waiting_settled = 100;  // more settled than started: a slot with a past
  EXPECT_EQ(gate.answer(HEADGATE_REASON_CIRCUIT).verdict, HEADGATE_DEFER);
}

/// refuse: auto gives the budget and the other reasons bounds of their own.
TEST_P(Verdict, BoundOfAReasonHoldsBesideThatOfTheTarget) {
  gate.policy.flags = HEADGATE_ARM_BUDGET | HEADGATE_MAY_DEFER;
  gate.policy.actions = all_actions(HEADGATE_ACTION_DEFER);
  gate.policy.waiting_max = 20;
  gate.policy.waiting_max_other = 5;
  const auto verdict_at = [&](std::uint64_t waiting, headgate_reason reason) {
    gate.target_state.waiting_started = waiting;
    return gate.answer(reason).verdict;
  };
  EXPECT_EQ(verdict_at(19, HEADGATE_REASON_BUDGET), HEADGATE_DEFER);
  EXPECT_EQ(verdict_at(20, HEADGATE_REASON_BUDGET), HEADGATE_RESET);
  EXPECT_EQ(verdict_at(4, HEADGATE_REASON_CONNECTIONS), HEADGATE_DEFER);
  EXPECT_EQ(verdict_at(5, HEADGATE_REASON_CONNECTIONS), HEADGATE_RESET);
  EXPECT_EQ(verdict_at(5, HEADGATE_REASON_MEMORY), HEADGATE_RESET);
  gate.policy.waiting_max = 0;
  EXPECT_EQ(verdict_at(0, HEADGATE_REASON_BUDGET), HEADGATE_RESET);
  // who waits already goes on waiting
  const headgate_age age{gate.now - kSecond, gate.now - kSecond, 0, 0};
  EXPECT_EQ(gate.answer(HEADGATE_REASON_BUDGET, 0, &age).verdict, HEADGATE_DEFER);
  gate.policy.waiting_max = 2000;  // the target's own bound
  EXPECT_EQ(verdict_at(1000, HEADGATE_REASON_BUDGET), HEADGATE_RESET);
}

// ------------------------------------------------------------------------------- both variants

/// Whatever happens, in whatever order, policies changing under way: the variant with atomics and
/// the one with a spin lock give the same verdicts and leave the same state.
RC_GTEST_PROP(VerdictProperty, VariantsAgree, ()) {
  Gate atomic(false);
  Gate locked(true);
  const auto small_ns = rc::gen::map(rc::gen::inRange<std::uint64_t>(0, 200),
                                     [](std::uint64_t ms) { return ms * kMs; });
  const int steps = *rc::gen::inRange(1, 200);
  for (int step = 0; step < steps; ++step) {
    if (*rc::gen::inRange(0, 8) == 0) {
      headgate_endpoint_policy policy = atomic.policy;
      policy.flags = (*rc::gen::arbitrary<std::uint64_t>() & HEADGATE_ARM_MASK &
                      ~(*rc::gen::arbitrary<bool>() ? HEADGATE_ARM_CIRCUIT : 0)) |
                     (*rc::gen::inRange(0, 8) == 0 ? HEADGATE_OBSERVE : 0);
      policy.admit_q32 = *rc::gen::inRange<std::uint64_t>(0, HEADGATE_ALWAYS_Q32 + 1);
      policy.charge_request_ns = *small_ns;
      policy.depth_ns = *small_ns;
      policy.rate_interval_ns = *small_ns;
      policy.rate_burst_ns = *small_ns;
      policy.connections_max = *rc::gen::inRange<std::uint64_t>(0, 20);
      policy.probe_interval_ns = *small_ns * 10;
      policy.max_refuse_q32 = *rc::gen::inRange<std::uint64_t>(0, HEADGATE_ALWAYS_Q32 + 1);
      policy.exempt_interval_ns = *small_ns;
      policy.exempt_burst_ns = *small_ns;
      atomic.policy = locked.policy = policy;
      headgate_target_policy target = atomic.target;
      target.bucket_depth_max_ns = std::max<std::uint64_t>(policy.depth_ns, *small_ns);
      target.bucket_charge_max_ns = policy.charge_request_ns;
      target.live_bytes_max = *rc::gen::inRange<std::uint64_t>(0, 100);
      atomic.target = locked.target = target;
    }
    const std::uint64_t elapsed = *small_ns / 10;
    const std::uint64_t in_flight = *rc::gen::inRange<std::uint64_t>(0, 20);
    const std::uint64_t live_bytes = *rc::gen::inRange<std::uint64_t>(0, 100);
    const std::uint32_t exempt = *rc::gen::inRange<std::uint32_t>(0, 3);
    std::uint32_t causes[2] = {};
    std::size_t i = 0;
    for (Gate* gate : {&atomic, &locked}) {
      gate->now += elapsed;
      gate->state.in_flight = in_flight;
      gate->target_state.live_bytes = live_bytes;
      causes[i++] = gate->attempt(exempt);
    }
    RC_ASSERT(causes[0] == causes[1]);
    RC_ASSERT(atomic.state.share_q32 == locked.state.share_q32);
    RC_ASSERT(atomic.state.refuse_credit_q32 == locked.state.refuse_credit_q32);
    RC_ASSERT(atomic.state.rate_tat_ns == locked.state.rate_tat_ns);
    RC_ASSERT(atomic.state.exempt_tat_ns == locked.state.exempt_tat_ns);
    RC_ASSERT(atomic.state.probe_last_ns == locked.state.probe_last_ns);
    RC_ASSERT(atomic.target_state.bucket_tat_ns == locked.target_state.bucket_tat_ns);
  }
}

}  // namespace
}  // namespace headgate
