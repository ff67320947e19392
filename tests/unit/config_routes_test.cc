// SPDX-License-Identifier: Apache-2.0
// Routes of endpoints: what they mean. What is wrong with one: config_problems.inc.
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/config/load.h"
#include "agent/config/read_routes.h"
#include "agent/config/route_path.h"
#include "bpf/lib/path.h"
#include "tests/unit/config_strategies.h"

namespace headgate {
namespace {

using testing::ElementsAre;

/// Without the problem where there is one.
std::string normal(std::string_view path) {
  const RoutePath out = normalize_path(path);
  return out.problem.empty() ? out.path : "problem";
}

TEST(RoutePath, D06_IsBroughtToItsNormalForm) {
  for (const char* path : {"/v1/traces", "//v1/traces", "/v1/./traces", "/v1/%74races",
                           "/v1/traces/", "/v1//traces//", "/./v1/traces/.", "/v1/%2E/traces"}) {
    EXPECT_EQ(normal(path), "/v1/traces") << path;
  }
  EXPECT_EQ(normal("/"), "/");
  EXPECT_EQ(normal("//./"), "/");
  EXPECT_EQ(normal("/a.b/..c/.d"), "/a.b/..c/.d");
}

TEST(RoutePath, KeepsWhatDecodingWouldChange) {
  EXPECT_EQ(normal("/a%2fb"), "/a%2Fb") << "an encoded slash parts no segments";
  EXPECT_EQ(normal("/a%2525"), "/a%2525");
  EXPECT_EQ(normal("/%41%7a%30%2d%5F%7E"), "/Az0-_~");
  EXPECT_EQ(normal("/a:b@c;d=e,f!$&'()*+"), "/a:b@c;d=e,f!$&'()*+");
}

TEST(RoutePath, RefusesWhatIsNoPath) {
  for (const char* path : {"", "v1", "http://h/v1", "/a?b", "/a#b", "/..", "/a/%2e./b", "/%", "/%4",
                           "/%zz", "/a b", "/a\x80", "/a\"b", "/a\\b"}) {
    EXPECT_EQ(normal(path), "problem") << path;
  }
  EXPECT_EQ(normal("/" + std::string(118, 'a')).size(), kRoutePathMax);
  EXPECT_EQ(normal("/" + std::string(119, 'a')), "problem");
}

/// What the kernel makes of it, as a key without its last '/'.
std::string in_the_kernel(std::string_view target) {
  headgate_path path{};
  headgate_path_start(&path, 7);
  for (const char c : target) {
    headgate_path_byte(&path, static_cast<__u8>(c));
  }
  if (headgate_path_end(&path) == 0) {
    return "problem";
  }
  std::string out(reinterpret_cast<const char*>(path.key.path),  // NOLINT: octets
                  (path.key.prefix_bits - 32) / 8);
  return out == "/" ? out : out.substr(0, out.size() - 1);
}

TEST(RoutePath, IsWhatTheKernelMakesOfARequest) {
  // Every path of up to seven of these: the odd ones are all made of them.
  const std::vector<std::string> parts{"/", ".", "a", "%2e", "%2f", "%41", "%5b"};
  std::vector<std::string> paths{"/"};
  std::size_t compared = 0;
  for (int length = 0; length < 6; ++length) {
    std::vector<std::string> longer;
    for (const std::string& path : paths) {
      EXPECT_EQ(normal(path), in_the_kernel(path)) << path;
      ++compared;
      for (const std::string& part : parts) {
        longer.push_back(path + part);
      }
    }
    paths = std::move(longer);
  }
  EXPECT_EQ(compared, 1U + 7 + 49 + 343 + 2401 + 16807);
  EXPECT_EQ(in_the_kernel("http://h/v1/traces?x=1"), "/v1/traces") << "D06";
}

TEST(RoutePath, KnowsAMethodOfGrpc) {
  for (const char* method : {"/a.B/C", "/B/C", "/grpc.health.v1.Health/Check", "/_a._B/_c9"}) {
    EXPECT_TRUE(is_grpc_method(method)) << method;
  }
  for (const char* method : {"", "/", "/a.B", "/a.B/", "a.B/C", "/a..B/C", "/.B/C", "/a.B/C/D",
                             "/a.B/C-D", "/1a/B", "/a b/C", "/a.B./C"}) {
    EXPECT_FALSE(is_grpc_method(method)) << method;
  }
}

constexpr std::string_view kRoutes = R"(apiVersion: headgate/v1
targets:
  - name: a
    match: {cgroup: /a}
    exempt: {paths: [/healthz, /-/ready/]}
    endpoints:
      - name: otlp-http
        port: 4318
        protocol: http
        refuse: 503
        criticality: sheddable_plus
        http: {retry_after_min: 2s, retry_after_max: 8s, idle_timeout: 75s}
        routes:
          - {name: traces, path: /v1/traces, criticality: sheddable}
          - {name: metrics, path: /v1/metrics, criticality: critical, floor: 0.5}
      - name: otlp-grpc
        port: 4317
        protocol: grpc
        refuse: grpc-exhausted
        grpc: {max_message: 8Mi}
        routes:
          - {name: traces, path: /opentelemetry.proto.collector.trace.v1.TraceService/Export}
          - {name: arrow, path: /a.Arrow/Stream, calls: stream}
          - {name: mine, path: /a.Mine/Put, calls: unary}
)";

TEST(ConfigRoutes, SayWhatIsRefusedFirst) {
  const LoadedConfig loaded = load_config(kRoutes, "f", test::strategy_table());
  ASSERT_TRUE(loaded.valid()) << to_string(loaded.problems.front());
  const TargetConfig& target = loaded.config.targets[0];
  EXPECT_THAT(target.exempt.paths, ElementsAre("/healthz", "/-/ready"));
  const EndpointConfig& http = target.endpoints[0];
  EXPECT_EQ(http.refuse.form, RefuseForm::kHttp503);
  EXPECT_TRUE(refuses_requests(http.refuse.form));
  EXPECT_EQ(http.http.retry_after_min, std::chrono::seconds(2));
  EXPECT_EQ(http.http.retry_after_max, std::chrono::seconds(8));
  EXPECT_EQ(http.http.idle_timeout, std::chrono::seconds(75));
  ASSERT_EQ(http.routes.size(), 2U);
  EXPECT_EQ(http.routes[0].path, "/v1/traces");
  EXPECT_EQ(http.routes[0].criticality, Criticality::kSheddable);
  EXPECT_EQ(http.routes[1].floor.value(), 0.5);
  EXPECT_EQ(http.routes[1].place.line, 15);
  EXPECT_EQ(slots_of(http), 4U) << "the port, its routes, the rest";
  const EndpointConfig& grpc = target.endpoints[1];
  EXPECT_EQ(grpc.grpc.max_message_bytes, 8ULL << 20U);
  ASSERT_EQ(grpc.routes.size(), 3U);
  EXPECT_TRUE(grpc.routes[0].unary) << "known of OTLP";
  EXPECT_FALSE(grpc.routes[1].unary);
  EXPECT_TRUE(grpc.routes[2].unary);
}

TEST(ConfigRoutes, ArePrintedAsTheyAreRead) {
  const LoadedConfig loaded = load_config(kRoutes, "f", test::strategy_table());
  const LoadedConfig again = load_config(to_yaml(loaded.config), "g", test::strategy_table());
  EXPECT_TRUE(again.problems.empty()) << to_string(again.problems.front());
  EXPECT_EQ(again.config, loaded.config);
}

TEST(ConfigRoutes, AreLookedAtWithAnyFormAndMayBeNone) {
  const auto endpoint = [](std::string_view keys) {
    const LoadedConfig loaded = load_config(
        "apiVersion: headgate/v1\ntargets: [{name: a, match: {cgroup: /a}, endpoints: [{port: "
        "80, " +
            std::string(keys) + "}]}]\n",
        "f", test::strategy_table());
    EXPECT_TRUE(loaded.problems.empty()) << to_string(loaded.problems.front());
    return loaded.config.targets.at(0).endpoints.at(0);
  };
  EXPECT_FALSE(sees_requests(endpoint("protocol: http")));
  EXPECT_TRUE(sees_requests(endpoint("protocol: http, routes: [{name: x, path: /x}]")));
  EXPECT_TRUE(sees_requests(endpoint("protocol: http, refuse: 429")));
  EXPECT_EQ(slots_of(endpoint("protocol: http, refuse: 429")), 2U);
  EXPECT_EQ(slots_of(endpoint("protocol: http")), 1U);
}

}  // namespace
}  // namespace headgate
