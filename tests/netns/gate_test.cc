// SPDX-License-Identifier: Apache-2.0
// The gate on real connections: what a client gets, and that client, server and kernel agree.
#include <arpa/inet.h>
#include <sys/socket.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <thread>

#include <gtest/gtest.h>

#include "tests/netns/gate_lab.h"

namespace headgate {
namespace {

using lab::Confirm;
using lab::connect_many;
using lab::ConnectOptions;
using lab::ConnectReport;
using lab::GateLab;
using lab::Outcome;
using lab::Pair;
using lab::Port;
using lab::ServerMode;
using lab::ServerOptions;
using lab::ServerProcess;
using lab::ServerThread;
using lab::tolerance;
using std::chrono::milliseconds;
using std::chrono::seconds;

std::uint64_t sum_refused(const headgate_counters& counters) {
  return std::accumulate(std::begin(counters.refused), std::end(counters.refused),
                         std::uint64_t{0});
}

ServerOptions serving(ServerMode mode, std::string address = "::") {
  ServerOptions options;
  options.mode = mode;
  options.address = std::move(address);
  return options;
}

class Gate : public ::testing::Test {
 protected:
  void SetUp() override {
    HEADGATE_REQUIRES_ROOT_KERNEL();
    gates.emplace();
  }
  void TearDown() override { gates.reset(); }

  std::optional<GateLab> gates;
};

/// Case F09: the error comes with the answer to the first SYN; the retransmit would be after 1 s.
TEST_F(Gate, RefusedClientSeesConnectionRefusedAtOnce) {
  const Pair net;
  ServerThread server(net.server, serving(ServerMode::kEcho));
  server.start();
  Port port = gates->protect(net.server, server.port());
  port.admit(0);
  for (const std::string& to : {net.at_server().ipv4, net.at_server().ipv6}) {
    const ConnectReport report = connect_many(
        net.client, {.attempts = 500, .address = to, .port = server.port(), .parallel = 1});
    EXPECT_EQ(report.count(Outcome::kRefused), 500U) << report.describe();
    EXPECT_LT(report.latency(Outcome::kRefused, 0.95), milliseconds(50)) << report.describe();
    EXPECT_LT(report.latency(Outcome::kRefused, 1), milliseconds(900)) << report.describe();
  }
  EXPECT_EQ(server.accepted(), 0U);
}

/// With sock_ops on the server's cgroup, as the agent has it: a ticket ends when it is used.
class GateConnections : public lab::ServerFixture {
 protected:
  GateConnections() : ServerFixture("server") {}
  void serve(ServerMode mode) { start_server(serving(mode)); }
  ConnectOptions to_server(std::uint64_t attempts) const {
    return {.attempts = attempts, .address = net->at_server().ipv4, .port = server->port()};
  }
};

// ------------------------------------------------------------------------------- shares

struct ShareCase {
  double share;
  bool ipv6;
};
void PrintTo(const ShareCase& row, std::ostream* out) {  // NOLINT: gtest's name
  *out << row.share << (row.ipv6 ? " IPv6" : " IPv4");
}
class GateShare : public GateConnections, public ::testing::WithParamInterface<ShareCase> {};

TEST_P(GateShare, IsExactAndAllThreeCountsAgree) {
  constexpr std::uint64_t kAttempts = 20'000;
  serve(ServerMode::kEcho);
  Port port = gates->protect(net->server, server->port());
  gates->count_connections(port, *cgroup, net->server);
  port.admit(GetParam().share);
  ConnectOptions options = to_server(kAttempts);
  options.address = GetParam().ipv6 ? net->at_server().ipv6 : net->at_server().ipv4;
  const ConnectReport report = connect_many(net->client, options);
  const std::uint64_t connected = report.count(Outcome::kConnected);
  const std::uint64_t refused = report.count(Outcome::kRefused);
  const headgate_counters counters = port.counters();
  EXPECT_EQ(connected + refused, kAttempts) << report.describe();
  EXPECT_NEAR(static_cast<double>(connected), GetParam().share * kAttempts, tolerance());
  EXPECT_EQ(server->accepted(), connected);
  EXPECT_EQ(counters.offered, kAttempts);
  EXPECT_EQ(counters.admitted, connected);
  EXPECT_EQ(counters.established, connected);
  EXPECT_EQ(counters.reset, refused);
  EXPECT_EQ(counters.refused[HEADGATE_REASON_SHARE], refused);
  EXPECT_EQ(sum_refused(counters), refused);
  EXPECT_EQ(counters.tries, kAttempts);
  if (GetParam().share == 0 || GetParam().share == 1) {
    EXPECT_EQ(static_cast<double>(connected), GetParam().share * kAttempts);
  }
}
INSTANTIATE_TEST_SUITE_P(Shares, GateShare,
                         ::testing::Values(ShareCase{0, false}, ShareCase{0, true},
                                           ShareCase{.01, false}, ShareCase{.01, true},
                                           ShareCase{.3, false}, ShareCase{.3, true},
                                           ShareCase{.5, false}, ShareCase{.5, true},
                                           ShareCase{.999, false}, ShareCase{.999, true},
                                           ShareCase{1, false}, ShareCase{1, true}),
                         [](const auto& variant) {
                           return std::string(variant.param.ipv6 ? "IPv6" : "IPv4") + "Admit" +
                                  std::to_string(static_cast<int>(variant.param.share * 1000));
                         });

class GateUdp : public Gate, public ::testing::WithParamInterface<ShareCase> {};

TEST_P(GateUdp, ShareOfDatagramsIsExact) {
  constexpr std::uint64_t kDatagrams = 20'000;
  const Pair net;
  ServerOptions options;
  options.udp = true;
  ServerThread server(net.server, options);
  server.start();
  Port port = gates->protect(net.server, server.port(), IPPROTO_UDP);
  port.refuse_by(HEADGATE_ACTION_DEFER);  // nobody defers a datagram: it acts as reset
  port.admit(GetParam().share);
  const auto report = lab::send_datagrams(
      net.client, {.datagrams = kDatagrams,
                   .address = GetParam().ipv6 ? net.at_server().ipv6 : net.at_server().ipv4,
                   .port = server.port()});
  EXPECT_EQ(report.sent, kDatagrams);
  EXPECT_TRUE(lab::eventually([&] { return port.counters().offered == kDatagrams; }));
  const headgate_counters counters = port.counters();
  EXPECT_NEAR(static_cast<double>(counters.admitted), GetParam().share * kDatagrams, tolerance());
  EXPECT_TRUE(lab::eventually([&] { return server.datagrams() == counters.admitted; }))
      << server.datagrams() << " of " << counters.admitted;
  EXPECT_EQ(counters.reset, kDatagrams - counters.admitted);
  EXPECT_EQ(counters.deferred + counters.pit_missing, 0U);
  EXPECT_EQ(port.waiting(), 0U);
}
INSTANTIATE_TEST_SUITE_P(Shares, GateUdp,
                         ::testing::Values(ShareCase{0, false}, ShareCase{.3, false},
                                           ShareCase{.3, true}, ShareCase{1, true}),
                         [](const auto& variant) {
                           return std::string(variant.param.ipv6 ? "IPv6" : "IPv4") + "Admit" +
                                  std::to_string(static_cast<int>(variant.param.share * 1000));
                         });

/// A listener that never accepts: its queue is full after a few, and SYNs are dropped behind the
/// look-up, so that clients send them again.
class FullListener {
 public:
  explicit FullListener(const lab::Namespace& netns) {
    netns.run([&] {
      fd_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_in any{};
      any.sin_family = AF_INET;
      socklen_t bytes = sizeof(any);
      if (::bind(fd_.get(), reinterpret_cast<sockaddr*>(&any), bytes) != 0 ||
          ::listen(fd_.get(), 1) != 0 ||
          ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&any), &bytes) != 0) {
        throw lab::SetupError("listen");
      }
      port_ = ntohs(any.sin_port);
    });
  }
  [[nodiscard]] std::uint16_t port() const { return port_; }

 private:
  UniqueFd fd_;
  std::uint16_t port_ = 0;
};

/// Case F08: the share is one of connections, not of SYNs: judged anew at each of four
/// retransmits, half of the connections would be .03 of them.
TEST_F(Gate, RetransmittedSynMeetsTheSameAnswer) {
  constexpr std::uint64_t kAttempts = 200;
  const Pair net;
  const FullListener server(net.server);
  Port port = gates->protect(net.server, server.port());
  port.policy.flags |= HEADGATE_TICKETS_SETTLED;
  port.admit(.5);
  const ConnectReport report = connect_many(net.client, {.attempts = kAttempts,
                                                         .address = net.at_server().ipv4,
                                                         .port = server.port(),
                                                         .parallel = kAttempts,
                                                         .timeout = milliseconds(4300),
                                                         .confirm = Confirm::kNone});
  const headgate_counters counters = port.counters();
  EXPECT_GT(counters.repeats, kAttempts) << "no SYN was sent again: this test shows nothing";
  EXPECT_NEAR(static_cast<double>(report.count(Outcome::kRefused)), .5 * kAttempts, tolerance())
      << report.describe();
  EXPECT_EQ(counters.offered, kAttempts);
}

/// With SYN cookies the final ACK is looked up like a SYN: without the ticket it would be judged a
/// second time, and a connected client reset.
class GateCookies : public Gate, public ::testing::WithParamInterface<bool> {};

TEST_P(GateCookies, NobodyIsResetAfterConnect) {
  constexpr std::uint64_t kAttempts = 20'000;
  const bool with_sock_ops = GetParam();
  if (with_sock_ops) {
    HEADGATE_REQUIRES(lab::missing_for_sock_ops());
    gates.reset();
    gates.emplace(lab::unified_root());
  }
  const Pair net;
  net.server.sysctl("net.ipv4.tcp_syncookies", "2");
  const lab::Cgroup cgroup("cookies");
  ServerProcess server(net.server, serving(ServerMode::kEcho), &cgroup);
  server.start();
  Port port = gates->protect(net.server, server.port());
  if (with_sock_ops) {
    gates->count_connections(port, cgroup, net.server);
  }
  port.admit(.7);
  const ConnectReport report = connect_many(
      net.client, {.attempts = kAttempts, .address = net.at_server().ipv4, .port = server.port()});
  EXPECT_EQ(report.count(Outcome::kResetAfterConnect), 0U) << report.describe();
  EXPECT_NEAR(static_cast<double>(report.count(Outcome::kConnected)), .7 * kAttempts, tolerance())
      << report.describe();
  const headgate_counters counters = port.counters();
  EXPECT_EQ(counters.repeats, counters.admitted) << "the ACKs were not looked up: no cookies?";
  EXPECT_EQ(counters.offered, kAttempts);
  EXPECT_EQ(port.state().tickets_issued, port.state().tickets_settled);
  EXPECT_EQ(port.target_state().tickets_issued, port.target_state().tickets_settled);
}
INSTANTIATE_TEST_SUITE_P(Tickets, GateCookies, ::testing::Bool(), [](const auto& variant) {
  return variant.param ? "WithSockOps" : "WithoutSockOps";
});

// ------------------------------------------------------------------------------- who and where

TEST_F(Gate, BehindDnatTheClientIsRefusedByTheServiceAddress) {
  HEADGATE_REQUIRES(lab::missing_for_dnat());
  lab::Node node;
  auto& pod = node.add_pod();
  auto& client = node.add_pod();
  ServerThread server(pod.netns, serving(ServerMode::kEcho));
  server.start();
  node.dnat("10.96.0.10", 80, pod.ipv4, server.port());
  Port port = gates->protect(pod.netns, server.port());
  port.admit(.5);
  const ConnectReport report =
      connect_many(client.netns, {.attempts = 1000, .address = "10.96.0.10", .port = 80});
  EXPECT_EQ(report.count(Outcome::kConnected) + report.count(Outcome::kRefused), 1000U)
      << report.describe();
  EXPECT_NEAR(static_cast<double>(report.count(Outcome::kConnected)), 500, tolerance());
  EXPECT_EQ(server.accepted(), report.count(Outcome::kConnected));
}

TEST_F(Gate, SameNodeTrafficMeetsTheGate) {
  lab::Node node;
  auto& pod = node.add_bridged_pod();
  auto& neighbour = node.add_bridged_pod();
  ServerThread server(pod.netns, serving(ServerMode::kEcho));
  server.start();
  Port port = gates->protect(pod.netns, server.port());
  port.admit(0);
  const std::vector<std::pair<const lab::Namespace*, std::string>> clients = {
      {&pod.netns, pod.ipv4},       {&pod.netns, pod.ipv6},      {&pod.netns, "127.0.0.1"},
      {&pod.netns, "::1"},          {&node.netns(), pod.ipv4},   {&node.netns(), pod.ipv6},
      {&neighbour.netns, pod.ipv4}, {&neighbour.netns, pod.ipv6}};
  for (const auto& [from, to] : clients) {
    const ConnectReport report =
        connect_many(*from, {.attempts = 50, .address = to, .port = server.port()});
    EXPECT_EQ(report.count(Outcome::kRefused), 50U) << to << ": " << report.describe();
  }
  EXPECT_EQ(port.counters().reset, 50U * clients.size());
}

TEST_F(Gate, TwoPodsWithTheSamePortAndLoopbackAreToldApart) {
  lab::Node node;
  auto& shut = node.add_pod();
  auto& open = node.add_pod();
  ServerThread server_shut(shut.netns, serving(ServerMode::kEcho));
  server_shut.start();
  ServerOptions same = serving(ServerMode::kEcho);
  same.port = server_shut.port();
  ServerThread server_open(open.netns, same);
  server_open.start();
  Port port_shut = gates->protect(shut.netns, same.port);
  Port port_open = gates->protect(open.netns, same.port);
  port_shut.admit(0);
  port_open.admit(1);
  for (const char* to : {"127.0.0.1", "::1"}) {
    const ConnectOptions options{.attempts = 100, .address = to, .port = same.port};
    EXPECT_EQ(connect_many(shut.netns, options).count(Outcome::kRefused), 100U) << to;
    EXPECT_EQ(connect_many(open.netns, options).count(Outcome::kConnected), 100U) << to;
  }
  EXPECT_EQ(connect_many(node.netns(), {.attempts = 100, .address = shut.ipv4, .port = same.port})
                .count(Outcome::kRefused),
            100U);
  EXPECT_EQ(connect_many(node.netns(), {.attempts = 100, .address = open.ipv4, .port = same.port})
                .count(Outcome::kConnected),
            100U);
  EXPECT_EQ(port_shut.counters().offered, 300U);
  EXPECT_EQ(port_open.counters().offered, 300U);
}

/// Case B10: in the host's namespace a port is ours only on the addresses where we listen.
TEST_F(Gate, HostNetworkTargetsAreToldApartByAddress) {
  const Pair net;
  const auto extra = net.server.add_addresses(net.at_server().device, "10.77.0.1", 2);
  net.client.ip("route add 10.77.0.0/24 via " + net.at_server().ipv4);
  ServerThread ours(net.server, serving(ServerMode::kEcho, extra[0]));
  ours.start();
  ServerOptions same = serving(ServerMode::kEcho, extra[1]);
  same.port = ours.port();
  ServerThread foreign(net.server, same);
  foreign.start();
  Port port = gates->protect_at(net.server, extra[0], same.port);
  port.admit(0);
  EXPECT_EQ(connect_many(net.client, {.attempts = 100, .address = extra[0], .port = same.port})
                .count(Outcome::kRefused),
            100U);
  EXPECT_EQ(connect_many(net.client, {.attempts = 100, .address = extra[1], .port = same.port})
                .count(Outcome::kConnected),
            100U);
  EXPECT_EQ(port.counters().tries, 100U);
}

/// Case G03
TEST_F(Gate, UnprotectedPortsAreUntouched) {
  const Pair net;
  ServerThread protected_server(net.server, serving(ServerMode::kEcho));
  protected_server.start();
  ServerThread other(net.server, serving(ServerMode::kEcho));
  other.start();
  ServerOptions udp;
  udp.udp = true;
  udp.port = protected_server.port();
  ServerThread same_port_udp(net.server, udp);
  same_port_udp.start();
  Port port = gates->protect(net.server, protected_server.port());
  port.admit(0);
  EXPECT_EQ(connect_many(net.client,
                         {.attempts = 300, .address = net.at_server().ipv4, .port = other.port()})
                .count(Outcome::kConnected),
            300U);
  (void)lab::send_datagrams(net.client,
                            {.datagrams = 300, .address = net.at_server().ipv4, .port = udp.port});
  EXPECT_TRUE(lab::eventually([&] { return same_port_udp.datagrams() == 300; }));
  const headgate_counters counters = port.counters();
  const headgate_counters none{};
  EXPECT_EQ(std::memcmp(&counters, &none, sizeof(none)), 0);
}

// ------------------------------------------------------------------------------- fail open

/// Case F18
TEST_F(Gate, PolicyStopsRefusingWhenItsLeaseRunsOut) {
  const Pair net;
  ServerThread server(net.server, serving(ServerMode::kEcho));
  server.start();
  Port port = gates->protect(net.server, server.port());
  port.admit(0);
  const Instant from = lab::now();
  port.publish(seconds(1));
  const ConnectReport report = connect_many(
      net.client,
      {.attempts = 750, .address = net.at_server().ipv4, .port = server.port(), .per_second = 500});
  const Duration skew = lab::now() - from - milliseconds(1500);
  for (const lab::Attempt& attempt : report.attempts) {
    const bool valid = attempt.began + attempt.latency < milliseconds(960) - skew;
    const bool expired = attempt.began > milliseconds(1010);
    if (valid || expired) {
      EXPECT_EQ(attempt.outcome, expired ? Outcome::kConnected : Outcome::kRefused)
          << attempt.began.count();
    }
  }
  EXPECT_GT(report.count(Outcome::kRefused), 300U);
  EXPECT_EQ(port.counters().admitted_stale, report.count(Outcome::kConnected));
  EXPECT_GT(port.counters().admitted_stale, 100U);
}

TEST_F(Gate, KillSwitchAdmitsEverythingAndTouchesNothing) {
  const Pair net;
  ServerThread server(net.server, serving(ServerMode::kEcho));
  server.start();
  Port port = gates->protect(net.server, server.port());
  port.admit(0);
  const ConnectOptions options{
      .attempts = 200, .address = net.at_server().ipv4, .port = server.port()};
  gates->maps->set_off(true);
  EXPECT_EQ(connect_many(net.client, options).count(Outcome::kConnected), 200U);
  EXPECT_EQ(port.counters().tries, 0U);
  gates->maps->set_off(false);
  EXPECT_EQ(connect_many(net.client, options).count(Outcome::kRefused), 200U);
}

TEST_F(Gate, ObserveCountsAndRefusesNothing) {
  const Pair net;
  ServerThread server(net.server, serving(ServerMode::kEcho));
  server.start();
  Port port = gates->protect(net.server, server.port());
  port.admit(.25, HEADGATE_OBSERVE);
  EXPECT_EQ(connect_many(net.client,
                         {.attempts = 1000, .address = net.at_server().ipv4, .port = server.port()})
                .count(Outcome::kConnected),
            1000U);
  const headgate_counters counters = port.counters();
  EXPECT_EQ(counters.admitted, 1000U);
  EXPECT_NEAR(static_cast<double>(counters.admitted_observed), 750, tolerance());
  EXPECT_EQ(counters.would_refuse[HEADGATE_REASON_SHARE], counters.admitted_observed);
  EXPECT_EQ(sum_refused(counters) + counters.reset, 0U);
}

TEST_F(Gate, OneProbeASecondComesInWhileTheCircuitIsOpen) {
  const Pair net;
  ServerThread server(net.server, serving(ServerMode::kEcho));
  server.start();
  Port port = gates->protect(net.server, server.port());
  port.policy.flags = HEADGATE_ARM_CIRCUIT;
  port.policy.probe_interval_ns = lab::ns(milliseconds(200));
  port.publish();
  const ConnectReport report = connect_many(
      net.client,
      {.attempts = 500, .address = net.at_server().ipv4, .port = server.port(), .per_second = 500});
  EXPECT_NEAR(static_cast<double>(report.count(Outcome::kConnected)), 5, 1) << report.describe();
  EXPECT_EQ(port.counters().admitted_probe, report.count(Outcome::kConnected));
}

// ------------------------------------------------------------------------------- exemptions

TEST_F(Gate, ExemptNetworksAreLetIn) {
  const Pair net;
  const auto sources = net.client.add_addresses(net.at_client().device, "10.88.0.1", 2);
  const auto sources6 = net.client.add_addresses(net.at_client().device, "fd88::1", 1);
  net.server.ip("route add 10.88.0.0/24 via " + net.at_client().ipv4);
  net.server.ip("-6 route add fd88::/64 via " + net.at_client().ipv6);
  ServerThread server(net.server, serving(ServerMode::kEcho));
  server.start();
  Port port = gates->protect(net.server, server.port());
  GateLab::must(gates->maps->set_exempt(
      port.target(), {{*parse_prefix("10.88.0.0/31"), HEADGATE_EXEMPT_KIND_SOURCE},
                      {*parse_prefix("fd88::/64"), HEADGATE_EXEMPT_KIND_SOURCE}}));
  port.policy.flags = HEADGATE_EXEMPT_SOURCES;
  port.admit(0);
  const auto from = [&](const std::string& source, const std::string& to) {
    return connect_many(
        net.client, {.attempts = 100, .address = to, .port = server.port(), .sources = {source}});
  };
  EXPECT_EQ(from(sources[0], net.at_server().ipv4).count(Outcome::kConnected), 100U);  // .1
  EXPECT_EQ(from(sources[1], net.at_server().ipv4).count(Outcome::kRefused), 100U);    // .2
  EXPECT_EQ(from(net.at_client().ipv4, net.at_server().ipv4).count(Outcome::kRefused), 100U);
  EXPECT_EQ(from(sources6[0], net.at_server().ipv6).count(Outcome::kConnected), 100U);
  EXPECT_EQ(from(net.at_client().ipv6, net.at_server().ipv6).count(Outcome::kRefused), 100U);
  EXPECT_EQ(port.counters().admitted_exempt, 200U);
  // the exemption is of this target, and ends when it is taken back
  GateLab::must(gates->maps->set_exempt(port.target(), {}));
  EXPECT_EQ(from(sources[0], net.at_server().ipv4).count(Outcome::kRefused), 100U);
}

/// Case G04: anybody on the node comes from its addresses, NodePort traffic too: up to a rate.
TEST_F(GateConnections, AddressesOfTheNodeAreExemptUpToARate) {
  serve(ServerMode::kEcho);
  Port port = gates->protect(net->server, server->port());
  gates->count_connections(port, *cgroup, net->server);
  GateLab::must(gates->maps->set_exempt(
      port.target(), {{*parse_prefix(net->at_client().ipv4), HEADGATE_EXEMPT_KIND_NODE}}));
  port.policy.flags |= HEADGATE_EXEMPT_SOURCES;
  port.policy.exempt_interval_ns = lab::ns(milliseconds(50));
  port.policy.exempt_burst_ns = lab::ns(milliseconds(200));
  port.admit(0);
  ConnectOptions options = to_server(1000);
  options.per_second = 500;
  const Instant from = lab::now();
  const ConnectReport report = connect_many(net->client, options);
  // 20/s, the burst of 4, and the one that was due
  EXPECT_NEAR(static_cast<double>(report.count(Outcome::kConnected)),
              20 * headgate::seconds(lab::now() - from) + 5, 3)
      << report.describe();
  EXPECT_EQ(port.counters().admitted_exempt, report.count(Outcome::kConnected));
}

/// A node with a pod whose circuit is open, where the node's own connects are noted.
class GateOnNode : public Gate {
 protected:
  void SetUp() override {
    Gate::SetUp();
    if (IsSkipped()) {
      return;
    }
    HEADGATE_REQUIRES(lab::missing_for_sock_ops());
    HEADGATE_REQUIRES(lab::missing_for_dnat());
    gates.reset();
    gates.emplace(lab::unified_root());
    node.emplace();
    pod = &node->add_pod();
    client = &node->add_pod();
    backend.emplace(pod->netns, serving(ServerMode::kEcho));
    backend->start();
    port.emplace(gates->protect(pod->netns, backend->port()));
    GateLab::must(gates->node_connects.attach());
    GateLab::must(gates->maps->set_exempt(
        HEADGATE_EXEMPT_NODE_SET, {{*parse_prefix(pod->gateway_ipv4), HEADGATE_EXEMPT_KIND_NODE},
                                   {*parse_prefix(pod->gateway_ipv6), HEADGATE_EXEMPT_KIND_NODE},
                                   {*parse_prefix(lab::Node::kIpv4), HEADGATE_EXEMPT_KIND_NODE},
                                   {*parse_prefix(lab::Node::kIpv6), HEADGATE_EXEMPT_KIND_NODE}}));
    port->policy.flags = HEADGATE_ARM_CIRCUIT | HEADGATE_EXEMPT_NODE;
    port->publish();
  }
  /// All connects of the node come in, none of another pod.
  void only_the_node_comes_in(const std::string& to, std::uint16_t to_port) {
    ConnectOptions options{.attempts = 300, .address = to, .port = to_port, .parallel = 4};
    ConnectReport report = connect_many(node->netns(), options);
    EXPECT_EQ(report.count(Outcome::kConnected), 300U) << to << ": " << report.describe();
    report = connect_many(client->netns, options);
    EXPECT_EQ(report.count(Outcome::kRefused), 300U) << to << ": " << report.describe();
  }

  std::optional<lab::Node> node;
  lab::Node::Pod* pod = nullptr;
  lab::Node::Pod* client = nullptr;
  std::optional<ServerThread> backend;
  std::optional<Port> port;
};

/// Case G01: probes of the node are noted where they begin.
TEST_F(GateOnNode, ProbesFromTheNodePassWhileTheCircuitIsOpen) {
  node->dnat("10.96.0.10", 80, pod->ipv4, backend->port());
  only_the_node_comes_in(pod->ipv4, backend->port());
  only_the_node_comes_in(pod->ipv6, backend->port());
  only_the_node_comes_in("10.96.0.10", 80);
  EXPECT_EQ(port->counters().admitted_exempt, 900U);
}

/// Connection tracking gives a probe another port where a masqueraded client has its own: on a node
/// with a busy NodePort one in ten. Here all get another one, and clients have the same address.
TEST_F(GateOnNode, ProbesPassWhosePortIsAnotherOneBehindMasquerade) {
  node->dnat("10.96.0.10", 80, pod->ipv4, backend->port());
  node->masquerade(pod->ipv4);
  only_the_node_comes_in(pod->ipv4, backend->port());
  only_the_node_comes_in("10.96.0.10", 80);
  EXPECT_EQ(port->counters().admitted_exempt, 600U);
}

// ------------------------------------------------------------------------------- sock_ops

TEST_F(GateConnections, CountsEqualTheServersTruth) {
  serve(ServerMode::kEcho);
  Port port = gates->protect(net->server, server->port());
  gates->count_connections(port, *cgroup, net->server);
  for (const std::string& to : {net->at_server().ipv4, net->at_server().ipv6}) {
    ConnectOptions options = to_server(5000);
    options.address = to;
    const ConnectReport report = connect_many(net->client, options);
    ASSERT_EQ(report.count(Outcome::kConnected), 5000U) << report.describe();
  }
  EXPECT_TRUE(lab::eventually([&] { return port.counters().closed == 10'000; }));
  const headgate_counters counters = port.counters();
  EXPECT_EQ(counters.established, 10'000U);
  EXPECT_EQ(counters.established, server->accepted());
  EXPECT_EQ(counters.closed, 10'000U);
  EXPECT_EQ(counters.received_bytes, server->received_bytes());
  EXPECT_EQ(port.state().in_flight, 0U);
  EXPECT_EQ(port.target_state().in_flight, 0U);
}

/// Bytes are payload: neither the client's FIN nor the server's counts.
TEST_F(GateConnections, BytesArePayloadHoweverTheConnectionEnds) {
  serve(ServerMode::kEcho);
  Port port = gates->protect(net->server, server->port());
  gates->count_connections(port, *cgroup, net->server);
  ConnectOptions options = to_server(10);
  options.keep_open = true;
  ConnectReport report = connect_many(net->client, options);
  ASSERT_EQ(report.open.size(), 10U) << report.describe();
  report.open.clear();  // by FIN
  EXPECT_TRUE(lab::eventually([&] { return port.counters().closed == 10; }));
  EXPECT_EQ(port.counters().received_bytes, 80U);
  report = connect_many(net->client, options);
  ASSERT_EQ(report.open.size(), 10U) << report.describe();
  server->stop();  // the server ends them
  EXPECT_TRUE(lab::eventually([&] { return port.counters().closed == 20; }));
  EXPECT_EQ(port.counters().received_bytes, 160U);
}

TEST_F(GateConnections, InFlightFollowsAndReturnsToZeroWhenTheServerIsKilled) {
  serve(ServerMode::kHold);
  Port port = gates->protect(net->server, server->port());
  gates->count_connections(port, *cgroup, net->server);
  ConnectOptions options = to_server(100);
  options.confirm = Confirm::kNone;
  options.keep_open = true;
  ConnectReport report = connect_many(net->client, options);
  ASSERT_EQ(report.open.size(), 100U) << report.describe();
  EXPECT_TRUE(lab::eventually([&] { return port.state().in_flight == 100; }));
  EXPECT_EQ(port.target_state().in_flight, 100U);
  report.open.resize(60);  // clients that leave: the server holds on, in CLOSE_WAIT
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(port.state().in_flight, 100U);
  server->kill();
  EXPECT_TRUE(lab::eventually([&] { return port.state().in_flight == 0; }))
      << port.state().in_flight;
  EXPECT_EQ(port.counters().closed, 100U);
  EXPECT_EQ(port.target_state().in_flight, 0U);
}

/// Connections in the accept queue of a listener that is killed.
TEST_F(GateConnections, InFlightReturnsToZeroForConnectionsNobodyAccepted) {
  const FullListener listener(net->server);
  serve(ServerMode::kEcho);
  Port port = gates->protect(net->server, server->port());
  gates->count_connections(port, *cgroup, net->server);
  for (int round = 0; round < 5; ++round) {
    std::thread killer([&] {
      std::this_thread::sleep_for(milliseconds(50));
      server->kill();
    });
    ConnectOptions options = to_server(3000);
    options.timeout = milliseconds(200);
    (void)connect_many(net->client, options);
    killer.join();
    server->start();
  }
  EXPECT_TRUE(lab::eventually([&] { return port.state().in_flight == 0; }))
      << static_cast<std::int64_t>(port.state().in_flight);
  EXPECT_GT(port.counters().established, 0U);
  EXPECT_EQ(port.counters().closed, port.counters().established);
}

/// One address, 600 ports: the same 4-tuples come again and again within the life of a ticket.
TEST_F(GateConnections, FewSourceAddressesDoNotGetPastTheGate) {
  serve(ServerMode::kEcho);
  Port port = gates->protect(net->server, server->port());
  gates->count_connections(port, *cgroup, net->server);
  port.admit(.1);
  ConnectOptions options = to_server(6000);
  options.sources = {net->at_client().ipv4};
  options.source_port = 20'000;
  options.source_ports = 600;
  const ConnectReport report = connect_many(net->client, options);
  EXPECT_NEAR(static_cast<double>(report.count(Outcome::kConnected)), 600, tolerance())
      << report.describe();
  EXPECT_EQ(port.counters().repeats, 0U);
}

/// A server that closes first holds the 4-tuple in TIME_WAIT. The SYN of a reconnect is looked up;
/// refused, it gets a challenge ACK and not the RST, the client's RST ends the TIME_WAIT, and the
/// SYN comes and is looked up again: the same attempt.
TEST_F(GateConnections, ReconnectIntoTimeWaitIsJudgedOnce) {
  constexpr std::uint64_t kAttempts = 12'000;
  constexpr unsigned kPorts = 1999;  // no multiple of the share's period: each meets both answers
  // A SYN that meets FIN_WAIT2 (the client's FIN is not processed yet, on a busy machine) is reset
  // by the kernel without a look-up.
  constexpr double kStray = 0.002 * kAttempts;
  serve(ServerMode::kClose);
  Port port = gates->protect(net->server, server->port());
  gates->count_connections(port, *cgroup, net->server);
  ConnectOptions options = to_server(kPorts);
  options.confirm = Confirm::kPeerClose;
  options.end_by_fin = true;
  options.sources = {net->at_client().ipv4};
  options.source_port = 20'000;
  options.source_ports = kPorts;
  const ConnectReport first = connect_many(net->client, options);
  ASSERT_EQ(first.count(Outcome::kConnected), kPorts) << first.describe();
  port.admit(.7);
  options.attempts = kAttempts;
  const ConnectReport report = connect_many(net->client, options);
  const headgate_counters counters = port.counters();
  EXPECT_NEAR(static_cast<double>(report.count(Outcome::kRefused)), .3 * kAttempts, kStray)
      << report.describe();
  EXPECT_EQ(report.count(Outcome::kConnected) + report.count(Outcome::kRefused), kAttempts)
      << report.describe();
  EXPECT_NEAR(static_cast<double>(counters.offered), kPorts + kAttempts, kStray);
  EXPECT_NEAR(static_cast<double>(counters.reset),
              static_cast<double>(report.count(Outcome::kRefused)), kStray);
  EXPECT_GT(counters.repeats_refused, kAttempts / 10) << "nothing met TIME_WAIT";
  EXPECT_EQ(counters.tries, counters.offered + counters.repeats);
}

TEST_F(GateConnections, CapHoldsAndFreesItsPlaces) {
  serve(ServerMode::kEcho);
  Port port = gates->protect(net->server, server->port());
  gates->count_connections(port, *cgroup, net->server);
  port.policy.flags |= HEADGATE_ARM_CONNECTIONS;
  port.policy.connections_max = 20;
  port.publish();
  ConnectOptions options = to_server(300);
  options.keep_open = true;
  for (int round = 0; round < 3; ++round) {
    ConnectReport report = connect_many(net->client, options);
    // two CPUs may both see the last place
    EXPECT_GE(report.open.size(), 20U) << report.describe();
    EXPECT_LT(report.open.size(), 20U + static_cast<unsigned>(libbpf_num_possible_cpus()));
    EXPECT_EQ(report.count(Outcome::kRefused), 300 - report.open.size()) << report.describe();
    EXPECT_EQ(port.state().in_flight, report.open.size());
    report.open.clear();
    EXPECT_TRUE(lab::eventually([&] { return port.state().in_flight == 0; }));
  }
  EXPECT_EQ(port.counters().refused[HEADGATE_REASON_CONNECTIONS], port.counters().reset);
}

TEST_F(GateConnections, CapOfTheTargetHoldsOverItsEndpoints) {
  serve(ServerMode::kEcho);
  Port port = gates->protect(net->server, server->port());
  gates->count_connections(port, *cgroup, net->server);
  port.policy.flags |= HEADGATE_ARM_CONNECTIONS;
  port.target_policy.connections_max = 20;
  port.publish();
  ConnectOptions options = to_server(300);
  options.keep_open = true;
  options.parallel = 300;
  const ConnectReport report = connect_many(net->client, options);
  EXPECT_GE(report.open.size(), 20U) << report.describe();
  EXPECT_LT(report.open.size(), 20U + static_cast<unsigned>(libbpf_num_possible_cpus()))
      << report.describe();
}

/// Admitted, but not established: a listener whose queue is full answers nobody.
TEST_F(Gate, CapCountsTheAdmittedThatHaveNotEstablished) {
  for (const bool of_the_target : {false, true}) {
    const Pair net;
    const FullListener server(net.server);
    Port port = gates->protect(net.server, server.port());
    port.policy.flags = HEADGATE_ARM_CONNECTIONS | HEADGATE_TICKETS_SETTLED;
    (of_the_target ? port.target_policy.connections_max : port.policy.connections_max) = 20;
    port.publish();
    const ConnectReport report = connect_many(net.client, {.attempts = 100,
                                                           .address = net.at_server().ipv4,
                                                           .port = server.port(),
                                                           .parallel = 100,
                                                           .timeout = milliseconds(700),
                                                           .confirm = Confirm::kNone});
    EXPECT_LE(report.count(Outcome::kRefused), 80U) << report.describe();
    EXPECT_GT(report.count(Outcome::kRefused),
              80U - static_cast<unsigned>(libbpf_num_possible_cpus()))
        << report.describe();
  }
}

/// Connections older than the attach carry no mark; sock_diag counts them, the cap adds them.
TEST_F(GateConnections, ConnectionsOlderThanTheAttachAreLegacy) {
  serve(ServerMode::kEcho);
  Port port = gates->protect(net->server, server->port());
  ConnectOptions options = to_server(15);
  options.keep_open = true;
  ConnectReport old = connect_many(net->client, options);
  ASSERT_EQ(old.open.size(), 15U) << old.describe();
  gates->count_connections(port, *cgroup, net->server);
  auto diag = SockDiag::open(net->server.fd());
  ASSERT_TRUE(diag) << diag.error().message;
  const auto live = (*diag)->live_connections(server->port(), nullptr);
  ASSERT_TRUE(live) << live.error().message;
  EXPECT_EQ(*live, 15U);
  EXPECT_EQ(port.state().in_flight, 0U);
  port.policy.flags |= HEADGATE_ARM_CONNECTIONS;
  port.policy.connections_max = 20;
  port.policy.connections_legacy = *live - port.state().in_flight;
  port.publish();
  options.attempts = 50;
  options.parallel = 1;
  const ConnectReport report = connect_many(net->client, options);
  EXPECT_EQ(report.open.size(), 5U) << report.describe();
  old.open.clear();
  EXPECT_TRUE(
      lab::eventually([&] { return *(*diag)->live_connections(server->port(), nullptr) == 5; }));
  EXPECT_EQ(port.state().in_flight, 5U);
  EXPECT_EQ(port.counters().closed, 0U);
}

/// Two targets over the same cgroup, and one in a cgroup below: each connection is counted once.
TEST_F(GateConnections, NestedAndSharedCgroupsCountOnce) {
  const lab::Cgroup inner("inner", cgroup->path());
  ServerProcess first(net->server, serving(ServerMode::kEcho), &inner);
  ServerProcess second(net->server, serving(ServerMode::kEcho), &inner);
  first.start();
  second.start();
  Port first_port = gates->protect(net->server, first.port());
  Port second_port = gates->protect(net->server, second.port());
  gates->count_connections(first_port, inner, net->server);
  gates->count_connections(second_port, *cgroup, net->server);
  const auto connect = [&](std::uint16_t port) {
    return connect_many(net->client,
                        {.attempts = 100, .address = net->at_server().ipv4, .port = port})
        .count(Outcome::kConnected);
  };
  EXPECT_EQ(connect(first.port()), 100U);
  EXPECT_EQ(connect(second.port()), 100U);
  EXPECT_TRUE(lab::eventually([&] { return second_port.counters().closed >= 100; }));
  EXPECT_EQ(first_port.counters().established, 100U);
  EXPECT_EQ(second_port.counters().established, 100U);
  EXPECT_EQ(first_port.state().in_flight, 0U);
  // both on the same directory; one lets go, the other goes on counting
  gates->connections.release(second_port.target());
  gates->count_connections(second_port, inner, net->server);
  EXPECT_EQ(connect(second.port()), 100U);
  EXPECT_EQ(connect(first.port()), 100U);
  gates->connections.release(first_port.target());
  EXPECT_EQ(connect(second.port()), 100U);
  EXPECT_EQ(connect(first.port()), 100U);
  EXPECT_EQ(first_port.counters().established, 200U);
  EXPECT_EQ(second_port.counters().established, 300U);
}

/// Case F27: cgroup programs attach in the v2 tree only; elsewhere it is said, not survived in
/// silence.
TEST_F(GateConnections, DirectoryThatIsNoV2CgroupIsReported) {
  std::string plain = "/tmp/headgate-no-cgroup-XXXXXX";
  ASSERT_NE(::mkdtemp(plain.data()), nullptr);
  for (const std::string& root : {std::string("/sys/fs/cgroup/cpu"), plain}) {
    if (!std::filesystem::exists(root)) {
      continue;  // this host has no v1 tree
    }
    SockOpsHook hook(*gates->maps, *gates->pins, root);
    const auto held = hook.hold(1, "", net->server.inode(), true);
    ASSERT_FALSE(held) << root;
    EXPECT_NE(held.error().sys_errno, 0) << held.error().message;
    EXPECT_FALSE(hook.attached(1));
    EXPECT_EQ(hook.status(1).mode, "off");
    EXPECT_NE(hook.status(1).problem, "");
  }
  std::filesystem::remove(plain);
  SockOpsHook none(*gates->maps, *gates->pins, "");
  const auto held = none.hold(1, "/x", net->server.inode(), false);
  ASSERT_FALSE(held);
  EXPECT_NE(held.error().message.find("no cgroup v2"), std::string::npos) << held.error().message;
}

// ------------------------------------------------------------------------------- neighbours

bpf_insn insn(std::uint8_t code, std::uint8_t dst, std::uint8_t src, std::int16_t off,
              std::int32_t imm) {
  bpf_insn out{};
  out.code = code;
  out.dst_reg = dst & 0xf;
  out.src_reg = src & 0xf;
  out.off = off;
  out.imm = imm;
  return out;
}

/// Somebody else's sk_lookup program: passes, or redirects what comes for `port` to the socket in
/// a map.
UniqueFd foreign_program(int map_fd, std::uint16_t port) {
  std::vector<bpf_insn> code;
  if (map_fd >= 0) {
    code = {
        insn(BPF_ALU64 | BPF_MOV | BPF_X, 6, 1, 0, 0),
        insn(BPF_LDX | BPF_MEM | BPF_W, 2, 6, offsetof(bpf_sk_lookup, local_port), 0),
        insn(BPF_JMP | BPF_JNE | BPF_K, 2, 0, 14, port),
        insn(BPF_ST | BPF_MEM | BPF_W, 10, 0, -4, 0),
        insn(BPF_ALU64 | BPF_MOV | BPF_X, 2, 10, 0, 0),
        insn(BPF_ALU64 | BPF_ADD | BPF_K, 2, 0, 0, -4),
        insn(BPF_LD | BPF_DW | BPF_IMM, 1, BPF_PSEUDO_MAP_FD, 0, map_fd),
        insn(0, 0, 0, 0, 0),
        insn(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_map_lookup_elem),
        insn(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 7, 0),
        insn(BPF_ALU64 | BPF_MOV | BPF_X, 7, 0, 0, 0),
        insn(BPF_ALU64 | BPF_MOV | BPF_X, 1, 6, 0, 0),
        insn(BPF_ALU64 | BPF_MOV | BPF_X, 2, 7, 0, 0),
        insn(BPF_ALU64 | BPF_MOV | BPF_K, 3, 0, 0, 0),
        insn(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_sk_assign),
        insn(BPF_ALU64 | BPF_MOV | BPF_X, 1, 7, 0, 0),
        insn(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_sk_release),
    };
  }
  code.push_back(insn(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, SK_PASS));
  code.push_back(insn(BPF_JMP | BPF_EXIT, 0, 0, 0, 0));
  bpf_prog_load_opts options{};
  options.sz = sizeof(options);
  options.expected_attach_type = BPF_SK_LOOKUP;
  UniqueFd fd(::bpf_prog_load(BPF_PROG_TYPE_SK_LOOKUP, "foreign", "GPL", code.data(), code.size(),
                              &options));
  if (!fd) {
    throw lab::SetupError(std::string("foreign program: ") + std::strerror(errno));
  }
  return fd;
}

/// Case F11
TEST_F(Gate, ForeignProgramThatPassesDoesNotOpenTheGate) {
  const Pair net;
  ServerThread server(net.server, serving(ServerMode::kEcho));
  server.start();
  const UniqueFd program = foreign_program(-1, 0);
  const UniqueFd link(::bpf_link_create(program.get(), net.server.fd(), BPF_SK_LOOKUP, nullptr));
  ASSERT_TRUE(link);
  Port port = gates->protect(net.server, server.port());
  const UniqueFd after(::bpf_link_create(program.get(), net.server.fd(), BPF_SK_LOOKUP, nullptr));
  ASSERT_TRUE(after);
  port.admit(0);
  EXPECT_EQ(connect_many(net.client,
                         {.attempts = 100, .address = net.at_server().ipv4, .port = server.port()})
                .count(Outcome::kRefused),
            100U);
  EXPECT_EQ(port.counters().reset, 100U);
}

/// A redirect of somebody else wins over our refusal (rule of the kernel): the traffic is theirs.
/// Ours must not take it to the pit either.
TEST_F(Gate, ForeignRedirectWinsOverOurRefusal) {
  const Pair net;
  ServerThread server(net.server, serving(ServerMode::kEcho));
  server.start();
  const UniqueFd map(
      ::bpf_map_create(BPF_MAP_TYPE_SOCKMAP, "foreign", sizeof(__u32), sizeof(__u64), 1, nullptr));
  ASSERT_TRUE(map);
  UniqueFd listener;
  net.server.run([&] {
    listener = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in any{};
    any.sin_family = AF_INET;
    ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&any), sizeof(any)), 0);
    ASSERT_EQ(::listen(listener.get(), 512), 0);
  });
  const std::uint32_t zero = 0;
  const auto socket = static_cast<std::uint64_t>(listener.get());
  ASSERT_EQ(::bpf_map_update_elem(map.get(), &zero, &socket, BPF_ANY), 0);
  const UniqueFd program = foreign_program(map.get(), server.port());
  Port port = gates->protect(net.server, server.port());
  gates->open_pit(net.server);
  const UniqueFd link(::bpf_link_create(program.get(), net.server.fd(), BPF_SK_LOOKUP, nullptr));
  ASSERT_TRUE(link) << std::strerror(errno);
  for (const headgate_action action : {HEADGATE_ACTION_RESET, HEADGATE_ACTION_DEFER}) {
    port.refuse_by(action);
    port.admit(0);
    const ConnectReport report = connect_many(net.client, {.attempts = 100,
                                                           .address = net.at_server().ipv4,
                                                           .port = server.port(),
                                                           .timeout = milliseconds(900),
                                                           .confirm = Confirm::kNone});
    if (action == HEADGATE_ACTION_RESET) {
      EXPECT_EQ(report.count(Outcome::kConnected), 100U) << report.describe();
    } else {
      // whose program was attached first decides; either is sound, an error is not
      EXPECT_EQ(report.count(Outcome::kConnected) + report.count(Outcome::kTimedOut), 100U)
          << report.describe();
    }
  }
  EXPECT_EQ(server.accepted(), 0U);
}

}  // namespace
}  // namespace headgate
