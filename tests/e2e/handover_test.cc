// SPDX-License-Identifier: Apache-2.0
// One agent after another on a node, as a rolling update of a DaemonSet does it: the next one waits
// beside the old one. And the last one, whom nobody relieves.
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "agent/dataplane/bpffs.h"
#include "tests/e2e/agent_process.h"
#include "tests/e2e/learned.h"
#include "tests/e2e/readiness.h"
#include "tests/support/leftovers.h"
#include "tests/support/net_lab.h"

namespace headgate::e2e {
namespace {

using lab::Outcome;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

class Handover : public ::testing::Test {
 protected:
  void SetUp() override {
    HEADGATE_REQUIRES_ROOT_KERNEL();
    pair_ = std::make_unique<lab::Pair>();
    cgroup_ = std::make_unique<lab::Cgroup>("handover");
    cgroup_->limit_cpu(1.0);
    lab::ServerOptions options;
    options.port = 8080;
    options.work_us = 2000;
    server_ = std::make_unique<lab::ServerProcess>(pair_->server, options, cgroup_.get());
    server_->start();
    next_.share_pins_of(agent_);
  }

  /// The agent of this node, then the one that stands by.
  void start(AgentProcess& agent, const std::string& strategy,
             const std::vector<std::string>& more = {}) {
    agent.write_config(
        fmt::format("apiVersion: headgate/v1\n"
                    "targets:\n"
                    "  - name: web\n"
                    "    match: {{cgroup: {}}}\n"
                    "    strategy: {}\n"
                    "    endpoints: [{{name: http, port: 8080, protocol: tcp, refuse: reset}}]\n",
                    cgroup_->path(), strategy));
    std::vector<std::string> flags{"--on-exit=handover"};
    flags.insert(flags.end(), more.begin(), more.end());
    agent.start(flags);
    ASSERT_TRUE(agent.running()) << agent.log();
  }

  [[nodiscard]] lab::ConnectReport connect(lab::ConnectOptions options) const {
    options.address = pair_->at_server().ipv4;
    options.port = server_->port();
    options.timeout = milliseconds(2000);
    return lab::connect_many(pair_->client, options);
  }
  [[nodiscard]] bool comes_to(Outcome outcome, milliseconds limit = milliseconds(10'000)) const {
    return lab::eventually([&] { return connect({}).count(outcome) == 1; }, limit);
  }
  [[nodiscard]] bool pins_are_gone() const {
    return ::access(agent_.pin_root().c_str(), F_OK) != 0;
  }
  [[nodiscard]] static bool stands_by(const AgentProcess& agent) {
    return agent.state().value("standby", false);
  }

  std::unique_ptr<lab::Pair> pair_;
  std::unique_ptr<lab::Cgroup> cgroup_;
  std::unique_ptr<lab::ServerProcess> server_;
  AgentProcess agent_;
  AgentProcess next_;
};

TEST_F(Handover, TheNextAgentIsReadyWhileItWaitsAndNobodySlipsThrough) {
  start(agent_, "{fixed: {admit: 0}}");
  ASSERT_TRUE(comes_to(Outcome::kRefused)) << agent_.log();
  const std::uint16_t port = free_port();
  start(next_, "{fixed: {admit: 0}}", {fmt::format("--web.listen-address=127.0.0.1:{}", port)});
  ASSERT_TRUE(stands_by(next_)) << next_.state().dump(2);
  const Readiness said = readiness(port);
  EXPECT_EQ(said.status, 200) << said.text;
  EXPECT_NE(said.text.find("standby"), std::string::npos) << said.text;

  std::atomic<bool> enough{false};
  lab::ConnectReport report;
  std::thread client([&] {
    lab::ConnectOptions options;
    options.attempts = 100'000;
    options.per_second = 200;
    options.stop = [&] { return enough.load(); };
    report = connect(options);
  });
  const auto asked = steady_clock::now();
  EXPECT_EQ(agent_.terminate(), 0) << agent_.log();
  EXPECT_LT(steady_clock::now() - asked, seconds(1));
  const bool took_over = lab::eventually([&] { return !stands_by(next_); }, seconds(5));
  std::this_thread::sleep_for(milliseconds(1500));  // longer than the lease of the first
  enough = true;
  client.join();
  EXPECT_TRUE(took_over) << next_.log();
  EXPECT_GT(report.attempts.size(), 200U);
  EXPECT_EQ(report.count(Outcome::kRefused), report.attempts.size()) << report.describe();
  EXPECT_EQ(server_->accepted(), 0U);
  EXPECT_EQ(next_.log().find("a pinned map had another layout"), std::string::npos) << next_.log();
}

TEST_F(Handover, WhatWasLearnedGoesOver) {
  start(agent_, "adaptive");
  const auto learned = [&] { return learned_about(agent_.pin_root(), cgroup_->path()); };
  const auto before =
      learn_costs([this](const lab::ConnectOptions& options) { (void)connect(options); },
                  agent_.pin_root(), cgroup_->path());
  ASSERT_TRUE(before) << agent_.state().dump(2);
  // It spends 2 ms of CPU on each; part of that may be taken for what it uses without any.
  EXPECT_GT(cost_s(*before), 0.0002);

  start(next_, "adaptive");
  ASSERT_TRUE(stands_by(next_));
  EXPECT_EQ(agent_.terminate(), 0) << agent_.log();
  ASSERT_TRUE(lab::eventually([&] { return !stands_by(next_); }, seconds(5))) << next_.log();
  // Nobody connects any more: what the next one writes it cannot have learned itself.
  std::optional<adaptive::Saved> after;
  ASSERT_TRUE(lab::eventually(
      [&] {
        after = learned();
        return after && after->header.at_ns > before->header.at_ns;
      },
      seconds(15)))
      << next_.log();
  EXPECT_GE(after->header.cost.windows, before->header.cost.windows);
  EXPECT_NEAR(cost_s(*after), cost_s(*before), 0.5 * cost_s(*before));
}

TEST_F(Handover, TheLastOneTakesEverythingAway) {
  start(agent_, "{fixed: {admit: 0}}");
  ASSERT_TRUE(comes_to(Outcome::kRefused)) << agent_.log();
  EXPECT_EQ(agent_.terminate(), 0) << agent_.log();
  EXPECT_TRUE(pins_are_gone());
  lab::ConnectOptions options;
  options.attempts = 50;
  EXPECT_EQ(connect(options).count(Outcome::kConnected), 50U);
}

TEST_F(Handover, OneThatHasDiedDoesNotWait) {
  start(agent_, "{fixed: {admit: 0}}");
  start(next_, "{fixed: {admit: 0}}");
  ASSERT_TRUE(stands_by(next_));
  next_.kill();
  EXPECT_EQ(agent_.terminate(), 0) << agent_.log();
  EXPECT_TRUE(pins_are_gone());
}

TEST_F(Handover, BothAreRemovedAtOnce) {
  start(agent_, "{fixed: {admit: 0}}");
  ASSERT_TRUE(comes_to(Outcome::kRefused)) << agent_.log();
  start(next_, "{fixed: {admit: 0}}");
  ASSERT_TRUE(stands_by(next_));
  ::kill(agent_.pid(), SIGTERM);
  ::kill(next_.pid(), SIGTERM);
  EXPECT_EQ(agent_.wait_for_exit(seconds(5)), 0) << agent_.log();
  EXPECT_EQ(next_.wait_for_exit(seconds(5)), 0) << next_.log();
  EXPECT_TRUE(pins_are_gone()) << agent_.log() << next_.log();
  EXPECT_TRUE(comes_to(Outcome::kConnected, milliseconds(200)));
}

TEST_F(Handover, WhoWaitsAndIsTakenBackLeavesTheOtherAlone) {
  start(agent_, "{fixed: {admit: 0}}");
  ASSERT_TRUE(comes_to(Outcome::kRefused)) << agent_.log();
  start(next_, "{fixed: {admit: 0}}");
  ASSERT_TRUE(stands_by(next_));
  EXPECT_EQ(next_.terminate(), 0) << next_.log();
  EXPECT_FALSE(pins_are_gone());
  EXPECT_TRUE(comes_to(Outcome::kRefused));
}

}  // namespace
}  // namespace headgate::e2e
