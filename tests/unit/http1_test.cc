// SPDX-License-Identifier: Apache-2.0
// Requests of HTTP/1.1 (bpf/lib/http1.h, bpf/lib/path.h), compiled natively and read through the
// reader of `classify`. Inputs from public bug reports carry their ids.
#include "bpf/lib/http1.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/http1_streams.h"

namespace headgate {
namespace {

using cli::SeenRequest;
using test::read_by_bytes;
using test::read_cut;
using test::read_whole;
using testing::ElementsAre;

const std::string kPost = "POST /v1/traces HTTP/1.1\r\nHost: x\r\n";
const std::string kNext = "GET /v1/metrics HTTP/1.1\r\nHost: x\r\n\r\n";

/// The routes of all requests; "?REASON" where the class is unknown, "-" where there is no route.
std::vector<std::string> routes(const std::vector<SeenRequest>& requests) {
  std::vector<std::string> out;
  for (const SeenRequest& request : requests) {
    out.push_back(request.reason != HEADGATE_UNKNOWN_NONE ? "?" + std::to_string(request.reason)
                  : request.exempt                        ? "exempt"
                                                          : request.route.value_or("-"));
  }
  return out;
}
std::vector<std::string> routes(const std::string& stream) { return routes(read_whole(stream)); }
std::string unknown(int reason) { return "?" + std::to_string(reason); }

/// Every cut, and every pair of cuts, gives what the whole gives.
void expect_cuts_make_no_difference(const std::string& stream) {
  const std::vector<SeenRequest> whole = read_whole(stream);
  for (std::size_t first = 0; first <= stream.size(); ++first) {
    for (std::size_t second = first; second <= stream.size(); ++second) {
      ASSERT_EQ(routes(read_cut(stream, {first, second})), routes(whole))
          << "cut before bytes " << first << " and " << second;
      ASSERT_EQ(read_cut(stream, {first, second}), whole);
    }
  }
}

TEST(Http1, ARequestHasItsMethodPathRouteAndPlace) {
  const auto seen = read_whole(kPost + "Content-Length: 3\r\n\r\nabc" + kNext);
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0].number, 1U);
  EXPECT_EQ(seen[0].protocol, "http/1.1");
  EXPECT_EQ(seen[0].method, "POST");
  EXPECT_EQ(seen[0].path, "/v1/traces");
  EXPECT_EQ(seen[0].route, "traces");
  EXPECT_EQ(seen[0].offset_bytes, 0U);
  EXPECT_EQ(seen[1].number, 2U);
  EXPECT_EQ(seen[1].method, "GET");
  EXPECT_EQ(seen[1].route, "metrics");
  EXPECT_EQ(seen[1].offset_bytes, kPost.size() + 19 + 2 + 3);
}

TEST(Http1, WhatHasNoRouteIsKnownAllTheSame) {
  EXPECT_THAT(routes("GET / HTTP/1.1\r\n\r\nGET /healthz HTTP/1.0\r\n\r\n"),
              ElementsAre("-", "exempt"));
}

TEST(Http1, D01_TwoRequestsInOneSegmentAreTwo) {
  const std::string stream = "GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n";
  const auto seen = read_whole(stream);
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0].path, "/a");
  EXPECT_EQ(seen[1].path, "/b");
  expect_cuts_make_no_difference(stream);
}

TEST(Http1, D03_ABodyThatLooksLikeRequestsIsNone) {
  const std::string body = "POST /v1/logs HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\n\r\n";
  const std::string length = "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n";
  EXPECT_THAT(routes(kPost + length + body), ElementsAre("traces"));
  EXPECT_THAT(routes(kPost + length + body + kNext), ElementsAre("traces", "metrics"));
}

TEST(Http1, D04_EveryCutGivesTheSameVerdict) {
  expect_cuts_make_no_difference(kPost + "Content-Length: 3\r\n\r\nabc" + kNext);
  expect_cuts_make_no_difference(
      "POST /v1//%74races?a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3;x=\"\\\"\"\r\nabc\r\n0\r\nT: u\r\n\r\nGET /healthz HTTP/1.0\r\n\r\n");
}

TEST(Http1, ControlsInAChunkExtensionEndIt) {
  const std::string head = "POST /v1/traces HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string rest = "\r\nX\r\n0\r\n\r\n" + kNext;
  for (const std::string& good : {std::string("1;a=\"b\tc \xc3\xa4\""),
                                  std::string("1;a=\"\\\"\\\t\";b"), std::string("1 ; a")}) {
    EXPECT_THAT(routes(head + good + rest), ElementsAre("traces", "metrics")) << good;
    expect_cuts_make_no_difference(head + good + rest);
  }
  for (const std::string& bad : {std::string("1;\n"), std::string("1;a\nb"), std::string("1;\x7f"),
                                 std::string("1;\0", 3), std::string("1;a=\"\x01\""),
                                 std::string("1;a=\"\\\r\n\""), std::string("1;a=\"\\\x7f\"")}) {
    EXPECT_THAT(routes(head + bad + rest), ElementsAre("traces", unknown(HEADGATE_UNKNOWN_FRAMING)))
        << testing::PrintToString(bad);
  }
}

TEST(Http1, D05_ExpectIsSeenWithTheHead) {
  headgate_stream stream{};
  const std::string head = kPost + "Expect: 100-Continue\r\nContent-Length: 10485760\r\n\r\n";
  stream.packet_bytes = static_cast<std::uint32_t>(head.size());
  std::uint32_t event = HEADGATE_HTTP1_NOTHING;
  while (stream.at < stream.packet_bytes) {
    stream.window_at = stream.at;
    stream.window_bytes = 1;
    stream.window[0] = static_cast<std::uint8_t>(head[stream.at]);
    event = headgate_http1_step(&stream);
  }
  EXPECT_EQ(event, static_cast<std::uint32_t>(HEADGATE_HTTP1_HEAD));
  EXPECT_NE(stream.http1.flags & HEADGATE_HTTP1_EXPECT, 0U);
  EXPECT_EQ(stream.http1.body_bytes, 10485760U);
  EXPECT_EQ(stream.http1.request_bytes, head.size());
}

struct Target {
  std::string text;
  std::string route;
};
class D06_Targets : public testing::TestWithParam<Target> {};

TEST_P(D06_Targets, HaveTheirRoute) {
  EXPECT_THAT(routes("GET " + GetParam().text + " HTTP/1.1\r\n\r\n"),
              ElementsAre(GetParam().route));
}

INSTANTIATE_TEST_SUITE_P(
    Http1, D06_Targets,
    testing::Values(Target{"/v1/traces", "traces"}, Target{"/v1/traces?x=1", "traces"},
                    Target{"//v1/traces", "traces"}, Target{"/v1//traces", "traces"},
                    Target{"/v1/./traces", "traces"}, Target{"/v1/%2E/traces", "traces"},
                    Target{"/v1/%74races", "traces"}, Target{"/v1/trace%73", "traces"},
                    Target{"http://h/v1/traces", "traces"},
                    Target{"HTTPS://u@h:1/v1/traces", "traces"}, Target{"/v1/traces/", "traces"},
                    Target{"/v1/traces/.", "traces"}, Target{"/v1/traces/more", "traces"},
                    Target{"/v1/traces#f", "traces"}, Target{"/v1/tracesX", "-"},
                    Target{"/v1/trace", "-"}, Target{"/V1/traces", "-"},
                    Target{"/v1%2Ftraces", "-"}, Target{"/v1/traces%20", "-"}, Target{"/", "-"},
                    Target{"/v1/...", "-"}, Target{"http://h", "-"},
                    Target{"http://h?/v1/traces", "-"}, Target{"/x?/v1/traces", "-"},
                    Target{"/v1/../v1/traces", unknown(HEADGATE_UNKNOWN_TARGET)},
                    Target{"/v1/traces/..", unknown(HEADGATE_UNKNOWN_TARGET)},
                    Target{"/v1/%2e%2E/traces", unknown(HEADGATE_UNKNOWN_TARGET)},
                    Target{"/v1/%7", unknown(HEADGATE_UNKNOWN_TARGET)},
                    Target{"/v1/%zz", unknown(HEADGATE_UNKNOWN_TARGET)},
                    Target{"*", unknown(HEADGATE_UNKNOWN_TARGET)},
                    Target{"v1/traces", unknown(HEADGATE_UNKNOWN_TARGET)},
                    Target{"ftp://h/v1/traces", unknown(HEADGATE_UNKNOWN_TARGET)},
                    Target{"http:/v1/traces", unknown(HEADGATE_UNKNOWN_TARGET)}),
    [](const auto& one) { return std::to_string(one.index); });

TEST(Http1, D06_WhatHasNoPathLosesNoFraming) {
  EXPECT_THAT(routes("OPTIONS * HTTP/1.1\r\n\r\n" + kNext),
              ElementsAre(unknown(HEADGATE_UNKNOWN_TARGET), "metrics"));
}

TEST(Http1, APathBeyondTheKeyMatchesByItsBeginning) {
  const std::string lengthy(300, 'a');
  const auto seen = read_whole("GET /v1/traces/" + lengthy + " HTTP/1.1\r\n\r\n" + kNext);
  EXPECT_THAT(routes(seen), ElementsAre("traces", "metrics"));
  EXPECT_EQ(seen[0].path->size(), HEADGATE_ROUTE_PATH_BYTES);
  EXPECT_THAT(routes("GET /v1/traces/" + lengthy + "/.. HTTP/1.1\r\n\r\n"),
              ElementsAre(unknown(HEADGATE_UNKNOWN_TARGET)));
}

TEST(Http1, D09_LeadingEmptyLinesAreSkipped) {
  const auto seen = read_whole("\r\n\r\n" + kPost + "\r\n\r\n" + kNext);
  EXPECT_THAT(routes(seen), ElementsAre("traces", "metrics"));
  EXPECT_EQ(seen[0].offset_bytes, 4U);
}

TEST(Http1, D09_MethodsAreCaseSensitiveAndUnknownOnesLoseNoFraming) {
  EXPECT_THAT(routes("post /v1/traces HTTP/1.1\r\nContent-Length: 2\r\n\r\nab" + kNext),
              ElementsAre(unknown(HEADGATE_UNKNOWN_METHOD), "metrics"));
  EXPECT_THAT(routes("FOO /v1/traces HTTP/1.1\r\n\r\n" + kNext),
              ElementsAre(unknown(HEADGATE_UNKNOWN_METHOD), "metrics"));
}

TEST(Http1, D09_WhatServersReadInDifferentWaysEndsIt) {
  for (const std::string& odd : {
           kPost + "A: b\r\n c\r\n\r\n",                          // obs-fold
           std::string("POST /v1/traces HTTP/1.1\nHost: x\n\n"),  // bare LF
           kPost + "A: b\n\r\n",
           kPost + "A: b\rc\r\n\r\n",
           kPost + "A : b\r\n\r\n",
           kPost + ": b\r\n\r\n",
           kPost + "A\r\n\r\n",
           kPost + std::string("A: \0\r\n\r\n", 8),
           kPost + "\r\r\n",
           std::string("GET  / HTTP/1.1\r\n\r\n"),
           std::string("GET /\r\n\r\n"),
           std::string("GET / HTTP/1.2\r\n\r\n"),
           std::string("GET / HTTP/1.1 \r\n\r\n"),
       }) {
    EXPECT_THAT(routes(odd + kNext), ElementsAre(unknown(HEADGATE_UNKNOWN_SYNTAX))) << odd;
  }
}

TEST(Http1, LengthsThatAreReadInDifferentWaysEndIt) {
  for (const std::string& odd : {
           kPost + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
           kPost + "Content-Length: 1\r\ncontent-length: 1\r\n\r\n",
           kPost + "Content-Length: 1, 1\r\n\r\n",
           kPost + "Content-Length: 1 1\r\n\r\n",
           kPost + "Content-Length: +1\r\n\r\n",
           kPost + "Content-Length: 0x1\r\n\r\n",
           kPost + "Content-Length: \r\n\r\n",
           kPost + "Content-Length: 99999999999999999999\r\n\r\n",
           kPost + "Transfer-Encoding: gzip, chunked\r\n\r\n",
           kPost + "Transfer-Encoding: chunked \tx\r\n\r\n",
           kPost + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
           std::string("POST /v1/traces HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
       }) {
    EXPECT_THAT(routes(odd + kNext), ElementsAre(unknown(HEADGATE_UNKNOWN_FRAMING))) << odd;
  }
  EXPECT_THAT(routes(kPost + "Content-Length: \t 003 \t\r\n\r\nabc" + kNext),
              ElementsAre("traces", "metrics"));
  EXPECT_THAT(routes(kPost + "TRANSFER-ENCODING:Chunked\t\r\n\r\n0\r\n\r\n" + kNext),
              ElementsAre("traces", "metrics"));
}

TEST(Http1, D10_ChunksWithExtensionsAndTrailersEndWhereTheyEnd) {
  const std::string head = kPost + "Transfer-Encoding: chunked\r\n\r\n";
  // a quoted-string: its backslashes quote an 'r' and an 'n' (RFC 9110, section 5.6.4)
  EXPECT_THAT(routes(head + "5;a=\"\\r\\n\"\r\nhello\r\n0\r\nX: y\r\nZ: 1\r\n\r\n" + kNext),
              ElementsAre("traces", "metrics"));
  EXPECT_THAT(routes(head + "5;a=\"\r\n\"\r\nhello\r\n0\r\nX: y\r\n\r\n" + kNext),
              ElementsAre("traces", "metrics"));
  EXPECT_THAT(routes(head + "00A ;b\r\nGET / HTTP\r\n0;c=d\r\nContent-Length: 9\r\n\r\n" + kNext),
              ElementsAre("traces", "metrics"));
}

TEST(Http1, ABrokenChunkEndsIt) {
  const std::string head = kPost + "Transfer-Encoding: chunked\r\n\r\n";
  for (const char* odd : {"x\r\n", "\r\n", "2\r\nabc\r\n", "2\nab\r\n", "2\r\nab\n0\r\n\r\n",
                          "fffffffffffffffff\r\n", "-1\r\n"}) {
    EXPECT_THAT(routes(head + odd + kNext),
                ElementsAre("traces", unknown(HEADGATE_UNKNOWN_FRAMING)))
        << odd;
  }
}

TEST(Http1, D12_AResponseIsNoRequest) {
  EXPECT_THAT(routes("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" + kNext),
              ElementsAre(unknown(HEADGATE_UNKNOWN_NOT_HTTP)));
}

TEST(Http1, WhatElseAConnectionMayBeginWithIsNoHttp) {
  for (const std::string& other :
       {std::string("SSH-2.0-OpenSSH_9.2\r\n"), std::string("*1\r\n$4\r\nPING\r\n"),
        std::string("\0\0\0\4abcd", 8), std::string("AMQP\0\0\x9\1", 8), std::string("a.b:1|c\n"),
        std::string("\rGET / HTTP/1.1\r\n\r\n"), std::string("\x16\x02\x01")}) {
    EXPECT_THAT(routes(other), ElementsAre(unknown(HEADGATE_UNKNOWN_NOT_HTTP))) << other;
  }
}

TEST(Http1, UpgradeAndConnectEndItBehindTheirHead) {
  const auto upgrade = read_whole(
      "GET /v1/traces HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\n"
      "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n" +
      kNext);
  EXPECT_THAT(routes(upgrade), ElementsAre(unknown(HEADGATE_UNKNOWN_UPGRADE)));
  EXPECT_EQ(upgrade[0].path, "/v1/traces");
  EXPECT_THAT(routes("CONNECT h:443 HTTP/1.1\r\n\r\n" + kNext),
              ElementsAre(unknown(HEADGATE_UNKNOWN_UPGRADE)));
}

TEST(Http1, AHeadWithoutEndIsGivenUp) {
  std::string stream = kPost;
  while (stream.size() < 17000) {
    stream += "X-Filler: " + std::string(190, 'y') + "\r\n";
  }
  EXPECT_THAT(routes(stream), ElementsAre(unknown(HEADGATE_UNKNOWN_TOO_LONG)));
  EXPECT_THAT(routes("GET /" + std::string(17000, 'a')),
              ElementsAre(unknown(HEADGATE_UNKNOWN_TOO_LONG)));
}

TEST(Http1, TinyChunksInALargePacketAreGivenUp) {
  std::string stream = kPost + "Transfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 4000; ++i) {
    stream += "1\r\nx\r\n";
  }
  EXPECT_THAT(routes(stream), ElementsAre("traces", unknown(HEADGATE_UNKNOWN_BUDGET)));
}

TEST(Http1, E01_ThePrefaceIsReadByteByByte) {
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  for (std::size_t bytes = 1; bytes < preface.size(); ++bytes) {
    EXPECT_TRUE(read_whole(preface.substr(0, bytes)).empty()) << bytes;
  }
  expect_cuts_make_no_difference(preface);
  for (const char* other : {"PRI * HTTP/2.0\r\n\r\nSM\r\nX", "PRI * HTTP/2.0\r\nHost: x\r\n\r\n"}) {
    EXPECT_THAT(routes(other), ElementsAre(unknown(HEADGATE_UNKNOWN_PREFACE))) << other;
  }
  EXPECT_THAT(routes("PRIX /v1/traces HTTP/1.1\r\n\r\n" + kNext),
              ElementsAre(unknown(HEADGATE_UNKNOWN_METHOD), "metrics"));
  EXPECT_THAT(routes("PRI / HTTP/1.1\r\n\r\n" + kNext),
              ElementsAre(unknown(HEADGATE_UNKNOWN_METHOD), "metrics"));
  EXPECT_THAT(routes(kPost + "\r\n"), ElementsAre("traces")) << "POST is no partial preface";
  EXPECT_THAT(routes(kPost + "\r\n" + preface),
              ElementsAre("traces", unknown(HEADGATE_UNKNOWN_PREFACE)))
      << "only at the beginning of a connection";
}

TEST(Http1, E04_TlsIsToldByItsFirstTwoBytes) {
  EXPECT_THAT(routes("\x16\x03\x01\x02" + kNext), ElementsAre(unknown(HEADGATE_UNKNOWN_TLS)));
  EXPECT_THAT(routes("\x17\x03\x03" + kNext), ElementsAre(unknown(HEADGATE_UNKNOWN_NOT_HTTP)));
  EXPECT_THAT(routes(kPost + "\r\n\x16\x03\x01"),
              ElementsAre("traces", unknown(HEADGATE_UNKNOWN_SYNTAX)));
}

/// How many of eight bytes, from the first on, are of a class.
std::uint32_t first_of(const std::array<std::uint8_t, 8>& bytes, bool (*of_class)(std::uint8_t)) {
  return static_cast<std::uint32_t>(std::find_if_not(bytes.begin(), bytes.end(), of_class) -
                                    bytes.begin());
}

TEST(Http1, EightBytesAtOnceAreThoseOneByOne) {
  const auto plain = [](std::uint8_t c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-';
  };
  const auto text = [](std::uint8_t c) { return c >= ' ' && c != 127; };
  std::mt19937 random(7);
  for (int byte = 0; byte < 256; ++byte) {
    for (std::size_t place = 0; place < 8; ++place) {
      for (int rest = 0; rest < 64; ++rest) {
        std::array<std::uint8_t, 8> bytes{};
        for (std::uint8_t& one : bytes) {
          one = static_cast<std::uint8_t>(rest == 0 ? 'a' : rest == 1 ? 0xff : random());
        }
        for (std::size_t i = 0; i < place && rest > 1; ++i) {
          bytes[i] = static_cast<std::uint8_t>("aZ-09zAb"[i]);
        }
        bytes[place] = static_cast<std::uint8_t>(byte);
        const std::uint64_t word = headgate_word_at(bytes.data());
        ASSERT_EQ(headgate_plain_bytes(word), first_of(bytes, plain)) << byte << " at " << place;
        ASSERT_EQ(headgate_text_bytes(word), first_of(bytes, text)) << byte << " at " << place;
      }
    }
  }
}

TEST(Http1, NamesOfEveryLengthAndCaseAreReadAlike) {
  for (const char* name : {"Content-Length", "CONTENT-LENGTH", "content-length"}) {
    EXPECT_THAT(routes(kPost + name + ": 3\r\n\r\nabc" + kNext), ElementsAre("traces", "metrics"));
  }
  for (const char* name : {"Content-Lengt", "Content-Length_", "Content.Length", "Content-LengtH-",
                           "XContent-Length", "Content-Length-Of-The-Whole-Message"}) {
    EXPECT_THAT(routes(kPost + name + ": 3\r\n\r\n" + kNext), ElementsAre("traces", "metrics"));
  }
  for (std::size_t bytes = 1; bytes < 40; ++bytes) {
    const std::string name(bytes, 'x');
    const std::string head = kPost + name + ":" + std::string(bytes, 'v') + "\r\n" + name +
                             ": \r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n" + name +
                             ":\r\n\r\n" + kNext;
    const auto whole = read_whole(head);
    EXPECT_THAT(routes(whole), ElementsAre("traces", "metrics")) << bytes;
    EXPECT_EQ(read_by_bytes(head), whole) << bytes;
    for (std::size_t cut = 0; cut <= head.size(); ++cut) {
      EXPECT_EQ(read_cut(head, {cut}), whole) << bytes << " bytes, cut before " << cut;
    }
    EXPECT_THAT(routes(kPost + name + " : x\r\n\r\n"),
                ElementsAre(unknown(HEADGATE_UNKNOWN_SYNTAX)));
  }
}

TEST(Http1, PathsOfEveryLengthAreReadAlike) {
  for (std::size_t bytes = 1; bytes < 160; ++bytes) {
    const std::string path = "/v1/traces/" + std::string(bytes, 'p');
    const std::string stream = "GET " + path + " HTTP/1.1\r\n\r\n" + kNext;
    const auto seen = read_whole(stream);
    ASSERT_EQ(seen.size(), 2U) << bytes;
    EXPECT_EQ(seen[0].route, "traces");
    EXPECT_EQ(read_by_bytes(stream), seen) << bytes;
    for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
      EXPECT_EQ(read_cut(stream, {cut}), seen) << bytes << " bytes, cut before " << cut;
    }
  }
}

TEST(Http1, TokensAreThoseOfTheGrammar) {
  const std::string marks = "!#$%&'*+-.^_`|~";
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const bool token = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                       (byte != 0 && marks.find(c) != std::string::npos);
    EXPECT_EQ(headgate_is_token(static_cast<std::uint8_t>(byte)) != 0, token) << byte;
  }
}

}  // namespace
}  // namespace headgate
