// SPDX-License-Identifier: Apache-2.0
#include "agent/beside_gate.h"

#include <gtest/gtest.h>

namespace headgate {
namespace {

using std::chrono::seconds;

class BesideGateTest : public testing::Test {
 protected:
  /// One second after the other, as the agent does; per second so many tries and connections.
  std::uint64_t run(int for_seconds, std::uint64_t tries, std::uint64_t established) {
    for (int i = 0; i < for_seconds; ++i) {
      now_ += seconds(1);
      gate_.update(now_, tries_ += tries, established_ += established);
    }
    return gate_.connections();
  }

  BesideGate gate_;
  Instant now_ = Instant(seconds(1000));
  std::uint64_t tries_ = 7;
  std::uint64_t established_ = 3;
};

TEST_F(BesideGateTest, TrafficThroughTheGateIsNone) { EXPECT_EQ(run(300, 5, 5), 0U); }

TEST_F(BesideGateTest, SilenceIsNone) { EXPECT_EQ(run(300, 0, 0), 0U); }

TEST_F(BesideGateTest, ConnectionsWithoutATryAreCountedOverTheLastMinute) {
  EXPECT_EQ(run(70, 0, 2), 0U) << "not a minute of it has been seen";
  const std::uint64_t counted = run(60, 0, 2);
  EXPECT_GE(counted, 2U * 60);
  EXPECT_LE(counted, 2U * 70);
}

TEST_F(BesideGateTest, WhatWasLongAgoIsForgotten) {
  run(130, 0, 2);
  EXPECT_EQ(run(90, 0, 0), 0U) << "nothing passes any more";
  run(1, 100, 0);
  EXPECT_GT(run(120, 0, 1), 0U) << "a try of two minutes ago hides nothing";
}

TEST_F(BesideGateTest, OneTryInTheMinuteIsTheGateAtWork) {
  run(130, 0, 2);
  EXPECT_EQ(run(1, 1, 1), 0U);
  EXPECT_EQ(run(60, 0, 1), 0U);
}

}  // namespace
}  // namespace headgate
