// SPDX-License-Identifier: Apache-2.0
// Storm mode and `refuse: drop` as their user meets them: real program, real clients, a pod whose
// veth ends where the agent is.
#include <sched.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/e2e/agent_process.h"
#include "tests/support/net_lab.h"

namespace headgate::e2e {
namespace {

using lab::ConnectOptions;
using lab::ConnectReport;
using lab::Outcome;
using std::chrono::milliseconds;
using std::chrono::seconds;

class Storm : public ::testing::Test {
 protected:
  void SetUp() override {
    HEADGATE_REQUIRES_ROOT_KERNEL();
    node_ = std::make_unique<lab::Node>();
    pod_ = &node_->add_pod();
    client_ = &node_->add_bridged_pod();
    cgroup_ = std::make_unique<lab::Cgroup>("storm");
    lab::ServerOptions options;
    options.port = 8080;
    server_ = std::make_unique<lab::ServerProcess>(pod_->netns, options, cgroup_.get());
    server_->start();
  }
  void TearDown() override {
    if (agent_.running()) {
      (void)agent_.terminate();
    }
    done_.set_value();
    for (std::thread& parent : parents_) {
      parent.join();
    }
  }
  /// In the node's namespace, as an agent with hostNetwork. The thread that starts it stays: the
  /// agent dies with its parent, and that is a thread (prctl(2), PR_SET_PDEATHSIG).
  void start_agent() {
    std::promise<void> started;
    parents_.emplace_back([&started, this, done = finished_] {
      if (::setns(node_->netns().fd(), CLONE_NEWNET) == 0) {
        agent_.start();
      }
      started.set_value();
      done.wait();
    });
    started.get_future().wait();
  }
  void start(const std::string& more, const std::string& refuse) {
    agent_.write_config(
        fmt::format("apiVersion: headgate/v1\ntargets:\n"
                    "  - name: pod\n    match: {{cgroup: {}}}\n    capacity: {{cpu: 1}}\n"
                    "    strategy: {{fixed: {{admit: 0}}}}\n{}"
                    "    endpoints: [{{name: web, port: 8080, refuse: {}}}]\n",
                    cgroup_->path(), more, refuse));
    start_agent();
    ASSERT_TRUE(
        lab::eventually([&] { return attempt(seconds(1)) != Outcome::kConnected; }, seconds(10)))
        << agent_.log();
  }
  [[nodiscard]] Outcome attempt(milliseconds timeout) const {
    const ConnectReport report =
        connect_many(client_->netns, {.address = pod_->ipv4, .port = 8080, .timeout = timeout});
    return report.attempts.front().outcome;
  }
  /// A client that connects again at once when it is refused, until it is kept waiting.
  [[nodiscard]] ConnectReport reconnect_until_storm() const {
    const auto until = std::chrono::steady_clock::now() + seconds(12);
    return connect_many(
        client_->netns,
        {.attempts = 2'000'000,
         .address = pod_->ipv4,
         .port = 8080,
         .parallel = 4,
         .timeout = milliseconds(1500),
         .stop = [&] { return std::chrono::steady_clock::now() > until || in_storm(); }});
  }
  [[nodiscard]] bool in_storm() const {
    const auto target = agent_.target("pod");
    return target.is_object() && target["endpoints"][0]["storm"] == true;
  }
  [[nodiscard]] std::string tc_mode() const {
    const auto target = agent_.target("pod");
    for (const auto& hook : target.is_object() ? target["hooks"] : nlohmann::json::array()) {
      if (hook["hook"] == "tc") {
        return hook["mode"];
      }
    }
    return "none";
  }

  AgentProcess agent_;
  std::promise<void> done_;
  std::shared_future<void> finished_ = done_.get_future().share();
  std::vector<std::thread> parents_;
  std::unique_ptr<lab::Node> node_;
  lab::Node::Pod* pod_ = nullptr;
  lab::Node::Pod* client_ = nullptr;
  std::unique_ptr<lab::Cgroup> cgroup_;
  std::unique_ptr<lab::ServerProcess> server_;
};

TEST_F(Storm, BeginsWithAHotLoopAndEndsByItself) {
  start("", "reset");
  EXPECT_EQ(attempt(seconds(2)), Outcome::kRefused);
  EXPECT_EQ(tc_mode(), "none") << "tc runs for every packet: only while it is needed";

  const ConnectReport loop = reconnect_until_storm();
  EXPECT_GT(loop.count(Outcome::kRefused), 50U) << loop.describe();
  ASSERT_TRUE(lab::eventually([&] { return in_storm() && tc_mode() != "none"; })) << agent_.log();
  EXPECT_TRUE(lab::eventually([&] { return attempt(milliseconds(500)) == Outcome::kTimedOut; }));
  EXPECT_EQ(server_->accepted(), 0U);

  // Nobody comes any more.
  EXPECT_TRUE(lab::eventually([&] { return !in_storm() && tc_mode() == "none"; }, seconds(25)))
      << agent_.log();
  EXPECT_TRUE(lab::eventually([&] { return attempt(seconds(1)) == Outcome::kRefused; }));
}

/// Taken over by the next agent, whom nobody has been refused by.
TEST_F(Storm, EndsByItselfUnderTheNextAgentToo) {
  start("", "reset");
  (void)reconnect_until_storm();
  ASSERT_TRUE(lab::eventually([&] { return attempt(milliseconds(500)) == Outcome::kTimedOut; }))
      << agent_.log();
  agent_.kill();
  start_agent();
  EXPECT_TRUE(lab::eventually([&] { return in_storm(); })) << agent_.log();
  EXPECT_TRUE(lab::eventually([&] { return !in_storm() && tc_mode() == "none"; }, seconds(25)))
      << agent_.log();
}

TEST_F(Storm, OffStaysWithTheReset) {
  start("    storm: off\n", "reset");
  const auto until = std::chrono::steady_clock::now() + seconds(5);
  const ConnectReport loop = connect_many(
      client_->netns, {.attempts = 200'000,
                       .address = pod_->ipv4,
                       .port = 8080,
                       .parallel = 4,
                       .per_second = 1000,
                       .stop = [&] { return std::chrono::steady_clock::now() > until; }});
  EXPECT_EQ(loop.count(Outcome::kRefused), loop.attempts.size())
      << loop.describe() << agent_.target("pod").dump(2);
  EXPECT_FALSE(in_storm());
  EXPECT_EQ(tc_mode(), "none");
}

/// Case F17, with the whole agent: killed and started, in storm or not, one program is there.
TEST_F(Storm, RefuseDropIsSilenceAndSurvivesKills_F17) {
  start("", "drop");
  ASSERT_TRUE(lab::eventually([&] { return attempt(milliseconds(600)) == Outcome::kTimedOut; }))
      << agent_.log();
  EXPECT_TRUE(tc_mode() == "tcx" || tc_mode() == "clsact") << tc_mode();
  for (int round = 0; round < 3; ++round) {
    agent_.kill();
    EXPECT_EQ(attempt(milliseconds(300)), Outcome::kTimedOut) << "the lease still runs";
    start_agent();
    EXPECT_TRUE(lab::eventually([&] { return tc_mode() == "tcx" || tc_mode() == "clsact"; }))
        << agent_.log();
    EXPECT_EQ(attempt(milliseconds(600)), Outcome::kTimedOut);
  }
  EXPECT_EQ(server_->accepted(), 0U);
}

}  // namespace
}  // namespace headgate::e2e
