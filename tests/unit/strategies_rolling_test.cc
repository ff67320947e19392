// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "agent/strategies/rolling.h"

namespace headgate {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Rolling, HasTheSameRateAtAnyTick) {
  for (const int tick_ms : {10, 30, 40, 70, 100, 130, 250, 500}) {
    Rolling rolling(milliseconds(100), seconds(5));
    Instant at{seconds(100)};
    for (int i = 0; i < 2000 / tick_ms; ++i) {
      at += milliseconds(tick_ms);
      rolling.add(at, milliseconds(tick_ms), tick_ms * 0.8, tick_ms * 0.8 * 0.02);
    }
    EXPECT_NEAR(rolling.max_rate_per_s(), 800, 1e-9) << tick_ms;
    EXPECT_NEAR(*rolling.min_mean(), 0.02, 1e-12) << tick_ms;
  }
}

TEST(Rolling, CountsNoBucketBeforeItIsFull) {
  Rolling rolling(milliseconds(500), seconds(5));
  Instant at{seconds(100)};
  for (int i = 0; i < 4; ++i) rolling.add(at += milliseconds(100), milliseconds(100), 10, 1);
  EXPECT_EQ(rolling.max_rate_per_s(), 0);
  EXPECT_FALSE(rolling.min_mean());
  EXPECT_EQ(rolling.count(), 40) << "the sum of the window has it";
  rolling.add(at += milliseconds(100), milliseconds(100), 10, 1);
  EXPECT_NEAR(rolling.max_rate_per_s(), 100, 1e-9);
}

TEST(Rolling, ForgetsWhatIsOlderThanTheWindow) {
  Rolling rolling(milliseconds(100), seconds(1));
  Instant at{seconds(100)};
  rolling.add(at, milliseconds(100), 50, 5);
  for (int i = 0; i < 10; ++i) rolling.add(at += milliseconds(100), milliseconds(100), 1, 1);
  EXPECT_NEAR(rolling.max_rate_per_s(), 500, 1e-9) << "one second old";
  rolling.add(at += milliseconds(100), milliseconds(100), 1, 1);
  EXPECT_NEAR(rolling.max_rate_per_s(), 10, 1e-9);
  EXPECT_NEAR(*rolling.mean(), 1, 1e-12);
  rolling.add(at += seconds(60), seconds(60), 0);  // the agent stood still
  EXPECT_EQ(rolling.max_rate_per_s(), 0);
  EXPECT_EQ(rolling.count(), 0);
  EXPECT_FALSE(rolling.mean());
}

TEST(Rolling, IgnoresATickWithoutTime) {
  Rolling rolling(milliseconds(100), seconds(1));
  const Instant at{seconds(100)};
  rolling.add(at, Duration::zero(), 1e9, 1);
  EXPECT_EQ(rolling.count(), 0);
}

}  // namespace
}  // namespace headgate
