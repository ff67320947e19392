// SPDX-License-Identifier: Apache-2.0
// The gate at a network card, on real connections. The card is a veth that the default route of its
// namespace leads through; what must not have XDP is a veth that it does not.
#include <linux/bpf.h>
#include <linux/if_link.h>

#include <array>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <gtest/gtest.h>

#include "agent/dataplane/devices.h"
#include "tests/netns/gate_lab.h"

namespace headgate {
namespace {

using lab::connect_many;
using lab::ConnectOptions;
using lab::ConnectReport;
using lab::GateLab;
using lab::index_of;
using lab::Outcome;
using lab::Pair;
using lab::Port;
using lab::ServerThread;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// A program that passes everything, as somebody else might have one.
UniqueFd trivial_xdp(const char* name) {
  const bpf_insn code[] = {{BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, XDP_PASS},
                           {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
  return UniqueFd(::bpf_prog_load(BPF_PROG_TYPE_XDP, name, "GPL", code, 2, nullptr));
}

struct Attached {
  std::uint32_t program_id = 0;
  std::uint8_t mode = 0;
};
Attached xdp_on(const lab::Namespace& netns, const std::string& device) {
  const int ifindex = index_of(netns, device);
  return netns.get<Attached>([&] {
    bpf_xdp_query_opts options{};
    options.sz = sizeof(options);
    (void)::bpf_xdp_query(ifindex, 0, &options);
    return Attached{options.prog_id, options.attach_mode};
  });
}

class Xdp : public ::testing::Test {
 protected:
  void SetUp() override {
    HEADGATE_REQUIRES_ROOT_KERNEL();
    gates.emplace("");
    net.emplace();
    card = net->at_server().device;
    net->server.ip("route add default via " + net->at_client().ipv4);
    // The other end answers XDP_TX of a veth only where it has a program itself (veth_xdp_flush).
    peer_program = trivial_xdp("peer");
    peer(XDP_FLAGS_DRV_MODE);
    server.emplace(net->server, lab::ServerOptions{});
    server->start();
    port.emplace(gates->protect_at(net->server, net->at_server().ipv4, server->port()));
  }
  void TearDown() override {
    if (gates) {
      gates->xdp.detach_all();
    }
    port.reset();
    server.reset();
    net.reset();
    gates.reset();
  }
  void peer(std::uint32_t flags) {
    const int ifindex = index_of(net->client, net->at_client().device);
    net->client.run(
        [&] { ASSERT_EQ(::bpf_xdp_attach(ifindex, peer_program.get(), flags, nullptr), 0); });
  }
  /// Takes native mode from the card: a frame of this MTU does not fit into a page.
  void large_mtu() {
    net->client.ip("link set " + net->at_client().device + " mtu 8901");
    net->server.ip("link set " + card + " mtu 8901");
  }
  void no_peer_program() {
    const int ifindex = index_of(net->client, net->at_client().device);
    net->client.run([&] { ASSERT_EQ(::bpf_xdp_detach(ifindex, XDP_FLAGS_DRV_MODE, nullptr), 0); });
  }
  void attach() { gates->judge_at_card(*port, net->server, card); }
  [[nodiscard]] HookStatus status() const {
    const auto all = gates->xdp.status();
    return all.empty() ? HookStatus{} : all.front();
  }
  [[nodiscard]] ConnectOptions to_server(std::uint64_t attempts) const {
    return {.attempts = attempts, .address = net->at_server().ipv4, .port = server->port()};
  }
  void expect_reset_share_and_drop() {
    port->admit(0);
    ConnectReport report = connect_many(net->client, to_server(200));
    EXPECT_EQ(report.count(Outcome::kRefused), 200U) << report.describe();
    EXPECT_EQ(port->counters().tries, 200U) << "all at the card";

    port->admit(0.5);
    report = connect_many(net->client, to_server(1000));
    EXPECT_NEAR(static_cast<double>(report.count(Outcome::kConnected)), 500, lab::tolerance())
        << report.describe();
    EXPECT_EQ(report.count(Outcome::kConnected) + report.count(Outcome::kRefused), 1000U);
    EXPECT_EQ(port->counters().offered, 1200U) << "none twice";
    EXPECT_EQ(port->counters().admitted, server->accepted());

    port->refuse_by(HEADGATE_ACTION_DROP);
    port->admit(0);
    ConnectOptions options = to_server(20);
    options.parallel = 20;
    options.timeout = milliseconds(1500);
    report = connect_many(net->client, options);
    EXPECT_EQ(report.count(Outcome::kTimedOut), 20U) << report.describe();
    EXPECT_EQ(port->counters().dropped, 20U);

    port->open();
    report = connect_many(net->client, to_server(50));
    EXPECT_EQ(report.count(Outcome::kConnected), 50U) << report.describe();
  }

  std::optional<GateLab> gates;
  std::optional<Pair> net;
  std::string card;
  UniqueFd peer_program;
  std::optional<ServerThread> server;
  std::optional<Port> port;
};

TEST_F(Xdp, NativeResetsDropsAndAdmitsWhatItSays) {
  attach();
  EXPECT_EQ(status().mode, "native");
  EXPECT_EQ(status().problem, "");
  EXPECT_EQ(xdp_on(net->server, card).mode, XDP_ATTACHED_DRV);
  expect_reset_share_and_drop();
}

/// Case F12: native is refused for the MTU: generic, with errno and remedy, and the MTU stays.
TEST_F(Xdp, TooLargeAnMtuIsGeneric_F12) {
  no_peer_program();
  large_mtu();
  attach();
  EXPECT_EQ(status().mode, "generic");
  EXPECT_EQ(status().sys_errno, ERANGE);
  EXPECT_NE(status().problem.find("MTU"), std::string::npos) << status().problem;
  EXPECT_EQ(xdp_on(net->server, card).mode, XDP_ATTACHED_SKB);
  EXPECT_EQ(gates->xdp.attach_errors().at(ERANGE), 1U);
  EXPECT_NE(net->server.command({"ip", "link", "show", card}).find("mtu 8901"), std::string::npos);
  expect_reset_share_and_drop();
}

/// Cases F12, F13: the driver has none (a bridge stands for it, EOPNOTSUPP).
TEST_F(Xdp, DriverWithoutNativeModeIsGeneric_F13) {
  net->server.ip("link add plain type bridge");
  gates->judge_at_card(*port, net->server, "plain");
  EXPECT_EQ(status().mode, "generic");
  EXPECT_EQ(status().sys_errno, EOPNOTSUPP);
  EXPECT_NE(status().problem.find("disable it first"), std::string::npos) << status().problem;
}

/// Case F15: a foreign program stays, is named by its id, and tc judges in its place.
TEST_F(Xdp, ForeignProgramStaysAndTcStandsIn_F15) {
  const UniqueFd foreign = trivial_xdp("foreign");
  const int ifindex = index_of(net->server, card);
  for (const std::uint32_t mode : {XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE}) {
    net->server.run([&] { ASSERT_EQ(::bpf_xdp_attach(ifindex, foreign.get(), mode, nullptr), 0); });
    const Attached before = xdp_on(net->server, card);
    ASSERT_NE(before.program_id, 0U);
    attach();
    EXPECT_EQ(status().mode, "tc");
    EXPECT_EQ(status().sys_errno, EBUSY);
    EXPECT_NE(status().problem.find("program " + std::to_string(before.program_id)),
              std::string::npos)
        << status().problem;
    EXPECT_EQ(xdp_on(net->server, card).program_id, before.program_id);
    port->admit(0);
    const std::uint64_t tries = port->counters().tries;
    const ConnectReport report = connect_many(net->client, to_server(50));
    EXPECT_EQ(report.count(Outcome::kRefused), 50U) << report.describe();
    EXPECT_EQ(port->counters().tries - tries, 50U) << "all at tc";
    gates->xdp.detach_all();
    EXPECT_EQ(xdp_on(net->server, card).program_id, before.program_id);
    net->server.run([&] { ASSERT_EQ(::bpf_xdp_detach(ifindex, mode, nullptr), 0); });
  }
}

/// It kills segmentation offload towards the pod.
TEST_F(Xdp, PodsVethIsRefused) {
  net->server.ip("route del default");
  attach();
  EXPECT_EQ(status().mode, "off");
  EXPECT_NE(status().problem.find("pod's veth"), std::string::npos) << status().problem;
  EXPECT_EQ(xdp_on(net->server, card).program_id, 0U);
  EXPECT_FALSE(gates->xdp.serves(net->server.inode()));
}

/// Case F20: the names that there are stand in the message; auto needs none.
TEST_F(Xdp, UnknownInterfaceNamesThoseThatThereAre_F20) {
  gates->judge_at_card(*port, net->server, "enp1s0");
  EXPECT_EQ(status().mode, "off");
  EXPECT_NE(status().problem.find(card + " (default route)"), std::string::npos)
      << status().problem;
  gates->xdp.use({"auto"});
  EXPECT_EQ(status().where, card);
  EXPECT_EQ(status().mode, "native");
}

TEST_F(Xdp, InterfaceThatComesLaterIsTaken) {
  gates->judge_at_card(*port, net->server, "late0");
  EXPECT_EQ(status().mode, "off");
  net->server.ip("link add late0 type bridge");
  gates->xdp.refresh();
  EXPECT_EQ(status().mode, "generic");
  net->server.ip("link del late0");
  gates->xdp.refresh();
  EXPECT_EQ(status().mode, "off");
}

/// Case F17
TEST_F(Xdp, TenAgentsOneAfterTheOtherLeaveOneProgram_F17) {
  for (const bool generic : {false, true}) {
    if (generic) {
      gates->xdp.detach_all();
      no_peer_program();
      large_mtu();
    }
    attach();
    port->admit(0);
    std::uint32_t last = 0;
    for (int round = 0; round < 10; ++round) {
      XdpHook next(*gates->maps, *gates->pins);  // the one before is forgotten, as by kill -9
      next.set_host(GateLab::duplicate(net->server), net->server.inode());
      next.use({card});
      ASSERT_EQ(next.status().size(), 1U);
      EXPECT_EQ(next.status().front().mode, generic ? "generic" : "native");
      const Attached now = xdp_on(net->server, card);
      EXPECT_EQ(now.program_id, next.status().front().program_id);
      EXPECT_NE(now.program_id, last);
      last = now.program_id;
      EXPECT_EQ(connect_many(net->client, to_server(20)).count(Outcome::kRefused), 20U);
      if (round == 9) {
        next.detach_all();
      }
    }
    EXPECT_EQ(xdp_on(net->server, card).program_id, 0U);
  }
}

TEST_F(Xdp, InterfaceThatIsNoLongerConfiguredIsLetGo) {
  attach();
  ASSERT_NE(xdp_on(net->server, card).program_id, 0U);
  gates->xdp.use({});
  EXPECT_EQ(xdp_on(net->server, card).program_id, 0U);
  EXPECT_TRUE(gates->xdp.status().empty());
}

/// Each datagram is judged once, at the card.
TEST_F(Xdp, DatagramsAreJudgedOnce) {
  ServerThread sink(net->server, {.udp = true});
  sink.start();
  Port udp = gates->protect(net->server, sink.port(), IPPROTO_UDP);
  gates->judge_at_card(udp, net->server, card);
  udp.admit(0.5);
  const auto report = lab::send_datagrams(net->client, {.datagrams = 2000,
                                                        .address = net->at_server().ipv4,
                                                        .port = sink.port(),
                                                        .per_second = 4000});
  EXPECT_EQ(report.sent, 2000U);
  EXPECT_TRUE(lab::eventually([&] { return udp.counters().offered == 2000; }))
      << udp.counters().offered;
  EXPECT_NEAR(static_cast<double>(udp.counters().admitted), 1000, lab::tolerance());
  EXPECT_TRUE(lab::eventually([&] { return sink.datagrams() == udp.counters().admitted; }))
      << sink.datagrams();
  EXPECT_EQ(udp.counters().repeats, udp.counters().admitted);
}

}  // namespace
}  // namespace headgate
