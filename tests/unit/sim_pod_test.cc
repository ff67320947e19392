// SPDX-License-Identifier: Apache-2.0
// The pod of the simulator against numbers worked out by hand.
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/sim/pod.h"

namespace headgate::sim {
namespace {

using testing::ElementsAre;

struct Events : PodEvents {
  double patience_s = 1e9;
  std::vector<double> finished_at_s;
  int refused = 0;
  int idle = 0;

  bool refuses_waiting(double waited_s) override { return waited_s > patience_s; }
  void refused_waiting(const Request& /*request*/) override { ++refused; }
  void queue_is_empty() override { ++idle; }
  void finished(const Request& /*request*/, double at_s) override { finished_at_s.push_back(at_s); }
};

Scenario two_cores() {
  Scenario s;
  s.capacity_cores = 2;
  s.workers = 8;
  s.endpoints.push_back({.name = "e", .rate_per_s = 1000, .cost_s = 0.002});
  return s;
}

void run(Pod& pod, Events& events, std::int64_t from, std::int64_t to) {
  for (std::int64_t tick = from; tick < to; ++tick) {
    pod.begin_tick(tick);
    pod.serve(events);
    (void)pod.account_memory();
  }
}

TEST(SimPod, RequestTakesItsWorkOnOneCore) {
  const Scenario s = two_cores();
  Pod pod(s);
  Events events;
  pod.begin_tick(0);
  (void)pod.admit(0, 1, 0.0035F, 0);
  (void)pod.admit(0, 1, 0.001F, 0);
  EXPECT_NEAR(pod.backlog_s(), 0.0045, 1e-9);
  run(pod, events, 0, 4);
  ASSERT_EQ(events.finished_at_s.size(), 2U);
  EXPECT_NEAR(events.finished_at_s[0], 0.001, 1e-9);
  EXPECT_NEAR(events.finished_at_s[1], 0.0035, 1e-8);
  EXPECT_NEAR(pod.usage_s(), 0.0045, 1e-8);
  EXPECT_EQ(pod.in_flight(), 0);
  EXPECT_EQ(pod.pressure_s(), 0);
}

/// 2 cores in periods of 100 ms are 200 ms of CPU: eight workers use it up in 25 ms and are
/// throttled for the other 75.
TEST(SimPod, QuotaIsUsedUpAndEverythingWaitsForThePeriod) {
  const Scenario s = two_cores();
  Pod pod(s);
  Events events;
  pod.begin_tick(0);
  for (int i = 0; i < 8; ++i) (void)pod.admit(0, 1, 10, 0);
  run(pod, events, 0, 37);  // the rest of the period that has begun
  const double usage_s = pod.usage_s();
  const double throttled_s = pod.throttled_s();
  run(pod, events, 37, 137);
  EXPECT_NEAR(pod.usage_s() - usage_s, 0.2, 1e-9);
  EXPECT_NEAR(pod.throttled_s() - throttled_s, 0.075, 0.0011);
  EXPECT_NEAR(pod.pressure_s(), pod.throttled_s(), 1e-9);
  EXPECT_EQ(pod.periods(), 1U);  // the one of ticks 37 to 136 has not ended
  pod.begin_tick(137);
  EXPECT_EQ(pod.periods(), 2U);
  EXPECT_EQ(pod.throttled_periods(), 2U);
}

TEST(SimPod, BelowTheQuotaNothingIsThrottled) {
  const Scenario s = two_cores();
  Pod pod(s);
  Events events;
  for (std::int64_t tick = 0; tick < 1000; ++tick) {
    pod.begin_tick(tick);
    (void)pod.admit(0, 1, 0.0015F, 0);
    pod.serve(events);
  }
  EXPECT_NEAR(pod.usage_s(), 1.5, 0.002);
  EXPECT_EQ(pod.throttled_periods(), 0U);
  EXPECT_EQ(pod.periods(), 10U);
}

TEST(SimPod, LossOfCapacityShrinksTheQuota) {
  Scenario s = two_cores();
  s.capacity = 0.5;
  Pod pod(s);
  Events events;
  pod.begin_tick(0);
  for (int i = 0; i < 8; ++i) (void)pod.admit(0, 1, 10, 0);
  run(pod, events, 0, 1037);
  // the first 37 ms have the whole quota of their period
  EXPECT_NEAR(pod.usage_s(), 0.2 + 10 * 0.1, 0.01);
}

TEST(SimPod, SoftQuotaGivesTwiceTheCapacity) {
  Scenario s = two_cores();
  s.hard_quota = false;
  Pod pod(s);
  Events events;
  pod.begin_tick(0);
  for (int i = 0; i < 8; ++i) (void)pod.admit(0, 1, 10, 0);
  run(pod, events, 0, 100);
  EXPECT_NEAR(pod.usage_s(), 0.4, 1e-6);
  EXPECT_EQ(pod.throttled_s(), 0);
  EXPECT_NEAR(pod.pressure_s(), 0.1, 1e-9);
}

TEST(SimPod, BackgroundComesBeforeRequests) {
  Scenario s = two_cores();
  s.background_cores = 1.5;
  s.workers = 2;
  Pod pod(s);
  Events events;
  pod.begin_tick(0);
  for (int i = 0; i < 8; ++i) (void)pod.admit(0, 1, 10, 0);
  run(pod, events, 0, 1037);
  EXPECT_NEAR(pod.usage_s(), 0.074 + 2.0, 0.15);
  EXPECT_NEAR(80 - pod.backlog_s(), pod.usage_s() - 1.5 * 1.037, 0.01);
}

TEST(SimPod, WhatHasWaitedTooLongIsRefusedAtItsTurn) {
  Scenario s = two_cores();
  s.workers = 1;
  Pod pod(s);
  Events events;
  events.patience_s = 0.005;
  pod.begin_tick(0);
  for (int i = 0; i < 20; ++i) (void)pod.admit(0, 1, 0.001F, 0);
  run(pod, events, 0, 30);
  // a worker takes the next one where it ends the one before: the sixth begins at 5 ms, and the
  // clock of the tick says 4 ms where the seventh does
  EXPECT_EQ(events.finished_at_s.size() + static_cast<std::size_t>(events.refused), 20U);
  EXPECT_NEAR(static_cast<double>(events.finished_at_s.size()), 6, 1);
  EXPECT_EQ(pod.in_flight(), 0);
  EXPECT_NEAR(pod.backlog_s(), 0, 1e-9);
  EXPECT_GT(events.idle, 0);
}

TEST(SimPod, MemoryAboveTheLimitKillsAndCostsARestart) {
  Scenario s = two_cores();
  s.oom_kills = true;
  s.memory_limit_mib = 100;
  s.memory_base_mib = 50;
  s.memory_per_kb_mib = 1;
  s.drain_kb_per_s = 0;
  Pod pod(s);
  Events events;
  pod.begin_tick(0);
  const RequestHandle handle = pod.admit(0, 51, 1, 0);
  ASSERT_NE(pod.find(handle), nullptr);
  pod.serve(events);
  EXPECT_EQ(pod.account_memory(), 0);  // nothing had been retained
  EXPECT_EQ(pod.kills(), 1);
  EXPECT_EQ(pod.find(handle), nullptr);
  EXPECT_EQ(pod.in_flight(), 0);
  EXPECT_EQ(pod.backlog_s(), 0);
  pod.begin_tick(4999);
  EXPECT_TRUE(pod.is_down());
  pod.begin_tick(5000);
  EXPECT_FALSE(pod.is_down());
}

TEST(SimPod, HandleOfAnEndedRequestIsStaleWhereItsPlaceIsTakenAgain) {
  const Scenario s = two_cores();
  Pod pod(s);
  Events events;
  pod.begin_tick(0);
  const RequestHandle first = pod.admit(0, 1, 0.0005F, 0);
  pod.serve(events);
  EXPECT_EQ(pod.find(first), nullptr);
  const RequestHandle second = pod.admit(0, 1, 0.0005F, 0);
  EXPECT_EQ(second.place, first.place);
  EXPECT_EQ(pod.find(first), nullptr);
  EXPECT_NE(pod.find(second), nullptr);
}

}  // namespace
}  // namespace headgate::sim
