// SPDX-License-Identifier: Apache-2.0
// When a server of HTTP/2 has answered, as the kernel reads it (bpf/lib/responses.h), natively.
#include "lib/responses.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/http2_stream.h"

namespace headgate::http2 {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::uint32_t kFirstSeq = 0xfffffff0U;  // so that every test wraps
constexpr std::uint8_t kEndStream = HEADGATE_HTTP2_END_STREAM;

struct Ended {
  std::uint32_t stream;
  bool reset;
  bool operator==(const Ended&) const = default;
};

/// A connection that sends `packets` in this order, each with its sequence number.
class Server {
 public:
  Server() { responses.next_seq = kFirstSeq; }
  /// False: lost.
  bool send(std::string_view bytes, std::uint32_t seq) {
    headgate_octets octets{reinterpret_cast<const __u8*>(bytes.data())};  // NOLINT: octets
    while (true) {
      std::uint32_t stream = 0;
      const std::uint32_t event = headgate_responses_next(
          &responses, &octets, 0, seq, static_cast<std::uint32_t>(bytes.size()), &stream);
      if (event == HEADGATE_RESPONSES_DONE) return true;
      if (event == HEADGATE_RESPONSES_BROKEN) return false;
      if (event != HEADGATE_RESPONSES_ON) {
        ended.push_back({stream, event == HEADGATE_RESPONSES_RESET});
      }
    }
  }
  headgate_responses responses{};
  std::vector<Ended> ended;
};

std::string data(std::uint32_t stream, std::size_t bytes, unsigned flags = 0) {
  return frame(HEADGATE_HTTP2_DATA, flags, stream, std::string(bytes, 'x'));
}
/// SETTINGS, then a unary answer to 1, one of DATA alone to 3, a reset of 5.
std::string answers() {
  return settings() + headers(1, "\x88") + data(1, 40) +
         frame(HEADGATE_HTTP2_HEADERS, kEndStream | HEADGATE_HTTP2_END_HEADERS, 1, "\x40") +
         headers(3, "\x88") + data(3, 20000, kEndStream) +
         frame(HEADGATE_HTTP2_RST_STREAM, 0, 5, std::string(4, '\0')) +
         frame(HEADGATE_HTTP2_PING, 1, 0, std::string(8, '\0'));
}
testing::Matcher<std::vector<Ended>> all_of_them() {
  return ElementsAre(Ended{1, false}, Ended{3, false}, Ended{5, true});
}

TEST(Responses, EndWhereverPacketsAreCut) {
  const std::string all = answers();
  for (std::size_t cut = 0; cut <= 200; ++cut) {
    Server server;
    EXPECT_TRUE(server.send(std::string_view(all).substr(0, cut), kFirstSeq));
    EXPECT_TRUE(server.send(std::string_view(all).substr(cut),
                            kFirstSeq + static_cast<std::uint32_t>(cut)));
    EXPECT_THAT(server.ended, all_of_them()) << "cut at " << cut;
  }
  Server in_octets;
  for (std::size_t i = 0; i < all.size(); ++i) {
    ASSERT_TRUE(in_octets.send(std::string_view(all).substr(i, 1),
                               kFirstSeq + static_cast<std::uint32_t>(i)));
  }
  EXPECT_THAT(in_octets.ended, all_of_them());
}

TEST(Responses, AreNotReadTwiceWhenRetransmitted) {
  const std::string all = answers();
  Server server;
  for (std::size_t at = 0; at < all.size(); at += 100) {
    const std::size_t from = at < 150 ? 0 : at - 150;  // overlaps with what was sent before
    ASSERT_TRUE(server.send(std::string_view(all).substr(from, at + 100 - from),
                            kFirstSeq + static_cast<std::uint32_t>(from)));
  }
  EXPECT_TRUE(server.send(all, kFirstSeq));
  EXPECT_THAT(server.ended, all_of_them());
}

TEST(Responses, AreLostWithAGapInWhatMatters) {
  const std::string all = answers();
  Server server;
  ASSERT_TRUE(server.send(std::string_view(all).substr(0, 30), kFirstSeq));
  EXPECT_TRUE(server.send(std::string_view(all).substr(60, 4), kFirstSeq + 60))
      << "in the middle of DATA, which nobody reads";
  EXPECT_FALSE(server.send(std::string_view(all).substr(80), kFirstSeq + 80));
}

TEST(Responses, OfWhatIsNotHttp2AreLostAtOnce) {
  Server http1;
  EXPECT_FALSE(http1.send("HTTP/1.1 200 OK\r\n\r\n", kFirstSeq));
  Server tls;
  EXPECT_FALSE(tls.send(std::string_view("\x16\x03\x03\x00\x7a\x02\x00\x00\x76", 9), kFirstSeq));
  EXPECT_THAT(http1.ended, IsEmpty());
}

TEST(Responses, CallsHavePlacesOfTheirOwnSixtyFourAtATime) {
  headgate_responses responses{};
  EXPECT_FALSE(headgate_responses_begin(&responses, 1, 7, 100)) << "the server has not spoken yet";
  responses.state = HEADGATE_RESPONSES_READ;
  for (std::uint32_t call = 0; call < HEADGATE_RESPONSES_CALLS; ++call) {
    EXPECT_TRUE(headgate_responses_begin(&responses, 2 * call + 1, call, 100 + call));
  }
  const std::uint32_t next = 2 * HEADGATE_RESPONSES_CALLS + 1;
  EXPECT_FALSE(headgate_responses_begin(&responses, next, 7, 200)) << "its place is taken";
  headgate_waiting_call call{};
  EXPECT_FALSE(headgate_responses_end(&responses, next, &call)) << "so it is not followed";
  EXPECT_TRUE(headgate_responses_end(&responses, 9, &call));
  EXPECT_EQ(call.endpoint, 4U);
  EXPECT_EQ(call.begun_ns, 104U);
  EXPECT_FALSE(headgate_responses_end(&responses, 9, &call)) << "once only";
  EXPECT_FALSE(headgate_responses_end(&responses, 0, &call)) << "the connection is no stream";
  EXPECT_TRUE(headgate_responses_begin(&responses, 9 + 2 * HEADGATE_RESPONSES_CALLS, 7, 300));
}

/// A server may answer before it has been sent anything but the head.
TEST(Responses, WhatWasAnsweredBeforeItBeganIsNotFollowed) {
  headgate_responses responses{};
  responses.state = HEADGATE_RESPONSES_READ;
  headgate_waiting_call call{};
  const std::uint32_t next = 7 + 2 * HEADGATE_RESPONSES_CALLS;
  EXPECT_FALSE(headgate_responses_end(&responses, 7, &call));
  EXPECT_FALSE(headgate_responses_begin(&responses, 7, 1, 100));
  ASSERT_TRUE(headgate_responses_begin(&responses, next, 1, 100));
  EXPECT_FALSE(headgate_responses_end(&responses, next + 2 * HEADGATE_RESPONSES_CALLS, &call))
      << "its place is taken";
  ASSERT_TRUE(headgate_responses_end(&responses, next, &call));
  EXPECT_FALSE(headgate_responses_begin(&responses, next + 2 * HEADGATE_RESPONSES_CALLS, 1, 100));
}

TEST(Responses, TheLatestRefusedStreamsAreKnown) {
  headgate_responses responses{};
  for (std::uint32_t stream = 1; stream < 601; stream += 2) {
    EXPECT_FALSE(headgate_responses_refused(&responses, stream));
    headgate_responses_refuse(&responses, stream);
    for (std::uint32_t i = 0; i < HEADGATE_RESPONSES_REFUSED && 2 * i < stream; ++i) {
      EXPECT_TRUE(headgate_responses_refused(&responses, stream - 2 * i)) << i;
    }
  }
}

}  // namespace
}  // namespace headgate::http2
