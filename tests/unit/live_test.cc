// SPDX-License-Identifier: Apache-2.0
// Live bytes and lives (bpf/lib/live.h), compiled natively, and what the agent makes of them.
#include "bpf/lib/live.h"

#include <rapidcheck.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "agent/decision/live_ages.h"
#include "agent/decision/lives.h"

namespace headgate {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::uint32_t kind_of(const char* first) {
  return headgate_stream_kind_of(reinterpret_cast<const __u8*>(first));
}
std::uint32_t response_of(const std::string& text) {
  std::vector<__u8> first(12);
  std::memcpy(first.data(), text.data(), std::min<std::size_t>(text.size(), first.size()));
  return headgate_response_of(first.data());
}

TEST(Live, MethodsOfHttpAreToldFromEverythingElse) {
  for (const char* method : {"GET ", "POST", "PUT ", "HEAD", "DELETE", "PATCH", "OPTIONS"}) {
    EXPECT_EQ(kind_of(method), HEADGATE_STREAM_HTTP1) << method;
  }
  for (const char* other : {"PRI ", "\x16\x03\x01\x02", "\0\0\0", "get ", "GETX", "GET\t"}) {
    EXPECT_EQ(kind_of(other), HEADGATE_STREAM_OTHER) << other;
  }
}

TEST(Live, FinalResponsesAreToldFromInterimOnesAndFromBodies) {
  EXPECT_EQ(response_of("HTTP/1.1 200 OK\r\n"), HEADGATE_RESPONSE_FINAL);
  EXPECT_EQ(response_of("HTTP/1.0 503 Se"), HEADGATE_RESPONSE_FINAL);
  EXPECT_EQ(response_of("HTTP/1.1 100 Co"), HEADGATE_RESPONSE_NONE);
  EXPECT_EQ(response_of("HTTP/1.1 103 Ea"), HEADGATE_RESPONSE_NONE);
  EXPECT_EQ(response_of("HTTP/1.1 101 Sw"), HEADGATE_RESPONSE_SWITCHED);
  EXPECT_EQ(response_of("<html>200 body"), HEADGATE_RESPONSE_NONE);
  EXPECT_EQ(response_of("HTTP/2.0 200 O"), HEADGATE_RESPONSE_NONE);
  EXPECT_EQ(response_of("HTT"), HEADGATE_RESPONSE_NONE);
}

std::uint64_t content_length_of(const std::string& head) {
  std::vector<__u8> bytes(HEADGATE_HEAD_BYTES);
  std::memcpy(bytes.data(), head.data(), std::min(head.size(), bytes.size()));
  return headgate_content_length(bytes.data());
}

TEST(Live, TheAnnouncedLengthIsFoundInTheHead) {
  EXPECT_EQ(content_length_of("POST /v1/traces HTTP/1.1\r\nHost: a:4318\r\nContent-Type: "
                              "application/json\r\nContent-Length: 2000123\r\n\r\n{"),
            2'000'123U);
  EXPECT_EQ(content_length_of("PUT / HTTP/1.1\r\ncontent-length:17\r\n\r\n"), 17U);
  EXPECT_EQ(content_length_of("PUT / HTTP/1.1\r\nContent-Encoding: gzip\r\n\r\n"), 0U);
  EXPECT_EQ(content_length_of("PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"), 0U);
  EXPECT_EQ(content_length_of("PUT / HTTP/1.1\r\nContent-Length: x\r\n\r\n"), 0U);
  EXPECT_EQ(content_length_of(std::string(300, '\n')), 0U);
  EXPECT_EQ(content_length_of("PUT /" + std::string(300, 'a') + "\r\nContent-Length: 5\r\n"), 0U)
      << "too far behind";
}

/// 2 MB are live when the first packet has come, and once only when all have.
TEST(Live, AnAnnouncedBodyIsLiveAtOnce) {
  headgate_target_state state{};
  headgate_connection connection{};
  connection.kind = HEADGATE_STREAM_HTTP1;
  constexpr std::uint64_t kMost = 24 << 20;
  const auto come = [&](std::uint64_t bytes) {
    const std::uint64_t expected = headgate_live_expected(&connection, bytes);
    headgate_live_add(&connection, &state, 0, bytes - expected);
  };
  headgate_live_announce(&connection, &state, kMost, 2'000'000, 1448);
  headgate_live_add(&connection, &state, 0, 1448);  // the packet that announced it
  EXPECT_EQ(state.live_bytes, 2'000'000U);
  for (int packet = 1; packet < 1999; ++packet) {
    come(1000);
  }
  EXPECT_EQ(state.live_bytes, 2'000'000U);
  headgate_live_release(&connection, &state, 0);
  EXPECT_EQ(state.live_bytes, 0U);
}

TEST(Live, WhoAnnouncesTooMuchHoldsAnEighth) {
  headgate_target_state state{};
  headgate_connection connection{};
  connection.kind = HEADGATE_STREAM_HTTP1;
  headgate_live_announce(&connection, &state, 8'000'000, 1'000'000'000'000, 500);
  EXPECT_EQ(state.live_bytes, 999'500U);
  headgate_live_release(&connection, &state, 0);
  EXPECT_EQ(state.live_bytes, 0U);
}

/// Whatever comes, is answered and ends, in whichever generation: no sum goes below what it was
/// before, and when all have ended and aged nothing is live.
RC_GTEST_PROP(Live, BooksAreBalancedHoweverConnectionsGo, ()) {
  headgate_target_state state{};
  LiveAges ages;
  Instant clock{};
  std::uint64_t base = ages.update(clock, state, seconds(1));
  struct Open {
    headgate_connection books{};
    std::uint64_t unanswered = 0;
  };
  std::vector<Open> open(4);
  for (std::size_t i = 0; i < open.size(); ++i) {
    open[i].books.kind = i % 2 == 0 ? HEADGATE_STREAM_HTTP1 : HEADGATE_STREAM_OTHER;
  }
  state.in_flight = open.size();
  const auto steps = *rc::gen::container<std::vector<std::pair<int, std::uint32_t>>>(
      rc::gen::pair(rc::gen::inRange(0, 9), rc::gen::inRange<std::uint32_t>(1, 100'000)));
  for (const auto& [what, bytes] : steps) {
    Open& one = open[static_cast<std::size_t>(what) % open.size()];
    if (what == 8) {
      clock += seconds(1);
      base = ages.update(clock, state, seconds(1));
      continue;
    }
    if (what < 4) {
      headgate_live_add(&one.books, &state, HEADGATE_LIVE_GENERATION(base), bytes);
      one.unanswered += bytes;
    } else if (one.books.kind == HEADGATE_STREAM_HTTP1) {
      headgate_live_release(&one.books, &state, HEADGATE_LIVE_GENERATION(base));
      one.unanswered = 0;
    }
    std::uint64_t http = 0;
    for (const Open& each : open) {
      http += each.books.kind == HEADGATE_STREAM_HTTP1 ? each.unanswered : 0;
    }
    RC_ASSERT(state.live_bytes == http);
    RC_ASSERT(live_bytes(state, base) >= http);
    headgate_target_policy policy{};
    policy.live_base = base;
    RC_ASSERT(headgate_live_bytes(&policy, &state) == live_bytes(state, base));
  }
  for (Open& one : open) {
    headgate_live_release(&one.books, &state, HEADGATE_LIVE_GENERATION(base));
  }
  state.in_flight = 0;
  for (int i = 0; i < 3; ++i) {
    clock += seconds(1);
    base = ages.update(clock, state, seconds(1));
  }
  RC_ASSERT(live_bytes(state, base) == 0U);
}

TEST(LiveAges, GenerationAndBytesOfAnyNumberGoThroughOneWord) {
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{1}, std::int64_t{-7},
                                   std::int64_t{1} << 46, -(std::int64_t{1} << 46)}) {
    for (const std::uint32_t generation : {0U, 1U, 65535U}) {
      const std::uint64_t word = HEADGATE_LIVE_BASE(static_cast<std::uint64_t>(bytes), generation);
      EXPECT_EQ(HEADGATE_LIVE_BASE_BYTES(word), bytes);
      EXPECT_EQ(HEADGATE_LIVE_GENERATION(word), generation);
    }
  }
}

TEST(LiveAges, BytesLiveForTheResidenceToTwiceThatAcrossTheWrapOfGenerations) {
  headgate_target_state state{};
  state.in_flight = 1;
  LiveAges ages;
  Instant clock{};
  for (int i = 0; i < 70'000; ++i) {  // more than 16 bits of generations
    clock += milliseconds(500);
    const std::uint64_t base = ages.update(clock, state, milliseconds(500));
    state.live_aged[HEADGATE_LIVE_GENERATION(base) % HEADGATE_LIVE_GENERATIONS] += 10;
    ASSERT_EQ(live_bytes(state, base), i == 0 ? 10U : 20U) << i;
  }
}

TEST(LiveAges, AfterARestartWhatIsInTheSumsIsAged) {
  headgate_target_state state{};
  state.in_flight = 3;
  state.live_bytes = 40;  // of requests that are not answered: still live
  for (auto& sum : state.live_aged) {
    sum = 1000;
  }
  LiveAges ages;
  ages.resume(HEADGATE_LIVE_BASE(123, 65535U));
  const std::uint64_t base = ages.update(Instant{}, state, seconds(1));
  EXPECT_EQ(HEADGATE_LIVE_GENERATION(base), 1U);
  EXPECT_EQ(live_bytes(state, base), 40U);
}

TEST(LiveAges, WhenNobodyIsLeftNothingIsLive) {
  headgate_target_state state{};
  state.live_bytes = 70;
  LiveAges ages;
  Instant clock{};
  EXPECT_EQ(live_bytes(state, ages.update(clock, state, seconds(1))), 70U);
  EXPECT_EQ(live_bytes(state, ages.update(clock += seconds(1), state, seconds(1))), 0U);
  state.in_flight = 1;
  state.live_bytes += 5;
  EXPECT_EQ(live_bytes(state, ages.update(clock += seconds(1), state, seconds(1))), 5U);
}

/// The bucket that the kernel counts in is the one whose seconds the agent reads.
RC_GTEST_PROP(Lives, BucketOfTheKernelHoldsTheLife, ()) {
  const auto life_ns = *rc::gen::oneOf(rc::gen::inRange<std::uint64_t>(0, 1'000'000),
                                       rc::gen::inRange<std::uint64_t>(0, 100'000'000'000));
  const std::uint32_t bucket = headgate_life_bucket(life_ns);
  RC_ASSERT(bucket < HEADGATE_LIFE_BUCKETS);
  const double s = static_cast<double>(life_ns) * 1e-9;
  if (bucket > 0) {
    RC_ASSERT(s < life_s(bucket) * 1.13);
    RC_ASSERT(s > life_s(bucket) / 1.13);
  } else {
    RC_ASSERT(s < 82e-6);
  }
}

TEST(Lives, LongestAndShortestLivesHaveABucket) {
  EXPECT_EQ(headgate_life_bucket(0), 0U);
  EXPECT_EQ(headgate_life_bucket(~std::uint64_t{0}), HEADGATE_LIFE_BUCKETS - 1U);
}

TEST(Lives, MinimumAndP99AreOfTheDifference) {
  headgate_life_histogram before{};
  before.counts[3] = 17;
  before.counts[40] = ~std::uint32_t{0};  // about to wrap
  headgate_life_histogram now = before;
  EXPECT_EQ(lives_between(before, now).count, 0U);
  now.counts[40] += 98;
  now.counts[60] += 1;
  now.counts[70] += 1;
  const Lives lives = lives_between(before, now);
  EXPECT_EQ(lives.count, 100U);
  EXPECT_DOUBLE_EQ(lives.min_s, life_s(40));
  EXPECT_DOUBLE_EQ(lives.p99_s, life_s(60));
}

}  // namespace
}  // namespace headgate
