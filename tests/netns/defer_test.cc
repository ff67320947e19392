// SPDX-License-Identifier: Apache-2.0
// `defer`: the SYN vanishes in the pit, the client's own kernel tries again, each try is judged.
#include <thread>
#include <utility>

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
using lab::Segment;
using lab::ServerMode;
using lab::ServerOptions;
using lab::ServerProcess;
using lab::ServerThread;
using std::chrono::milliseconds;
using std::chrono::seconds;

class Defer : public ::testing::Test {
 protected:
  void SetUp() override {
    HEADGATE_REQUIRES_ROOT_KERNEL();
    gates.emplace();
    net.emplace();
    server.emplace(net->server, ServerOptions{});
    server->start();
    port.emplace(gates->protect(net->server, server->port()));
    port->refuse_by(HEADGATE_ACTION_DEFER);
    port->publish();
  }
  void TearDown() override {
    port.reset();
    server.reset();
    net.reset();
    gates.reset();
  }
  void deadline(milliseconds time) {
    port->policy.defer_deadline_ns = lab::ns(time);
    port->target_policy.defer_deadline_ns = lab::ns(time);
    port->publish();
  }
  void shut() { port->admit(0); }
  /// A client whose SYN timer only doubles, as kernels below 6.5: 1, 3, 7 s.
  static void doubling_timer(const lab::Namespace& client) {
    try {
      client.sysctl("net.ipv4.tcp_syn_linear_timeouts", "0");
    } catch (const lab::SetupError&) {
      // an older kernel knows no other
    }
  }
  ConnectOptions to_server(std::uint64_t attempts, const std::string& address) const {
    return {.attempts = attempts,
            .address = address,
            .port = server->port(),
            .parallel = static_cast<unsigned>(attempts),
            .timeout = seconds(10)};
  }

  std::optional<GateLab> gates;
  std::optional<Pair> net;
  std::optional<ServerThread> server;
  std::optional<Port> port;
};

TEST_F(Defer, ShutThenOpenedEveryConnectSucceedsAtItsNextTry) {
  constexpr std::uint64_t kEach = 50;
  gates->open_pit(net->server);
  shut();
  std::thread opener([&] {
    std::this_thread::sleep_for(seconds(2) + milliseconds(300));
    port->open();
  });
  ConnectReport ipv6;
  std::thread other(
      [&] { ipv6 = connect_many(net->client, to_server(kEach, net->at_server().ipv6)); });
  const ConnectReport ipv4 = connect_many(net->client, to_server(kEach, net->at_server().ipv4));
  other.join();
  opener.join();
  for (const ConnectReport* report : {&ipv4, &std::as_const(ipv6)}) {
    EXPECT_EQ(report->count(Outcome::kConnected), kEach) << report->describe();
    // tries at 1, 2, 3 s or at 1, 3 s: the next after the opening is the one at 3 s
    EXPECT_GT(report->latency(Outcome::kConnected, 0), milliseconds(2300));
    EXPECT_LT(report->latency(Outcome::kConnected, 1), milliseconds(3700)) << report->describe();
  }
  EXPECT_EQ(server->accepted(), 2 * kEach);
  const headgate_counters counters = port->counters();
  EXPECT_EQ(counters.offered, 2 * kEach);  // a retransmit is no new demand
  EXPECT_EQ(counters.deferred, 2 * kEach);
  EXPECT_EQ(counters.admitted, 2 * kEach);
  EXPECT_EQ(counters.admitted_deferred, 2 * kEach);
  EXPECT_GE(counters.deferred_tries, 4 * kEach);
  EXPECT_EQ(counters.refused[HEADGATE_REASON_SHARE], counters.deferred_tries);
  EXPECT_EQ(counters.reset + counters.expired + counters.pit_missing, 0U);
  EXPECT_EQ(port->waiting(), 0U);
}

TEST_F(Defer, TheExpiryOfTheLeaseOpensItToo) {
  gates->open_pit(net->server);
  shut();
  port->publish(milliseconds(500));
  const ConnectReport report = connect_many(net->client, to_server(20, net->at_server().ipv4));
  EXPECT_EQ(report.count(Outcome::kConnected), 20U) << report.describe();
  EXPECT_LT(report.latency(Outcome::kConnected, 1), milliseconds(1700)) << report.describe();
  EXPECT_EQ(port->counters().admitted_stale, 20U);
  EXPECT_EQ(port->counters().admitted_deferred, 20U);
  EXPECT_EQ(port->waiting(), 0U);
}

/// Tries at 1, 3, 7 and at 1, 2, 3, 4, 5, 7 s: both end at 7 s, the last before 8 s.
TEST_F(Defer, NobodyWaitsPastTheDeadline) {
  gates->open_pit(net->server);
  shut();
  const lab::Namespace old_client;
  const lab::Wire wire(old_client, net->server);
  doubling_timer(old_client);
  ConnectReport doubling;
  std::thread other([&] { doubling = connect_many(old_client, to_server(20, wire.b().ipv4)); });
  const ConnectReport report = connect_many(net->client, to_server(20, net->at_server().ipv4));
  other.join();
  for (const ConnectReport* each : {&report, &std::as_const(doubling)}) {
    EXPECT_EQ(each->count(Outcome::kRefused), 20U) << each->describe();
    EXPECT_GT(each->latency(Outcome::kRefused, 0), milliseconds(6800)) << each->describe();
    EXPECT_LT(each->latency(Outcome::kRefused, 1), milliseconds(8000)) << each->describe();
  }
  const headgate_counters counters = port->counters();
  EXPECT_EQ(counters.offered, 40U);
  EXPECT_EQ(counters.expired, 40U);
  EXPECT_EQ(counters.reset, 0U);
  EXPECT_EQ(counters.refused[HEADGATE_REASON_WAITED], 40U);
  EXPECT_EQ(counters.refused[HEADGATE_REASON_SHARE], counters.deferred_tries);
  EXPECT_EQ(port->waiting(), 0U);
  EXPECT_EQ(server->accepted(), 0U);
}

TEST_F(Defer, AShorterDeadlineEndsEarlier) {
  gates->open_pit(net->server);
  deadline(milliseconds(3500));
  shut();
  const ConnectReport report = connect_many(net->client, to_server(20, net->at_server().ipv6));
  EXPECT_EQ(report.count(Outcome::kRefused), 20U) << report.describe();
  EXPECT_GT(report.latency(Outcome::kRefused, 0), milliseconds(1500)) << report.describe();
  EXPECT_LT(report.latency(Outcome::kRefused, 1), milliseconds(3500)) << report.describe();
  EXPECT_EQ(port->counters().expired, 20U);
}

TEST_F(Defer, WithoutAPitItIsAResetAtOnce) {
  shut();
  const ConnectReport report = connect_many(net->client, to_server(50, net->at_server().ipv4));
  EXPECT_EQ(report.count(Outcome::kRefused), 50U) << report.describe();
  EXPECT_LT(report.latency(Outcome::kRefused, 1), milliseconds(900)) << report.describe();
  const headgate_counters counters = port->counters();
  EXPECT_EQ(counters.pit_missing, 50U);
  EXPECT_EQ(counters.reset, 50U);
  EXPECT_EQ(counters.deferred + counters.deferred_tries, 0U);
  EXPECT_EQ(port->waiting(), 0U);
}

/// The agent dies and its pit with it; the lease is still valid: those who wait get their RST at
/// the next try, no flood gets in.
TEST_F(Defer, PitThatDiesUnderAValidLeaseResets) {
  gates->open_pit(net->server);
  shut();
  std::thread closer([&] {
    std::this_thread::sleep_for(milliseconds(500));
    gates->maps->clear_pit(net->server.inode());
  });
  const ConnectReport report = connect_many(net->client, to_server(20, net->at_server().ipv4));
  closer.join();
  EXPECT_EQ(report.count(Outcome::kRefused), 20U) << report.describe();
  EXPECT_GT(report.latency(Outcome::kRefused, 0), milliseconds(900));
  EXPECT_LT(report.latency(Outcome::kRefused, 1), milliseconds(1900)) << report.describe();
  const headgate_counters counters = port->counters();
  EXPECT_EQ(counters.offered, 20U);
  EXPECT_EQ(counters.deferred, 20U);
  EXPECT_EQ(counters.deferred_tries, 20U);
  EXPECT_EQ(counters.pit_missing, 20U);
  EXPECT_EQ(counters.reset, 20U);
  EXPECT_EQ(port->waiting(), 0U);
  EXPECT_EQ(server->accepted(), 0U);
}

TEST_F(Defer, AboveTheCapNobodyMoreMayWait) {
  gates->open_pit(net->server);
  port->target_policy.waiting_max = 10;
  shut();
  std::thread opener([&] {
    std::this_thread::sleep_for(milliseconds(500));
    port->open();
  });
  const ConnectReport report = connect_many(net->client, to_server(100, net->at_server().ipv4));
  opener.join();
  EXPECT_GE(report.count(Outcome::kConnected), 10U) << report.describe();
  EXPECT_LE(report.count(Outcome::kConnected),
            10U + static_cast<unsigned>(libbpf_num_possible_cpus()))
      << report.describe();
  EXPECT_EQ(report.count(Outcome::kRefused), 100 - report.count(Outcome::kConnected));
  EXPECT_LT(report.latency(Outcome::kRefused, 1), milliseconds(900)) << report.describe();
  EXPECT_EQ(port->waiting(), 0U);
}

/// The server dies and comes back while the gate is shut: what its clients' old connections still
/// send must be answered by RST, or they would hang until their own time-outs. Only a SYN is
/// swallowed.
TEST_F(Defer, StraysOfADeadServersConnectionsGetTheirReset) {
  gates->open_pit(net->server);
  // of connections that the server has forgotten: to the client they are alive
  shut();
  Segment segment;
  segment.source_port = 40'000;
  segment.destination_port = server->port();
  for (const bool ipv6 : {false, true}) {
    segment.source = ipv6 ? net->at_client().ipv6 : net->at_client().ipv4;
    segment.destination = ipv6 ? net->at_server().ipv6 : net->at_server().ipv4;
    for (const std::uint8_t flags :
         {std::uint8_t{Segment::kAck}, std::uint8_t{Segment::kAck | Segment::kPsh},
          std::uint8_t{Segment::kAck | Segment::kFin}}) {
      ++segment.source_port;
      segment.flags = flags;
      segment.payload = (flags & Segment::kPsh) != 0 ? "POST /v1/traces HTTP/1.1\r\n" : "";
      EXPECT_NE(lab::send_segment(net->client, segment, seconds(2)) & Segment::kRst, 0)
          << "flags " << static_cast<int>(flags) << (ipv6 ? " IPv6" : " IPv4");
    }
    ++segment.source_port;
    segment.flags = Segment::kSyn;
    EXPECT_EQ(lab::send_segment(net->client, segment, milliseconds(300)), 0);
  }
}

TEST_F(Defer, ServerRestartedWhileShutKeepsNobodyWaitingOnOldConnections) {
  const lab::Cgroup cgroup("defer");
  ServerOptions holding;
  holding.mode = ServerMode::kHold;
  ServerProcess process(net->server, holding, &cgroup);
  process.start();
  Port guarded = gates->protect(net->server, process.port());
  guarded.refuse_by(HEADGATE_ACTION_DEFER);
  guarded.publish();
  gates->open_pit(net->server);
  ConnectOptions options = to_server(50, net->at_server().ipv4);
  options.port = process.port();
  options.keep_open = true;
  options.confirm = Confirm::kNone;
  ConnectReport old = connect_many(net->client, options);
  ASSERT_EQ(old.open.size(), 50U) << old.describe();
  for (const UniqueFd& fd : old.open) {
    ASSERT_EQ(::send(fd.get(), "x", 1, MSG_NOSIGNAL), 1);
  }
  ASSERT_TRUE(lab::eventually([&] { return process.accepted() == 50; }));
  guarded.admit(0);
  // What is unread makes the end of each connection a single RST, and that is lost: the machine
  // was cut off just then.
  net->server.ip("link set " + net->at_server().device + " down");
  process.kill();
  net->server.ip("link set " + net->at_server().device + " up");
  net->server.ip("addr replace " + net->at_server().ipv4 + "/24 dev " + net->at_server().device);
  process.start();
  std::size_t ended = 0;
  for (const UniqueFd& fd : old.open) {
    ASSERT_EQ(::send(fd.get(), "y", 1, MSG_NOSIGNAL), 1) << "the end was not lost";
  }
  EXPECT_TRUE(lab::eventually(
      [&] {
        ended = 0;
        for (const UniqueFd& fd : old.open) {
          char byte = 0;
          const ssize_t got = ::recv(fd.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK);
          ended += got == 0 || (got < 0 && errno != EAGAIN) ? 1 : 0;
        }
        return ended == old.open.size();
      },
      seconds(5)))
      << ended << " of " << old.open.size();
}

/// Retries and newcomers are judged alike: half of the tries admitted, over all of them.
TEST_F(Defer, EachTryIsJudgedAnew) {
  gates->open_pit(net->server);
  port->admit(.5);
  ConnectOptions options = to_server(200, net->at_server().ipv4);
  const ConnectReport report = connect_many(net->client, options);
  const headgate_counters counters = port->counters();
  EXPECT_EQ(counters.offered, 200U);
  EXPECT_EQ(counters.tries, counters.offered + counters.repeats +
                                (counters.deferred_tries - counters.deferred) +
                                counters.admitted_deferred + counters.expired);
  const double judged = static_cast<double>(counters.admitted + counters.deferred_tries);
  EXPECT_NEAR(static_cast<double>(counters.admitted), judged / 2, lab::tolerance());
  EXPECT_GT(counters.admitted_deferred, 80U);
  EXPECT_EQ(counters.admitted + counters.expired, 200U);
  EXPECT_EQ(report.count(Outcome::kConnected), counters.admitted) << report.describe();
  EXPECT_EQ(server->accepted(), counters.admitted);
  EXPECT_EQ(port->waiting(), 0U);
}

}  // namespace
}  // namespace headgate
