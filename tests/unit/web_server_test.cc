// SPDX-License-Identifier: Apache-2.0
// The server on a real loopback socket, spoken to byte by byte.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdlib>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "agent/base/unique_fd.h"
#include "agent/web/http_server.h"
#include "agent/web/server.h"
#include "tests/unit/web_snapshot.h"

namespace headgate {
namespace {

using nlohmann::json;
using test::FixedSource;
using testing::AllOf;
using testing::HasSubstr;

UniqueFd connect_to(std::uint16_t port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval timeout{10, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    fd.reset();
  }
  return fd;
}

struct Answer {
  int status = 0;
  std::string head;
  std::string body;
};

Answer exchange(std::uint16_t port, const std::string& request) {
  const UniqueFd fd = connect_to(port);
  EXPECT_TRUE(fd.valid());
  EXPECT_EQ(send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  std::string text;
  char buffer[65536];
  for (ssize_t n = 0; (n = recv(fd.get(), buffer, sizeof(buffer), 0)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(n));
  }
  const auto end = text.find("\r\n\r\n");
  EXPECT_NE(end, std::string::npos) << text;
  if (end == std::string::npos) return {};
  Answer answer;
  answer.head = text.substr(0, end + 2);
  answer.body = text.substr(end + 4);
  answer.status = std::atoi(answer.head.substr(9, 3).c_str());
  return answer;
}

Answer get(const WebServer& server, const std::string& target) {
  return exchange(server.port(), "GET " + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
}

SnapshotPtr busy() { return std::make_shared<const AgentSnapshot>(test::busy_snapshot()); }

std::unique_ptr<WebServer> start(SnapshotSource& source, WebServer::Options options = {}) {
  options.listen_address = "127.0.0.1:0";
  auto server = WebServer::start(source, std::move(options));
  EXPECT_TRUE(server.has_value()) << (server ? "" : server.error().message);
  return server ? std::move(*server) : nullptr;
}

TEST(WebServer, ServesEveryPage) {
  FixedSource source(busy());
  WebServer::Options options;
  options.effective_config = [] { return std::string("apiVersion: headgate/v1\n"); };
  const auto server = start(source, std::move(options));
  ASSERT_NE(server, nullptr);
  ASSERT_NE(server->port(), 0);

  const Answer metrics = get(*server, "/metrics");
  EXPECT_EQ(metrics.status, 200);
  EXPECT_THAT(metrics.head, HasSubstr("Content-Type: text/plain; version=0.0.4"));
  EXPECT_THAT(metrics.body, HasSubstr("headgate_state{target=\"web\",state=\"shedding\"} 1\n"));

  const Answer state = get(*server, "/api/v1/state");
  EXPECT_THAT(state.head, HasSubstr("Content-Type: application/json"));
  EXPECT_EQ(json::parse(state.body)["targets"][0]["name"], "web");

  EXPECT_EQ(get(*server, "/healthz").body, "ok\n");
  EXPECT_EQ(get(*server, "/readyz").body, "ok\n");
  EXPECT_THAT(get(*server, "/readyz?verbose").body, HasSubstr("[+]sample ok"));
  EXPECT_THAT(get(*server, "/readyz?x=1&verbose=true").body, HasSubstr("[+]sample ok"));
  EXPECT_EQ(get(*server, "/config").body, "apiVersion: headgate/v1\n");
  EXPECT_EQ(json::parse(get(*server, "/debug/targets").body)["targets"].size(), 1U);
  EXPECT_EQ(json::parse(get(*server, "/debug/decisions?target=web").body)["decisions"].size(), 1U);

  const Answer page = get(*server, "/");
  EXPECT_THAT(page.head, AllOf(HasSubstr("text/html"), HasSubstr("default-src 'none'")));
  EXPECT_THAT(page.body, HasSubstr("api/v1/state"));
  EXPECT_THAT(page.body, testing::Not(HasSubstr("innerHTML")));
  EXPECT_THAT(page.body, testing::Not(testing::ContainsRegex("(src|href)=\"?https?:")));
}

TEST(WebServer, UnknownPagesTargetsAndMethodsAreErrors) {
  FixedSource source(busy());
  const auto server = start(source);
  ASSERT_NE(server, nullptr);
  EXPECT_EQ(get(*server, "/nothing").status, 404);
  EXPECT_EQ(get(*server, "/metrics/more").status, 404);
  EXPECT_EQ(get(*server, "/../../etc/passwd").status, 404);
  const Answer nobody = get(*server, "/debug/decisions?target=no%22body");
  EXPECT_EQ(nobody.status, 404);
  EXPECT_EQ(json::parse(nobody.body)["error"], "no target is named 'no\"body'");
  const Answer post =
      exchange(server->port(), "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(post.status, 405);
  EXPECT_THAT(post.head, HasSubstr("Allow: GET, HEAD\r\n"));
}

TEST(WebServer, HeadHasNoBody) {
  FixedSource source(busy());
  const auto server = start(source);
  ASSERT_NE(server, nullptr);
  const Answer head = exchange(server->port(), "HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(head.status, 200);
  EXPECT_THAT(head.head, HasSubstr("Content-Length: 3\r\n"));
  EXPECT_EQ(head.body, "");
}

TEST(WebServer, BeforeTheFirstTickItAnswersWithoutData) {
  FixedSource source(nullptr, false);
  const auto server = start(source);
  ASSERT_NE(server, nullptr);
  EXPECT_EQ(get(*server, "/metrics").status, 503);
  EXPECT_EQ(get(*server, "/healthz").status, 503);
  EXPECT_EQ(get(*server, "/readyz").status, 503);
  const Answer state = get(*server, "/api/v1/state");
  EXPECT_EQ(state.status, 503);
  EXPECT_EQ(json::parse(state.body)["error"], "the first tick has not run yet");
  EXPECT_EQ(get(*server, "/").status, 200);
}

TEST(WebServer, ReloadIsAPostAndReportsTheError) {
  FixedSource source(busy());
  std::atomic<int> calls{0};
  std::atomic<bool> works{true};
  WebServer::Options options;
  options.reload = [&]() -> Result<void> {
    ++calls;
    if (!works) return fail("headgate.yaml:3: unknown key");
    return {};
  };
  const auto server = start(source, std::move(options));
  ASSERT_NE(server, nullptr);
  EXPECT_EQ(get(*server, "/-/reload").status, 405);
  EXPECT_EQ(calls, 0);
  const std::string post = "POST /-/reload HTTP/1.1\r\nHost: localhost:1\r\n";
  EXPECT_EQ(exchange(server->port(), post + "Content-Length: 0\r\n\r\n").status, 200);
  EXPECT_EQ(calls, 1);
  works = false;
  const Answer failed = exchange(server->port(), post + "Content-Length: 0\r\n\r\n");
  EXPECT_EQ(failed.status, 500);
  EXPECT_THAT(failed.body, HasSubstr("headgate.yaml:3: unknown key"));
}

TEST(WebServer, APageOfAnotherSiteCannotReload) {
  FixedSource source(busy());
  std::atomic<int> calls{0};
  WebServer::Options options;
  options.reload = [&]() -> Result<void> {
    ++calls;
    return {};
  };
  const auto server = start(source, std::move(options));
  ASSERT_NE(server, nullptr);
  const std::string post = "POST /-/reload HTTP/1.1\r\nHost: localhost:1\r\nContent-Length: 0\r\n";
  EXPECT_EQ(exchange(server->port(), post + "Origin: http://evil.example\r\n\r\n").status, 403);
  EXPECT_EQ(exchange(server->port(), post + "Origin: null\r\n\r\n").status, 403);
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(exchange(server->port(), post + "Origin: http://localhost:1\r\n\r\n").status, 200);
}

TEST(WebServer, SilentClientsDelayNobody) {
  FixedSource source(busy());
  WebServer::Options options;
  options.connections_max = 8;
  const auto server = start(source, std::move(options));
  ASSERT_NE(server, nullptr);
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 40; ++i) {
    silent.push_back(connect_to(server->port()));
    ASSERT_TRUE(silent.back().valid());
    ASSERT_EQ(send(silent.back().get(), "GET /", 5, MSG_NOSIGNAL), 5);
  }
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(get(*server, "/healthz").status, 200);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
}

TEST(WebServer, ASilentClientIsDroppedAfterTheTimeOut) {
  FixedSource source(busy());
  WebServer::Options options;
  options.client_timeout = std::chrono::milliseconds(100);
  const auto server = start(source, std::move(options));
  ASSERT_NE(server, nullptr);
  const UniqueFd silent = connect_to(server->port());
  char byte = 0;
  EXPECT_EQ(recv(silent.get(), &byte, 1, 0), 0);
}

TEST(WebServer, AClientThatDoesNotReadDelaysNobodyAndNotTheEnd) {
  auto big = test::busy_snapshot();
  big.targets.resize(800, big.targets[0]);
  FixedSource source(std::make_shared<const AgentSnapshot>(std::move(big)));
  auto server = start(source);
  ASSERT_NE(server, nullptr);
  const UniqueFd deaf = connect_to(server->port());
  const std::string request = "GET /api/v1/state HTTP/1.1\r\nHost: x\r\n\r\n";
  ASSERT_EQ(send(deaf.get(), request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  EXPECT_EQ(get(*server, "/healthz").status, 200);
  const auto begin = std::chrono::steady_clock::now();
  server.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(500));
}

TEST(WebServer, ALargeAnswerArrivesWhole) {
  auto big = test::busy_snapshot();
  big.targets.resize(300, big.targets[0]);
  FixedSource source(std::make_shared<const AgentSnapshot>(std::move(big)));
  const auto server = start(source);
  ASSERT_NE(server, nullptr);
  EXPECT_EQ(json::parse(get(*server, "/api/v1/state").body)["targets"].size(), 300U);
}

TEST(WebServer, WhatIsNotHttpIsRefused) {
  FixedSource source(busy());
  const auto server = start(source);
  ASSERT_NE(server, nullptr);
  EXPECT_EQ(exchange(server->port(), "hello\r\n\r\n").status, 400);
  EXPECT_EQ(exchange(server->port(), "GET / HTTP/2.0\r\n\r\n").status, 400);
  EXPECT_EQ(exchange(server->port(), "GET nothing HTTP/1.1\r\n\r\n").status, 400);
}

TEST(WebServer, TheBodyOfAPostDoesNotEatTheAnswer) {
  FixedSource source(busy());
  WebServer::Options options;
  options.reload = []() -> Result<void> { return {}; };
  const auto server = start(source, std::move(options));
  ASSERT_NE(server, nullptr);
  const std::string body(100000, 'x');
  EXPECT_EQ(exchange(server->port(), "POST /-/reload HTTP/1.1\r\nHost: x\r\nContent-Length: " +
                                         std::to_string(body.size()) + "\r\n\r\n" + body)
                .body,
            "reloaded\n");
}

TEST(WebServer, ARequestThatIsTooLargeIsRefused) {
  FixedSource source(busy());
  const auto server = start(source);
  ASSERT_NE(server, nullptr);
  const std::string request =
      "GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + std::string(20000, 'a') + "\r\n\r\n";
  EXPECT_EQ(exchange(server->port(), request).status, 431);
  EXPECT_EQ(get(*server, "/healthz").status, 200);
}

TEST(WebServer, AnAddressInUseIsAnErrorThatNamesIt) {
  FixedSource source(busy());
  const auto first = start(source);
  ASSERT_NE(first, nullptr);
  WebServer::Options options;
  options.listen_address = "127.0.0.1:" + std::to_string(first->port());
  const auto second = WebServer::start(source, options);
  ASSERT_FALSE(second.has_value());
  EXPECT_THAT(second.error().message,
              AllOf(HasSubstr("web.listen-address " + options.listen_address),
                    HasSubstr("Address already in use")));
}

TEST(WebServer, ListensOnEveryAddressWithAnEmptyHost) {
  FixedSource source(busy());
  WebServer::Options options;
  options.listen_address = ":0";
  const auto server = WebServer::start(source, options);
  ASSERT_TRUE(server.has_value()) << server.error().message;
  EXPECT_EQ(get(**server, "/healthz").status, 200);
}

TEST(WebServer, ListensOnAnIpv6Literal) {
  const UniqueFd probe(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 loopback{};
  loopback.sin6_family = AF_INET6;
  loopback.sin6_addr = in6addr_loopback;
  if (bind(probe.get(), reinterpret_cast<sockaddr*>(&loopback), sizeof(loopback)) != 0) {
    GTEST_SKIP() << "no IPv6 loopback here";
  }
  FixedSource source(busy());
  WebServer::Options options;
  options.listen_address = "[::1]:0";
  const auto server = WebServer::start(source, options);
  ASSERT_TRUE(server.has_value()) << server.error().message;
  const UniqueFd fd(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  loopback.sin6_port = htons((*server)->port());
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&loopback), sizeof(loopback)), 0);
}

TEST(ListenAddress, WhatIsAllowed) {
  EXPECT_EQ(web::parse_listen_address("127.0.0.1:9749")->host, "127.0.0.1");
  EXPECT_EQ(web::parse_listen_address("127.0.0.1:9749")->port, 9749);
  EXPECT_EQ(web::parse_listen_address("localhost:1")->host, "127.0.0.1");
  EXPECT_EQ(web::parse_listen_address("[::1]:65535")->host, "::1");
  EXPECT_EQ(web::parse_listen_address(":9749")->host, "");
}

TEST(ListenAddress, WhatIsNotAllowedNamesTheForms) {
  for (const char* text : {"", "9749", "127.0.0.1", "host.example:80", "::1:80", "[::g]:1",
                           "127.0.0.1:65536", "127.0.0.1:", "127.0.0.1:1s", "1.2.3.4:80,443"}) {
    const auto parsed = web::parse_listen_address(text);
    ASSERT_FALSE(parsed.has_value()) << text;
    EXPECT_THAT(parsed.error().message, HasSubstr("[IPV6]:PORT")) << text;
  }
}

TEST(HttpRequest, IsTakenApart) {
  const auto request = web::parse_request(
      "GET /debug%2Fdecisions?target=a%20b+c&verbose HTTP/1.1\r\nHOST: x:1 \r\norigin:http://y");
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->path, "/debug/decisions");
  EXPECT_EQ(request->host, "x:1");
  EXPECT_EQ(request->origin, "http://y");
  EXPECT_EQ(web::query_value(request->query, "target"), "a b c");
  EXPECT_EQ(web::query_value(request->query, "verbose"), "");
  EXPECT_EQ(web::query_value(request->query, "verb"), std::nullopt);
}

TEST(HttpRequest, TheAbsoluteFormIsTakenToo) {
  EXPECT_EQ(web::parse_request("GET http://h:1/metrics HTTP/1.1")->path, "/metrics");
  EXPECT_EQ(web::parse_request("GET http://h HTTP/1.1")->path, "/");
}

TEST(HttpRequest, BrokenEncodingsStayAsTheyAre) {
  EXPECT_EQ(web::parse_request("GET /a%zz%4 HTTP/1.1")->path, "/a%zz%4");
  EXPECT_EQ(web::query_value("a=%", "a"), "%");
}

}  // namespace
}  // namespace headgate
