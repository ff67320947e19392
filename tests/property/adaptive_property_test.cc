// SPDX-License-Identifier: Apache-2.0
// Whatever adaptive is told, its decision is sound, and what it does not know refuses nobody.
#include <rapidcheck.h>

#include <array>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "headgate/bpf_abi.h"

#include "agent/strategies/registry.h"

namespace headgate {
namespace {

double any_number() {
  return *rc::gen::element(0.0, -1.0, 1e-300, 1e300, std::nan(""),
                           std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity(), 0.5, 1.0, 1.7);
}

Measured<Ratio> any_ratio() {
  const int kind = *rc::gen::inRange(0, 10);
  if (kind == 0) return Unknown::kIo;
  if (kind == 1) return Ratio{any_number()};
  return Ratio{*rc::gen::inRange(0, 1400) / 1000.0};
}

Measured<std::uint64_t> any_count() {
  const int kind = *rc::gen::inRange(0, 10);
  if (kind == 0) return Unknown::kAbsent;
  if (kind == 1) return std::numeric_limits<std::uint64_t>::max();
  return *rc::gen::inRange<std::uint64_t>(0, 5);
}

std::uint64_t any_traffic() {
  const int kind = *rc::gen::inRange(0, 12);
  if (kind == 0) return std::numeric_limits<std::uint64_t>::max();  // a counter that went back
  if (kind < 3) return 0;
  return *rc::gen::inRange<std::uint64_t>(0, 2000);
}

void any_tick(Signals& signals, std::vector<EndpointInput>& endpoints) {
  signals.interval =
      std::chrono::milliseconds(*rc::gen::element(0, 1, 20, 99, 100, 100, 100, 250, 1300));
  signals.at += signals.interval;
  signals.capacity_cores =
      *rc::gen::inRange(0, 8) == 0 ? any_number() : *rc::gen::element(0.1, 0.5, 2.0);
  signals.cpu = any_ratio();
  signals.cpu_fast = any_ratio();
  signals.periods = any_count();
  signals.throttled_periods = any_count();
  signals.cpu_pressure = any_ratio();
  signals.memory = any_ratio();
  signals.memory_pressure = any_ratio();
  signals.memory_limit_hits = any_count();
  signals.oom_kills = *rc::gen::inRange(0, 20) == 0 ? any_count() : std::uint64_t{0};
  signals.memory_limit_bytes = any_count();
  for (EndpointInput& endpoint : endpoints) {
    endpoint.tcp = *rc::gen::inRange(0, 5) != 0;
    EndpointActivity& a = endpoint.activity;
    a.offered = any_traffic();
    a.admitted = any_traffic();
    a.established = any_traffic();
    a.closed = any_traffic();
    a.received_bytes = any_traffic();
    a.in_flight = any_traffic();
    a.in_flight_known = *rc::gen::arbitrary<bool>();
    a.offered_bytes = any_traffic();
    a.admitted_bytes = any_traffic();
    a.sizes_known = *rc::gen::arbitrary<bool>();
  }
}

void assert_sound(const Decision& decision) {
  RC_ASSERT(decision.state < State::kCount);
  for (const EndpointDecision& e : decision.endpoints) {
    RC_ASSERT(e.admit >= Probability::never());
    RC_ASSERT(e.admit <= Probability::always());
    RC_ASSERT(std::isfinite(e.charge_request_s));
    RC_ASSERT(std::isfinite(e.charge_kb_s));
    RC_ASSERT(std::isfinite(e.depth_s));
    RC_ASSERT(e.charge_request_s >= 0);
    RC_ASSERT(e.charge_kb_s >= 0);
    RC_ASSERT(e.depth_s >= 0);
    RC_ASSERT(e.depth_s == 0 || e.depth_s >= e.charge_request_s);
    RC_ASSERT(decision.circuit_open || e.admit.value() >= 0.01);
  }
}

std::unique_ptr<Strategy> any_adaptive() {
  Params params;
  if (*rc::gen::inRange(0, 4) == 0) params.words["profile"] = "spec";
  return find_strategy("adaptive")->make(params);
}

RC_GTEST_PROP(AdaptiveProperty, DecidesSoundlyWhateverItIsTold, ()) {
  const auto strategy = any_adaptive();
  Signals signals;
  signals.at = Instant(std::chrono::seconds(1000));
  std::vector<EndpointInput> endpoints(*rc::gen::inRange<std::size_t>(1, 4));
  for (EndpointInput& endpoint : endpoints) {
    endpoint.criticality = static_cast<Criticality>(*rc::gen::inRange(0, 4));
    endpoint.floor = Probability::refusing(any_number());
  }
  Decision decision;
  const int ticks = *rc::gen::inRange(1, 40);
  for (int i = 0; i < ticks; ++i) {
    any_tick(signals, endpoints);
    decision = Decision{};
    decision.endpoints.resize(endpoints.size());
    strategy->decide({.signals = signals,
                      .endpoints = endpoints,
                      .target = Ratio{*rc::gen::inRange(0, 10) == 0 ? any_number() : 0.9},
                      .restarted = *rc::gen::inRange(0, 20) == 0,
                      .bucket_enforced = *rc::gen::arbitrary<bool>()},
                     decision);
    assert_sound(decision);
    for (const Strategy::Threshold& value : strategy->internals()) {
      RC_ASSERT(std::isfinite(value.value));
    }
  }

  // and when nothing is known any more, everything comes in, at once
  signals.cpu = signals.cpu_fast = signals.cpu_slow = Unknown::kStale;
  signals.memory = Unknown::kStale;
  signals.interval = std::chrono::milliseconds(100);
  signals.at += signals.interval;
  decision = Decision{};
  decision.endpoints.resize(endpoints.size());
  strategy->decide({.signals = signals, .endpoints = endpoints}, decision);
  RC_ASSERT(decision.state == State::kUnknown);
  RC_ASSERT(!decision.circuit_open);
  RC_ASSERT(decision.connections_max == 0U);
  for (const EndpointDecision& e : decision.endpoints) {
    RC_ASSERT(e.admit == Probability::always());
    RC_ASSERT(e.depth_s == 0.0);
  }
}

RC_GTEST_PROP(AdaptiveProperty, GoesOnAfterARestartAsBefore, ()) {
  const auto before = any_adaptive();
  Signals signals;
  signals.at = Instant(std::chrono::seconds(1000));
  std::vector<EndpointInput> endpoints(*rc::gen::inRange<std::size_t>(1, 4));
  Decision decision;
  for (int i = 0; i < 20; ++i) {
    any_tick(signals, endpoints);
    decision = Decision{};
    decision.endpoints.resize(endpoints.size());
    before->decide({.signals = signals, .endpoints = endpoints}, decision);
  }
  std::array<std::byte, HEADGATE_MODEL_BYTES - 64> saved{};
  const std::size_t used = before->save(saved);
  RC_ASSERT(used > 0U);
  const auto after = find_strategy("adaptive")->make({});
  RC_ASSERT(after->restore(std::span(saved).first(used)));
  // what is saved again is the same, once the number of endpoints is known
  decision = Decision{};
  decision.endpoints.resize(endpoints.size());
  after->decide({.signals = signals, .endpoints = endpoints}, decision);  // the same sample
  std::array<std::byte, HEADGATE_MODEL_BYTES - 64> again{};
  RC_ASSERT(after->save(again) == used);
  RC_ASSERT(saved == again);
}

RC_GTEST_PROP(AdaptiveProperty, IsSoundAfterADamagedModel, ()) {
  const auto healthy = find_strategy("adaptive")->make({});
  Signals before;
  before.at = Instant(std::chrono::seconds(1));
  std::vector<EndpointInput> one(1);
  Decision ignored;
  for (int i = 0; i < 10; ++i) {
    any_tick(before, one);
    ignored = Decision{};
    ignored.endpoints.resize(1);
    healthy->decide({.signals = before, .endpoints = one}, ignored);
  }
  std::array<std::byte, HEADGATE_MODEL_BYTES - 64> model{};
  const std::size_t used = healthy->save(model);
  const int flips = *rc::gen::inRange(1, 20);
  for (int i = 0; i < flips; ++i) {
    model[*rc::gen::inRange<std::size_t>(8, used)] =
        static_cast<std::byte>(*rc::gen::arbitrary<std::uint8_t>());
  }
  const auto strategy = find_strategy("adaptive")->make({});
  strategy->restore(std::span(model).first(used));
  Signals signals;
  signals.at = Instant(std::chrono::seconds(1000));
  std::vector<EndpointInput> endpoints(1);
  Decision decision;
  for (int i = 0; i < 5; ++i) {
    any_tick(signals, endpoints);
    decision = Decision{};
    decision.endpoints.resize(1);
    strategy->decide({.signals = signals, .endpoints = endpoints}, decision);
    assert_sound(decision);
  }
}

}  // namespace
}  // namespace headgate
