// SPDX-License-Identifier: Apache-2.0
#include "agent/dataplane/net.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <optional>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/dataplane/listener_table.h"
#include "tests/support/net_lab.h"

namespace headgate {
namespace {

using lab::connect_many;
using lab::ConnectReport;
using lab::Outcome;
using lab::Segment;
using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

IpAddress ip(const std::string& text) {
  const Result<IpPrefix> prefix = parse_prefix(text);
  EXPECT_TRUE(prefix) << prefix.error().message;
  return prefix ? prefix->address : IpAddress{};
}

class Net : public ::testing::Test {
 protected:
  void SetUp() override { HEADGATE_REQUIRES_ROOT_KERNEL(); }
};

std::uint64_t own_netns() {
  struct stat status {};
  return ::stat("/proc/thread-self/ns/net", &status) == 0 ? status.st_ino : 0;
}

TEST_F(Net, RunInNetnsDoesNotMoveTheCaller) {
  const lab::Namespace netns;
  const std::uint64_t before = own_netns();
  std::uint64_t inside = 0;
  const Result<> result = run_in_netns(netns.fd(), [&]() -> Result<> {
    inside = own_netns();
    return {};
  });
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(inside, netns.inode());
  EXPECT_EQ(own_netns(), before);
}

TEST_F(Net, RunInNetnsHandsOverTheError) {
  const lab::Namespace netns;
  const Result<> result = run_in_netns(netns.fd(), [] { return fail("of the work"); });
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message, "of the work");
}

class NetSockDiag : public Net {
 protected:
  void SetUp() override {
    HEADGATE_REQUIRES_ROOT_KERNEL();
    lab_.emplace();
    Result<std::unique_ptr<SockDiag>> opened = SockDiag::open(lab_->server.fd());
    ASSERT_TRUE(opened) << opened.error().message;
    diag_ = std::move(*opened);
  }
  std::vector<Listener> listeners(std::uint8_t protocol, std::uint16_t port) {
    Result<std::vector<Listener>> found = diag_->listeners(protocol, port);
    EXPECT_TRUE(found) << found.error().message;
    return found.value_or(std::vector<Listener>{});
  }
  std::uint64_t live(std::uint16_t port, const char* address = nullptr) {
    const IpAddress on = address != nullptr ? ip(address) : IpAddress{};
    Result<std::uint64_t> count = diag_->live_connections(port, address != nullptr ? &on : nullptr);
    EXPECT_TRUE(count) << count.error().message;
    return count.value_or(~0ULL);
  }
  std::optional<lab::Pair> lab_;
  std::unique_ptr<SockDiag> diag_;
};

MATCHER_P4(ListensOn, address, port, protocol, ipv6_only, "") {
  return to_string(arg.address) == std::string(address) && arg.port == port &&
         arg.protocol == protocol && arg.ipv6_only == ipv6_only && arg.inode != 0;
}

TEST_F(NetSockDiag, FindsEveryKindOfListener) {
  lab::ServerThread four(lab_->server, {.address = "0.0.0.0", .port = 4317});
  lab::ServerThread six(lab_->server, {.address = "::", .port = 4317, .ipv6_only = true});
  lab::ServerThread dual(lab_->server, {.address = "::", .port = 4318});
  lab::ServerThread bound(lab_->server, {.address = lab_->at_server().ipv6, .port = 4319});
  lab::ServerThread loopback(lab_->server, {.address = "127.0.0.1", .port = 4319});
  lab::ServerThread udp(lab_->server, {.address = "127.0.0.1", .port = 8125, .udp = true});
  lab::ServerThread udp_dual(lab_->server, {.address = "::", .port = 8126, .udp = true});

  EXPECT_THAT(listeners(IPPROTO_TCP, 4317),
              UnorderedElementsAre(ListensOn("0.0.0.0", 4317, IPPROTO_TCP, false),
                                   ListensOn("::", 4317, IPPROTO_TCP, true)));
  EXPECT_THAT(listeners(IPPROTO_TCP, 4318), ElementsAre(ListensOn("::", 4318, IPPROTO_TCP, false)));
  EXPECT_THAT(listeners(IPPROTO_TCP, 4319),
              UnorderedElementsAre(ListensOn("127.0.0.1", 4319, IPPROTO_TCP, false),
                                   ListensOn(lab_->at_server().ipv6, 4319, IPPROTO_TCP, true)));
  EXPECT_EQ(listeners(IPPROTO_TCP, 0).size(), 5u);
  EXPECT_THAT(listeners(IPPROTO_TCP, 8125), ElementsAre());
  EXPECT_THAT(listeners(IPPROTO_UDP, 8125),
              ElementsAre(ListensOn("127.0.0.1", 8125, IPPROTO_UDP, false)));
  EXPECT_THAT(listeners(IPPROTO_UDP, 0),
              UnorderedElementsAre(ListensOn("127.0.0.1", 8125, IPPROTO_UDP, false),
                                   ListensOn("::", 8126, IPPROTO_UDP, false)));
  EXPECT_FALSE(diag_->listeners(IPPROTO_ICMP, 0));

  four.stop();
  EXPECT_THAT(listeners(IPPROTO_TCP, 4317), ElementsAre(ListensOn("::", 4317, IPPROTO_TCP, true)));
}

TEST_F(NetSockDiag, ATableIsReadOnceASecond) {
  using std::chrono::milliseconds;
  const Instant start{milliseconds(5000)};
  ListenerTable table;
  const auto found = [&](Duration after, std::uint8_t protocol, std::uint16_t port) {
    auto on_port = table.on_port(start + after, *diag_, 1, protocol, port);
    EXPECT_TRUE(on_port) << on_port.error().message;
    return on_port.value_or(std::vector<Listener>{});
  };
  lab::ServerThread first(lab_->server, {.address = "127.0.0.1", .port = 4317});
  EXPECT_THAT(found({}, IPPROTO_TCP, 4317),
              ElementsAre(ListensOn("127.0.0.1", 4317, IPPROTO_TCP, false)));
  lab::ServerThread second(lab_->server, {.address = "127.0.0.1", .port = 4318});
  lab::ServerThread udp(lab_->server, {.address = "127.0.0.1", .port = 4317, .udp = true});
  EXPECT_THAT(found(milliseconds(999), IPPROTO_TCP, 4318), ElementsAre());
  EXPECT_EQ(found(milliseconds(999), IPPROTO_UDP, 4317).size(), 1u) << "another protocol";
  EXPECT_EQ(found(milliseconds(1000), IPPROTO_TCP, 4318).size(), 1u);
  EXPECT_EQ(found(milliseconds(1000), IPPROTO_TCP, 4317).size(), 1u);
  first.stop();
  EXPECT_THAT(found(milliseconds(2000), IPPROTO_TCP, 4317), ElementsAre());
}

TEST_F(NetSockDiag, AConnectedDatagramSocketIsNoListener) {
  lab_->server.run([&] {
    const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(53);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    EXPECT_THAT(listeners(IPPROTO_UDP, 0), ElementsAre());
  });
}

TEST_F(NetSockDiag, TheInodeIsThatOfTheProcess) {
  lab::ServerProcess server(lab_->server, {.port = 4317});
  const std::vector<Listener> found = listeners(IPPROTO_TCP, 4317);
  ASSERT_EQ(found.size(), 1u);
  const std::string fds =
      lab::run_command({"ls", "-l", "/proc/" + std::to_string(server.pid()) + "/fd"});
  EXPECT_THAT(fds, ::testing::HasSubstr("socket:[" + std::to_string(found[0].inode) + "]"));
}

TEST_F(NetSockDiag, SeesTheNamespaceItWasOpenedInAlone) {
  lab::ServerThread elsewhere(lab_->client, {.port = 4317});
  EXPECT_THAT(listeners(IPPROTO_TCP, 0), ElementsAre());
}

TEST_F(NetSockDiag, CountsLiveConnections) {
  // kHold: a client that leaves makes a CLOSE_WAIT, which the server still holds.
  lab::ServerThread server(lab_->server, {.port = 4317, .mode = lab::ServerMode::kHold});
  lab::ServerThread other(lab_->server, {.port = 4318, .mode = lab::ServerMode::kHold});
  const auto connect = [&](const std::string& address, std::uint16_t port, std::uint64_t n) {
    ConnectReport report = connect_many(lab_->client, {.attempts = n,
                                                       .address = address,
                                                       .port = port,
                                                       .confirm = lab::Confirm::kNone,
                                                       .keep_open = true});
    EXPECT_EQ(report.count(Outcome::kConnected), n) << report.describe();
    return report;
  };
  EXPECT_EQ(live(4317), 0u);
  ConnectReport four = connect(lab_->at_server().ipv4, 4317, 300);
  ConnectReport six = connect(lab_->at_server().ipv6, 4317, 200);
  ConnectReport beside = connect(lab_->at_server().ipv4, 4318, 7);
  EXPECT_EQ(live(4317), 500u);
  EXPECT_EQ(live(4318), 7u);
  EXPECT_EQ(live(4319), 0u);
  // IPv4 connections of a dual-stack listener are AF_INET6 sockets with a mapped address.
  EXPECT_EQ(live(4317, lab_->at_server().ipv4.c_str()), 300u);
  EXPECT_EQ(live(4317, lab_->at_server().ipv6.c_str()), 200u);
  EXPECT_EQ(live(4317, "127.0.0.1"), 0u);

  six.open.clear();  // FIN: CLOSE_WAIT at the server
  EXPECT_EQ(live(4317), 500u);
  for (const UniqueFd& fd : four.open) {
    const linger reset{1, 0};
    ASSERT_EQ(::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)), 0);
  }
  four.open.clear();  // RST: gone
  EXPECT_TRUE(lab::eventually([&] { return live(4317) == 200; })) << live(4317);
}

TEST_F(NetSockDiag, CountsConnectionsOfAnIpv4Listener) {
  lab::ServerThread server(lab_->server,
                           {.address = "0.0.0.0", .port = 4317, .mode = lab::ServerMode::kHold});
  const ConnectReport report = connect_many(lab_->client, {.attempts = 20,
                                                           .address = lab_->at_server().ipv4,
                                                           .port = 4317,
                                                           .confirm = lab::Confirm::kNone,
                                                           .keep_open = true});
  ASSERT_EQ(report.open.size(), 20u) << report.describe();
  EXPECT_EQ(live(4317), 20u);
  EXPECT_EQ(live(4317, lab_->at_server().ipv4.c_str()), 20u);
  EXPECT_EQ(live(4317, lab_->at_server().ipv6.c_str()), 0u);
}

TEST_F(NetSockDiag, CountsMoreThanOneMessageHolds) {
  // A process: both ends of 2000 connections are more than the files that many systems allow one.
  lab::ServerProcess server(lab_->server, {.port = 4317, .mode = lab::ServerMode::kHold});
  const ConnectReport report = connect_many(lab_->client, {.attempts = 2000,
                                                           .address = lab_->at_server().ipv6,
                                                           .port = 4317,
                                                           .confirm = lab::Confirm::kNone,
                                                           .keep_open = true});
  ASSERT_EQ(report.open.size(), 2000u) << report.describe();
  EXPECT_EQ(live(4317), 2000u);
}

class NetNodeAddresses : public Net {
 protected:
  void SetUp() override {
    HEADGATE_REQUIRES_ROOT_KERNEL();
    netns_.emplace();
    netns_->ip_batch(
        "link add eth0 type veth peer name beyond0\nlink set beyond0 up\nlink set eth0 up\naddr "
        "add 192.0.2.1/24 dev eth0\n");
    netns_->run([&] {
      Result<std::unique_ptr<NodeAddresses>> opened = NodeAddresses::open();
      ASSERT_TRUE(opened) << opened.error().message;
      addresses_ = std::move(*opened);
    });
    ASSERT_NE(addresses_, nullptr);
    // The link-local ones of both ends come when the link is up, a moment later.
    ASSERT_TRUE(lab::eventually([&] {
      addresses_->refresh();
      return addresses_->addresses().size() == 3;
    }));
  }
  // Refreshes until it has told of a change after which there are `count`; IPv6 addresses are
  // announced by a kernel thread, a moment after they were set.
  bool changes_to(std::size_t count) {
    return lab::eventually([&] { return addresses_->refresh() && now().size() == count; });
  }
  // Without link-local ones, which the kernel makes up.
  std::vector<std::string> now() {
    std::vector<std::string> all;
    for (const IpAddress& address : addresses_->addresses()) {
      if (to_string(address).rfind("fe80:", 0) != 0) {
        all.push_back(to_string(address));
      }
    }
    return all;
  }
  std::optional<lab::Namespace> netns_;
  std::unique_ptr<NodeAddresses> addresses_;
};

TEST_F(NetNodeAddresses, AreAllButLoopback) {
  EXPECT_THAT(now(), ElementsAre("192.0.2.1"));
  for (const IpAddress& address : addresses_->addresses()) {
    EXPECT_FALSE(address.is_loopback()) << to_string(address);
  }
}

TEST_F(NetNodeAddresses, FollowChanges) {
  EXPECT_FALSE(addresses_->refresh());
  netns_->ip("addr add 192.0.2.2/24 dev eth0");  // a secondary one
  EXPECT_TRUE(addresses_->refresh());
  EXPECT_THAT(now(), UnorderedElementsAre("192.0.2.1", "192.0.2.2"));
  EXPECT_FALSE(addresses_->refresh());

  netns_->ip("addr add 2001:db8::5/64 dev eth0 nodad");
  EXPECT_TRUE(changes_to(3));
  EXPECT_THAT(now(), UnorderedElementsAre("192.0.2.1", "192.0.2.2", "2001:db8::5"));

  netns_->ip("addr del 192.0.2.2/24 dev eth0");
  EXPECT_TRUE(changes_to(2));
  EXPECT_THAT(now(), UnorderedElementsAre("192.0.2.1", "2001:db8::5"));

  netns_->ip("link del eth0");
  EXPECT_TRUE(changes_to(0));
}

TEST_F(NetNodeAddresses, TheSameAddressOnTwoInterfacesStaysUntilBothAreGone) {
  netns_->ip_batch(
      "link add eth1 type veth peer name beyond1\nlink set beyond1 up\nlink set eth1 up\n"
      "addr add 192.0.2.1/24 dev eth1\naddr del 192.0.2.1/24 dev eth0\n");
  addresses_->refresh();
  EXPECT_THAT(now(), ElementsAre("192.0.2.1"));
  netns_->ip("addr del 192.0.2.1/24 dev eth1");
  EXPECT_TRUE(addresses_->refresh());
  EXPECT_THAT(now(), ElementsAre());
}

TEST_F(NetNodeAddresses, TheSameAddressInTwoNetworksStaysUntilBothAreGone) {
  netns_->ip_batch("addr add 192.0.2.1/16 dev eth0\naddr del 192.0.2.1/24 dev eth0\n");
  addresses_->refresh();
  EXPECT_THAT(now(), ElementsAre("192.0.2.1"));
  netns_->ip("addr del 192.0.2.1/16 dev eth0");
  EXPECT_TRUE(addresses_->refresh());
  EXPECT_THAT(now(), ElementsAre());
}

TEST_F(NetNodeAddresses, OfAPointToPointLinkAreTheNearEnds) {
  netns_->ip("addr add 198.51.100.1 peer 198.51.100.2 dev eth0");
  netns_->ip("addr add 2001:db8::1 peer 2001:db8::2 dev eth0 nodad");
  EXPECT_TRUE(changes_to(3));
  EXPECT_THAT(now(), UnorderedElementsAre("192.0.2.1", "198.51.100.1", "2001:db8::1"));
}

TEST_F(NetNodeAddresses, WaitForDuplicateDetection) {
  netns_->sysctl("net.ipv6.conf.eth0.accept_dad", "1");
  netns_->sysctl("net.ipv6.conf.eth0.dad_transmits", "1");
  netns_->ip("addr add 2001:db8::7/64 dev eth0");
  // A dump lists it already, as tentative.
  netns_->run([&] {
    EXPECT_THAT(lab::run_command({"ip", "-6", "addr", "show", "dev", "eth0", "tentative"}),
                ::testing::HasSubstr("2001:db8::7"));
    Result<std::unique_ptr<NodeAddresses>> early = NodeAddresses::open();
    ASSERT_TRUE(early) << early.error().message;
    EXPECT_THAT((*early)->addresses(), Not(Contains(ip("2001:db8::7"))));
  });
  EXPECT_TRUE(changes_to(2));
  EXPECT_THAT(now(), Contains("2001:db8::7"));
}

TEST_F(NetNodeAddresses, AreReadAnewWhenMessagesWereLost) {
  const std::vector<std::string> added = netns_->add_addresses("eth0", "10.50.0.1", 3000);
  // The proof that messages were lost: the last column but one of the socket's line.
  bool lost = false;
  netns_->run([&] {
    std::ifstream table("/proc/thread-self/net/netlink");
    std::string line;
    std::getline(table, line);
    while (std::getline(table, line)) {
      std::istringstream words(line);
      std::vector<std::string> columns;
      for (std::string word; words >> word;) {
        columns.push_back(word);
      }
      lost = lost || (columns.size() >= 10 && columns[8] != "0");
    }
  });
  ASSERT_TRUE(lost) << "3000 messages fit into the receive buffer: the test proves nothing";
  EXPECT_TRUE(addresses_->refresh());
  EXPECT_EQ(now().size(), 3001u);
  EXPECT_FALSE(addresses_->refresh());
  netns_->ip("addr del 10.50.0.1/32 dev eth0");
  EXPECT_TRUE(addresses_->refresh());
  EXPECT_EQ(now().size(), 3000u);
}

class NetPit : public Net {
 protected:
  void SetUp() override {
    HEADGATE_REQUIRES_ROOT_KERNEL();
    netns_.emplace();
  }
  void open() {
    Result<std::unique_ptr<Pit>> opened = Pit::open(netns_->fd());
    ASSERT_TRUE(opened) << opened.error().message;
    pit_ = std::move(*opened);
  }
  std::optional<lab::Namespace> netns_;
  std::unique_ptr<Pit> pit_;
};

TEST_F(NetPit, ListensOnLoopbackAboveTheLocalPortRange) {
  ASSERT_NO_FATAL_FAILURE(open());
  EXPECT_GE(pit_->ipv4_port(), 61000);
  EXPECT_GE(pit_->ipv6_port(), 61000);
  auto diag = SockDiag::open(netns_->fd());
  ASSERT_TRUE(diag);
  const auto found = (*diag)->listeners(IPPROTO_TCP, 0);
  ASSERT_TRUE(found);
  EXPECT_THAT(*found,
              UnorderedElementsAre(ListensOn("127.0.0.1", pit_->ipv4_port(), IPPROTO_TCP, false),
                                   ListensOn("::1", pit_->ipv6_port(), IPPROTO_TCP, true)));
  for (const int fd : {pit_->ipv4_fd(), pit_->ipv6_fd()}) {
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  }
  pit_.reset();
  EXPECT_TRUE((*diag)->listeners(IPPROTO_TCP, 0)->empty());
}

TEST_F(NetPit, SwallowsSyns) {
  ASSERT_NO_FATAL_FAILURE(open());
  for (const auto& [address, port] : {std::pair{std::string("127.0.0.1"), pit_->ipv4_port()},
                                      std::pair{std::string("::1"), pit_->ipv6_port()}}) {
    const ConnectReport report = connect_many(
        *netns_, {.attempts = 20, .address = address, .port = port, .timeout = milliseconds(1500)});
    EXPECT_EQ(report.count(Outcome::kTimedOut), 20u) << address << ": " << report.describe();
  }
  // No state was made: neither a half-open nor a waiting connection.
  auto diag = SockDiag::open(netns_->fd());
  ASSERT_TRUE(diag);
  EXPECT_EQ((*diag)->live_connections(pit_->ipv4_port(), nullptr).value_or(9), 0u);
  EXPECT_EQ(netns_->command({"ss", "-Htn", "state", "syn-recv"}), "");
}

TEST_F(NetPit, AnswersStraysByReset) {
  ASSERT_NO_FATAL_FAILURE(open());
  for (const char* cookies : {"0", "1", "2"}) {
    netns_->sysctl("net.ipv4.tcp_syncookies", cookies);
    std::uint16_t source_port = 50000;
    for (const auto& [address, port] : {std::pair{std::string("127.0.0.1"), pit_->ipv4_port()},
                                        std::pair{std::string("::1"), pit_->ipv6_port()}}) {
      Segment segment{.source = address, .destination = address, .destination_port = port};
      const auto answer = [&](int flags, const char* payload, milliseconds wait) {
        segment.source_port = ++source_port;
        segment.flags = static_cast<std::uint8_t>(flags);
        segment.payload = payload;
        return send_segment(*netns_, segment, wait) & Segment::kRst;
      };
      const milliseconds wait(1000);
      EXPECT_NE(answer(Segment::kAck, "", wait), 0) << address;
      EXPECT_NE(answer(Segment::kAck, "data", wait), 0) << address;
      EXPECT_NE(answer(Segment::kPsh | Segment::kAck, "data", wait), 0) << address;
      EXPECT_NE(answer(Segment::kFin | Segment::kAck, "", wait), 0) << address;
      EXPECT_NE(answer(Segment::kSyn | Segment::kAck, "", wait), 0) << address;
      EXPECT_EQ(answer(Segment::kSyn, "", milliseconds(50)), 0) << address;
      EXPECT_EQ(answer(Segment::kSyn, "fast open", milliseconds(50)), 0) << address;
    }
  }
}

TEST_F(NetPit, ItsFilterIsLocked) {
  ASSERT_NO_FATAL_FAILURE(open());
  for (const int fd : {pit_->ipv4_fd(), pit_->ipv6_fd()}) {
    const int none = 0;
    EXPECT_EQ(::setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof(none)), -1);
    EXPECT_EQ(errno, EPERM);
  }
}

TEST_F(NetPit, TakesAPortThatIsFree) {
  lab::ServerThread four(*netns_, {.address = "0.0.0.0", .port = 61000});
  lab::ServerThread dual(*netns_, {.address = "::", .port = 61001});
  ASSERT_NO_FATAL_FAILURE(open());
  EXPECT_EQ(pit_->ipv4_port(), 61002);
  EXPECT_EQ(pit_->ipv6_port(), 61000);
  Result<std::unique_ptr<Pit>> second = Pit::open(netns_->fd());
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_NE((*second)->ipv4_port(), pit_->ipv4_port());
}

TEST_F(NetPit, KeepsOutOfAWiderLocalPortRange) {
  netns_->sysctl("net.ipv4.ip_local_port_range", "32768 62000");
  ASSERT_NO_FATAL_FAILURE(open());
  EXPECT_EQ(pit_->ipv4_port(), 62001);
  netns_->sysctl("net.ipv4.ip_local_port_range", "20000 65535");
  ASSERT_NO_FATAL_FAILURE(open());
  EXPECT_LT(pit_->ipv4_port(), 20000);
  netns_->sysctl("net.ipv4.ip_local_port_range", "1024 65535");
  ASSERT_NO_FATAL_FAILURE(open());
  EXPECT_GE(pit_->ipv4_port(), 61000);
}

TEST_F(NetPit, OpensBeforeLoopbackHasItsAddresses) {
  netns_->ip("addr flush dev lo");
  ASSERT_NO_FATAL_FAILURE(open());
  EXPECT_GE(pit_->ipv4_fd(), 0);
  EXPECT_GE(pit_->ipv6_fd(), 0);
}

TEST_F(NetPit, DoesWithoutIpv6) {
  netns_->sysctl("net.ipv6.conf.all.disable_ipv6", "1");
  ASSERT_NO_FATAL_FAILURE(open());
  EXPECT_GE(pit_->ipv4_fd(), 0);
}

}  // namespace
}  // namespace headgate
