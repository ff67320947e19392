// SPDX-License-Identifier: Apache-2.0
// What the kernel is told of a port's requests.
#include "agent/request_routes.h"

#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace headgate {
namespace {

std::string text(const headgate_route_key& key) {
  return {reinterpret_cast<const char*>(key.path),  // NOLINT: octets
          (key.prefix_bits - 32) / 8};
}

EndpointConfig http() {
  EndpointConfig out;
  out.protocol = Protocol::kHttp;
  out.refuse.form = RefuseForm::kHttp503;
  out.routes.resize(2);
  out.routes[0].path = "/v1/traces";
  out.routes[1].path = "/";
  return out;
}

constexpr std::array<std::uint32_t, 2> kSlots{11, 12};
const std::vector<std::string> kExempt{"/healthz", "/a.Health/Check"};

TEST(RequestRoutes, EveryPathLeadsToASlot) {
  const RequestRoutes routes = make_request_routes(http(), kExempt, {9, 10, kSlots});
  EXPECT_TRUE(routes.methods.empty());
  ASSERT_EQ(routes.paths.size(), 4U);
  EXPECT_EQ(text(routes.paths[0].first), "/v1/traces/");
  EXPECT_EQ(routes.paths[0].first.port, 9U);
  EXPECT_EQ(routes.paths[0].second.endpoint, 11U);
  EXPECT_EQ(text(routes.paths[1].first), "/");
  EXPECT_EQ(routes.paths[1].second.endpoint, 12U);
  EXPECT_EQ(text(routes.paths[2].first), "/healthz/");
  EXPECT_EQ(routes.paths[2].second.endpoint, 10U) << "counted with those without a route";
  EXPECT_EQ(routes.paths[2].second.flags, HEADGATE_ROUTE_EXEMPT);
  EXPECT_EQ(routes.paths[0].second.flags, 0U);
}

TEST(RequestRoutes, AMethodIsFoundInPlainAndCoded) {
  EndpointConfig grpc = http();
  grpc.protocol = Protocol::kGrpc;
  grpc.routes[0].path = "/a.Trace/Export";
  grpc.routes[0].unary = true;
  grpc.routes[1].path = "/a.Stream/Open";
  const RequestRoutes routes = make_request_routes(grpc, kExempt, {9, 10, kSlots});
  EXPECT_TRUE(routes.paths.empty());
  ASSERT_EQ(routes.methods.size(), 6U) << "two forms of each; /healthz is no method";
  EXPECT_EQ(routes.methods[0].first.huffman, 0);
  EXPECT_EQ(routes.methods[1].first.huffman, 1);
  EXPECT_EQ(routes.methods[1].second.flags, HEADGATE_ROUTE_UNARY);
  EXPECT_EQ(routes.methods[2].second.flags, 0U) << "a stream is never refused";
  EXPECT_EQ(routes.methods[4].second.flags, HEADGATE_ROUTE_EXEMPT);
}

TEST(RequestPort, SaysWhatMayBeRefusedAndHow) {
  EndpointConfig endpoint = http();
  endpoint.http.retry_after_min = std::chrono::seconds(2);
  endpoint.http.idle_timeout = std::chrono::seconds(10);
  headgate_request_port port = make_request_port(endpoint, 10, true, 3);
  EXPECT_EQ(port.rest, 10U);
  EXPECT_EQ(port.flags, HEADGATE_REQUESTS_HTTP1 | HEADGATE_REQUESTS_REFUSE);
  EXPECT_EQ(port.retry_after_min_s, 2U);
  EXPECT_EQ(port.retry_after_max_s, 3U);
  EXPECT_EQ(port.let_through_ns, 5'000'000'000U) << "half of the idle time-out";
  EXPECT_EQ(port.generation, 3U);
  EXPECT_EQ(make_request_port(endpoint, 10, false, 3).flags, HEADGATE_REQUESTS_HTTP1);
  endpoint.refuse.form = RefuseForm::kAuto;
  EXPECT_EQ(make_request_port(endpoint, 10, true, 3).flags, HEADGATE_REQUESTS_HTTP1)
      << "routes are counted only";
  endpoint.protocol = Protocol::kGrpc;
  EXPECT_EQ(make_request_port(endpoint, 10, true, 3).flags, HEADGATE_REQUESTS_HTTP2);
}

}  // namespace
}  // namespace headgate
