// SPDX-License-Identifier: Apache-2.0
// Live bytes, requests and lives on real connections: what the programs on a target's cgroup make
// of what really goes over the wire.
#include <arpa/inet.h>
#include <sys/socket.h>

#include <cmath>
#include <numeric>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "agent/decision/live_ages.h"
#include "agent/decision/lives.h"
#include "tests/netns/gate_lab.h"

namespace headgate {
namespace {

using lab::Confirm;
using lab::connect_many;
using lab::ConnectOptions;
using lab::eventually;
using lab::Outcome;
using lab::Port;
using lab::ServerMode;
using lab::ServerOptions;
using lab::ServerProcess;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// A connection that says what the test wants said.
class Client {
 public:
  Client(const lab::Namespace& netns, const std::string& address, std::uint16_t port) {
    netns.run([&] {
      const bool ipv6 = address.find(':') != std::string::npos;
      fd_ = UniqueFd(::socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const timeval limit{2, 0};
      ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
      sockaddr_in6 to6{};
      to6.sin6_family = AF_INET6;
      to6.sin6_port = htons(port);
      sockaddr_in to4{};
      to4.sin_family = AF_INET;
      to4.sin_port = htons(port);
      ::inet_pton(ipv6 ? AF_INET6 : AF_INET, address.c_str(),
                  ipv6 ? static_cast<void*>(&to6.sin6_addr) : static_cast<void*>(&to4.sin_addr));
      const auto* to =
          ipv6 ? reinterpret_cast<const sockaddr*>(&to6) : reinterpret_cast<const sockaddr*>(&to4);
      if (::connect(fd_.get(), to, ipv6 ? sizeof(to6) : sizeof(to4)) != 0) {
        throw lab::SetupError("connect");
      }
    });
  }
  void say(const std::string& text) const {
    if (::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(text.size())) {
      throw lab::SetupError("send");
    }
  }
  /// What the server sent; "" = nothing within two seconds.
  [[nodiscard]] std::string hear() const {
    std::array<char, 4096> data{};
    const ssize_t got = ::recv(fd_.get(), data.data(), data.size(), 0);
    return got > 0 ? std::string(data.data(), static_cast<std::size_t>(got)) : "";
  }
  void close() { fd_.reset(); }

 private:
  UniqueFd fd_;
};

const std::string kPost = "POST /v1/traces HTTP/1.1\r\nContent-Length: 5000\r\n\r\n";
const std::string kOk = ">HTTP/1.1 200 OK\r\n\r\n";

class Payload : public lab::ServerFixture {
 protected:
  Payload() : ServerFixture("payload") {}
  void SetUp() override {
    ServerFixture::SetUp();
    if (!cgroup) {
      return;
    }
    ServerOptions options;
    options.mode = ServerMode::kSay;
    start_server(options);
    port.emplace(gates->protect(net->server, server->port()));
    gates->count_connections(*port, *cgroup, net->server);
    gates->count_payload(*port, *cgroup, net->server);
  }
  Client connect(bool ipv6 = false) const {
    return {net->client, ipv6 ? net->at_server().ipv6 : net->at_server().ipv4, server->port()};
  }
  std::uint64_t live() const {
    return live_bytes(port->target_state(), port->target_policy.live_base);
  }
  bool live_becomes(std::uint64_t bytes) const {
    return eventually([&] { return live() == bytes; });
  }

  std::optional<Port> port;
};

TEST_F(Payload, RequestIsLiveUntilTheFirstByteOfItsResponse) {
  for (const bool ipv6 : {false, true}) {
    const Client client = connect(ipv6);
    const std::string body(5000, 'x');
    client.say(kPost + body);
    ASSERT_TRUE(live_becomes(kPost.size() + body.size())) << live();
    client.say(kOk);
    EXPECT_EQ(client.hear(), kOk.substr(1));
    EXPECT_TRUE(live_becomes(0)) << live();
    EXPECT_EQ(port->state().largest_request_bytes, kPost.size() + body.size() + kOk.size());
    client.say("POST / HTTP/1.1\r\n\r\n");  // the next request on the same connection
    EXPECT_TRUE(live_becomes(19)) << live();
  }
  EXPECT_TRUE(live_becomes(0)) << live();
}

TEST_F(Payload, InterimResponseIsNone) {
  const Client client = connect();
  client.say(kPost);
  ASSERT_TRUE(live_becomes(kPost.size())) << live();
  const std::string interim = ">HTTP/1.1 100 Continue\r\n\r\n";
  client.say(interim);
  EXPECT_EQ(client.hear(), interim.substr(1));
  EXPECT_EQ(live(), kPost.size() + interim.size());
  client.say(kOk);
  EXPECT_EQ(client.hear(), kOk.substr(1));
  EXPECT_TRUE(live_becomes(0)) << live();
}

TEST_F(Payload, AfterASwitchOfProtocolsResponsesAreNotSeen) {
  const Client client = connect();
  client.say("GET /chat HTTP/1.1\r\n\r\n");
  client.say(">HTTP/1.1 101 Switching Protocols\r\n\r\n");
  EXPECT_NE(client.hear(), "");
  EXPECT_TRUE(live_becomes(0)) << live();
  client.say(std::string(100, 'x') + kOk);
  EXPECT_NE(client.hear(), "");
  EXPECT_EQ(live(), 100 + kOk.size());
}

TEST_F(Payload, CloseEndsWhatWasNotAnswered) {
  Client http = connect();
  Client other = connect();
  http.say(kPost);
  other.say(std::string(300, 'x'));
  ASSERT_TRUE(live_becomes(kPost.size() + 300)) << live();
  http.close();
  EXPECT_TRUE(live_becomes(300)) << live();
  other.close();
  EXPECT_TRUE(live_becomes(0)) << live();
  EXPECT_EQ(port->counters().payload_bytes, kPost.size() + 300);
}

TEST_F(Payload, KillOfTheServerEndsThemAll) {
  std::vector<Client> clients;
  for (int i = 0; i < 50; ++i) {
    clients.push_back(connect());
    clients.back().say((i % 2 == 0 ? kPost : "") + std::string(1000, 'x'));
  }
  ASSERT_TRUE(live_becomes(50 * 1000 + 25 * kPost.size())) << live();
  server->kill();
  EXPECT_TRUE(live_becomes(0)) << live();
}

/// gRPC, TLS: the responses cannot be seen, so bytes end by age, and their connection later takes
/// off nothing that is off already.
TEST_F(Payload, WhereNoResponseCanBeSeenBytesEndByAge) {
  LiveAges ages;
  Instant clock{};
  const auto turn = [&] {
    clock += seconds(1);
    port->target_policy.live_base = ages.update(clock, port->target_state(), seconds(1));
    port->publish();
  };
  turn();
  Client client = connect();
  client.say("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + std::string(1000, 'x'));
  ASSERT_TRUE(live_becomes(1024)) << live();
  turn();
  EXPECT_EQ(live(), 1024U);
  client.say(std::string(500, 'x'));
  ASSERT_TRUE(live_becomes(1524)) << live();
  turn();
  EXPECT_EQ(live(), 500U);
  turn();
  EXPECT_EQ(live(), 0U);
  client.close();
  EXPECT_TRUE(eventually([&] { return port->state().in_flight == 0; }));
  EXPECT_EQ(live(), 0U);
  for (int i = 0; i < 2 * HEADGATE_LIVE_GENERATIONS; ++i) {  // sums are used again
    Client next = connect();
    next.say(std::string(100, 'x'));
    EXPECT_TRUE(live_becomes(100)) << live();
    turn();
    EXPECT_EQ(live(), 100U);
    next.close();  // its bytes are of the generation before, and still live
    EXPECT_TRUE(live_becomes(0)) << live();
  }
}

TEST_F(Payload, MemoryBudgetRefusesWhileTooMuchIsLive) {
  port->policy.flags |= HEADGATE_ARM_MEMORY;
  port->target_policy.live_bytes_max = 10'000;
  port->publish();
  const Client big = connect();
  big.say(kPost + std::string(12'000, 'x'));
  ASSERT_TRUE(live_becomes(kPost.size() + 12'000)) << live();
  const ConnectOptions options{.attempts = 20,
                               .address = net->at_server().ipv4,
                               .port = server->port(),
                               .confirm = Confirm::kNone};
  EXPECT_EQ(connect_many(net->client, options).count(Outcome::kRefused), 20U);
  EXPECT_EQ(port->counters().refused[HEADGATE_REASON_MEMORY], 20U);
  big.say(kOk);
  EXPECT_NE(big.hear(), "");
  EXPECT_TRUE(live_becomes(0)) << live();
  EXPECT_EQ(connect_many(net->client, options).count(Outcome::kConnected), 20U);
}

TEST_F(Payload, ManyConnectionsLeaveNothingBehind) {
  const ConnectOptions options{.attempts = 5000,
                               .address = net->at_server().ipv4,
                               .port = server->port(),
                               .confirm = Confirm::kNone};
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(connect_many(net->client, options).count(Outcome::kConnected), 5000U);
    for (int i = 0; i < 20; ++i) {
      const Client client = connect();
      client.say(kPost + std::string(3000, 'x'));
    }
  }
  EXPECT_TRUE(eventually([&] { return port->state().in_flight == 0; }));
  EXPECT_EQ(live(), 0U);
}

// ------------------------------------------------------------------------------- lives

TEST_F(Payload, LifeOfAConnectionWithOneRequestIsAResponseTime) {
  const headgate_life_histogram before = gates->maps->lives(port->slot());
  std::vector<Client> clients;
  for (int i = 0; i < 10; ++i) {
    clients.push_back(connect());
    clients.back().say(kPost);
  }
  std::this_thread::sleep_for(milliseconds(200));
  for (Client& client : clients) {
    client.say(kOk);
    EXPECT_NE(client.hear(), "");
    client.close();
  }
  ASSERT_TRUE(eventually([&] { return port->counters().closed == 10; }));
  const headgate_counters counters = port->counters();
  EXPECT_EQ(counters.responses, 10U);
  const double mean_s = static_cast<double>(counters.response_ns) * 1e-9 / 10;
  EXPECT_GT(mean_s, 0.2);
  EXPECT_LT(mean_s, 0.5);
  const Lives lives = lives_between(before, gates->maps->lives(port->slot()));
  EXPECT_EQ(lives.count, 10U);
  EXPECT_GT(lives.min_s, 0.2 / 1.2);
  EXPECT_LT(lives.p99_s, 0.5 * 1.2);
}

TEST_F(Payload, ConnectionWithManyRequestsTellsNoResponseTime) {
  {
    const Client client = connect();
    for (int i = 0; i < 3; ++i) {
      client.say(kPost);
      client.say(kOk);
      EXPECT_NE(client.hear(), "");
    }
  }
  ASSERT_TRUE(eventually([&] { return port->counters().closed == 1; }));
  EXPECT_EQ(port->counters().responses, 0U);
}

// ------------------------------------------------------------------------------- datagrams

TEST_F(Payload, BytesOfAdmittedDatagramsAreCounted) {
  ServerOptions options;
  options.udp = true;
  for (const std::string& to : {net->at_server().ipv4, net->at_server().ipv6}) {
    ServerProcess sink(net->server, options, &*cgroup);
    sink.start();
    Port udp = gates->protect(net->server, sink.port(), IPPROTO_UDP);
    gates->count_payload(udp, *cgroup, net->server);
    udp.admit(.5);
    (void)lab::send_datagrams(net->client,
                              {.datagrams = 1000, .address = to, .port = sink.port(), .bytes = 70});
    ASSERT_TRUE(eventually([&] { return udp.counters().offered == 1000; }));
    EXPECT_EQ(udp.counters().admitted, 500U);
    EXPECT_TRUE(eventually([&] { return udp.counters().payload_bytes == 500 * 70; }))
        << udp.counters().payload_bytes;
  }
}

/// No v2 tree, or nobody in it: said, and nothing is attached.
TEST_F(Payload, WithoutAProcessInTheTreeItIsOffAndSaysWhy) {
  const lab::Cgroup empty("empty");
  const auto held = gates->payload.hold(port->target() + 1, empty.path(), net->server.inode());
  ASSERT_FALSE(held);
  EXPECT_EQ(gates->payload.status(port->target() + 1).mode, "off");
  EXPECT_NE(gates->payload.status(port->target() + 1).problem.find("no process"),
            std::string::npos);
  EXPECT_EQ(gates->payload.status(port->target()).mode, "attached");
}

}  // namespace
}  // namespace headgate
