// SPDX-License-Identifier: Apache-2.0
// The laboratory itself: what it reports is only worth something if it can tell cases apart.
#include "tests/support/net_lab.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include <gtest/gtest.h>

namespace headgate::lab {
namespace {

using std::chrono::milliseconds;

std::uint64_t own_netns() {
  struct stat status {};
  return ::stat("/proc/thread-self/ns/net", &status) == 0 ? status.st_ino : 0;
}

class NetLab : public ::testing::Test {
 protected:
  void SetUp() override { HEADGATE_REQUIRES_ROOT_KERNEL(); }
};

TEST_F(NetLab, WorkRunsInsideAndTheCallerStaysOutside) {
  const Namespace netns;
  const std::uint64_t before = own_netns();
  EXPECT_EQ(netns.get<std::uint64_t>(own_netns), netns.inode());
  EXPECT_NE(netns.inode(), before);
  EXPECT_EQ(own_netns(), before);
  EXPECT_THROW(netns.run([] { throw SetupError("out"); }), SetupError);
}

TEST_F(NetLab, AFailedCommandThrowsWithItsWords) {
  const Namespace netns;
  try {
    netns.ip("link set nosuch up");
    FAIL() << "no exception";
  } catch (const SetupError& e) {
    EXPECT_NE(std::string(e.what()).find("nosuch"), std::string::npos) << e.what();
  }
}

TEST_F(NetLab, ConnectedAndRefusedAreToldApart) {
  Pair lab;
  ServerThread server(lab.server, {});
  for (const std::string& address : {lab.at_server().ipv4, lab.at_server().ipv6}) {
    const std::uint64_t before = server.accepted();
    const ConnectReport good =
        connect_many(lab.client, {.attempts = 500, .address = address, .port = server.port()});
    EXPECT_EQ(good.count(Outcome::kConnected), 500u) << good.describe();
    EXPECT_EQ(server.accepted() - before, 500u);
    const ConnectReport bad =
        connect_many(lab.client, {.attempts = 500,
                                  .address = address,
                                  .port = static_cast<std::uint16_t>(server.port() + 1)});
    EXPECT_EQ(bad.count(Outcome::kRefused), 500u) << bad.describe();
    EXPECT_LT(bad.latency(Outcome::kRefused, 1), milliseconds(1000));
  }
  EXPECT_TRUE(eventually([&] { return server.open_connections() == 0; }));
}

TEST_F(NetLab, SilenceIsATimeOut) {
  Pair lab;
  // Nobody has this address: a black hole without an ARP answer that would make an error of it.
  lab.client.ip("neigh add 10.66.200.1 lladdr 02:00:00:00:00:01 dev " + lab.at_client().device);
  lab.client.ip("route add 10.66.200.1/32 dev " + lab.at_client().device);
  const ConnectReport report = connect_many(
      lab.client,
      {.attempts = 3, .address = "10.66.200.1", .port = 80, .timeout = milliseconds(200)});
  EXPECT_EQ(report.count(Outcome::kTimedOut), 3u) << report.describe();
  EXPECT_GE(report.latency(Outcome::kTimedOut, 0), milliseconds(200));
}

TEST_F(NetLab, AResetAfterConnectIsNotARefusal) {
  Pair lab;
  // It never reads: when it dies, what its clients sent is unread, and the kernel answers by RST
  // (RFC 2525 section 2.17).
  ServerProcess server(lab.server, {.mode = ServerMode::kHold});
  std::thread death([&] {
    EXPECT_TRUE(eventually([&] { return server.accepted() == 8; }));
    std::this_thread::sleep_for(milliseconds(100));
    server.kill();
  });
  const ConnectReport report = connect_many(
      lab.client, {.attempts = 8, .address = lab.at_server().ipv4, .port = server.port()});
  death.join();
  EXPECT_EQ(report.count(Outcome::kResetAfterConnect), 8u) << report.describe();
}

TEST_F(NetLab, ConnectedWithoutAWordIsUnconfirmed) {
  Pair lab;
  ServerThread server(lab.server, {.mode = ServerMode::kHold});
  const ConnectReport report = connect_many(lab.client, {.attempts = 5,
                                                         .address = lab.at_server().ipv4,
                                                         .port = server.port(),
                                                         .timeout = milliseconds(200)});
  EXPECT_EQ(report.count(Outcome::kUnconfirmed), 5u) << report.describe();
}

TEST_F(NetLab, ClosedByTheServerIsConfirmed) {
  Pair lab;
  ServerThread server(lab.server, {.mode = ServerMode::kClose});
  const ConnectReport report = connect_many(lab.client, {.attempts = 200,
                                                         .address = lab.at_server().ipv6,
                                                         .port = server.port(),
                                                         .confirm = Confirm::kPeerClose});
  EXPECT_EQ(report.count(Outcome::kConnected), 200u) << report.describe();
  EXPECT_EQ(server.accepted(), 200u);
}

TEST_F(NetLab, SourcesAndPortsAreTakenInTurn) {
  Pair lab;
  const auto sources = lab.client.add_addresses(lab.at_client().device, "10.66.100.255", 4);
  EXPECT_EQ(sources, (std::vector<std::string>{"10.66.100.255", "10.66.101.0", "10.66.101.1",
                                               "10.66.101.2"}));
  lab.server.ip("route add 10.66.100.0/23 via " + lab.at_client().ipv4);
  ServerThread server(lab.server, {.mode = ServerMode::kHold});
  const ConnectReport report = connect_many(lab.client, {.attempts = 12,
                                                         .address = lab.at_server().ipv4,
                                                         .port = server.port(),
                                                         .confirm = Confirm::kNone,
                                                         .sources = sources,
                                                         .source_port = 40000,
                                                         .source_ports = 3,
                                                         .keep_open = true});
  ASSERT_EQ(report.count(Outcome::kConnected), 12u) << report.describe();
  std::istringstream peers(lab.server.command(
      {"ss", "-Htn", "state", "established", "sport", "=", ":" + std::to_string(server.port())}));
  std::set<std::string> seen;
  for (std::string line; std::getline(peers, line);) {
    std::istringstream words(line);
    std::string word;
    while (words >> word) {
    }
    seen.insert(word);
  }
  EXPECT_EQ(seen.size(), 12u);
  for (const std::string& source : sources) {
    for (int port = 40000; port < 40003; ++port) {
      const std::string peer = source + "]:" + std::to_string(port);
      EXPECT_EQ(seen.count("[::ffff:" + peer), 1u) << peer;
    }
  }
}

TEST_F(NetLab, AnOpenLoopKeepsItsRate) {
  Pair lab;
  ServerThread server(lab.server, {});
  const ConnectReport report = connect_many(
      lab.client,
      {.attempts = 200, .address = lab.at_server().ipv4, .port = server.port(), .per_second = 400});
  EXPECT_EQ(report.count(Outcome::kConnected), 200u) << report.describe();
  EXPECT_GE(report.attempts.back().began, milliseconds(497));
}

TEST_F(NetLab, AServerStopsAndComesBackOnItsPort) {
  Pair lab;
  ServerThread thread(lab.server, {});
  ServerProcess process(lab.server, {});
  for (Server* server : {static_cast<Server*>(&thread), static_cast<Server*>(&process)}) {
    const ConnectOptions to{
        .attempts = 20, .address = lab.at_server().ipv4, .port = server->port()};
    EXPECT_EQ(connect_many(lab.client, to).count(Outcome::kConnected), 20u);
    server->stop();
    EXPECT_EQ(connect_many(lab.client, to).count(Outcome::kRefused), 20u);
    server->start();
    EXPECT_EQ(server->port(), to.port);
    EXPECT_EQ(connect_many(lab.client, to).count(Outcome::kConnected), 20u);
    EXPECT_EQ(server->accepted(), 40u);
  }
  process.kill();
  EXPECT_EQ(connect_many(lab.client,
                         {.attempts = 5, .address = lab.at_server().ipv4, .port = process.port()})
                .count(Outcome::kRefused),
            5u);
}

TEST_F(NetLab, AServerThatCannotListenSaysWhy) {
  Pair lab;
  ServerThread server(lab.server, {});
  EXPECT_THROW(ServerThread(lab.server, {.port = server.port()}), SetupError);
  EXPECT_THROW(ServerProcess(lab.server, {.port = server.port()}), SetupError);
}

TEST_F(NetLab, DatagramsAreCounted) {
  Pair lab;
  ServerThread sink(lab.server, {.udp = true});
  for (const std::string& address : {lab.at_server().ipv4, lab.at_server().ipv6}) {
    const DatagramReport report =
        send_datagrams(lab.client, {.datagrams = 2000, .address = address, .port = sink.port()});
    EXPECT_EQ(report.sent, 2000u);
    EXPECT_EQ(report.refused, 0u);
  }
  EXPECT_TRUE(eventually([&] { return sink.datagrams() == 4000; })) << sink.datagrams();
  const DatagramReport nobody = send_datagrams(
      lab.client, {.datagrams = 50, .address = lab.at_server().ipv4, .port = 9, .per_second = 500});
  EXPECT_GT(nobody.refused, 0u);
}

TEST_F(NetLab, SegmentsOutOfNowhereAndTheirAnswers) {
  Pair lab;
  ServerThread server(lab.server, {});
  for (const bool ipv6 : {false, true}) {
    Segment segment{.source = ipv6 ? lab.at_client().ipv6 : lab.at_client().ipv4,
                    .destination = ipv6 ? lab.at_server().ipv6 : lab.at_server().ipv4,
                    .source_port = 50001,
                    .destination_port = server.port(),
                    .flags = Segment::kSyn};
    EXPECT_EQ(send_segment(lab.client, segment, milliseconds(1000)), Segment::kSyn | Segment::kAck);
    segment.flags = Segment::kAck;
    segment.source_port = 50002;
    EXPECT_EQ(send_segment(lab.client, segment, milliseconds(1000)), Segment::kRst);
    segment.flags = Segment::kRst;
    EXPECT_EQ(send_segment(lab.client, segment, milliseconds(100)), 0);
  }
}

TEST_F(NetLab, AServerProcessIsBornInItsCgroup) {
  Pair lab;
  const auto cgroup = std::make_unique<Cgroup>("born");
  std::string procs_file;
  {
    ServerProcess server(lab.server, {}, cgroup.get());
    for (const std::string& file : cgroup->procs_files()) {
      std::ifstream procs(file);
      pid_t pid = 0;
      EXPECT_TRUE(procs >> pid) << file;
      EXPECT_EQ(pid, server.pid()) << file;
      procs_file = file;
    }
    EXPECT_EQ(connect_many(lab.client,
                           {.attempts = 10, .address = lab.at_server().ipv4, .port = server.port()})
                  .count(Outcome::kConnected),
              10u);
  }
  EXPECT_TRUE(std::ifstream(procs_file).is_open());
}

TEST_F(NetLab, ACgroupGoesWithWhatIsLeftInIt) {
  std::string directory;
  std::thread reaper;
  {
    const Cgroup cgroup("goes");
    directory = cgroup.directory("memory");
    cgroup.limit_memory(64 << 20);
    cgroup.limit_cpu(0.5);
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::pause();
      ::_exit(0);
    }
    cgroup.add(pid);
    reaper = std::thread([pid] { ::waitpid(pid, nullptr, 0); });
  }
  reaper.join();
  struct stat status {};
  EXPECT_NE(::stat(directory.c_str(), &status), 0) << directory;
}

TEST_F(NetLab, ANodeRoutesBetweenPodsAndServices) {
  Node node;
  Node::Pod& server_pod = node.add_pod();
  Node::Pod& client_pod = node.add_pod();
  Node::Pod& bridged = node.add_bridged_pod();
  Node::Pod& bridged_client = node.add_bridged_pod();
  ServerThread server(server_pod.netns, {});
  ServerThread beside(bridged.netns, {});
  const auto connected = [](const Namespace& from, const std::string& to, std::uint16_t port) {
    const ConnectReport report = connect_many(from, {.attempts = 10, .address = to, .port = port});
    return report.count(Outcome::kConnected);
  };
  for (const std::string& address : {server_pod.ipv4, server_pod.ipv6}) {
    EXPECT_EQ(connected(client_pod.netns, address, server.port()), 10u) << address;
    EXPECT_EQ(connected(bridged.netns, address, server.port()), 10u) << address;
    EXPECT_EQ(connected(node.netns(), address, server.port()), 10u) << address;
  }
  EXPECT_EQ(connected(bridged_client.netns, bridged.ipv6, beside.port()), 10u);
  EXPECT_EQ(connected(client_pod.netns, bridged.ipv4, beside.port()), 10u);
  EXPECT_EQ(server.accepted(), 60u);
}

TEST_F(NetLab, ANodeRewritesServiceAddresses) {
  HEADGATE_REQUIRES(missing_for_dnat());
  Node node;
  Node::Pod& server_pod = node.add_pod();
  Node::Pod& client_pod = node.add_pod();
  ServerThread server(server_pod.netns, {});
  node.dnat("10.96.0.10", 80, server_pod.ipv4, server.port());
  node.dnat("fd96::10", 80, server_pod.ipv6, server.port());
  for (const char* vip : {"10.96.0.10", "fd96::10"}) {
    for (const Namespace* from : {&std::as_const(client_pod.netns), &node.netns()}) {
      const ConnectReport report =
          connect_many(*from, {.attempts = 10, .address = vip, .port = 80});
      EXPECT_EQ(report.count(Outcome::kConnected), 10u) << vip << ": " << report.describe();
    }
  }
}

}  // namespace
}  // namespace headgate::lab
