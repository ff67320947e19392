// SPDX-License-Identifier: Apache-2.0
// The gate at tc of the host's end of a pod's veth, on real connections: by a tcx link and by a
// filter of a clsact qdisc.
#include <linux/ethtool.h>
#include <linux/pkt_cls.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <gtest/gtest.h>

#include "agent/dataplane/devices.h"
#include "tests/netns/gate_lab.h"

namespace headgate {
namespace {

using lab::Confirm;
using lab::connect_many;
using lab::ConnectOptions;
using lab::ConnectReport;
using lab::GateLab;
using lab::index_of;
using lab::Outcome;
using lab::Port;
using lab::ServerMode;
using lab::ServerThread;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// Lines of `tc filter show` and `tc qdisc show` of a device.
std::string tc_text(const lab::Namespace& netns, const std::string& device) {
  std::string out = netns.command({"tc", "qdisc", "show", "dev", device});
  for (const char* side : {"ingress", "egress"}) {
    out += netns.command({"tc", "filter", "show", "dev", device, side});
  }
  return out;
}

std::size_t count_of(const std::string& text, const std::string& word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    ++count;
  }
  return count;
}

/// Programs of ours at tcx egress of a device.
std::size_t tcx_programs(const lab::Namespace& netns, const std::string& device) {
  const int ifindex = index_of(netns, device);
  return netns.get<std::size_t>([&] {
    std::array<__u32, 16> ids{};
    __u32 count = ids.size();
    __u32 flags = 0;
    return ::bpf_prog_query(ifindex, static_cast<bpf_attach_type>(kTcxEgress), 0, &flags,
                            ids.data(), &count) == 0
               ? std::size_t{count}
               : 0;
  });
}

/// A filter of somebody else, which says `verdict` to everything; makes the clsact it needs.
void foreign_filter(const lab::Namespace& netns, const std::string& device,
                    bpf_tc_attach_point side, std::uint32_t priority, int verdict) {
  const bpf_insn code[] = {{BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, verdict},
                           {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
  const UniqueFd program(
      ::bpf_prog_load(BPF_PROG_TYPE_SCHED_CLS, "foreign", "GPL", code, 2, nullptr));
  const int ifindex = index_of(netns, device);
  const int err = netns.get<int>([&] {
    bpf_tc_hook hook{};
    hook.sz = sizeof(hook);
    hook.ifindex = ifindex;
    hook.attach_point = side;
    (void)::bpf_tc_hook_create(&hook);
    bpf_tc_opts options{};
    options.sz = sizeof(options);
    options.prog_fd = program.get();
    options.priority = priority;
    options.handle = 1;
    return ::bpf_tc_attach(&hook, &options);
  });
  if (err != 0) {
    throw lab::SetupError("foreign filter: " + std::to_string(err));
  }
}

/// In the namespace of the calling thread; linux/ethtool.h.
void set_checksum_offload(const char* device, bool on) {
  const UniqueFd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  for (const __u32 command : {__u32{ETHTOOL_STXCSUM}, __u32{ETHTOOL_SRXCSUM}}) {
    ethtool_value value{command, on ? 1U : 0U};
    ifreq request{};
    std::strncpy(request.ifr_name, device, sizeof(request.ifr_name) - 1);
    request.ifr_data = reinterpret_cast<char*>(&value);  // NOLINT: the interface of the kernel
    if (::ioctl(any.get(), SIOCETHTOOL, &request) != 0) {
      throw lab::SetupError(std::string("SIOCETHTOOL: ") + std::strerror(errno));
    }
  }
}

/// This kernel has tcx (6.6): asked of the loopback device of a namespace.
bool has_tcx() {
  const lab::Namespace netns;
  return netns.get<bool>([] {
    std::array<__u32, 1> ids{};
    __u32 count = ids.size();
    __u32 flags = 0;
    return ::bpf_prog_query(1, static_cast<bpf_attach_type>(kTcxEgress), 0, &flags, ids.data(),
                            &count) == 0;
  });
}

class Tc : public ::testing::TestWithParam<TcAttachment::Way> {
 protected:
  void SetUp() override {
    HEADGATE_REQUIRES_ROOT_KERNEL();
    if (GetParam() == TcAttachment::Way::kBest && !has_tcx()) {
      GTEST_SKIP() << "this kernel has no tcx";
    }
    gates.emplace("");
    hook.emplace(*gates->maps, *gates->pins, GetParam());
    node.emplace();
    pod = &node->add_pod();
    client = &node->add_bridged_pod();
    server.emplace(pod->netns, lab::ServerOptions{});
    server->start();
    port.emplace(gates->protect(pod->netns, server->port()));
  }
  void TearDown() override {
    if (hook) {
      hook->detach_all();
    }
    port.reset();
    server.reset();
    node.reset();
    hook.reset();
    gates.reset();
  }
  void attach() {
    hook->set_host(GateLab::duplicate(node->netns()));
    const auto held = hook->hold(pod->netns.inode(), pod->netns.fd());
    ASSERT_TRUE(held) << held.error().message;
    port->policy.flags |= HEADGATE_JUDGE_EARLY;
    port->publish();
  }
  [[nodiscard]] ConnectOptions to_server(std::uint64_t attempts, bool ipv6 = false) const {
    return {.attempts = attempts, .address = ipv6 ? pod->ipv6 : pod->ipv4, .port = server->port()};
  }
  [[nodiscard]] std::string on_veth() const { return tc_text(node->netns(), pod->node_device); }
  [[nodiscard]] std::size_t programs() const {
    return tcx_programs(node->netns(), pod->node_device) + count_of(on_veth(), "headgate_tc_egr:[");
  }

  std::optional<GateLab> gates;
  std::optional<TcHook> hook;
  std::optional<lab::Node> node;
  lab::Node::Pod* pod = nullptr;
  lab::Node::Pod* client = nullptr;
  std::optional<ServerThread> server;
  std::optional<Port> port;
};
INSTANTIATE_TEST_SUITE_P(Ways, Tc,
                         ::testing::Values(TcAttachment::Way::kBest, TcAttachment::Way::kClsact),
                         [](const auto& way) {
                           return way.param == TcAttachment::Way::kBest ? "Tcx" : "Clsact";
                         });

TEST_P(Tc, ResetIsAnsweredByAnRst) {
  attach();
  port->admit(0);
  for (const bool ipv6 : {false, true}) {
    const ConnectReport report = connect_many(client->netns, to_server(500, ipv6));
    EXPECT_EQ(report.count(Outcome::kRefused), 500U) << report.describe();
  }
  // All at tc: what is answered there does not reach the socket's gate, which would count tries.
  EXPECT_EQ(port->counters().tries, 1000U);
  EXPECT_EQ(port->counters().reset, 1000U);
  EXPECT_EQ(server->accepted(), 0U);
  EXPECT_EQ(hook->status(pod->netns.inode()).mode,
            GetParam() == TcAttachment::Way::kBest ? "tcx" : "clsact");
}

/// Checksums of the RST where the client's device finishes none and where it wants all finished.
TEST_P(Tc, ResetIsRightWithChecksumOffloadOnAndOff) {
  attach();
  port->admit(0);
  for (const bool offload : {false, true}) {
    client->netns.run([&] { set_checksum_offload("eth0", offload); });
    for (const bool ipv6 : {false, true}) {
      const ConnectReport report = connect_many(client->netns, to_server(100, ipv6));
      EXPECT_EQ(report.count(Outcome::kRefused), 100U) << offload << report.describe();
    }
  }
}

TEST_P(Tc, ShareIsExactAndNothingIsCountedTwice) {
  attach();
  port->admit(0.3);
  const ConnectReport report = connect_many(client->netns, to_server(2000));
  EXPECT_NEAR(static_cast<double>(report.count(Outcome::kConnected)), 600, lab::tolerance())
      << report.describe();
  EXPECT_EQ(report.count(Outcome::kConnected) + report.count(Outcome::kRefused), 2000U);
  const headgate_counters counted = port->counters();
  EXPECT_EQ(counted.offered, 2000U);
  EXPECT_EQ(counted.admitted, report.count(Outcome::kConnected));
  EXPECT_EQ(counted.reset, report.count(Outcome::kRefused));
  EXPECT_EQ(counted.admitted, server->accepted());
}

TEST_P(Tc, IdleGateIsCountedOnce) {
  attach();
  const ConnectReport report = connect_many(client->netns, to_server(200));
  EXPECT_EQ(report.count(Outcome::kConnected), 200U) << report.describe();
  EXPECT_EQ(port->counters().offered, 200U);
  EXPECT_EQ(port->counters().admitted, 200U);
}

/// An admitted SYN meets the socket's gate twice under SYN cookies.
TEST_P(Tc, SynCookiesAreJudgedOnce) {
  attach();
  pod->netns.sysctl("net.ipv4.tcp_syncookies", "2");
  port->admit(0.5);
  const ConnectReport report = connect_many(client->netns, to_server(1000));
  EXPECT_NEAR(static_cast<double>(report.count(Outcome::kConnected)), 500, lab::tolerance())
      << report.describe();
  EXPECT_EQ(report.count(Outcome::kResetAfterConnect), 0U);
  EXPECT_EQ(port->counters().offered, 1000U);
}

/// Silence holds: no retransmit gets in, and none is counted.
TEST_P(Tc, DropIsStickyAndCountsAttempts) {
  attach();
  port->refuse_by(HEADGATE_ACTION_DROP);
  port->admit(0.5);
  ConnectOptions options = to_server(400);
  options.parallel = 400;
  options.timeout = milliseconds(3500);
  const ConnectReport report = connect_many(client->netns, options);
  EXPECT_EQ(report.count(Outcome::kConnected) + report.count(Outcome::kTimedOut), 400U)
      << report.describe();
  EXPECT_NEAR(static_cast<double>(report.count(Outcome::kConnected)), 200, 5 * 10);
  EXPECT_LT(report.latency(Outcome::kConnected, 1), milliseconds(900)) << "came in at a retransmit";
  const headgate_counters counted = port->counters();
  EXPECT_EQ(counted.offered, 400U);
  EXPECT_EQ(counted.admitted, report.count(Outcome::kConnected));
  EXPECT_EQ(counted.dropped, report.count(Outcome::kTimedOut));
  EXPECT_GE(counted.repeats_refused, 2 * counted.dropped);
}

/// Behind a NodePort: silence would hold a port of the node for each of them, for two minutes.
TEST_P(Tc, MasqueradedClientsGetTheResetInsteadOfSilence) {
  HEADGATE_REQUIRES(lab::missing_for_dnat());
  attach();
  port->refuse_by(HEADGATE_ACTION_DROP);
  port->admit(0, HEADGATE_EXEMPT_NODE);
  GateLab::must(gates->maps->set_exempt(
      HEADGATE_EXEMPT_NODE_SET, {{*parse_prefix(pod->gateway_ipv4), HEADGATE_EXEMPT_KIND_NODE}}));
  ConnectOptions options = to_server(50);
  options.parallel = 50;
  options.timeout = milliseconds(500);
  ConnectReport report = connect_many(client->netns, options);
  EXPECT_EQ(report.count(Outcome::kTimedOut), 50U) << report.describe();
  node->masquerade(pod->ipv4);
  report = connect_many(client->netns, options);
  EXPECT_EQ(report.count(Outcome::kRefused), 50U) << report.describe();
  EXPECT_EQ(port->counters().reset, 50U);
}

/// What was dropped comes in at its next retransmit once the gate opens.
TEST_P(Tc, OpenedGateLetsInWhoWaits) {
  attach();
  port->refuse_by(HEADGATE_ACTION_DROP);
  port->admit(0);
  std::thread opener([&] {
    std::this_thread::sleep_for(milliseconds(1500));
    port->admit(1);
  });
  ConnectOptions options = to_server(50);
  options.parallel = 50;
  options.timeout = seconds(8);
  const ConnectReport report = connect_many(client->netns, options);
  opener.join();
  EXPECT_EQ(report.count(Outcome::kConnected), 50U) << report.describe();
  EXPECT_GT(report.latency(Outcome::kConnected, 0), milliseconds(1400));
  EXPECT_EQ(port->counters().offered, 50U);
}

/// The address behind DNAT is what is judged, and the RST is translated back.
TEST_P(Tc, SeesThePodBehindAService) {
  HEADGATE_REQUIRES(lab::missing_for_dnat());
  attach();
  node->dnat("10.96.0.9", 80, pod->ipv4, server->port());
  port->admit(0);
  const ConnectReport report =
      connect_many(client->netns, {.attempts = 100, .address = "10.96.0.9", .port = 80});
  EXPECT_EQ(report.count(Outcome::kRefused), 100U) << report.describe();
  EXPECT_EQ(port->counters().reset, 100U);
}

/// A connection that is there is not looked at: bulk data passes, and no try is counted.
TEST_P(Tc, EstablishedConnectionsAreLeftAlone) {
  attach();
  ConnectOptions options = to_server(10);
  options.keep_open = true;
  const ConnectReport before = connect_many(client->netns, options);
  ASSERT_EQ(before.count(Outcome::kConnected), 10U) << before.describe();
  port->admit(0);
  const std::uint64_t tries = port->counters().tries;
  std::array<char, 8> echo{};
  for (const UniqueFd& fd : before.open) {
    ASSERT_EQ(::send(fd.get(), "12345678", 8, 0), 8);
    EXPECT_TRUE(lab::eventually(
        [&] { return ::recv(fd.get(), echo.data(), echo.size(), MSG_DONTWAIT) == 8; }));
  }
  EXPECT_EQ(port->counters().tries, tries);
}

/// Case F17: killed and started ten times: one program of ours, and it goes with the last.
TEST_P(Tc, TenAgentsOneAfterTheOtherLeaveOneProgram_F17) {
  attach();
  port->admit(0);
  for (int round = 0; round < 10; ++round) {
    hook.emplace(*gates->maps, *gates->pins,
                 GetParam());  // the one before is forgotten, as by kill
    attach();
    EXPECT_EQ(programs(), 1U) << round << "\n" << on_veth();
    const ConnectReport report = connect_many(client->netns, to_server(20));
    EXPECT_EQ(report.count(Outcome::kRefused), 20U) << report.describe();
  }
  hook->release(pod->netns.inode());
  EXPECT_EQ(programs(), 0U) << on_veth();
  EXPECT_EQ(on_veth().find("clsact"), std::string::npos) << "made by us, left behind";
  EXPECT_EQ(connect_many(client->netns, to_server(20)).count(Outcome::kRefused), 20U);
}

TEST_P(Tc, ForeignFiltersAndQdiscsStayAsTheyAre) {
  node->netns().command({"tc", "qdisc", "replace", "dev", pod->node_device, "root", "handle",
                         "7:", "pfifo", "limit", "500"});
  for (const bpf_tc_attach_point side : {BPF_TC_EGRESS, BPF_TC_INGRESS}) {
    foreign_filter(node->netns(), pod->node_device, side, 1, TC_ACT_UNSPEC);
  }
  // on the very priority that ours would take
  foreign_filter(node->netns(), pod->node_device, BPF_TC_EGRESS, 18503, TC_ACT_UNSPEC);
  const std::string before = on_veth();
  attach();
  port->admit(0);
  EXPECT_EQ(programs(), 1U) << on_veth();
  EXPECT_EQ(connect_many(client->netns, to_server(50)).count(Outcome::kRefused), 50U);
  hook.emplace(*gates->maps, *gates->pins, GetParam());
  attach();
  EXPECT_EQ(programs(), 1U) << on_veth();
  hook->detach_all();
  EXPECT_EQ(on_veth(), before);
}

/// What is let in goes on to the filters behind.
TEST_P(Tc, FilterBehindOursStillRuns) {
  attach();
  foreign_filter(node->netns(), pod->node_device, BPF_TC_EGRESS, 60000, TC_ACT_SHOT);
  ConnectOptions options = to_server(3);
  options.timeout = milliseconds(300);
  EXPECT_EQ(connect_many(client->netns, options).count(Outcome::kTimedOut), 3U);
}

/// A clsact that we have made is not taken away under a filter that has come meanwhile.
TEST_P(Tc, ClsactThatOthersUseStays) {
  attach();
  foreign_filter(node->netns(), pod->node_device, BPF_TC_INGRESS, 5, TC_ACT_UNSPEC);
  hook->detach_all();
  EXPECT_EQ(programs(), 0U);
  EXPECT_NE(on_veth().find("foreign"), std::string::npos) << on_veth();
}

TEST_P(Tc, FiltersOfADeadAgentAreFoundAndTakenAway) {
  attach();
  hook.emplace(*gates->maps, *gates->pins, GetParam());
  hook->set_host(GateLab::duplicate(node->netns()));
  const bool link = GetParam() == TcAttachment::Way::kBest;
  EXPECT_EQ(hook->remove_orphans(), link ? 0U : 1U);
  if (link) {
    EXPECT_EQ(
        remove_orphan_links(*gates->pins, {"sk_lookup-" + std::to_string(pod->netns.inode())}), 1U);
  }
  EXPECT_TRUE(lab::eventually([&] { return programs() == 0; })) << on_veth();
}

TEST_P(Tc, NamespaceWithoutAVethSaysSo) {
  const lab::Namespace alone;
  hook->set_host(GateLab::duplicate(node->netns()));
  const auto held = hook->hold(alone.inode(), alone.fd());
  ASSERT_FALSE(held);
  EXPECT_NE(held.error().message.find("no veth"), std::string::npos) << held.error().message;
  EXPECT_EQ(hook->status(alone.inode()).mode, "off");
  EXPECT_NE(hook->status(alone.inode()).problem, "");
  EXPECT_EQ(hook->attach_errors().at(ENODEV), 1U);
}

/// Two pods have devices of the same numbers: each has its own other end.
TEST_P(Tc, EachPodHasItsOwnHostEnd) {
  lab::Node::Pod& other = node->add_pod();
  for (lab::Node::Pod* each : {pod, &other}) {
    const auto ends = host_ends(each->netns.fd(), node->netns().fd());
    ASSERT_TRUE(ends) << ends.error().message;
    ASSERT_EQ(ends->size(), 1U);
    EXPECT_EQ(ends->front().device, each->node_device);
  }
  const lab::Namespace stranger;
  const auto none = host_ends(pod->netns.fd(), stranger.fd());
  ASSERT_TRUE(none) << none.error().message;
  EXPECT_TRUE(none->empty());
}

}  // namespace
}  // namespace headgate
