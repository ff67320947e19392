// SPDX-License-Identifier: Apache-2.0
// Requests of HTTP/1.1 on live connections, refused by the kernel in the place of the server: what
// clients get, what servers see, and that both can go on with the connection.
#include <arpa/inet.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/netns/gate_lab.h"

namespace headgate {
namespace {

using lab::eventually;
using lab::GateLab;
using lab::Port;
using lab::ServerMode;
using lab::ServerOptions;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::StartsWith;

struct Reply {
  int status = 0;  ///< 0 = no whole answer
  std::string head;
  std::string body;
};

/// One connection of a client that reads answers by their Content-Length.
class Client {
 public:
  Client(const lab::Namespace& netns, const std::string& ipv4, std::uint16_t port) {
    netns.run([&] {
      fd_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const timeval limit{3, 0};
      ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
      ::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
      sockaddr_in to{};
      to.sin_family = AF_INET;
      to.sin_port = htons(port);
      ::inet_pton(AF_INET, ipv4.c_str(), &to.sin_addr);
      if (::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) {
        throw lab::SetupError("connect");
      }
    });
  }
  void say(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t sent = ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) {
        throw lab::SetupError("send");
      }
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  /// In one packet, as far as loopback and veth go: the whole text is there when it is sent.
  Reply ask(std::string_view text) {
    say(text);
    return hear();
  }
  Reply hear() {
    Reply reply;
    std::size_t end = std::string::npos;
    while ((end = rest_.find("\r\n\r\n")) == std::string::npos) {
      if (!more()) return reply;
    }
    const std::string head = rest_.substr(0, end + 4);
    const std::size_t at = head.find("Content-Length:");
    const std::size_t length =
        at == std::string::npos ? 0 : std::strtoul(head.c_str() + at + 15, nullptr, 10);
    while (rest_.size() < head.size() + length) {
      if (!more()) return reply;
    }
    reply.head = head;
    reply.body = rest_.substr(head.size(), length);
    rest_.erase(0, head.size() + length);
    reply.status = std::atoi(head.c_str() + std::string_view("HTTP/1.1 ").size());
    return reply;
  }
  /// Bytes behind the answers heard.
  [[nodiscard]] const std::string& rest() const { return rest_; }
  [[nodiscard]] bool closed() { return !more() && rest_.empty(); }

 private:
  bool more() {
    std::array<char, 65536> data{};
    const ssize_t got = ::recv(fd_.get(), data.data(), data.size(), 0);
    if (got > 0) rest_.append(data.data(), static_cast<std::size_t>(got));
    return got > 0;
  }
  UniqueFd fd_;
  std::string rest_;
};

std::string post(const std::string& path, const std::string& body, const std::string& more = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: collector:4318\r\n" + more +
         "Content-Type: application/x-protobuf\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

/// For the server that says what follows a '>': the body is its answer.
const std::string kOk = ">HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

std::string chunked(const std::string& path, std::size_t bytes, std::size_t chunk) {
  std::string out = "POST " + path +
                    " HTTP/1.1\r\nHost: collector:4318\r\nContent-Type: text/plain\r\n"
                    "Transfer-Encoding: chunked\r\n\r\n";
  std::ostringstream body;
  for (std::size_t at = 0; at < bytes; at += chunk) {
    const std::size_t now = std::min(chunk, bytes - at);
    body << std::hex << now << ";n=\"a\\\"b\"\r\n" << std::string(now, 'c') << "\r\n";
  }
  return out + body.str() + "0\r\nTrailer: t\r\n\r\n";
}

/// A server of somebody else's: begun in the namespace and the cgroup, killed at the end.
class Foreign {
 public:
  Foreign(const lab::Namespace& netns, const lab::Cgroup& cgroup,
          const std::function<void()>& serve) {
    std::array<int, 2> go{};
    if (::pipe(go.data()) != 0) throw lab::SetupError("pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      char byte = 0;
      (void)::setpgid(0, 0);
      if (::read(go[0], &byte, 1) == 1 && ::setns(netns.fd(), CLONE_NEWNET) == 0) serve();
      ::_exit(1);
    }
    cgroup.add(pid_);
    (void)!::write(go[1], "x", 1);
    ::close(go[0]);
    ::close(go[1]);
  }
  Foreign(const Foreign&) = delete;
  Foreign& operator=(const Foreign&) = delete;
  ~Foreign() {
    ::kill(-pid_, SIGKILL);
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_ = -1;
};

class Http1 : public lab::ServerFixture {
 protected:
  Http1() : ServerFixture("http1") {}
  void SetUp() override {
    ServerFixture::SetUp();
    if (cgroup) {
      gates->see_requests({{HEADGATE_STAGE_HTTP1, Program::kStreamHttp1}});
    }
  }
  void TearDown() override {
    foreign.reset();
    ServerFixture::TearDown();
  }

  /// A server that is ours, non-blocking; its port is looked at, with a route and an exempt path.
  void serve() {
    ServerOptions options;
    options.mode = ServerMode::kSay;
    start_server(options);
    look_at(server->port());
  }
  void serve(std::uint16_t number, const std::function<void()>& run) {
    foreign.emplace(net->server, *cgroup, run);
    look_at(number);
    ASSERT_TRUE(eventually([&] {
      try {
        Client probe = connect();
        return true;
      } catch (const lab::SetupError&) {
        return false;
      }
    }));
  }
  void look_at(std::uint16_t number) {
    port_number = number;
    port.emplace(gates->protect(net->server, number));
    gates->count_connections(*port, *cgroup, net->server);
    gates->count_payload(*port, *cgroup, net->server);
    traces.emplace(*gates->maps, 1, std::uint16_t{1}, IPPROTO_TCP);
    rest.emplace(*gates->maps, 1, std::uint16_t{2}, IPPROTO_TCP);
    exempt.emplace(*gates->maps, 1, std::uint16_t{3}, IPPROTO_TCP);
    for (Port* one : {&*traces, &*rest, &*exempt}) {
      one->policy.level = HEADGATE_LEVEL_ROUTE;
      one->policy.parent = port->slot();
      one->refuse_by(HEADGATE_ACTION_HTTP_429);
      one->open();
    }
    route("/v1/traces/", {traces->slot(), 0});
    route("/healthz/", {exempt->slot(), HEADGATE_ROUTE_EXEMPT});
    rules.rest = rest->slot();
    rules.flags = HEADGATE_REQUESTS_HTTP1 | HEADGATE_REQUESTS_REFUSE;
    rules.retry_after_min_s = 2;
    rules.retry_after_max_s = 12;
    rules.first_bytes_max = 65536;
    set_rules();
    headgate_endpoint_key key{};
    key.netns_id = net->server.inode();
    key.port = number;
    key.protocol = IPPROTO_TCP;
    GateLab::must(gates->maps->map_flow(key, {port->slot(), HEADGATE_REF_REQUESTS}));
  }
  void route(const std::string& path, const headgate_route& to) const {
    headgate_route_key key{};
    key.prefix_bits = static_cast<std::uint32_t>(32 + 8 * path.size());
    key.port = port->slot();
    std::memcpy(key.path, path.data(), path.size());
    ASSERT_EQ(::bpf_map_update_elem(gates->maps->fd("headgate_routes"), &key, &to, 0), 0);
  }
  void set_rules() const {
    const std::uint32_t slot = port->slot();
    ASSERT_EQ(::bpf_map_update_elem(gates->maps->fd("headgate_request_ports"), &slot, &rules, 0),
              0);
  }
  [[nodiscard]] std::uint64_t unknown(std::uint32_t reason) const {
    const headgate_unknown_key key{port->slot(), reason};
    std::uint64_t count = 0;
    (void)::bpf_map_lookup_elem(gates->maps->fd("headgate_unknowns"), &key, &count);
    return count;
  }
  /// Accepted, where the server is ours: what comes earlier is never answered.
  Client connect() const {
    const std::uint64_t before = server ? server->accepted() : 0;
    Client client(net->client, net->at_server().ipv4, port_number);
    EXPECT_TRUE(!server || eventually([&] { return server->accepted() > before; }));
    return client;
  }
  /// Bytes that established connections of the server say they hold unread: Recv-Q of ss(8).
  std::uint64_t unread() const {
    std::istringstream lines(net->server.command({"cat", "/proc/net/tcp", "/proc/net/tcp6"}));
    std::uint64_t sum = 0;
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string n;
      std::string from;
      std::string to;
      std::string state;
      std::string queues;
      words >> n >> from >> to >> state >> queues;
      if (state == "01") sum += std::strtoul(queues.c_str() + queues.find(':') + 1, nullptr, 16);
    }
    return sum;
  }

  std::optional<Foreign> foreign;
  std::optional<Port> port;
  std::optional<Port> traces;
  std::optional<Port> rest;
  std::optional<Port> exempt;
  headgate_request_port rules{};
  std::uint16_t port_number = 0;
};

TEST_F(Http1, ARefusedRequestIsAnsweredAndTheConnectionGoesOn) {
  serve();
  Client client = connect();
  EXPECT_EQ(client.ask(post("/v1/traces", kOk)).status, 200) << "the gate is open";
  traces->admit(0);
  const std::uint64_t before = server->received_bytes();
  const std::string request = post("/v1/traces?x", "hello");
  const Reply refused = client.ask(request);
  EXPECT_THAT(refused.head, StartsWith("HTTP/1.1 429 Too Many Requests\r\nRetry-After: "));
  EXPECT_EQ(refused.head.size() + refused.body.size(), request.size()) << "as long as the request";
  EXPECT_EQ(refused.body, std::string(refused.body.size(), ' '));
  const int retry_after_s = std::atoi(refused.head.c_str() + refused.head.find("After:") + 6);
  EXPECT_GE(retry_after_s, 2);
  EXPECT_LE(retry_after_s, 12);
  EXPECT_EQ(client.ask(post("/other", kOk)).status, 200) << "on the same connection";
  EXPECT_EQ(client.ask(request).status, 429);
  EXPECT_EQ(client.ask(post("/healthz", kOk)).status, 200);
  EXPECT_EQ(server->accepted(), 1U);
  EXPECT_EQ(server->received_bytes() - before,
            post("/other", kOk).size() + post("/healthz", kOk).size());

  const headgate_counters counted = traces->counters();
  EXPECT_EQ(counted.offered, 3U);
  EXPECT_EQ(counted.admitted, 1U);
  EXPECT_EQ(counted.answered, 2U);
  EXPECT_EQ(counted.refused[HEADGATE_REASON_SHARE], 2U);
  EXPECT_EQ(counted.responses, 1U);
  EXPECT_GT(counted.response_ns, 0U);
  EXPECT_EQ(counted.payload_bytes, 2 * request.size() + post("/v1/traces", kOk).size());
  EXPECT_EQ(counted.admitted_bytes, post("/v1/traces", kOk).size());
  EXPECT_EQ(rest->counters().offered, 1U);
  EXPECT_EQ(exempt->counters().offered, 1U);
  EXPECT_EQ(port->counters().recognized, 1U);
}

TEST_F(Http1, TheFormIsThatOfTheReason) {
  serve();
  traces->refuse_by(HEADGATE_ACTION_HTTP_503);
  traces->admit(0);
  EXPECT_THAT(connect().ask(post("/v1/traces", "hello")).head,
              StartsWith("HTTP/1.1 503 Service Unavailable\r\n"));
}

TEST_F(Http1, BodiesOfRefusedRequestsAreSwallowed) {
  serve();
  traces->admit(0);
  Client client = connect();
  for (const std::size_t bytes : {0UL, 5UL, 3000UL, 40000UL, 100000UL, 1000000UL, 10000000UL}) {
    const Reply reply = client.ask(post("/v1/traces", std::string(bytes, 'b')));
    ASSERT_EQ(reply.status, 429) << bytes;
    ASSERT_EQ(client.ask(post("/other", kOk)).status, 200) << "behind " << bytes;
  }
  for (const std::size_t bytes : {5UL, 3000UL, 100000UL, 1000000UL}) {
    ASSERT_EQ(client.ask(chunked("/v1/traces", bytes, 1000)).status, 429) << bytes;
    ASSERT_EQ(client.ask(post("/other", kOk)).status, 200) << "behind chunks, " << bytes;
  }
  EXPECT_EQ(server->received_bytes(), 11 * post("/other", kOk).size());
  EXPECT_EQ(server->accepted(), 1U);
  EXPECT_EQ(unread(), 0U);
  EXPECT_GT(traces->counters().payload_bytes, 12'000'000U) << "chunks are counted, too";
}

TEST_F(Http1, NothingIsLeftUnreadBehindManyRefusals) {
  serve();
  traces->admit(0);
  Client client = connect();
  std::uint32_t random = 12345;
  std::map<int, std::uint64_t> statuses;
  std::uint64_t passed_bytes = 0;
  for (int i = 0; i < 500; ++i) {
    random = random * 1103515245 + 12345;
    const std::string request = post("/v1/traces", std::string(random % 3000, 'b') + kOk);
    const int status = client.ask(request).status;
    ++statuses[status];
    passed_bytes += status == 200 ? request.size() : 0;
  }
  // One that comes while the server is within a system call on the socket passes, and is counted:
  // there is none of another answer.
  EXPECT_EQ(statuses[429] + statuses[200], 500U) << testing::PrintToString(statuses);
  EXPECT_EQ(statuses[200], traces->counters().admitted_guarded);
  EXPECT_GT(statuses[429], 450U);
  EXPECT_EQ(server->received_bytes(), passed_bytes);
  EXPECT_EQ(unread(), 0U);
  EXPECT_EQ(client.ask(post("/other", kOk)).status, 200);
}

TEST_F(Http1, AShareIsAdmittedOnTheSameConnection) {
  serve();
  traces->admit(0.5);
  Client client = connect();
  std::map<int, int> statuses;
  for (int i = 0; i < 400; ++i) {
    ++statuses[client.ask(post("/v1/traces", kOk)).status];
  }
  EXPECT_NEAR(statuses[200], 200, lab::tolerance());
  EXPECT_EQ(statuses[200] + statuses[429], 400);
  EXPECT_TRUE(eventually([&] { return traces->state().in_flight == 0; }));
  EXPECT_EQ(unread(), 0U);
}

TEST_F(Http1, D01_TwoRequestsInOneSegmentAreTwoDecisionsAndPass) {
  serve();
  traces->admit(0);
  Client client = connect();
  client.say(post("/v1/traces", kOk) + post("/v1/traces", kOk));
  EXPECT_EQ(client.hear().status, 200);
  EXPECT_TRUE(eventually([&] { return traces->counters().offered == 2; }));
  EXPECT_EQ(traces->counters().admitted_guarded, 2U);
}

TEST_F(Http1, D04_AHeadInTwoPacketsPassesAndIsCounted) {
  serve();
  traces->admit(0);
  Client client = connect();
  const std::string request = post("/v1/traces", kOk);
  client.say(request.substr(0, 10));
  ASSERT_TRUE(eventually([&] { return server->received_bytes() == 10; }));
  EXPECT_EQ(client.ask(request.substr(10)).status, 200);
  EXPECT_EQ(traces->counters().admitted_guarded, 1U);
  EXPECT_EQ(client.ask(request).status, 429) << "the next one is whole";
}

TEST_F(Http1, D05_D13_ExpectIsRefusedBeforeTheBodyAndTheAnswerCanBeRead) {
  serve();
  traces->admit(0);
  Client client = connect();
  const Reply reply = client.ask(
      "POST /v1/traces HTTP/1.1\r\nHost: collector:4318\r\nContent-Type: application/x-protobuf\r\n"
      "Expect: 100-continue\r\nContent-Length: 10485760\r\n\r\n");
  EXPECT_EQ(reply.status, 429);
  EXPECT_THAT(reply.head, HasSubstr("Connection: close\r\n"));
  client.say(std::string(1000000, 'b'));  // a client that sends its body all the same
  EXPECT_EQ(server->received_bytes(), 0U);
}

TEST_F(Http1, WhatIsNotUnderstoodIsCountedAndPasses) {
  serve();
  for (Port* one : {&*traces, &*rest}) one->admit(0);
  Client client = connect();
  EXPECT_EQ(client
                .ask("post /v1/traces HTTP/1.1\r\nContent-Length: " + std::to_string(kOk.size()) +
                     "\r\nX: " + std::string(90, 'x') + "\r\n\r\n" + kOk)
                .status,
            200);
  EXPECT_EQ(unknown(HEADGATE_UNKNOWN_METHOD), 1U);
  EXPECT_EQ(rest->counters().admitted_guarded, 1U);
  EXPECT_EQ(connect().ask("\x16\x03\x01 hello" + kOk).status, 200);
  EXPECT_EQ(unknown(HEADGATE_UNKNOWN_TLS), 1U);
  Client folded = connect();
  EXPECT_EQ(folded.ask("GET /v1/traces HTTP/1.1\r\nA: b\r\n c\r\n\r\n" + kOk).status, 200);
  EXPECT_EQ(unknown(HEADGATE_UNKNOWN_SYNTAX), 1U);
  EXPECT_EQ(folded.ask(post("/v1/traces", kOk)).status, 200) << "for the life of the connection";
}

TEST_F(Http1, ARequestWhoseBodyIsBrokenPassesAndIsOfItsRoute) {
  serve();
  traces->admit(0);
  const std::string head =
      "POST /v1/traces HTTP/1.1\r\nHost: collector:4318\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(connect().ask(head + "xyz" + kOk).status, 200);
  EXPECT_EQ(unknown(HEADGATE_UNKNOWN_FRAMING), 1U);
  EXPECT_EQ(traces->counters().admitted_guarded, 1U);
  EXPECT_EQ(traces->counters().answered, 0U);
}

TEST_F(Http1, WhatCannotBeAnsweredPasses) {
  serve();
  traces->admit(0);
  for (const std::string& request :
       {post("/v1/traces", kOk, "Connection: close\r\n"),
        "HEAD /v1/traces HTTP/1.1\r\nHost: collector:4318\r\nX: " + std::string(60, 'x') +
            "\r\nContent-Length: " + std::to_string(kOk.size()) + "\r\n\r\n" + kOk,
        "POST /v1/traces HTTP/1.0\r\nContent-Length: " + std::to_string(kOk.size()) + "\r\n\r\n" +
            kOk,
        std::string("GET /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n>")}) {
    const std::uint64_t before = traces->counters().admitted_guarded;
    Client client = connect();
    client.say(request);
    EXPECT_TRUE(eventually([&] { return traces->counters().admitted_guarded == before + 1; }))
        << request;
  }
  rules.first_bytes_max = 1000;
  set_rules();
  EXPECT_EQ(connect().ask(post("/v1/traces", std::string(2000, 'b') + kOk)).status, 200);
  rules.flags &= ~HEADGATE_REQUESTS_REFUSE;
  set_rules();
  EXPECT_EQ(connect().ask(post("/v1/traces", kOk)).status, 200);
  EXPECT_EQ(traces->counters().answered, 0U);
}

TEST_F(Http1, OneRequestPassesBeforeTheServersIdleTimerEnds) {
  serve();
  traces->admit(0);
  rules.let_through_ns = 300'000'000;
  set_rules();
  Client client = connect();
  EXPECT_EQ(client.ask(post("/v1/traces", kOk)).status, 429);
  std::this_thread::sleep_for(milliseconds(350));
  EXPECT_EQ(client.ask(post("/v1/traces", kOk)).status, 200);
  // Not before the server has left the system call in which it read that one.
  EXPECT_TRUE(eventually([&] { return client.ask(post("/v1/traces", kOk)).status == 429; },
                         milliseconds(200)));
}

TEST_F(Http1, ARequestBehindTheRestOfARefusedOneIsRefusedToo) {
  serve();
  traces->admit(0);
  Client client = connect();
  const std::string request = post("/v1/traces", std::string(500, 'b'));
  ASSERT_EQ(client.ask(request.substr(0, request.size() - 40)).status, 429);
  const Reply second = client.ask(request.substr(request.size() - 40) + post("/other", kOk));
  EXPECT_EQ(second.status, 429) << "the packet cannot pass";
  EXPECT_EQ(rest->counters().refused[HEADGATE_REASON_NONE], 1U);
  EXPECT_EQ(rest->counters().answered, 1U);
  EXPECT_EQ(client.ask(post("/other", kOk)).status, 200) << "and the connection goes on";
  EXPECT_EQ(server->received_bytes(), post("/other", kOk).size());

  ASSERT_EQ(client.ask(request.substr(0, request.size() - 100)).status, 429);
  const Reply third = client.ask(request.substr(request.size() - 100) + "POST /oth");
  EXPECT_EQ(third.status, 429);
  EXPECT_THAT(third.head, HasSubstr("Connection: close\r\n"));
}

TEST_F(Http1, LeaseObserveAndKillSwitchOpenIt) {
  serve();
  traces->admit(0);
  Client client = connect();
  EXPECT_EQ(client.ask(post("/v1/traces", kOk)).status, 429);
  traces->admit(0, HEADGATE_OBSERVE);
  EXPECT_EQ(client.ask(post("/v1/traces", kOk)).status, 200);
  traces->admit(0);
  gates->maps->set_off(true);
  EXPECT_EQ(client.ask(post("/v1/traces", kOk)).status, 200);
  gates->maps->set_off(false);
  EXPECT_EQ(client.ask(post("/v1/traces", kOk)).status, 429);
  traces->publish(milliseconds(50));  // an agent that is killed renews no lease
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(client.ask(post("/v1/traces", kOk)).status, 200);
  EXPECT_EQ(traces->counters().admitted_stale, 1U);
  EXPECT_EQ(traces->counters().admitted_observed, 1U);
}

TEST_F(Http1, ARequestIsInFlightUntilItsAnswerOrTheEndOfItsConnection) {
  serve();
  {
    Client client = connect();
    client.say("POST /v1/traces HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc");
    EXPECT_TRUE(eventually([&] { return traces->state().in_flight == 1; }));
  }
  EXPECT_TRUE(eventually([&] { return traces->state().in_flight == 0; }));
  EXPECT_EQ(traces->counters().closed, 1U);
  EXPECT_EQ(traces->counters().responses, 0U);
}

TEST_F(Http1, NoStateIsLeftOfClosedConnections) {
  serve();
  traces->admit(0.5);
  for (int i = 0; i < 50; ++i) {
    Client client = connect();
    client.say(post("/v1/traces", std::string(i % 2 == 0 ? 10 : 100000, 'b')).substr(0, 200));
  }
  const auto states = [&] {
    const int fd = gates->maps->fd("headgate_stream_states");
    std::uint64_t key = 0;
    int count = 0;
    for (const void* from = nullptr; ::bpf_map_get_next_key(fd, from, &key) == 0; from = &key) {
      ++count;
    }
    return count;
  };
  EXPECT_TRUE(eventually([&] { return states() == 0; })) << states();
}

/// recv() of a task that sleeps in it would lose its place: see headgate_http1_socket().
TEST_F(Http1, BlockingServersAreLeftAlone) {
  serve(8081, [] {
    const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(8081);
    const int yes = 1;
    ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (::bind(listener, reinterpret_cast<const sockaddr*>(&at), sizeof(at)) != 0) return;
    ::listen(listener, 16);
    for (;;) {
      const int fd = ::accept(listener, nullptr, nullptr);
      std::array<char, 4096> data{};
      while (::recv(fd, data.data(), data.size(), 0) > 0) {
        (void)!::write(fd, kOk.data() + 1, kOk.size() - 1);
      }
      ::close(fd);
    }
  });
  traces->admit(0);
  Client client = connect();
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(client.ask(post("/v1/traces", "hello")).status, 200) << i;
  }
  EXPECT_EQ(traces->counters().admitted_guarded, 100U);
  EXPECT_EQ(traces->counters().answered, 0U);
}

std::string missing_nginx() {
  return ::access("/usr/sbin/nginx", X_OK) == 0 ? "" : "needs nginx (tests/run --setup test)";
}

TEST_F(Http1, ClientsOfNginxGetWholeAnswersOnly) {
  HEADGATE_REQUIRES(missing_nginx());
  const auto directory =
      std::filesystem::temp_directory_path() / ("headgate-nginx-" + std::to_string(::getpid()));
  std::filesystem::create_directories(directory);
  std::ofstream(directory / "nginx.conf")
      << "daemon off; master_process off; pid " << (directory / "pid").string()
      << "; error_log stderr crit; events { worker_connections 64; }\n"
      << "http { access_log off; client_body_temp_path " << (directory / "body").string()
      << "; proxy_temp_path " << (directory / "p").string() << "; fastcgi_temp_path "
      << (directory / "f").string() << "; uwsgi_temp_path " << (directory / "u").string()
      << "; scgi_temp_path " << (directory / "s").string()
      << "; server { listen 8082; keepalive_requests 100000; client_max_body_size 20m;"
         " location / { return 200 ok; } } }\n";
  serve(8082, [&directory] {
    const std::string prefix = directory.string();
    ::execl("/usr/sbin/nginx", "nginx", "-p", prefix.c_str(), "-c", "nginx.conf", nullptr);
  });
  for (const double share : {1.0, 0.5, 0.0}) {
    traces->admit(share);
    Client client = connect();
    std::map<int, int> statuses;
    std::uint32_t random = 777;
    constexpr int kRequests = 300;
    for (int i = 0; i < kRequests; ++i) {
      random = random * 1103515245 + 12345;
      const std::size_t bytes = (random >> 8) % (i % 20 == 0 ? 300000 : 4000);
      const Reply reply = client.ask(i % 3 == 0 ? chunked("/v1/traces", bytes, 700)
                                                : post("/v1/traces", std::string(bytes, 'b')));
      ++statuses[reply.status];
    }
    EXPECT_EQ(statuses[200] + statuses[429], kRequests) << "no answer: " << statuses[0];
    EXPECT_TRUE(client.rest().empty());
    EXPECT_EQ(unread(), 0U);
    EXPECT_GE(statuses[429], share == 0.0 ? kRequests * 9 / 10 : 0);
    EXPECT_GE(statuses[200], share == 1.0 ? kRequests : 0);
  }
  foreign.reset();
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace headgate
