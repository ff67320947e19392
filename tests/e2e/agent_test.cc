// SPDX-License-Identifier: Apache-2.0
// The whole program as its user runs it: real process, real kernel, real servers and clients.
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "agent/dataplane/bpffs.h"
#include "tests/e2e/agent_process.h"
#include "tests/e2e/readiness.h"
#include "tests/support/leftovers.h"
#include "tests/support/net_lab.h"

namespace headgate::e2e {
namespace {

using lab::ConnectOptions;
using lab::ConnectReport;
using lab::Outcome;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// In how many ticks of a trace the flag in this column is set; -1 = there is no such column.
std::ptrdiff_t ticks_with(const std::string& trace, std::string_view flag) {
  std::istringstream lines(trace);
  std::string line;
  std::getline(lines, line);  // "# headgate-trace"
  const auto cells = [&] {
    std::vector<std::string> out;
    std::istringstream in(line);
    for (std::string cell; std::getline(in, cell, ',');) {
      out.push_back(cell);
    }
    return out;
  };
  std::getline(lines, line);
  const std::vector<std::string> names = cells();
  const auto at = std::find(names.begin(), names.end(), flag);
  if (at == names.end()) {
    return -1;
  }
  std::ptrdiff_t count = 0;
  while (std::getline(lines, line)) {
    count += cells().at(static_cast<std::size_t>(at - names.begin())) == "1";
  }
  return count;
}

/// A server in a cgroup and namespace of its own, and a client beside it.
class AgentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    HEADGATE_REQUIRES_ROOT_KERNEL();
    pair_ = std::make_unique<lab::Pair>();
    cgroup_ = std::make_unique<lab::Cgroup>("e2e");
    cgroup_->limit_cpu(1.0);
    lab::ServerOptions options;
    options.port = 8080;
    server_ = std::make_unique<lab::ServerProcess>(pair_->server, options, cgroup_.get());
    server_->start();
  }

  [[nodiscard]] std::string config(const std::string& strategy, const std::string& more = "",
                                   const std::string& endpoint = "refuse: reset") const {
    return fmt::format(
        "apiVersion: headgate/v1\n{}"
        "targets:\n"
        "  - name: web\n"
        "    match: {{cgroup: {}}}\n"
        "    strategy: {}\n"
        "    endpoints:\n"
        "      - {{name: http, port: 8080, protocol: tcp, {}}}\n",
        more, cgroup_->path(), strategy, endpoint);
  }

  [[nodiscard]] ConnectReport connect(std::uint64_t attempts,
                                      milliseconds timeout = milliseconds(2000)) const {
    ConnectOptions options;
    options.attempts = attempts;
    options.address = pair_->at_server().ipv4;
    options.port = server_->port();
    options.timeout = timeout;
    return lab::connect_many(pair_->client, options);
  }

  /// Starts the agent with `strategy` and waits until the gate does what it says for one connect.
  void protect(const std::string& text, Outcome expected) {
    agent_.write_config(text);
    agent_.start();
    ASSERT_TRUE(agent_.running()) << agent_.log();
    ASSERT_TRUE(lab::eventually([&] { return connect(1).count(expected) == 1; }))
        << agent_.log() << agent_.state().dump(2);
  }

  std::unique_ptr<lab::Pair> pair_;
  std::unique_ptr<lab::Cgroup> cgroup_;
  std::unique_ptr<lab::ServerProcess> server_;
  AgentProcess agent_;
};

TEST_F(AgentTest, ShutGateRefusesEveryConnectAndTheServerSeesNone) {
  protect(config("{fixed: {admit: 0}}"), Outcome::kRefused);
  const std::uint64_t before = server_->accepted();
  const ConnectReport report = connect(1000);
  EXPECT_EQ(report.count(Outcome::kRefused), 1000U) << report.describe();
  EXPECT_EQ(server_->accepted(), before);
}

TEST_F(AgentTest, TheFirstStateHasASampleAlreadyAlsoOfATargetWithoutALimit) {
  const lab::Cgroup unlimited("e2e-free");
  lab::ServerOptions options;
  const lab::Namespace host{lab::Namespace::Host{}};
  lab::ServerProcess server(host, options, &unlimited);
  server.start();
  agent_.write_config(
      fmt::format("apiVersion: headgate/v1\ntargets:\n  - name: free\n    match: {{cgroup: {}}}\n"
                  "    endpoints: [{{name: e, port: {}, protocol: tcp}}]\n",
                  unlimited.path(), server.port()));
  agent_.start();
  const auto free = agent_.target("free");
  ASSERT_TRUE(free.is_object()) << agent_.log();
  EXPECT_TRUE(free["sample_age_seconds"].is_number()) << "readyz waits for it: " << free.dump(2);
}

TEST_F(AgentTest, AResizeOfAnIdleTargetIsNoticedWithinASecond) {
  protect(config("adaptive"), Outcome::kConnected);
  const auto web = [&] { return agent_.target("web"); };
  const auto age_s = [&] { return web()["sample_age_seconds"].get<double>(); };
  // It rests: nobody comes, and its cgroup is read every third second; just now it was.
  ASSERT_TRUE(lab::eventually([&] { return age_s() > 2; }, milliseconds(30000))) << web().dump(2);
  ASSERT_TRUE(lab::eventually([&] { return age_s() < 0.5; }, milliseconds(30000)));
  cgroup_->limit_cpu(0.5);
  const auto begin = steady_clock::now();
  ASSERT_TRUE(lab::eventually([&] { return web()["cpu"]["effective_cores"].get<double>() == 0.5; },
                              milliseconds(2500)))
      << web().dump(2);
  EXPECT_LT(steady_clock::now() - begin, milliseconds(1500)) << "a second, and a slow machine";
}

TEST_F(AgentTest, NoConfigurationFileIsNeededForAFirstLook) {
  agent_.start_with({"--protect=cgroup:" + cgroup_->path(), "--port=8080/tcp", "--observe"});
  ASSERT_TRUE(agent_.running()) << agent_.log();
  ASSERT_TRUE(lab::eventually([&] {
    (void)connect(5);
    const auto state = agent_.state();
    return state.is_object() && !state["targets"].empty() &&
           state["targets"][0]["endpoints"][0]["counters"].value("offered", 0) > 0;
  })) << agent_.state().dump(2);
  EXPECT_NE(agent_.log().find("apiVersion: headgate/v1"), std::string::npos)
      << "the configuration that the flags amount to is printed";
}

TEST_F(AgentTest, RecordedTraceIsReplayed) {
  protect(config("{fixed: {admit: 0.5}}"), Outcome::kRefused);
  std::thread load([&] { (void)connect(400); });
  const std::string trace = agent_.run({"record", "web", "--duration=2s"}).out;
  load.join();
  ASSERT_EQ(trace.rfind("# headgate-trace {", 0), 0U) << trace;
  const auto lines = std::count(trace.begin(), trace.end(), '\n') - 2;
  EXPECT_GE(lines, 12) << "ten ticks a second: " << trace;
  const std::string file = fmt::format("/tmp/headgate-e2e-{}.trace", ::getpid());
  std::ofstream(file) << trace;
  const auto replayed = nlohmann::json::parse(run_headgate({"replay", file, "--json"}).out);
  ::unlink(file.c_str());
  EXPECT_EQ(replayed["target"], "web");
  EXPECT_EQ(replayed["replays"][0]["strategy"], "fixed");
  const auto& decisions = replayed["replays"][0]["decisions"];
  ASSERT_EQ(static_cast<std::ptrdiff_t>(decisions.size()), lines);
  EXPECT_EQ(decisions[0]["endpoints"][0]["admit"], 0.5);
}

TEST_F(AgentTest, EndsOfTheServingProcessAreTold) {
  protect(config("{fixed: {admit: 0.5}}"), Outcome::kConnected);
  const auto restarts = [&] { return agent_.target("web").value("restarts", -1); };
  EXPECT_EQ(restarts(), 0);
  const std::string file = fmt::format("/tmp/headgate-e2e-{}.trace", ::getpid());
  std::thread recorder([&] {
    (void)agent_.run({"record", "web", "--duration=3s", "--output=" + file});
  });
  EXPECT_TRUE(lab::eventually([&] { return !read_text(file).empty(); })) << "it follows the target";
  server_->kill();
  EXPECT_TRUE(lab::eventually([&] { return restarts() == 1; })) << agent_.log();
  recorder.join();
  const std::string trace = read_text(file);
  ::unlink(file.c_str());
  EXPECT_EQ(ticks_with(trace, "restarted"), 1) << trace;

  // The next one is looked for once a second.
  server_->start();
  EXPECT_TRUE(lab::eventually([&] {
    std::this_thread::sleep_for(milliseconds(1500));
    server_->kill();
    const bool seen = lab::eventually([&] { return restarts() == 2; }, milliseconds(1000));
    server_->start();
    return seen;
  })) << agent_.log();
}

TEST_F(AgentTest, MaxRefuseDurationEndsTheRefusalsOfARateToo) {
  protect(config("{name: token_bucket, rate: 1}\n    max_refuse_duration: 2s"), Outcome::kRefused);
  EXPECT_TRUE(lab::eventually([&] { return connect(20).count(Outcome::kConnected) == 20; }))
      << agent_.state().dump(2);
  EXPECT_NE(agent_.log().find("max_refuse_duration exceeded"), std::string::npos) << agent_.log();
}

/// Overload of three times the capacity for ten seconds by clients that wait as stock senders do,
/// ten seconds. What `auto` defers it must let in in time; what does not fit it resets at once.
TEST_F(AgentTest, AutoLetsInWhatItDefers) {
  constexpr double kCores = 0.5;
  constexpr unsigned kWork_us = 10'000;
  constexpr double kCapacity_per_s = kCores * 1e6 / kWork_us;
  server_->stop();
  cgroup_->limit_cpu(kCores);
  lab::ServerOptions options;
  options.port = 8080;
  options.work_us = kWork_us;
  server_ = std::make_unique<lab::ServerProcess>(pair_->server, options, cgroup_.get());
  server_->start();
  protect(config("adaptive", "", "refuse: auto"), Outcome::kConnected);
  const auto load = [&](double per_second, std::chrono::seconds how_long) {
    ConnectOptions one;
    one.attempts = static_cast<std::uint64_t>(per_second * static_cast<double>(how_long.count()));
    one.address = pair_->at_server().ipv4;
    one.port = server_->port();
    one.per_second = per_second;
    one.parallel = 1024;
    one.timeout = std::chrono::seconds(10);
    return lab::connect_many(pair_->client, one);
  };
  (void)load(0.6 * kCapacity_per_s, std::chrono::seconds(4));  // it learns what one costs
  const ConnectReport report = load(3 * kCapacity_per_s, std::chrono::seconds(10));
  const auto counters = agent_.target("web")["endpoints"][0]["counters"];
  const auto deferred = counters.value("deferred", 0.0);
  const auto let_in = counters.value("admitted_deferred", 0.0);
  const std::string seen = counters.dump() + report.describe();
  EXPECT_GT(deferred, 50) << "nothing was deferred: " << seen;
  // None is lost. Where the law refused by share for a moment, as it does on a busy machine, those
  // whose last try fell into it were reset: that gives way to nobody (4 of 105 have been seen).
  const auto expired = counters.value("expired", 0.0);
  EXPECT_GE(let_in + expired, 0.99 * deferred) << seen;
  EXPECT_LE(expired, counters["refused"]["share"] > 0 ? 0.05 * deferred : 0.01 * deferred) << seen;
  EXPECT_GT(report.count(Outcome::kRefused), 0U)
      << "three times the capacity cannot wait: " << seen;
  EXPECT_LE(report.count(Outcome::kTimedOut), 0.01 * deferred) << seen;
}

TEST_F(AgentTest, F18_KilledAgentOpensTheGateWithinTheLease) {
  protect(config("{fixed: {admit: 0}}"), Outcome::kRefused);
  agent_.kill();
  const auto killed = steady_clock::now();
  bool still_shut = false;
  while (connect(1).count(Outcome::kConnected) == 0) {
    still_shut = true;
    ASSERT_LT(steady_clock::now() - killed, std::chrono::seconds(5)) << "never opened";
    std::this_thread::sleep_for(milliseconds(5));
  }
  const auto opened = steady_clock::now() - killed;
  EXPECT_TRUE(still_shut) << "pinned policies hold until the lease ends";
  EXPECT_LE(opened, milliseconds(1000 + 500));
  EXPECT_EQ(connect(200).count(Outcome::kConnected), 200U);
}

TEST_F(AgentTest, RestartsUnderLoadLetNobodyIn) {
  protect(config("{fixed: {admit: 0}}"), Outcome::kRefused);
  const std::uint64_t before = server_->accepted();
  std::atomic<bool> stop{false};
  std::uint64_t attempts = 0;
  std::uint64_t wrong = 0;
  std::thread load([&] {
    while (!stop) {
      const ConnectReport report = connect(100);
      attempts += report.attempts.size();
      wrong += report.attempts.size() - report.count(Outcome::kRefused);
    }
  });
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(milliseconds(200));
    agent_.kill();
    agent_.start();
  }
  std::this_thread::sleep_for(milliseconds(300));
  stop = true;
  load.join();
  EXPECT_GT(attempts, 500U);
  EXPECT_EQ(wrong, 0U) << "of " << attempts;
  EXPECT_EQ(server_->accepted(), before);
}

TEST_F(AgentTest, TerminatedAgentEndsAtOnceAndLeavesItsPins) {
  protect(config("{fixed: {admit: 0}}"), Outcome::kRefused);
  const auto asked = steady_clock::now();
  EXPECT_EQ(agent_.terminate(), 0) << agent_.log();
  EXPECT_LT(steady_clock::now() - asked, std::chrono::seconds(1));
  EXPECT_TRUE(PinDirectory::existing(agent_.pin_root()).pinned());
  EXPECT_EQ(connect(10).count(Outcome::kRefused), 10U) << "the last lease has been renewed";
  EXPECT_TRUE(lab::eventually([&] { return connect(1).count(Outcome::kConnected) == 1; },
                              milliseconds(1500)));
}

TEST_F(AgentTest, PurgeOnExitLeavesNothing) {
  agent_.write_config(config("{fixed: {admit: 0}}"));
  agent_.start({"--on-exit=purge"});
  ASSERT_TRUE(lab::eventually([&] { return connect(1).count(Outcome::kRefused) == 1; }));
  EXPECT_EQ(agent_.terminate(), 0);
  EXPECT_NE(::access(agent_.pin_root().c_str(), F_OK), 0) << "the pin directory is gone";
  EXPECT_EQ(connect(100).count(Outcome::kConnected), 100U);
}

TEST_F(AgentTest, SecondAgentStandsByAndTakesOver) {
  protect(config("{fixed: {admit: 0}}"), Outcome::kRefused);
  AgentProcess second;
  second.share_pins_of(agent_);
  const auto refused_to_wait = run_headgate(
      {"run", "--config=" + agent_.config_path(), "--pin-root=" + agent_.pin_root(),
       "--socket=" + second.socket_path(), "--web.listen-address=127.0.0.1:0", "--no-wait"});
  EXPECT_EQ(refused_to_wait.status, 1);
  const std::string said = refused_to_wait.out + refused_to_wait.err;
  EXPECT_NE(said.find("another headgate agent"), std::string::npos) << said;

  second.write_config(config("{fixed: {admit: 0}}"));
  second.start();
  ASSERT_TRUE(second.running()) << second.log();
  EXPECT_TRUE(second.state().value("standby", false)) << second.state().dump(2);
  agent_.kill();
  EXPECT_TRUE(lab::eventually([&] { return !second.state().value("standby", true); }));
  std::this_thread::sleep_for(milliseconds(1500));  // longer than the lease of the first
  EXPECT_EQ(connect(100).count(Outcome::kRefused), 100U);
}

TEST_F(AgentTest, SecondAgentStandsByThoughTheWebPortIsTakenAndGetsItWithTheLock) {
  const std::string port = fmt::format("{}", free_port());
  agent_.write_config(config("{fixed: {admit: 0}}"));
  agent_.start({"--web.listen-address=127.0.0.1:" + port});
  ASSERT_TRUE(agent_.running()) << agent_.log();
  AgentProcess second;
  second.share_pins_of(agent_);
  second.write_config(config("{fixed: {admit: 0}}"));
  second.start({"--web.listen-address=127.0.0.1:" + port});
  ASSERT_TRUE(second.running()) << second.log();
  EXPECT_NE(second.log().find("the web port is taken"), std::string::npos) << second.log();
  agent_.kill();
  EXPECT_TRUE(lab::eventually([&] {
    return !second.state().value("standby", true) &&
           second.log().find("web server port=" + port) != std::string::npos;
  })) << second.log();
  EXPECT_EQ(second.terminate(), 0);
}

TEST_F(AgentTest, TwoAgentsWithPinsOfTheirOwnSayThatTheyAreTwo) {
  protect(config("{fixed: {admit: 1}}"), Outcome::kConnected);
  ASSERT_TRUE(lab::eventually([&] { return !agent_.target("web")["hooks"].empty(); }));
  AgentProcess second;
  second.write_config(config("{fixed: {admit: 1}}"));
  second.start();
  const std::array<const AgentProcess*, 2> both{&agent_, &second};
  for (const AgentProcess* one : both) {
    const AgentProcess& other = one == &agent_ ? second : agent_;
    std::string id;
    EXPECT_TRUE(lab::eventually(
        [&] {
          const auto target = other.target("web");
          id = target.is_object() && !target["hooks"].empty()
                   ? target["hooks"][0]["program_id"].dump()
                   : "none";
          return one->state()["degraded"].dump().find("sk_lookup program " + id + " ") !=
                 std::string::npos;
        },
        milliseconds(15000)))
        << id << one->state()["degraded"].dump(2) << one->log();
    EXPECT_NE(one->log().find("this gate is not the only one"), std::string::npos);
  }
  const auto doctor = agent_.run({"doctor", "--pin-root=" + agent_.pin_root()});
  EXPECT_NE(doctor.out.find("another agent"), std::string::npos) << doctor.out;
  EXPECT_EQ(second.terminate(), 0);
}

TEST_F(AgentTest, KillSwitchOpensTheGateAndSurvivesARestart) {
  protect(config("{fixed: {admit: 0}}"), Outcome::kRefused);
  EXPECT_EQ(agent_.run({"off"}).status, 0);
  EXPECT_EQ(connect(100).count(Outcome::kConnected), 100U);
  agent_.kill();
  agent_.start();
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_EQ(connect(100).count(Outcome::kConnected), 100U) << "off holds over restarts";
  EXPECT_EQ(agent_.run({"on"}).status, 0);
  EXPECT_TRUE(lab::eventually([&] { return connect(1).count(Outcome::kRefused) == 1; }));
}

TEST_F(AgentTest, KillSwitchSurvivesAPurge) {
  agent_.write_config(config("{fixed: {admit: 0}}"));
  agent_.start({"--on-exit=purge"});
  ASSERT_TRUE(lab::eventually([&] { return connect(1).count(Outcome::kRefused) == 1; }));
  ASSERT_EQ(agent_.run({"off"}).status, 0);
  EXPECT_EQ(agent_.terminate(), 0);
  agent_.start({"--on-exit=purge"});
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_EQ(connect(50).count(Outcome::kConnected), 50U);
  EXPECT_EQ(agent_.run({"on"}).status, 0);
  EXPECT_TRUE(lab::eventually([&] { return connect(1).count(Outcome::kRefused) == 1; }));
  EXPECT_EQ(agent_.terminate(), 0);
  EXPECT_NE(::access(agent_.pin_root().c_str(), F_OK), 0) << "on again: nothing is kept";
}

TEST_F(AgentTest, KillSwitchNeedsNoAgentThatAnswers) {
  agent_.write_config(config("{fixed: {admit: 0}}", "lease: 30s\n"));
  agent_.start();
  ASSERT_TRUE(lab::eventually([&] { return connect(1).count(Outcome::kRefused) == 1; }));
  ::kill(agent_.pid(), SIGSTOP);
  const auto off = agent_.run({"off", "--pin-root=" + agent_.pin_root()});
  EXPECT_EQ(off.status, 0) << off.err;
  EXPECT_EQ(connect(50).count(Outcome::kConnected), 50U);
  ::kill(agent_.pid(), SIGCONT);
}

TEST_F(AgentTest, RenamedTargetLetsNobodyIn) {
  protect(config("{fixed: {admit: 0}}"), Outcome::kRefused);
  std::atomic<bool> stop{false};
  std::uint64_t wrong = 0;
  std::thread load([&] {
    while (!stop) {
      const ConnectReport report = connect(50);
      wrong += report.attempts.size() - report.count(Outcome::kRefused);
    }
  });
  std::string renamed = config("{fixed: {admit: 0}}");
  renamed.replace(renamed.find("name: web"), 9, "name: www");
  agent_.write_config(renamed);
  EXPECT_TRUE(lab::eventually([&] { return agent_.target("www").is_object(); }));
  std::this_thread::sleep_for(milliseconds(300));
  stop = true;
  load.join();
  EXPECT_EQ(wrong, 0U) << "the new slot was entered before its policy";
}

TEST_F(AgentTest, ObserveCountsAndRefusesNothing) {
  protect(config("{fixed: {admit: 0}}", "mode: observe\n"), Outcome::kConnected);
  EXPECT_EQ(connect(200).count(Outcome::kConnected), 200U);
  EXPECT_TRUE(lab::eventually([&] {
    const auto target = agent_.target("web");
    return target.is_object() &&
           target["endpoints"][0]["counters"].value("admitted_observed", 0) >= 200;
  })) << agent_.target("web").dump(2);
}

TEST_F(AgentTest, EditedConfigurationIsTakenOver) {
  protect(config("{fixed: {admit: 0}}"), Outcome::kRefused);
  agent_.write_config(config("{fixed: {admit: 1}}"));
  EXPECT_TRUE(lab::eventually([&] { return connect(1).count(Outcome::kConnected) == 1; },
                              milliseconds(3000)));
  agent_.write_config(config("{fixed: {admit: 0}}"));
  EXPECT_TRUE(lab::eventually([&] { return connect(1).count(Outcome::kRefused) == 1; },
                              milliseconds(3000)));
}

TEST_F(AgentTest, C11_InvalidConfigurationKeepsTheLastGoodOne) {
  protect(config("{fixed: {admit: 0}}"), Outcome::kRefused);
  agent_.write_config("apiVersion: headgate/v1\ntreshold: 0.8\n");
  EXPECT_TRUE(lab::eventually([&] {
    return !agent_.state()["config"].value("last_reload_successful", true);
  })) << agent_.state().dump(2);
  EXPECT_EQ(connect(100).count(Outcome::kRefused), 100U);
}

TEST_F(AgentTest, ConfigurationFileThatIsGoneIsSaidAndTheLastGoodOneStays) {
  protect(config("{fixed: {admit: 0}}"), Outcome::kRefused);
  const auto reloaded = [&] {
    return agent_.state()["config"].value("last_reload_successful", true);
  };
  std::filesystem::remove(agent_.config_path());
  EXPECT_TRUE(lab::eventually([&] { return !reloaded(); }, milliseconds(3000)));
  EXPECT_EQ(connect(100).count(Outcome::kRefused), 100U);
  EXPECT_NE(agent_.log().find("the last good one stays"), std::string::npos) << agent_.log();
  std::filesystem::create_directory(agent_.config_path());
  EXPECT_TRUE(lab::eventually(
      [&] {
        const std::string error = agent_.state()["config"].value("last_error", "");
        return error.find("it is a directory") != std::string::npos;
      },
      milliseconds(3000)));
  std::filesystem::remove(agent_.config_path());
  agent_.write_config(config("{fixed: {admit: 0}}"));
  EXPECT_TRUE(lab::eventually(reloaded, milliseconds(3000))) << agent_.state()["config"].dump(2);
  EXPECT_EQ(connect(100).count(Outcome::kRefused), 100U);
}

TEST_F(AgentTest, InvalidConfigurationAtTheStartIsExit2WithThePlace) {
  agent_.write_config("apiVersion: headgate/v1\ntreshold: 0.8\n");
  const auto ran = run_headgate({"run", "--config=" + agent_.config_path()});
  EXPECT_EQ(ran.status, 2);
  EXPECT_NE(ran.err.find("headgate.yaml:2:1"), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("treshold"), std::string::npos) << ran.err;
}

TEST_F(AgentTest, WithoutAnyRightItStaysUpObservesAndSaysWhatIsMissing) {
  agent_.write_config(config("{fixed: {admit: 0}}"));
  agent_.start_without_capabilities();
  ASSERT_TRUE(agent_.running()) << agent_.log();
  ASSERT_TRUE(lab::eventually([&] { return agent_.target("web").value("present", false); }))
      << agent_.log();
  EXPECT_EQ(connect(50).count(Outcome::kConnected), 50U);
  const auto degraded = agent_.state()["degraded"].dump();
  EXPECT_NE(degraded.find("CAP_BPF"), std::string::npos) << degraded;
}

TEST_F(AgentTest, AUserWhoIsNotRootGetsOneClearLineAndLeavesNothing) {
  agent_.write_config(config("{fixed: {admit: 0}}"));
  agent_.start_as_nobody();
  ASSERT_TRUE(agent_.running()) << agent_.log();
  EXPECT_EQ(agent_.terminate(), 0);
  const std::string log = agent_.log();
  EXPECT_EQ(log.find("libbpf:"), std::string::npos) << log;
  EXPECT_EQ(log.find("CAP_BPF"), log.rfind("CAP_BPF")) << "said once: " << log;
  EXPECT_NE(log.find("nothing can be refused"), std::string::npos) << log;
  EXPECT_NE(::access(agent_.pin_root().c_str(), F_OK), 0) << "the pin directory is gone";
}

TEST_F(AgentTest, ServerRestartsInItsNamespaceAndTheGateStays) {
  protect(config("{fixed: {admit: 0}}"), Outcome::kRefused);
  server_->kill();
  server_->start();
  EXPECT_EQ(connect(100).count(Outcome::kRefused), 100U);
}

TEST_F(AgentTest, DeferredConnectsComeInAtTheirNextTry) {
  protect(config("{fixed: {admit: 0}}", "", "refuse: {defer: 8s}"), Outcome::kTimedOut);
  const std::uint64_t before = server_->accepted();
  ConnectReport report;
  std::thread client([&] { report = connect(50, std::chrono::seconds(12)); });
  std::this_thread::sleep_for(std::chrono::seconds(2));
  agent_.write_config(config("{fixed: {admit: 1}}", "", "refuse: {defer: 8s}"));
  client.join();
  EXPECT_EQ(report.count(Outcome::kConnected), 50U) << report.describe();
  EXPECT_EQ(server_->accepted() - before, 50U);
}

TEST(Leftovers, AreTakenAwayWhereTheirTestIsGoneAndOnlyThere) {
  HEADGATE_REQUIRES_ROOT_KERNEL();
  EXPECT_EQ(lab::owner_in_name("headgate-e2e-123-0"), 123);
  EXPECT_EQ(lab::owner_in_name("headgate-lab-77-e2e"), 77);
  for (const char* name :
       {"headgate", "headgate-e2e-x-0", "headgate-e2e-123", "headgate-e2e-1-0"}) {
    EXPECT_FALSE(lab::owner_in_name(name)) << name;
  }
  // A child that is interrupted in the middle of a test, with an agent, pins and a cgroup.
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const lab::Cgroup cgroup("interrupted");
    AgentProcess agent;
    agent.write_config("apiVersion: headgate/v1\ntargets:\n  - name: x\n    match: {cgroup: " +
                       cgroup.path() + "}\n    endpoints: [{name: e, port: 9}]\n");
    agent.start();
    const pid_t pid = agent.pid();
    (void)!::write(pipe[1], &pid, sizeof(pid));
    ::pause();
    ::_exit(0);
  }
  pid_t agent = 0;
  ASSERT_EQ(::read(pipe[0], &agent, sizeof(agent)), static_cast<ssize_t>(sizeof(agent)));
  ::close(pipe[0]);
  ::close(pipe[1]);
  const std::string pins = fmt::format("/sys/fs/bpf/headgate-e2e-{}-", child);
  const auto pinned = [&] {
    for (const auto& entry : std::filesystem::directory_iterator("/sys/fs/bpf")) {
      if (entry.path().string().starts_with(pins)) {
        return true;
      }
    }
    return false;
  };
  EXPECT_TRUE(pinned());
  lab::remove_leftovers_now();
  EXPECT_TRUE(pinned()) << "its test lives";
  ::kill(child, SIGINT);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(lab::eventually([&] { return ::kill(agent, 0) != 0; })) << "its agent went with it";
  lab::remove_leftovers_now();
  EXPECT_FALSE(pinned());
  for (const auto* tree : {"/sys/fs/cgroup/", "/sys/fs/cgroup/cpu/", "/sys/fs/cgroup/unified/"}) {
    EXPECT_FALSE(
        std::filesystem::exists(fmt::format("{}headgate-lab-{}-interrupted", tree, child)));
  }
}

/// In the host's own namespace a port belongs to a target only where its processes listen.
class HostTargetTest : public ::testing::Test {
 protected:
  void SetUp() override { HEADGATE_REQUIRES_ROOT_KERNEL(); }

  [[nodiscard]] std::unique_ptr<lab::ServerProcess> serve(const std::string& address,
                                                          std::uint16_t port,
                                                          const lab::Cgroup& cgroup) const {
    lab::ServerOptions options;
    options.address = address;
    options.port = port;
    auto server = std::make_unique<lab::ServerProcess>(host_, options, &cgroup);
    server->start();
    return server;
  }

  [[nodiscard]] ConnectReport connect(const std::string& address, std::uint16_t port,
                                      std::uint64_t attempts = 1) const {
    ConnectOptions options;
    options.attempts = attempts;
    options.address = address;
    options.port = port;
    return lab::connect_many(host_, options);
  }

  void protect(const lab::Cgroup& cgroup, std::uint16_t port) {
    agent_.write_config(
        fmt::format("apiVersion: headgate/v1\ntargets:\n  - name: mine\n    match: {{cgroup: {}}}\n"
                    "    strategy: {{fixed: {{admit: 0}}}}\n"
                    "    endpoints: [{{name: e, port: {}, protocol: tcp}}]\n",
                    cgroup.path(), port));
    agent_.start();
    ASSERT_TRUE(agent_.running()) << agent_.log();
  }

  lab::Namespace host_{lab::Namespace::Host{}};
  AgentProcess agent_;
};

TEST_F(HostTargetTest, B10_AnotherServerOnTheSamePortIsNotTouched) {
  const lab::Cgroup mine("mine");
  const lab::Cgroup other("other");
  const auto server = serve("127.0.0.1", 0, mine);
  const auto neighbour = serve("127.0.0.2", server->port(), other);
  protect(mine, server->port());
  ASSERT_TRUE(lab::eventually([&] {
    return connect("127.0.0.1", server->port()).count(Outcome::kRefused) == 1;
  })) << agent_.log();
  EXPECT_EQ(connect("127.0.0.1", server->port(), 100).count(Outcome::kRefused), 100U);
  EXPECT_EQ(connect("127.0.0.2", server->port(), 100).count(Outcome::kConnected), 100U);
}

TEST_F(HostTargetTest, ListenerOnEveryAddressIsGatedOnLoopbackOfBothFamilies) {
  const lab::Cgroup mine("any");
  const auto server = serve("::", 0, mine);
  protect(mine, server->port());
  ASSERT_TRUE(lab::eventually([&] {
    return connect("127.0.0.1", server->port()).count(Outcome::kRefused) == 1;
  })) << agent_.log();
  EXPECT_EQ(connect("::1", server->port(), 50).count(Outcome::kRefused), 50U);
  server->stop();
  EXPECT_TRUE(lab::eventually([&] {
    return agent_.target("mine").is_object() &&
           connect("127.0.0.1", server->port()).count(Outcome::kRefused) == 1;
  }));
}

TEST_F(HostTargetTest, StrangerOnTheConfiguredPortIsNotTouched) {
  const lab::Cgroup mine("idle");
  const lab::Cgroup other("stranger");
  const auto server = serve("127.0.0.1", 0, mine);  // keeps the target alive, on another port
  const auto stranger = serve("127.0.0.1", 0, other);
  protect(mine, stranger->port());
  ASSERT_TRUE(lab::eventually([&] { return agent_.target("mine").value("present", false); }));
  std::this_thread::sleep_for(milliseconds(1500));
  EXPECT_EQ(connect("127.0.0.1", stranger->port(), 100).count(Outcome::kConnected), 100U);
}

}  // namespace
}  // namespace headgate::e2e
