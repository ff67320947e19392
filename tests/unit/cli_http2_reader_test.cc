// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "agent/cli/http2_reader.h"
#include "agent/cli/stream_reader.h"
#include "agent/dataplane/hpack_huffman.h"
#include "tests/support/http2_stream.h"

namespace headgate::cli {
namespace {

std::vector<Http2Reader::Request> feed(Http2Reader& reader, const std::string& octets) {
  return reader.feed({reinterpret_cast<const std::uint8_t*>(octets.data()), octets.size()});
}

const std::vector<std::string> kMethods = {"/a.B/C", "/a.B/D"};

TEST(Http2Reader, SaysWhichMethodAndWhere) {
  Http2Reader reader(kMethods);
  const std::string first = http2::settings();
  const std::string second = http2::headers(1, "\x44" + http2::plain("/a.B/D"));
  const std::string third = http2::unary(1, 10);
  EXPECT_TRUE(feed(reader, first + second.substr(0, 4)).empty());
  EXPECT_TRUE(reader.in_request());
  auto requests = feed(reader, second.substr(4) + third);
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_EQ(requests[0].method, 1U);
  EXPECT_EQ(requests[0].path, "/a.B/D");
  EXPECT_EQ(requests[0].offset_bytes, first.size());
  EXPECT_FALSE(reader.in_request());
  requests = feed(reader, http2::headers(3, "\xbe"));
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_EQ(requests[0].path, "/a.B/D") << "by its index";
  EXPECT_EQ(requests[0].offset_bytes, first.size() + second.size() + third.size());
}

TEST(Http2Reader, PathsThatAreNoMethodAreShownToo) {
  Http2Reader reader(kMethods);
  const auto requests = feed(
      reader, http2::settings() + http2::headers(1, "\x04" + http2::coded(hpack_huffman("/v1/x"))) +
                  http2::headers(3, "\x04" + http2::coded(hpack_huffman("/a.B/C"))) +
                  http2::headers(5, "\x04" + http2::plain(std::string(500, 'x'))) +
                  http2::headers(7, "\x83"));
  ASSERT_EQ(requests.size(), 4U);
  EXPECT_EQ(requests[0].method, std::nullopt);
  EXPECT_EQ(requests[0].path, "/v1/x");
  EXPECT_EQ(requests[1].method, 0U);
  EXPECT_EQ(requests[1].path, "/a.B/C");
  EXPECT_EQ(requests[2].path, std::nullopt);
  EXPECT_EQ(requests[2].reason, std::uint32_t{HEADGATE_UNKNOWN_NONE}) << "seen, and too long";
  EXPECT_EQ(requests[3].reason, std::uint32_t{HEADGATE_UNKNOWN_NO_PATH});
}

TEST(Http2Reader, SaysWhyAndWhereItWasLost) {
  Http2Reader reader(kMethods);
  EXPECT_EQ(reader.lost(), std::uint32_t{HEADGATE_UNKNOWN_NONE});
  (void)feed(reader, http2::settings());
  (void)feed(reader, http2::headers(2, "\x83") + http2::headers(3, "\x83"));
  EXPECT_EQ(reader.lost(), std::uint32_t{HEADGATE_UNKNOWN_FRAME});
  EXPECT_EQ(reader.frame_offset_bytes(), 9U);
  EXPECT_FALSE(reader.in_request());
}

/// A whole connection to a port with `protocol: grpc`, in packets.
std::vector<SeenRequest> classify(const std::string& all,
                                  const std::vector<std::size_t>& cuts = {}) {
  TargetConfig target;
  target.exempt.paths = {"/grpc.health.v1.Health/Check"};
  EndpointConfig endpoint;
  endpoint.protocol = Protocol::kGrpc;
  endpoint.routes.resize(1);
  endpoint.routes[0].name = "c";
  endpoint.routes[0].path = "/a.B/C";
  const PortRoutes routes = routes_of(target, endpoint);
  StreamReader reader(routes);
  std::size_t from = 0;
  const auto feed_to = [&](std::size_t end) {
    reader.feed({reinterpret_cast<const std::uint8_t*>(all.data()) + from, end - from});
    from = end;
  };
  for (const std::size_t cut : cuts) {
    feed_to(cut);
  }
  feed_to(all.size());
  return reader.requests();
}

const std::string kCalls =
    std::string(http2::kPreface) + http2::settings() +
    http2::headers(1, "\x44" + http2::plain("/a.B/C")) + http2::unary(1, 3) +
    http2::headers(3, "\xbe") +
    http2::headers(5, "\x04" + http2::plain("/grpc.health.v1.Health/Check")) +
    http2::headers(7, "\x04" + http2::plain("/a.B/D"));

TEST(ClassifyHttp2, RoutesByMethod) {
  const auto requests = classify(kCalls);
  ASSERT_EQ(requests.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(requests[i].number, i + 1);
    EXPECT_EQ(requests[i].protocol, "http/2");
    EXPECT_EQ(requests[i].reason, std::uint32_t{HEADGATE_UNKNOWN_NONE});
    EXPECT_EQ(requests[i].exempt, i == 2);
  }
  EXPECT_EQ(requests[0].route, "c");
  EXPECT_EQ(requests[0].offset_bytes, http2::kPreface.size() + 9);
  EXPECT_EQ(requests[1].route, "c");
  EXPECT_EQ(requests[1].path, "/a.B/C");
  EXPECT_EQ(requests[2].route, std::nullopt);
  EXPECT_EQ(requests[3].route, std::nullopt);
  EXPECT_EQ(requests[3].path, "/a.B/D");
}

TEST(ClassifyHttp2, E01PrefaceInAnyPieces) {
  const auto whole = classify(kCalls);
  for (std::size_t first = 1; first < http2::kPreface.size() + 20; ++first) {
    for (std::size_t second = first; second < http2::kPreface.size() + 20; ++second) {
      EXPECT_EQ(classify(kCalls, {first, second}), whole) << first << ", " << second;
    }
  }
}

TEST(ClassifyHttp2, E01WhatOnlyBeginsLikeAPreface) {
  for (const std::string other :
       {"PRIX * HTTP/2.0\r\n\r\nSM\r\n\r\n", "PRI / HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r!", "POST /a.B/C HTTP/1.1\r\n\r\n"}) {
    const auto requests = classify(other + http2::settings() + http2::headers(1, "\x84"));
    ASSERT_FALSE(requests.empty()) << other;
    for (const SeenRequest& request : requests) {
      EXPECT_NE(request.protocol, "http/2") << other;
      EXPECT_NE(request.reason, std::uint32_t{HEADGATE_UNKNOWN_NONE}) << other;
    }
  }
}

TEST(ClassifyHttp2, SaysWhereItWasLost) {
  const auto requests = classify(kCalls + http2::headers(2, "\x83"));
  ASSERT_EQ(requests.size(), 5U);
  EXPECT_EQ(requests[4].reason, std::uint32_t{HEADGATE_UNKNOWN_FRAME});
  EXPECT_EQ(requests[4].offset_bytes, kCalls.size());
}

}  // namespace
}  // namespace headgate::cli
