// SPDX-License-Identifier: Apache-2.0
// The agent is killed, hangs, comes back: the lease opens the gate, the pins keep it, and there is
// never more than one of ours on a hook.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <thread>

#include <gtest/gtest.h>

#include "tests/netns/gate_lab.h"

namespace headgate {
namespace {

using lab::connect_many;
using lab::ConnectOptions;
using lab::ConnectReport;
using lab::GateLab;
using lab::links_on;
using lab::Outcome;
using lab::Pair;
using lab::Port;
using lab::ServerProcess;
using lab::ServerThread;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// gate_holder as a process that can be killed.
class Holder {
 public:
  Holder(std::vector<std::string> arguments) : arguments_(std::move(arguments)) {}
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  ~Holder() { kill(); }

  /// Returns what it says when everything is attached: "adopted TARGET SLOT" or "fresh ...".
  std::string start() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
      throw lab::SetupError("pipe");
    }
    const UniqueFd read_end(ends[0]);
    UniqueFd write_end(ends[1]);
    std::vector<char*> argv = {const_cast<char*>(HEADGATE_GATE_HOLDER)};
    for (std::string& argument : arguments_) {
      argv.push_back(argument.data());
    }
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDOUT_FILENO);
    const int error =
        ::posix_spawn(&pid_, HEADGATE_GATE_HOLDER, &actions, nullptr, argv.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
      throw lab::SetupError(std::string("spawn: ") + std::strerror(error));
    }
    write_end.reset();
    std::string line;
    for (char c = 0; ::read(read_end.get(), &c, 1) == 1 && c != '\n';) {
      line += c;
    }
    return line;
  }
  void kill() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      (void)::waitpid(pid_, nullptr, 0);
      pid_ = -1;
    }
  }

 private:
  std::vector<std::string> arguments_;
  pid_t pid_ = -1;
};

class Restart : public ::testing::Test {
 protected:
  void SetUp() override { HEADGATE_REQUIRES_ROOT_KERNEL(); }
};

/// Cases F16, F17: killed ten times under load at admit 0. Not one connection gets in, and one
/// link of ours is on the namespace, one on the cgroup.
TEST_F(Restart, TenKillsUnderLoadAdmitNobodyAndLeaveOneLink) {
  HEADGATE_REQUIRES(lab::missing_for_sock_ops());
  const test::TestPins pins;
  const Pair net;
  const lab::Cgroup cgroup("restart");
  ServerProcess server(net.server, {}, &cgroup);
  server.start();
  Holder holder({pins->root(), net.server.path(), std::to_string(server.port()), "5000",
                 lab::unified_root(), cgroup.path()});
  EXPECT_EQ(holder.start(), "fresh 0 0");
  struct stat status {};
  ASSERT_EQ(::stat(cgroup.v2_directory().c_str(), &status), 0);
  std::atomic<bool> done{false};
  ConnectReport report;
  std::thread load([&] {
    report = connect_many(net.client, {.attempts = 200'000,
                                       .address = net.at_server().ipv4,
                                       .port = server.port(),
                                       .per_second = 2000,
                                       .stop = [&] { return done.load(); }});
  });
  for (int round = 0; round < 10; ++round) {
    std::this_thread::sleep_for(milliseconds(50));
    holder.kill();
    EXPECT_EQ(holder.start(), "adopted 0 0") << round;
    EXPECT_EQ(links_on(BPF_LINK_TYPE_NETNS, net.server.inode()).size(), 1U) << round;
    EXPECT_EQ(links_on(BPF_LINK_TYPE_CGROUP, status.st_ino).size(), 1U) << round;
  }
  done = true;
  load.join();
  EXPECT_GT(report.attempts.size(), 500U);
  EXPECT_EQ(report.count(Outcome::kRefused), report.attempts.size()) << report.describe();
  EXPECT_EQ(server.accepted(), 0U);
}

/// Case F18
TEST_F(Restart, KilledAgentLetsTrafficFlowWithinTheLease) {
  constexpr milliseconds kLease(1000);
  const test::TestPins pins;
  const Pair net;
  ServerThread server(net.server, {});
  server.start();
  Holder holder({pins->root(), net.server.path(), std::to_string(server.port()), "1000"});
  EXPECT_EQ(holder.start(), "fresh 0 0");
  std::optional<Instant> killed;
  std::thread killer([&] {
    std::this_thread::sleep_for(milliseconds(500));
    holder.kill();
    killed = lab::now();
  });
  const Instant from = lab::now();
  const ConnectReport report = connect_many(net.client, {.attempts = 1100,
                                                         .address = net.at_server().ipv4,
                                                         .port = server.port(),
                                                         .per_second = 500});
  killer.join();
  const Duration killed_at = *killed - from;
  Duration first = Duration::max();
  for (const lab::Attempt& attempt : report.attempts) {
    if (attempt.outcome == Outcome::kConnected) {
      first = std::min<Duration>(first, attempt.began + attempt.latency);
    }
    if (attempt.began > killed_at + kLease + milliseconds(50)) {
      EXPECT_EQ(attempt.outcome, Outcome::kConnected) << "after the lease";
    }
  }
  EXPECT_GT(first, killed_at + kLease - kLease / 4) << "opened before the lease had run out";
  EXPECT_LT(first, killed_at + kLease + milliseconds(500));
}

TEST_F(Restart, ProgramIsReplacedInPlaceUnderLoad) {
  const Pair net;
  ServerThread server(net.server, {});
  server.start();
  GateLab gates;
  Port port = gates.protect(net.server, server.port());
  port.admit(0);
  const auto before = links_on(BPF_LINK_TYPE_NETNS, net.server.inode());
  ASSERT_EQ(before.size(), 1U);
  std::atomic<bool> done{false};
  ConnectReport report;
  std::thread load([&] {
    report = connect_many(net.client, {.attempts = 200'000,
                                       .address = net.at_server().ipv4,
                                       .port = server.port(),
                                       .per_second = 2000,
                                       .stop = [&] { return done.load(); }});
  });
  std::uint32_t last_program = 0;
  for (int round = 0; round < 20; ++round) {
    SkLookupHook successor(*gates.maps, *gates.pins);
    GateLab::must(successor.hold(net.server.inode(), net.server.fd()));
    EXPECT_EQ(successor.status(net.server.inode()).mode, "adopted");
    EXPECT_NE(successor.status(net.server.inode()).program_id, last_program);
    last_program = successor.status(net.server.inode()).program_id;
    EXPECT_EQ(links_on(BPF_LINK_TYPE_NETNS, net.server.inode()), before);
    std::this_thread::sleep_for(milliseconds(20));
  }
  done = true;
  load.join();
  EXPECT_GT(report.attempts.size(), 200U);
  EXPECT_EQ(report.count(Outcome::kRefused), report.attempts.size()) << report.describe();
}

TEST_F(Restart, ReleasedGateIsGoneAtOnce) {
  const Pair net;
  ServerThread server(net.server, {});
  server.start();
  GateLab gates;
  Port port = gates.protect(net.server, server.port());
  gates.hold(net.server);  // a second holder, as in a reload
  port.admit(0);
  const ConnectOptions options{
      .attempts = 50, .address = net.at_server().ipv4, .port = server.port()};
  gates.gate.release(net.server.inode());
  EXPECT_EQ(connect_many(net.client, options).count(Outcome::kRefused), 50U);
  gates.gate.release(net.server.inode());
  EXPECT_EQ(connect_many(net.client, options).count(Outcome::kConnected), 50U);
  EXPECT_TRUE(links_on(BPF_LINK_TYPE_NETNS, net.server.inode()).empty());
  EXPECT_TRUE(std::filesystem::is_empty(gates.pins->links_directory()));
}

/// The link of a dead namespace stays pinned and hangs on nothing.
TEST_F(Restart, B12_LinkOfADeadNamespaceIsCollected) {
  GateLab gates;
  const lab::Namespace alive;
  gates.hold(alive);
  std::string zombie;
  {
    const lab::Namespace dying;
    const test::TestPins other_agent;
    SkLookupHook hook(*gates.maps, *gates.pins);
    GateLab::must(hook.hold(dying.inode(), dying.fd()));
    zombie = gates.pins->link_path("sk_lookup-" + std::to_string(dying.inode()));
  }
  ASSERT_TRUE(std::filesystem::exists(zombie));
  EXPECT_TRUE(lab::eventually([&] {
    const UniqueFd link(::bpf_obj_get(zombie.c_str()));
    bpf_link_info info{};
    std::uint32_t bytes = sizeof(info);
    return link && ::bpf_obj_get_info_by_fd(link.get(), &info, &bytes) == 0 &&
           info.netns.netns_ino == 0;
  }));
  std::vector<std::string> keep;
  gates.gate.add_pin_names(keep);
  EXPECT_EQ(remove_orphan_links(*gates.pins, keep), 1U);
  EXPECT_FALSE(std::filesystem::exists(zombie));
  EXPECT_EQ(links_on(BPF_LINK_TYPE_NETNS, alive.inode()).size(), 1U);
}

/// A new namespace may get the inode of a dead one: a pin of that name need not be a link of it.
TEST_F(Restart, PinOfAnotherNamespaceIsReplacedNotAdopted) {
  const Pair net;
  ServerThread server(net.server, {});
  server.start();
  GateLab gates;
  const lab::Namespace other;  // alive: the kernel would let the link be updated
  auto program = load_program(Program::kSkLookup, {other.inode()}, *gates.maps);
  ASSERT_TRUE(program) << program.error().message;
  auto link = Link::attach(*program, other.fd(), BPF_SK_LOOKUP, other.inode(), *gates.pins,
                           "sk_lookup-" + std::to_string(net.server.inode()));
  ASSERT_TRUE(link) << link.error().message;
  Port port = gates.protect(net.server, server.port());
  EXPECT_EQ(gates.gate.status(net.server.inode()).mode, "attached");
  port.admit(0);
  EXPECT_EQ(connect_many(net.client,
                         {.attempts = 50, .address = net.at_server().ipv4, .port = server.port()})
                .count(Outcome::kRefused),
            50U);
}

/// Without a BPF file system nothing outlives the agent: the gate opens, it does not stay shut.
TEST_F(Restart, UnpinnedGateGoesWithItsAgent) {
  const Pair net;
  ServerThread server(net.server, {});
  server.start();
  const PinDirectory pins = PinDirectory::prepare("");
  auto maps = KernelMaps::open(pins);
  ASSERT_TRUE(maps) << maps.error().message;
  {
    SkLookupHook hook(**maps, pins);
    GateLab::must(hook.hold(net.server.inode(), net.server.fd()));
    EXPECT_EQ(links_on(BPF_LINK_TYPE_NETNS, net.server.inode()).size(), 1U);
  }
  EXPECT_TRUE(
      lab::eventually([&] { return links_on(BPF_LINK_TYPE_NETNS, net.server.inode()).empty(); }));
}

TEST_F(Restart, SecondAgentStandsByUntilTheFirstIsGone) {
  const test::TestPins pins;
  PinDirectory first = PinDirectory::prepare(pins->root());
  PinDirectory second = PinDirectory::prepare(pins->root());
  EXPECT_TRUE(first.try_lock().value());
  EXPECT_FALSE(second.try_lock().value());
  first = PinDirectory();
  EXPECT_TRUE(second.try_lock().value());
}

}  // namespace
}  // namespace headgate
