// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "agent/decision/blast_radius.h"

namespace headgate {
namespace {

using namespace std::chrono_literals;
constexpr Duration kLimit = 10s;
const Instant kStart{1000s};

/// Ticks of 100 ms with the same answer of the law; the outcome of the last one.
BlastRadius::Outcome run(BlastRadius& radius, Instant& now, bool refusing, Duration how_long) {
  BlastRadius::Outcome outcome;
  for (const Instant end = now + how_long; now < end; now += 100ms) {
    outcome = radius.update(now, refusing, kLimit);
  }
  return outcome;
}

TEST(BlastRadius, ObservesAfterRefusingForTheWholeDuration) {
  BlastRadius radius;
  Instant now = kStart;
  EXPECT_FALSE(run(radius, now, true, 10s).observe);  // the last tick is at 9.9 s
  const auto outcome = radius.update(now, true, kLimit);
  EXPECT_TRUE(outcome.observe);
  EXPECT_TRUE(outcome.alert);
  EXPECT_TRUE(outcome.changed);
  EXPECT_FALSE(radius.update(now + 100ms, true, kLimit).changed);
}

TEST(BlastRadius, DoesNotCountFromBeforeARealPause) {
  BlastRadius radius;
  Instant now = kStart;
  run(radius, now, true, 9s);
  run(radius, now, false, 1500ms);
  EXPECT_FALSE(run(radius, now, true, 9s).observe);
}

TEST(BlastRadius, CountsAFlappingLawAsRefusing) {
  BlastRadius radius;
  bool observe = false;
  for (int tick = 0; tick <= 100; ++tick) {
    observe = radius.update(kStart + tick * 100ms, tick % 2 == 0, kLimit).observe;
  }
  EXPECT_TRUE(observe);
}

TEST(BlastRadius, DoesNotTakeAnUnwatchedGapForRefusing) {
  BlastRadius radius;
  radius.update(kStart, true, kLimit);
  EXPECT_FALSE(radius.update(kStart + 60s, true, kLimit).observe);
}

TEST(BlastRadius, EnforcesAgainAfterTheSameTimeWithoutRefusing) {
  BlastRadius radius;
  Instant now = kStart;
  ASSERT_TRUE(run(radius, now, true, 11s).observe);
  EXPECT_TRUE(run(radius, now, false, 10s).observe);
  const auto outcome = radius.update(now, false, kLimit);
  EXPECT_FALSE(outcome.observe);
  EXPECT_FALSE(outcome.alert);
  EXPECT_TRUE(outcome.changed);
}

TEST(BlastRadius, StartsTheQuietTimeAnewWithEachRefusal) {
  BlastRadius radius;
  Instant now = kStart;
  run(radius, now, true, 11s);
  run(radius, now, false, 9s);
  run(radius, now, true, 100ms);
  EXPECT_TRUE(run(radius, now, false, 9s).observe);
}

TEST(BlastRadius, IsOffWithoutALimit) {
  BlastRadius radius;
  Instant now = kStart;
  run(radius, now, true, 11s);
  const auto outcome = radius.update(now, true, 0s);
  EXPECT_FALSE(outcome.observe);
  EXPECT_TRUE(outcome.changed);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_FALSE(radius.update(now + i * 1s, true, 0s).observe);
  }
}

}  // namespace
}  // namespace headgate
