// SPDX-License-Identifier: Apache-2.0
// Requests of HTTP/2 as the kernel reads them (bpf/lib/http2.h, hpack.h), compiled natively.
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headgate/bpf_abi.h"

#include "agent/dataplane/hpack_huffman.h"
#include "tests/support/http2_stream.h"

namespace headgate::http2 {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::string_view kTraces = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
constexpr std::string_view kLogs = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";
constexpr std::uint16_t kTracesSlot = 7;
constexpr std::uint16_t kLogsSlot = 8;

Reader::Routes routes() {
  Reader::Routes out;
  for (const auto& [method, slot] : {std::pair{kTraces, kTracesSlot}, {kLogs, kLogsSlot}}) {
    out[{std::string(method), false}] = slot;
    out[{hpack_huffman(method), true}] = slot;
  }
  return out;
}

/// ":path" by its static name, inserted into the dynamic table.
std::string path_inserted(const std::string& value) { return "\x44" + value; }
const std::string kPost = "\x83";   // ":method: POST"
const std::string kPlain = "\x86";  // ":scheme: http"

Seen traces(std::uint32_t stream) { return {stream, kTracesSlot, false}; }
Seen logs(std::uint32_t stream) { return {stream, kLogsSlot, false}; }
Seen rest(std::uint32_t stream) { return {stream, HEADGATE_CALL_REST, false}; }
Seen no_path(std::uint32_t stream) { return {stream, HEADGATE_CALL_REST, true}; }

std::vector<Seen> seen_in(const std::string& all) {
  Reader reader(routes());
  EXPECT_TRUE(reader.feed(settings() + all)) << "lost for " << reader.lost();
  return reader.seen;
}
int lost_by(const std::string& all) {
  Reader reader(routes());
  (void)reader.feed(settings() + all);
  return reader.lost();
}

TEST(Http2, E02PathOnceAsALiteralThenByItsIndex) {
  EXPECT_THAT(seen_in(headers(1, kPost + kPlain + path_inserted(plain(kTraces))) + unary(1, 10) +
                      headers(3, "\xbe") + unary(3, 10)),
              ElementsAre(traces(1), traces(3)));
}

TEST(Http2, E02FromTheMiddleOfAConnectionTheClassIsUnknown) {
  // As the machine would see it if it were started late: an index into a table it has not seen.
  EXPECT_EQ(lost_by(headers(3, "\xbe")), HEADGATE_UNKNOWN_HPACK);
  EXPECT_THAT(seen_in(headers(1, kPost + kPlain)), ElementsAre(no_path(1)));
}

TEST(Http2, E04BytesThatOnlyLookLikeFramesAreLostAtOnce) {
  // No SETTINGS behind the preface: a TLS record would read as a frame of type 3.
  Reader reader(routes());
  EXPECT_FALSE(reader.feed(std::string("\x17\x03\x03\x00\x40\x01\x02\x03\x04", 9)));
  EXPECT_EQ(reader.lost(), HEADGATE_UNKNOWN_PREFACE);
  EXPECT_THAT(reader.seen, IsEmpty());
}

TEST(Http2, E06PaddingAndPriorityAreSkipped) {
  const std::string block = kPost + path_inserted(plain(kLogs));
  const std::string priority = std::string("\x80\x00\x00\x00\x10", 5);
  EXPECT_THAT(
      seen_in(headers(1, '\x03' + priority + block + std::string(3, '\0'), 0x28) +
              headers(3, priority + "\xbe", 0x20) + headers(5, std::string("\0\xbe", 2), 8)),
      ElementsAre(logs(1), logs(3), logs(5)));
}

TEST(Http2, E06PaddingLargerThanThePayloadIsUnknown) {
  const std::string block = kPost + path_inserted(plain(kLogs));
  const auto padded = [&](std::size_t pad) {
    return lost_by(headers(1, static_cast<char>(pad) + block, 8));
  };
  EXPECT_EQ(padded(block.size() + 1), HEADGATE_UNKNOWN_FRAME);
  EXPECT_EQ(padded(255), HEADGATE_UNKNOWN_FRAME);
  EXPECT_EQ(padded(block.size()), HEADGATE_UNKNOWN_NONE);                // an empty block
  EXPECT_EQ(lost_by(headers(1, "", 8)), HEADGATE_UNKNOWN_FRAME);         // no room for its length
  EXPECT_EQ(lost_by(headers(1, "abcd", 0x20)), HEADGATE_UNKNOWN_FRAME);  // nor for the priority
  EXPECT_EQ(lost_by(headers(1, std::string("\1abcde", 6), 0x28)), HEADGATE_UNKNOWN_FRAME);
}

TEST(Http2, E07HuffmanCodedPathIsLookedUpAsItStands) {
  EXPECT_THAT(seen_in(headers(1, kPost + path_inserted(coded(hpack_huffman(kTraces)))) +
                      headers(3, "\xbe") + headers(5, '\x04' + coded(hpack_huffman(kLogs))) +
                      headers(7, "\xbe")),
              ElementsAre(traces(1), traces(3), logs(5), traces(7)));
}

TEST(Http2, E08HeadOfAFrameApartFromItsPayload) {
  const std::string first = settings() + headers(1, path_inserted(plain(kTraces)));
  for (std::size_t cut = 0; cut <= first.size(); ++cut) {
    Reader reader(routes());
    EXPECT_TRUE(reader.feed(first, {cut}));
    EXPECT_THAT(reader.seen, ElementsAre(traces(1))) << "cut at " << cut;
  }
}

/// c-core writes the name out; so may anyone, in plain or coded.
TEST(Http2, NameOfThePathMayBeALiteralToo) {
  const std::string in_plain = std::string("\x40", 1) + plain(":path") + plain(kTraces);
  const std::string in_huffman =
      std::string("\x40", 1) + coded(hpack_huffman(":path")) + plain(kLogs);
  EXPECT_THAT(seen_in(headers(1, in_plain) + headers(3, "\xbe") + headers(5, in_huffman) +
                      headers(7, "\xbe") + headers(9, "\xbf")),
              ElementsAre(traces(1), traces(3), logs(5), logs(7), traces(9)));
  // the same length is not the same name
  EXPECT_THAT(seen_in(headers(1, std::string("\0", 1) + plain("apath") + plain(kTraces))),
              ElementsAre(no_path(1)));
  EXPECT_THAT(seen_in(headers(1, std::string("\0", 1) + plain(":patha") + plain(kTraces))),
              ElementsAre(no_path(1)));
}

TEST(Http2, NameByTheIndexOfAnEarlierPath) {
  // \x7e: insert, name of entry 62
  EXPECT_THAT(seen_in(headers(1, path_inserted(plain(kTraces))) +
                      headers(3, '\x7e' + plain(kLogs)) + headers(5, "\xbe") + headers(7, "\xbf")),
              ElementsAre(traces(1), logs(3), logs(5), traces(7)));
}

TEST(Http2, OtherFieldsMoveTheIndexOfAPath) {
  const std::string other = std::string("\x40", 1) + plain("grpc-timeout") + plain("10S");
  EXPECT_THAT(seen_in(headers(1, path_inserted(plain(kTraces)) + other + other) +
                      headers(3, "\xc0") + headers(5, other + "\xc1")),
              ElementsAre(traces(1), traces(3), traces(5)));
}

TEST(Http2, NinthPathDisplacesTheFirst) {
  std::string all;
  std::vector<Seen> expected;
  for (std::uint32_t i = 0; i < 9; ++i) {
    all += headers(1 + 2 * i, path_inserted(plain(i == 0 ? std::string(kTraces) : "/other")));
    expected.push_back(i == 0 ? traces(1) : rest(1 + 2 * i));
  }
  all += headers(21, integer(62 + 8, 7, 0x80)) + headers(23, integer(62 + 7, 7, 0x80));
  expected.push_back(no_path(21));
  expected.push_back(rest(23));
  EXPECT_EQ(seen_in(all), expected);
}

TEST(Http2, PathsWithoutARoute) {
  const std::string longest(HEADGATE_ROUTE_PATH_BYTES, 'x');
  EXPECT_THAT(seen_in(headers(1, "\x84") + headers(3, "\x85") + headers(5, '\x04' + plain("/v1")) +
                      headers(7, '\x04' + plain(longest)) +
                      headers(9, '\x04' + plain(longest + "x")) + headers(11, '\x04' + plain(""))),
              ElementsAre(rest(1), rest(3), rest(5), rest(7), rest(9), rest(11)));
}

TEST(Http2, ContinuationsOfAnyLength) {
  const std::string block = kPost + path_inserted(coded(hpack_huffman(kTraces))) + kPlain;
  for (std::size_t cut = 0; cut <= block.size(); ++cut) {
    const std::string first = block.substr(0, cut);
    const std::string second = block.substr(cut);
    EXPECT_THAT(seen_in(frame(HEADGATE_HTTP2_HEADERS, 0, 1, first) +
                        frame(HEADGATE_HTTP2_CONTINUATION, 0, 1, "") +
                        frame(HEADGATE_HTTP2_CONTINUATION, 4, 1, second) + headers(3, "\xbe")),
                ElementsAre(traces(1), traces(3)));
  }
}

TEST(Http2, BlocksAreNotInterrupted) {
  const std::string open = frame(HEADGATE_HTTP2_HEADERS, 0, 1, "\x83");
  EXPECT_EQ(lost_by(open + unary(1, 1)), HEADGATE_UNKNOWN_FRAME);
  EXPECT_EQ(lost_by(open + frame(0x55, 0, 0, "")), HEADGATE_UNKNOWN_FRAME);
  EXPECT_EQ(lost_by(open + frame(HEADGATE_HTTP2_CONTINUATION, 4, 3, "")), HEADGATE_UNKNOWN_FRAME);
  EXPECT_EQ(lost_by(frame(HEADGATE_HTTP2_CONTINUATION, 4, 1, "")), HEADGATE_UNKNOWN_FRAME);
  EXPECT_EQ(lost_by(headers(1, std::string("\x44\x05/", 3))), HEADGATE_UNKNOWN_HPACK) << "cut off";
}

TEST(Http2, TableSizeUpdates) {
  const std::string to_zero = "\x20";
  const std::string to_4096 = integer(4096, 5, 0x20);
  // Zero empties the table; what comes behind is counted on.
  EXPECT_THAT(
      seen_in(headers(1, path_inserted(plain(kTraces))) +
              headers(3, to_zero + to_4096 + path_inserted(plain(kLogs))) + headers(5, "\xbe")),
      ElementsAre(traces(1), logs(3), logs(5)));
  EXPECT_EQ(lost_by(headers(1, kPost + to_zero)), HEADGATE_UNKNOWN_HPACK) << "behind a field";
}

TEST(Http2, IntegersThatDoNotEnd) {
  EXPECT_EQ(lost_by(headers(1, "\x80")), HEADGATE_UNKNOWN_HPACK) << "index 0";
  EXPECT_EQ(lost_by(headers(1, "\xff\xff\xff\xff\xff\xff\x01")), HEADGATE_UNKNOWN_HPACK);
  EXPECT_EQ(lost_by(headers(1, "\x3f\xff\xff\xff\xff\x7f")), HEADGATE_UNKNOWN_HPACK) << "2^35";
  EXPECT_EQ(lost_by(headers(1, integer(0xffffffffU, 5, 0x20))), HEADGATE_UNKNOWN_NONE);
}

TEST(Http2, FramesThatBreakTheProtocol) {
  const std::string call = headers(1, path_inserted(plain(kTraces)));
  for (const std::string& bad : {
           headers(0, "\x83"),                                              //
           headers(2, "\x83"),                                              // of the server's
           unary(0, 1),                                                     //
           unary(3, 1),                                                     // idle
           frame(HEADGATE_HTTP2_PRIORITY, 0, 1, "1234"),                    //
           frame(HEADGATE_HTTP2_PRIORITY, 0, 0, "12345"),                   //
           frame(HEADGATE_HTTP2_RST_STREAM, 0, 1, "12345"),                 //
           frame(HEADGATE_HTTP2_RST_STREAM, 0, 3, "1234"),                  // idle
           frame(HEADGATE_HTTP2_SETTINGS, 0, 0, "12345"),                   //
           frame(HEADGATE_HTTP2_SETTINGS, 0, 1, ""),                        //
           frame(HEADGATE_HTTP2_SETTINGS, 1, 0, "123456"),                  // ACK with content
           frame(HEADGATE_HTTP2_PUSH_PROMISE, 4, 1, std::string(4, '\0')),  //
           frame(HEADGATE_HTTP2_PING, 0, 0, "1234567"),                     //
           frame(HEADGATE_HTTP2_PING, 0, 1, "12345678"),                    //
           frame(HEADGATE_HTTP2_GOAWAY, 0, 0, "1234567"),                   //
           frame(HEADGATE_HTTP2_WINDOW_UPDATE, 0, 0, "123"),                //
           frame(HEADGATE_HTTP2_WINDOW_UPDATE, 0, 5, "1234"),               // idle
           frame(HEADGATE_HTTP2_DATA, 8, 1, "\x01"),                        // padding of 1 in 0
           frame(HEADGATE_HTTP2_DATA, 8, 1, ""),                            //
           headers(3, path_inserted(plain(kTraces)) + "\xbe"),              // two paths
       }) {
    EXPECT_EQ(lost_by(call + bad), HEADGATE_UNKNOWN_FRAME) << testing::PrintToString(bad);
  }
  EXPECT_EQ(lost_by(headers(1, std::string(16385, '\x83'))), HEADGATE_UNKNOWN_TOO_LONG);
}

TEST(Http2, FramesThatMeanNothingHereAreSkipped) {
  const std::string call = headers(1, path_inserted(plain(kTraces)));
  EXPECT_THAT(seen_in(frame(HEADGATE_HTTP2_SETTINGS, 0, 0, std::string(12, '\0')) +
                      frame(HEADGATE_HTTP2_SETTINGS, 1, 0, "") + frame(0xbe, 0xff, 77, "whatever") +
                      frame(HEADGATE_HTTP2_WINDOW_UPDATE, 0, 0, "1234") + call +
                      frame(HEADGATE_HTTP2_PING, 0, 0, "12345678") +
                      frame(HEADGATE_HTTP2_PRIORITY, 0, 9, "12345") +
                      frame(HEADGATE_HTTP2_GOAWAY, 0, 0, "12345678 bye") +
                      frame(HEADGATE_HTTP2_RST_STREAM, 0, 1, "1234") +
                      frame(HEADGATE_HTTP2_DATA, 0, 1, std::string(100'000, 'x')) +
                      headers(0x80000003U, "\xbe")),
              ElementsAre(traces(1), traces(3)));
}

TEST(Http2, FramesThatAreTooManyForOnePacket) {
  std::string tiny = settings();
  for (int i = 0; i < 5000; ++i) {
    tiny += frame(0x42, 0, 0, "x");
  }
  Reader one(routes());
  EXPECT_FALSE(one.feed(tiny));
  EXPECT_EQ(one.lost(), HEADGATE_UNKNOWN_BUDGET);
  Reader two(routes());
  EXPECT_TRUE(two.feed(tiny, {tiny.size() / 2})) << "in two packets";
}

/// Trailers are no request, but their fields enter the table.
TEST(Http2, TrailersMoveTheTableOnly) {
  EXPECT_THAT(seen_in(headers(1, path_inserted(plain(kTraces))) + unary(1, 3) +
                      headers(1, std::string("\x40", 1) + plain("checksum") + plain("1"), 1) +
                      headers(3, "\xbf")),
              ElementsAre(traces(1), traces(3)));
}

class Judge : public testing::Test {
 protected:
  /// Every call asks for kTraces; the first is that of stream 1.
  static std::string call(std::uint32_t stream, unsigned flags = 0) {
    return headers(stream, stream == 1 ? path_inserted(plain(kTraces)) : "\xbe", flags);
  }
  const std::vector<Judged>& judged(const std::string& all) {
    EXPECT_TRUE(reader_.feed(settings() + all)) << "lost for " << reader_.lost();
    for (const Judged& one : reader_.judged) {
      EXPECT_EQ(one.endpoint, kTracesSlot);
    }
    return reader_.judged;
  }

 private:
  Reader reader_{routes()};
};

TEST_F(Judge, UnaryCallOnceWithItsSize) {
  const std::string head = settings() + call(1);
  const auto& all = judged(head.substr(settings().size()) + unary(1, 100) + call(3) + unary(3, 0));
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].stream, 1U);
  EXPECT_EQ(all[0].bytes, 105U);
  EXPECT_EQ(all[0].end, head.size() + 9 + 5);
  EXPECT_TRUE(all[0].may_poison);
  EXPECT_EQ(all[1].stream, 3U);
  EXPECT_EQ(all[1].bytes, 5U);
  EXPECT_TRUE(all[1].may_poison);
}

TEST_F(Judge, MessageOverSeveralFramesIsJudgedWithTheFirst) {
  const auto& all =
      judged(call(1) + frame(0, 0, 1, grpc_prefix(30'000) + std::string(10'000, 'm')) +
             frame(0, 0, 1, std::string(10'000, '\0')) + frame(0, 1, 1, std::string(10'000, '\0')));
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].bytes, 30'005U);
  EXPECT_TRUE(all[0].may_poison);
}

/// As some clients end a call: by a frame without octets.
TEST_F(Judge, MessageThatFillsAFrameWhichIsNotTheLast) {
  const auto& all = judged(call(1) + frame(0, 0, 1, grpc_prefix(3) + "mmm") + frame(0, 1, 1, ""));
  ASSERT_EQ(all.size(), 1U);
  EXPECT_TRUE(all[0].may_poison);
}

TEST_F(Judge, RequestsWaitForTheirDataInAnyOrder) {
  const auto& all = judged(call(1) + call(3) + call(5) + call(7) + unary(3, 33) + unary(1, 11) +
                           call(9) + unary(7, 77) + unary(9, 99) + unary(5, 55));
  std::vector<std::uint64_t> order;
  for (const Judged& one : all) {
    EXPECT_EQ(one.bytes, 11ULL * one.stream + 5);
    EXPECT_TRUE(one.may_poison);
    order.push_back(one.stream);
  }
  EXPECT_THAT(order, ElementsAre(3, 1, 7, 9, 5));
}

TEST_F(Judge, PaddedDataIsPoisonedWhereTheMessageIs) {
  const std::string before = call(1);
  const auto& all =
      judged(before + frame(0, 9, 1, '\x04' + grpc_prefix(3) + "mmm" + std::string(4, '\0')));
  ASSERT_EQ(all.size(), 1U);
  EXPECT_TRUE(all[0].may_poison);
  EXPECT_EQ(all[0].end, settings().size() + before.size() + 9 + 1 + 5);
}

/// What has not the shape of one gRPC message passes, whatever the verdict.
TEST_F(Judge, WhatIsNoUnaryMessageIsNotPoisoned) {
  const auto& all =
      judged(call(1) + frame(0, 1, 1, grpc_prefix(4) + "mmm") +                 // too short
             call(3) + frame(0, 1, 3, grpc_prefix(2) + "mmm") +                 // too long
             call(5) + frame(0, 1, 5, grpc_prefix(3, 2) + "mmm") +              // no flag
             call(7) + frame(0, 0, 7, grpc_prefix(2) + "mmm") +                 // a second
             call(11) + frame(0, 0, 11, std::string(4, '\0')) + unary(11, 1) +  // no room
             call(13, HEADGATE_HTTP2_END_STREAM) +                              // no body
             call(15) + frame(0, 1, 15, "") +                                   // the same
             call(17) + frame(0, 9, 17, std::string("\x05\0\0\0\0\0", 6)) +     // padding
             call(19) + headers(19, "", 1) +                                    // trailers
             call(21) + frame(HEADGATE_HTTP2_RST_STREAM, 0, 21, "1234") + call(23) + unary(23, 1));
  std::vector<std::uint32_t> streams;
  for (const Judged& one : all) {
    streams.push_back(one.stream);
    EXPECT_EQ(one.may_poison, one.stream == 23) << one.stream;
  }
  EXPECT_THAT(streams, ElementsAre(1, 3, 5, 7, 11, 13, 15, 17, 19, 21, 23));
}

/// Servers of gRPC's C core announce frames of more than the 16 KiB that all must take (RFC
/// 9113, 4.2).
TEST_F(Judge, FramesAreAsLargeAsTheServerAllows) {
  const auto& all =
      judged(call(1) + frame(0, 0, 1, grpc_prefix(20'000) + std::string(20'000, 'm')) + call(3) +
             frame(0, 1, 3, grpc_prefix(3'000'000) + std::string(3'000'000, 'm')) + call(5) +
             frame(0, 0, 5, grpc_prefix(3'000'000) + std::string(20'000, 'm')) +
             frame(0, 1, 5, std::string(2'980'000, 'm')) + call(7) + unary(7, 1));
  ASSERT_EQ(all.size(), 4U);
  for (const Judged& one : all) EXPECT_TRUE(one.may_poison) << one.stream;
}

TEST_F(Judge, AnEmptyFrameSaysNothingYet) {
  const auto& all = judged(call(1) + frame(0, 0, 1, "") + unary(1, 8));
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].bytes, 13U);
}

/// The verdict is the same wherever packets end; only what may be overwritten depends on it.
TEST(Http2Cuts, EveryCutPointSaysTheSame) {
  const std::string all =
      settings() + headers(1, kPost + path_inserted(coded(hpack_huffman(kTraces))) + kPlain) +
      unary(1, 20) + frame(HEADGATE_HTTP2_PING, 0, 0, "12345678") + headers(3, "\xbe") +
      headers(5, std::string("\x03\x40", 2) + plain(":path") + plain(kLogs) + std::string(3, '\0'),
              8) +
      unary(5, 4) + frame(0, 9, 3, '\x02' + grpc_prefix(1) + "m" + std::string(2, '\0'));
  Reader whole(routes());
  ASSERT_TRUE(whole.feed(all));
  ASSERT_EQ(whole.seen.size(), 3U);
  ASSERT_EQ(whole.judged.size(), 3U);
  const auto expect_same = [&](const Reader& cut, const std::vector<std::size_t>& cuts) {
    EXPECT_EQ(cut.seen, whole.seen);
    ASSERT_EQ(cut.judged.size(), whole.judged.size());
    for (std::size_t i = 0; i < whole.judged.size(); ++i) {
      EXPECT_TRUE(cut.judged[i].same(whole.judged[i]));
      const std::size_t end = whole.judged[i].end;
      bool straddles = false;
      for (const std::size_t at : cuts) {
        straddles = straddles || (at > end - 4 && at < end);
      }
      EXPECT_EQ(cut.judged[i].may_poison, whole.judged[i].may_poison && !straddles);
    }
  };
  for (std::size_t first = 0; first <= all.size(); ++first) {
    for (std::size_t second = first; second <= all.size(); ++second) {
      Reader cut(routes());
      ASSERT_TRUE(cut.feed(all, {first, second}));
      expect_same(cut, {first, second});
      if (HasFatalFailure()) {
        return;
      }
    }
  }
  std::vector<std::size_t> everywhere;
  for (std::size_t at = 1; at < all.size(); ++at) {
    everywhere.push_back(at);
  }
  Reader octets(routes());
  ASSERT_TRUE(octets.feed(all, everywhere));
  expect_same(octets, everywhere);
}

}  // namespace
}  // namespace headgate::http2
