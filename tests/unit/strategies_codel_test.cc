// SPDX-License-Identifier: Apache-2.0
// The rule of "Fail at Scale" (ACM Queue 13(8), 2015): a queue that was empty within the last
// 100 ms lets a request wait 100 ms, any other 5 ms.
#include <gtest/gtest.h>

#include "agent/strategies/codel.h"
#include "strategy_harness.h"

namespace headgate {
namespace {

using std::chrono::milliseconds;
using test::make_strategy;
using test::Ticks;

TEST(Codel, LetsARequestWaitAsLongAsTheQueueStandsOrNot) {
  AdaptiveCodel queue(milliseconds(5), milliseconds(100));
  const Instant start{std::chrono::seconds(10)};
  queue.queue_was_empty(start);
  EXPECT_FALSE(queue.drops(milliseconds(100), start + milliseconds(100)));
  EXPECT_TRUE(queue.drops(milliseconds(101), start + milliseconds(100)));
  EXPECT_FALSE(queue.drops(milliseconds(5), start + milliseconds(101)));
  EXPECT_TRUE(queue.drops(milliseconds(6), start + milliseconds(101)));
  queue.queue_was_empty(start + milliseconds(150));
  EXPECT_FALSE(queue.drops(milliseconds(6), start + milliseconds(160)));
}

TEST(Codel, TakesAQueueThatWasNeverEmptyForAStandingOne) {
  const AdaptiveCodel queue(milliseconds(5), milliseconds(100));
  EXPECT_TRUE(queue.drops(milliseconds(6), Instant{std::chrono::seconds(10)}));
}

TEST(Codel, HasTheQueueOfItsParameters) {
  Params params;
  params.numbers["delay"] = 0.02;
  params.numbers["interval"] = 0.5;
  const auto law = make_strategy("codel", params);
  auto& queue = dynamic_cast<Codel&>(*law).queue();
  const Instant now{std::chrono::seconds(10)};
  EXPECT_FALSE(queue.drops(milliseconds(20), now));
  EXPECT_TRUE(queue.drops(milliseconds(21), now));
  queue.queue_was_empty(now);
  EXPECT_FALSE(queue.drops(milliseconds(500), now));
}

TEST(Codel, AdmitsEverythingOnARealTargetAndSaysWhy) {
  const StrategyInfo* info = find_strategy("codel");
  EXPECT_TRUE(info->needs_requests);
  EXPECT_TRUE(find_strategy(info->instead)->built);
  const auto law = make_strategy("codel");
  Ticks ticks(*law);
  ticks.traffic(1000, 1000, 10, 5.0).cpu(2).run(20);
  EXPECT_EQ(ticks.decision.state, State::kUnknown);
  EXPECT_EQ(ticks.decision.why,
            "codel: how long requests wait is not seen, everything is admitted");
  EXPECT_EQ(ticks.admit(), 1.0);
  EXPECT_EQ(ticks.decision.connections_max, 0U);
}

/// Requests of one route: so many answered a tick, after this time.
Ticks& requests(Ticks& ticks, std::uint64_t in_flight, std::uint64_t responses, double response_s) {
  ticks.endpoints[0].requests = true;
  return ticks.traffic(responses, in_flight, responses, response_s).cpu(0.9);
}

TEST(Codel, LimitsWhatIsInFlightWhileTheQueueStands) {
  const auto law = make_strategy("codel");
  Ticks ticks(*law);
  requests(ticks, 2, 100, 0.002).run(20);  // 1000/s in 2 ms
  EXPECT_EQ(ticks.decision.state, State::kNormal);
  EXPECT_EQ(ticks.decision.connections_max, 0U);
  requests(ticks, 60, 100, 0.06).run(1);  // 58 ms of it in the queue
  EXPECT_EQ(ticks.decision.connections_max, 0U) << "for 100 ms it may be";
  requests(ticks, 60, 100, 0.06).run(2);
  EXPECT_EQ(ticks.decision.state, State::kShedding);
  EXPECT_EQ(ticks.decision.connections_max, 7U) << "1000/s x (2 ms + 5 ms)";
  requests(ticks, 3, 100, 0.003).run(1);
  EXPECT_EQ(ticks.decision.state, State::kNormal) << "the queue was empty";
  EXPECT_EQ(ticks.decision.connections_max, 0U);
}

TEST(Codel, AdmitsAllWhereNothingWaits) {
  const auto law = make_strategy("codel");
  Ticks ticks(*law);
  requests(ticks, 200, 100, 0.2).run(100);
  EXPECT_EQ(ticks.decision.connections_max, 0U) << "slow is not queued";
  requests(ticks, 0, 0, 0).run(10);
  EXPECT_EQ(ticks.decision.connections_max, 0U);
}

TEST(Codel, SaysWhichTimesContradict) {
  Params params;
  params.numbers["delay"] = 0.2;
  EXPECT_EQ(find_strategy("codel")->check(params), "delay must be below interval");
}

}  // namespace
}  // namespace headgate
