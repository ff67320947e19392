// SPDX-License-Identifier: Apache-2.0
#include "agent/decision/storm.h"

#include <cmath>
#include <random>
#include <set>

#include <gtest/gtest.h>

namespace headgate {
namespace {

using std::chrono::seconds;
const Instant kStart{seconds(1000)};

/// Seconds until the state changes with so many refused attempts a second; -1 = not within 1000.
int seconds_until_change(StormWatch& watch, Instant& now, std::uint64_t refused, double sources) {
  for (int i = 1; i <= 1000; ++i) {
    now += seconds(1);
    if (watch.update(now, refused, sources).changed) {
      return i;
    }
  }
  return -1;
}

TEST(StormWatch, BeginsAfterTwoHotSeconds) {
  StormWatch watch;
  Instant now = kStart;
  (void)watch.update(now, 0, 0);
  EXPECT_EQ(seconds_until_change(watch, now, 1000, 10), 2);
  EXPECT_TRUE(watch.storm());
}

TEST(StormWatch, ManySourcesThatTryNowAndThenAreNone) {
  StormWatch watch;
  Instant now = kStart;
  EXPECT_EQ(seconds_until_change(watch, now, 10'000, 1000), -1);
}

TEST(StormWatch, OneBurstIsNone) {
  StormWatch watch;
  (void)watch.update(kStart, 0, 0);
  EXPECT_FALSE(watch.update(kStart + seconds(1), 5000, 1).storm);
  EXPECT_FALSE(watch.update(kStart + seconds(2), 0, 0).storm);
  EXPECT_FALSE(watch.update(kStart + seconds(3), 5000, 1).storm);
}

TEST(StormWatch, WhatCameBeforeTheFirstLookIsNotARate) {
  StormWatch watch;
  EXPECT_FALSE(watch.update(kStart, 1'000'000, 1).storm);
  EXPECT_FALSE(watch.update(kStart, 1'000'000, 1).storm);
}

TEST(StormWatch, ALongPauseBetweenLooksIsNoRateOfASecond) {
  StormWatch watch;
  Instant now = kStart;
  (void)watch.update(now, 0, 0);
  for (int i = 0; i < 10; ++i) {
    now += seconds(10);
    EXPECT_FALSE(watch.update(now, 50, 1).storm);
  }
}

TEST(StormWatch, StaysBetweenTheTwoThresholds) {
  StormWatch watch;
  Instant now = kStart;
  (void)watch.update(now, 0, 0);
  ASSERT_EQ(seconds_until_change(watch, now, 1000, 1), 2);
  EXPECT_EQ(seconds_until_change(watch, now, 5, 1), -1);
  EXPECT_TRUE(watch.storm());
}

TEST(StormWatch, EndsByItselfAndHoldsLongerEachTimeItComesBack) {
  StormWatch watch;
  Instant now = kStart;
  (void)watch.update(now, 0, 0);
  for (const int hold : {10, 20, 40, 80, 160, 160}) {
    ASSERT_EQ(seconds_until_change(watch, now, 1000, 1), 2);
    EXPECT_EQ(seconds_until_change(watch, now, 1, 1), hold);
  }
  now += seconds(120);
  (void)watch.update(now, 0, 0);
  ASSERT_EQ(seconds_until_change(watch, now, 1000, 1), 2);
  EXPECT_EQ(seconds_until_change(watch, now, 1, 1), 10);
}

TEST(StormWatch, GoesOnAfterARestart) {
  StormWatch watch;
  Instant now = kStart;
  watch.resume(now);
  EXPECT_EQ(seconds_until_change(watch, now, 0, 0), 10);
}

TEST(Sources, AreEstimatedWithinATenth) {
  std::mt19937_64 random(7);  // NOLINT: the same each time
  for (const std::uint32_t sources : {1U, 10U, 100U, 1000U, 3000U}) {
    std::set<std::uint64_t> bits;
    for (std::uint32_t i = 0; i < sources; ++i) {
      bits.insert(random() % 1024);
    }
    EXPECT_NEAR(estimate_sources(static_cast<std::uint32_t>(bits.size()), 1024), sources,
                0.1 * sources + 0.6);
  }
  EXPECT_EQ(estimate_sources(0, 1024), 0);
  EXPECT_TRUE(std::isfinite(estimate_sources(1024, 1024)));
}

}  // namespace
}  // namespace headgate
