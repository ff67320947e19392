// SPDX-License-Identifier: Apache-2.0
// What has begun and is neither ended nor given up: the agent's share of that number.
#include "agent/outstanding.h"

#include <rapidcheck.h>

#include <chrono>
#include <deque>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace headgate {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kHorizon = seconds(2);
constexpr Duration kTick = milliseconds(100);

/// The kernel's two counters, the agent's third, and a clock.
struct Ledger {
  std::int64_t outstanding() const {
    return static_cast<std::int64_t>(begun - ended - written_off.written_off());
  }
  void pass(Duration time) {
    for (const Instant end = now + time; now < end;) {
      now += kTick;
      written_off.update(now, begun, ended, kHorizon);
    }
  }
  Outstanding written_off;
  std::uint64_t begun = 0;
  std::uint64_t ended = 0;
  Instant now = Instant(seconds(100));
};

TEST(Outstanding, WhatEndsIsNeverWrittenOff) {
  Ledger ledger;
  for (int i = 0; i < 100; ++i) {
    ledger.begun += 10;
    ledger.pass(kTick);
    ledger.ended += 10;
  }
  ledger.pass(seconds(10));
  EXPECT_EQ(ledger.written_off.written_off(), 0U);
}

TEST(Outstanding, WhatNeverEndsIsWrittenOffAfterTheHorizonAndNotBefore) {
  Ledger ledger;
  ledger.pass(kTick);
  ledger.begun = 7;
  ledger.pass(kHorizon - kTick);
  EXPECT_EQ(ledger.outstanding(), 7);
  ledger.pass(2 * kTick + kHorizon / 16);
  EXPECT_EQ(ledger.outstanding(), 0);
  ledger.pass(seconds(60));
  EXPECT_EQ(ledger.written_off.written_off(), 7U);
}

TEST(Outstanding, FreshOnesStayWhileOldOnesAreWrittenOff) {
  Ledger ledger;
  ledger.begun = 5;
  ledger.pass(kHorizon - kTick);
  ledger.begun += 3;
  ledger.pass(5 * kTick);
  EXPECT_EQ(ledger.outstanding(), 3);
}

/// A client that was given up comes after all: what it had been written off for must not hide one
/// of those that really wait, or the cap would leak by one each time.
TEST(Outstanding, LateEndTakesItsWriteOffBack) {
  Ledger ledger;
  ledger.begun = 5;
  ledger.pass(2 * kHorizon);
  EXPECT_EQ(ledger.outstanding(), 0);
  ledger.ended = 5;
  ledger.pass(kTick);
  ledger.begun = 7;
  ledger.pass(kTick);
  EXPECT_EQ(ledger.outstanding(), 2);
}

/// An agent that takes over goes on from the number in force: from zero, everything ever given up
/// would wait again and shut the gate for a horizon.
TEST(Outstanding, RestartGoesOnFromTheNumberInForce) {
  Ledger before;
  before.begun = 1000;
  before.pass(2 * kHorizon);
  Ledger after;
  after.begun = before.begun + 1;
  after.written_off.resume(before.written_off.written_off());
  after.pass(kTick);
  EXPECT_EQ(after.outstanding(), 1);
  after.pass(2 * kHorizon);
  EXPECT_EQ(after.outstanding(), 0);
}

/// Random clients: some end, some never. The number is never negative, never below those that are
/// younger than the horizon and will end, and goes to zero when nothing more comes.
RC_GTEST_PROP(OutstandingProperty, IsBoundedByTheTruth, ()) {
  Ledger ledger;
  std::deque<std::pair<Instant, std::uint64_t>> to_end;  // in order: all live equally long
  const auto life = *rc::gen::map(rc::gen::inRange(1, 15), [](int ticks) { return ticks * kTick; });
  const int ticks = *rc::gen::inRange(1, 200);
  for (int i = 0; i < ticks; ++i) {
    const auto good = *rc::gen::inRange<std::uint64_t>(0, 10);
    const auto lost = *rc::gen::inRange<std::uint64_t>(0, 10);
    ledger.begun += good + lost;
    to_end.emplace_back(ledger.now + life, good);
    ledger.pass(kTick);
    while (!to_end.empty() && to_end.front().first <= ledger.now) {
      ledger.ended += to_end.front().second;
      to_end.pop_front();
    }
    std::int64_t living = 0;
    for (const auto& [at, count] : to_end) {
      living += static_cast<std::int64_t>(count);
    }
    RC_ASSERT(ledger.outstanding() >= living);
  }
  for (const auto& [at, count] : to_end) {
    ledger.ended += count;
  }
  ledger.pass(2 * kHorizon);
  RC_ASSERT(ledger.outstanding() == 0);
}

}  // namespace
}  // namespace headgate
