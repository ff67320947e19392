// SPDX-License-Identifier: Apache-2.0
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "agent/decision/decide.h"
#include "agent/decision/publish_policy.h"
#include "agent/signals/signals.h"
#include "tests/unit/strategy_harness.h"

namespace headgate {
namespace {

/// [0, 1], with both ends often.
rc::Gen<double> share() {
  return rc::gen::oneOf(
      rc::gen::element(0.0, 1.0),
      rc::gen::map(rc::gen::inRange(0, 10'001), [](int n) { return n / 10'000.0; }));
}

/// Any double that C++ has, with the worst of them often.
rc::Gen<double> any_number() {
  return rc::gen::oneOf(rc::gen::arbitrary<double>(),
                        rc::gen::element(std::numeric_limits<double>::quiet_NaN(),
                                         std::numeric_limits<double>::infinity(),
                                         -std::numeric_limits<double>::infinity(), 0.0, -1.0,
                                         1e-310, 1e300, std::numeric_limits<double>::max()));
}

struct Pod {
  std::vector<EndpointInput> endpoints;
  std::vector<double> demand;

  [[nodiscard]] std::vector<EndpointDecision> allocated(double refuse, double minimum = 0) const {
    std::vector<EndpointDecision> out(endpoints.size());
    allocate(refuse, endpoints, demand, minimum, out);
    return out;
  }
  [[nodiscard]] double total() const {
    double sum = 0;
    for (const double d : demand) sum += d;
    return sum;
  }
};

Pod any_pod() {
  Pod pod;
  const int n = *rc::gen::inRange(1, 9);
  for (int i = 0; i < n; ++i) {
    EndpointInput endpoint;
    endpoint.criticality = static_cast<Criticality>(*rc::gen::inRange(0, 4));
    endpoint.floor = Probability::refusing(*share());
    pod.endpoints.push_back(endpoint);
    pod.demand.push_back(*rc::gen::inRange(0, 2000));
  }
  return pod;
}

RC_GTEST_PROP(AllocateProperty, RefusesTheWholeShare, ()) {
  const Pod pod = any_pod();
  const double refuse = *share();
  const auto out = pod.allocated(refuse);
  double refused = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    refused += pod.demand[i] * out[i].admit.complement().value();
  }
  RC_ASSERT(std::abs(refused - refuse * pod.total()) <= 1e-9 * (1 + pod.total()));
}

RC_GTEST_PROP(AllocateProperty, KeepsFloorsWhileThereIsEnoughAboveThem, ()) {
  const Pod pod = any_pod();
  const double refuse = *share();
  double above_floors = 0;
  for (std::size_t i = 0; i < pod.demand.size(); ++i) {
    above_floors += pod.demand[i] * pod.endpoints[i].floor.complement().value();
  }
  RC_PRE(pod.total() > 0);
  RC_PRE(refuse * pod.total() <= above_floors);
  const auto out = pod.allocated(refuse);
  for (std::size_t i = 0; i < out.size(); ++i) {
    RC_ASSERT(out[i].admit.value() >= pod.endpoints[i].floor.value() - 1e-9);
  }
}

RC_GTEST_PROP(AllocateProperty, TakesNothingFromAClassWhileALessCriticalOneHasMore, ()) {
  const Pod pod = any_pod();
  const auto out = pod.allocated(*share());
  RC_PRE(pod.total() > 0);
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i].admit.value() >= 1 || pod.endpoints[i].floor.value() >= 1) continue;
    for (std::size_t j = 0; j < out.size(); ++j) {
      if (pod.endpoints[j].criticality < pod.endpoints[i].criticality) {
        RC_ASSERT(out[j].admit.value() <= pod.endpoints[j].floor.value() + 1e-9);
      }
    }
  }
}

RC_GTEST_PROP(AllocateProperty, AdmitsNoMoreWhenMoreMustBeRefused, ()) {
  const Pod pod = any_pod();
  double less = *share();
  double more = *share();
  if (less > more) std::swap(less, more);
  const auto before = pod.allocated(less, 0.01);
  const auto after = pod.allocated(more, 0.01);
  for (std::size_t i = 0; i < before.size(); ++i) {
    RC_ASSERT(after[i].admit.value() <= before[i].admit.value() + 1e-9);
  }
}

RC_GTEST_PROP(AllocateProperty, GivesAShareForAnyNumbers, ()) {
  Pod pod = any_pod();
  for (double& demand : pod.demand) demand = *any_number();
  for (EndpointInput& endpoint : pod.endpoints) {
    endpoint.floor = Probability::refusing(*any_number());
  }
  const double minimum = *share();
  for (const EndpointDecision& decision : pod.allocated(*any_number(), minimum)) {
    RC_ASSERT(decision.admit.value() >= minimum);
    RC_ASSERT(decision.admit.value() <= 1.0);
  }
}

PolicyContext any_context() {
  PolicyContext context;
  context.refuse = static_cast<headgate_action>(*rc::gen::inRange(0, 3));
  context.may_defer = *rc::gen::arbitrary<bool>();
  context.observe = *rc::gen::arbitrary<bool>();
  context.max_refuse = Probability::refusing(*any_number());
  context.exempt_node = *rc::gen::arbitrary<bool>();
  context.exempt_sources = *rc::gen::arbitrary<bool>();
  context.exempt_rate_per_s = *any_number();
  context.generation = *rc::gen::arbitrary<std::uint32_t>();
  return context;
}

RC_GTEST_PROP(PolicyProperty, IsIdleWhereEverythingIsAdmitted, ()) {
  Decision decision;
  decision.endpoints.resize(1);
  const auto policy = make_endpoint_policy(decision.endpoints[0], decision, any_context());
  RC_ASSERT((policy.flags & HEADGATE_ARM_MASK) == 0U);
  RC_ASSERT(policy.admit_q32 == HEADGATE_ALWAYS_Q32);
}

RC_GTEST_PROP(PolicyProperty, CannotOverflowTheKernelsSums, ()) {
  Decision decision;
  decision.endpoints.resize(1);
  decision.endpoints[0].depth_s = *any_number();
  decision.endpoints[0].charge_request_s = *any_number();
  decision.endpoints[0].charge_kb_s = *any_number();
  decision.endpoints[0].rate_per_s = *any_number();
  const auto policy = make_endpoint_policy(decision.endpoints[0], decision, any_context());
  TargetPolicyContext context;
  context.largest_request_kb = *any_number();
  const auto target = make_target_policy(decision, context);
  constexpr std::uint64_t kCenturyNs = 3'155'760'000ULL * 1'000'000'000ULL;
  constexpr std::uint64_t kRoom = std::numeric_limits<std::uint64_t>::max() - kCenturyNs;
  RC_ASSERT(target.bucket_depth_max_ns <= kRoom - target.bucket_charge_max_ns);
  RC_ASSERT(policy.rate_burst_ns <= kRoom - policy.rate_interval_ns);
  RC_ASSERT(policy.exempt_burst_ns <= kRoom - policy.exempt_interval_ns);
}

RC_GTEST_PROP(PolicyProperty, ResetsWhatHasWaitedAndDefersOnlyWhereItMay, ()) {
  Decision decision;
  decision.endpoints.resize(1);
  decision.endpoints[0].admit = Probability::admitting(*share());
  const PolicyContext context = any_context();
  const auto policy = make_endpoint_policy(decision.endpoints[0], decision, context);
  RC_ASSERT(action_of(policy.actions, HEADGATE_REASON_WAITED) == HEADGATE_ACTION_RESET);
  for (int reason = 0; reason < HEADGATE_REASON_COUNT; ++reason) {
    const auto action = action_of(policy.actions, static_cast<headgate_reason>(reason));
    RC_ASSERT(action < HEADGATE_ACTION_COUNT);
    RC_ASSERT(action != HEADGATE_ACTION_DEFER || (policy.flags & HEADGATE_MAY_DEFER) != 0U);
    RC_ASSERT(action != HEADGATE_ACTION_DEFER || context.may_defer);
  }
}

Measured<Ratio> any_ratio() {
  return *rc::gen::oneOf(
      rc::gen::just(Measured<Ratio>(Unknown::kStale)),
      rc::gen::map(rc::gen::inRange(0, 1500),
                   [](int n) { return Measured<Ratio>(Ratio{n / 1000.0}); }),
      rc::gen::map(any_number(), [](double n) { return Measured<Ratio>(Ratio{n}); }));
}

RC_GTEST_PROP(GradedProperty, RefusesNothingOnceNothingIsKnown, ()) {
  const auto strategy = test::make_strategy("graded");
  test::Ticks ticks(*strategy, 2);
  const int n = *rc::gen::inRange(0, 40);
  for (int i = 0; i < n; ++i) {
    ticks.signals.cpu = any_ratio();
    ticks.signals.cpu_fast = any_ratio();
    ticks.signals.cpu_slow = any_ratio();
    ticks.signals.memory = any_ratio();
    ticks.signals.memory_pressure = any_ratio();
    ticks.signals.memory_slope_per_second = *any_number();
    ticks.endpoints[0].activity.offered = *rc::gen::inRange<std::uint64_t>(0, 1000);
    ticks.endpoints[0].activity.in_flight = *rc::gen::inRange<std::uint64_t>(0, 1000);
    ticks.endpoints[0].activity.in_flight_known = *rc::gen::arbitrary<bool>();
    ticks.run();
    for (std::size_t e = 0; e < 2; ++e) {
      RC_ASSERT(ticks.admit(e) >= 0.0);
      RC_ASSERT(ticks.admit(e) <= 1.0);
      RC_ASSERT(ticks.decision.circuit_open || ticks.admit(e) >= 0.01);
      RC_ASSERT(ticks.decision.endpoints[e].probe);
    }
  }
  ticks.cpu_unknown();
  ticks.signals.memory = Unknown::kGone;
  ticks.run();
  RC_ASSERT(ticks.decision.state == State::kUnknown);
  RC_ASSERT(!ticks.decision.circuit_open);
  RC_ASSERT(ticks.admit(0) == 1.0);
  RC_ASSERT(ticks.admit(1) == 1.0);
}

RC_GTEST_PROP(SignalProperty, MeansStayBetweenTheLeastAndTheLargest, ()) {
  SignalDeriver deriver;
  Sample sample;
  sample.limits.cpu_cores = 1.0;
  sample.cpu_usage_ns = std::uint64_t{0};
  deriver.update(sample, std::chrono::hours(1));
  double least = std::numeric_limits<double>::infinity();
  double largest = 0;
  const int n = *rc::gen::inRange(1, 50);
  for (int i = 0; i < n; ++i) {
    sample.at += std::chrono::milliseconds(*rc::gen::inRange(1, 3000));
    *sample.cpu_usage_ns.value += *rc::gen::inRange<std::uint64_t>(0, 4'000'000'000);
    const Signals& signals = deriver.update(sample, std::chrono::hours(1));
    least = std::min(least, (*signals.cpu).value);
    largest = std::max(largest, (*signals.cpu).value);
    for (const Measured<Ratio>& mean : {signals.cpu_fast, signals.cpu_slow}) {
      RC_ASSERT((*mean).value >= least - 1e-9 * largest);
      RC_ASSERT((*mean).value <= largest + 1e-9 * largest);
    }
  }
}

}  // namespace
}  // namespace headgate
