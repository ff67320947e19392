// SPDX-License-Identifier: Apache-2.0
// Requests on live connections, refused by the kernel in front of a real nginx: what clients get,
// and what the agent says of it.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/e2e/agent_process.h"
#include "tests/support/busy.h"
#include "tests/support/net_lab.h"
#include "tests/support/nginx.h"

namespace headgate::e2e {
namespace {

using std::chrono::milliseconds;

constexpr std::uint16_t kPort = 8080;

/// A real server in a namespace and cgroup of its own, on port 8080.
class RealServer {
 public:
  RealServer(const lab::Namespace& netns, const lab::Cgroup& cgroup,
             std::vector<std::string> command)
      : command_(std::move(command)) {
    // Forked in the namespace; it joins its group before it makes the listener, whose group its
    // connections will have.
    netns.run([&] {
      pid_ = ::fork();
      if (pid_ == 0) {
        become(cgroup);
      }
    });
    if (pid_ < 0 || !lab::eventually([&] { return listens(netns); }, std::chrono::seconds(10))) {
      throw lab::SetupError(command_[0] + " does not listen");
    }
  }
  RealServer(const RealServer&) = delete;
  RealServer& operator=(const RealServer&) = delete;
  ~RealServer() {
    if (pid_ > 0) {
      ::kill(pid_, SIGTERM);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  [[nodiscard]] bool alive() const { return ::waitpid(pid_, nullptr, WNOHANG) == 0; }

 private:
  [[noreturn]] void become(const lab::Cgroup& cgroup) {
    for (const std::string& procs : cgroup.procs_files()) {
      std::ofstream(procs) << ::getpid();
    }
    std::vector<char*> arguments;
    for (std::string& word : command_) {
      arguments.push_back(word.data());
    }
    arguments.push_back(nullptr);
    const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    ::dup2(nowhere, STDOUT_FILENO);
    ::dup2(nowhere, STDERR_FILENO);
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  static bool listens(const lab::Namespace& netns) {
    lab::ConnectOptions options;
    options.address = "127.0.0.1";
    options.port = kPort;
    options.confirm = lab::Confirm::kNone;
    return lab::connect_many(netns, options).count(lab::Outcome::kConnected) == 1;
  }

  std::vector<std::string> command_;
  pid_t pid_ = -1;
};

struct Answer {
  int status = 0;  ///< 0: none came
  std::string head;
};

/// One connection that is kept.
class KeptConnection {
 public:
  KeptConnection(const lab::Namespace& netns, const std::string& address) {
    netns.run([&] {
      fd_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const int one = 1;
      (void)::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
      sockaddr_in to{};
      to.sin_family = AF_INET;
      to.sin_port = htons(kPort);
      ::inet_pton(AF_INET, address.c_str(), &to.sin_addr);
      auto* plain = reinterpret_cast<sockaddr*>(&to);  // NOLINT: socket API
      connected_ = ::connect(fd_.get(), plain, sizeof(to)) == 0;
    });
  }
  [[nodiscard]] bool connected() const { return connected_; }

  Answer post(const std::string& path, std::size_t bytes) {
    return post(path, std::string(bytes, 'b'));
  }
  Answer post(const std::string& path, const std::string& body) {
    const std::string request = fmt::format(
        "POST {} HTTP/1.1\r\nHost: nginx\r\nUser-Agent: headgate-test\r\nContent-Type: "
        "text/plain\r\nContent-Length: {}\r\n\r\n{}",
        path, body.size(), body);
    if (::send(fd_.get(), request.data(), request.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(request.size())) {
      return {};
    }
    return receive();
  }

 private:
  Answer receive() {
    std::string text;
    std::array<char, 65536> buffer{};
    for (;;) {
      const std::size_t end = text.find("\r\n\r\n");
      if (end != std::string::npos && text.size() >= end + 4 + length_of(text.substr(0, end))) {
        Answer out;
        out.head = text.substr(0, end);
        out.status = std::atoi(text.substr(9, 3).c_str());  // NOLINT: three digits
        return out;
      }
      pollfd wait{fd_.get(), POLLIN, 0};
      if (::poll(&wait, 1, 3000) != 1) {
        return {};
      }
      const ssize_t got = ::recv(fd_.get(), buffer.data(), buffer.size(), 0);
      if (got <= 0) {
        return {};
      }
      text.append(buffer.data(), static_cast<std::size_t>(got));
    }
  }
  static std::size_t length_of(const std::string& head) {
    const std::size_t at = head.find("Content-Length: ");
    return at == std::string::npos ? 0 : std::stoul(head.substr(at + 16));
  }

  UniqueFd fd_;
  bool connected_ = false;
};

class RequestsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    HEADGATE_REQUIRES_ROOT_KERNEL();
    HEADGATE_REQUIRES(::access(lab::kNginx, X_OK) == 0 ? "" : "nginx is not installed");
    pair_ = std::make_unique<lab::Pair>();
    cgroup_ = std::make_unique<lab::Cgroup>("requests");
    nginx_ = std::make_unique<RealServer>(pair_->server, *cgroup_, directory_.command());
  }

  /// Everything that can be refused is, but for what its floor, its class or a probe saves.
  [[nodiscard]] std::string config(const std::string& form, const std::string& more = "") const {
    return fmt::format(
        "apiVersion: headgate/v1\n{}"
        "targets:\n"
        "  - name: web\n"
        "    match: {{cgroup: {}}}\n"
        "    strategy: {{fixed: {{admit: 0.25}}}}\n"
        "    exempt: {{paths: [/healthz]}}\n"
        "    endpoints:\n"
        "      - name: http\n"
        "        port: 8080\n"
        "        protocol: http\n"
        "        refuse: {}\n"
        "        routes:\n"
        "          - {{name: traces, path: /v1/traces, criticality: sheddable}}\n"
        "          - {{name: metrics, path: /v1/metrics, criticality: critical}}\n",
        more, cgroup_->path(), form);
  }
  void protect(const std::string& text) {
    agent_.write_config(text);
    agent_.start();
    ASSERT_TRUE(agent_.running()) << agent_.log();
    ASSERT_TRUE(lab::eventually([&] {
      const auto target = agent_.target("web");
      return target.is_object() && target.value("state", "unknown") != "unknown" &&
             target["endpoints"].size() == 4 && target.value("lease_valid", false);
    })) << agent_.log()
        << agent_.state().dump(2);
    std::this_thread::sleep_for(milliseconds(1200));  // its ports are entered
  }
  [[nodiscard]] KeptConnection connection() const {
    return {pair_->client, pair_->at_server().ipv4};
  }
  /// Answers by status.
  std::map<int, int> post(KeptConnection& on, const std::string& path, int times,
                          std::size_t bytes = 200) {
    std::map<int, int> out;
    for (int i = 0; i < times; ++i) {
      ++out[on.post(path, bytes).status];
    }
    return out;
  }
  [[nodiscard]] nlohmann::json endpoint(const std::string& name) const {
    const nlohmann::json target = agent_.target("web");
    for (const auto& one : target.value("endpoints", nlohmann::json::array())) {
      if (one["name"] == name) {
        return one;
      }
    }
    return {};
  }

  std::unique_ptr<lab::Pair> pair_;
  std::unique_ptr<lab::Cgroup> cgroup_;
  lab::NginxDirectory directory_{"error_log stderr;",
                                 "    location / { return 200 \"served\\n\"; }"};
  std::unique_ptr<RealServer> nginx_;
  AgentProcess agent_;
};

TEST_F(RequestsTest, ARefusedRequestIsAnsweredAndItsConnectionGoesOn) {
  protect(config("429"));
  KeptConnection kept = connection();
  ASSERT_TRUE(kept.connected());
  const auto traces = post(kept, "/v1/traces", 400);
  EXPECT_EQ(traces.count(0), 0U) << "each is answered, on one connection";
  EXPECT_NEAR(traces.at(429), 300, 15) << agent_.log() << agent_.state().dump(2);
  EXPECT_NEAR(traces.at(200), 100, 15);
  ASSERT_TRUE(lab::eventually(
      [&] { return endpoint("http/traces")["counters"].value("offered", 0) == 400; }));
  const auto counters = endpoint("http/traces")["counters"];
  EXPECT_EQ(counters["answered"], traces.at(429));
  EXPECT_EQ(counters["admitted"], traces.at(200));
  EXPECT_EQ(endpoint("http/metrics")["counters"]["offered"], 0);
  EXPECT_EQ(endpoint("http")["counters"]["offered"], 1);
  const auto exempt = post(kept, "/healthz", 50);
  EXPECT_EQ(exempt.at(200), 50) << "exempt.paths are never refused";
  EXPECT_NEAR(post(kept, "/v1/tracesX", 40)[429], 30, 3) << "no route: the rule of the port";
  const auto explained = agent_.run({"explain", "web", "--config", agent_.config_path()});
  EXPECT_THAT(explained.out, testing::HasSubstr("refused by 429"));
}

TEST_F(RequestsTest, TheAnswerSaysWhenToComeAgain) {
  protect(config("503\n        http: {retry_after_min: 2s, retry_after_max: 4s}"));
  KeptConnection kept = connection();
  std::map<int, int> said;
  for (int i = 0; i < 60; ++i) {
    const Answer answer = kept.post("/v1/traces", 300);
    if (answer.status == 503) {
      const std::size_t at = answer.head.find("Retry-After: ");
      ASSERT_NE(at, std::string::npos) << answer.head;
      ++said[std::stoi(answer.head.substr(at + 13))];
    }
  }
  EXPECT_EQ(said.size(), 3U);
  EXPECT_TRUE(said.contains(2) && said.contains(3) && said.contains(4)) << "drawn from 2 to 4";
}

TEST_F(RequestsTest, ObserveRefusesNothingAndCounts) {
  protect(config("429", "mode: observe\n"));
  KeptConnection kept = connection();
  EXPECT_EQ(post(kept, "/v1/traces", 200).at(200), 200);
  ASSERT_TRUE(lab::eventually([&] {
    return endpoint("http/traces")["counters"].value("admitted_observed", 0) >= 140;
  })) << agent_.state().dump(2);
}

TEST_F(RequestsTest, TheKillSwitchHoldsHereToo) {
  protect(config("429"));
  KeptConnection kept = connection();
  EXPECT_GT(post(kept, "/v1/traces", 40)[429], 20);
  ASSERT_EQ(agent_.run({"off"}).status, 0);
  EXPECT_EQ(post(kept, "/v1/traces", 40)[200], 40);
  ASSERT_EQ(agent_.run({"on"}).status, 0);
  EXPECT_GT(post(kept, "/v1/traces", 40)[429], 20);
}

TEST_F(RequestsTest, AKilledAgentOpensTheGateAndHarmsNoConnection) {
  protect(config("429"));
  KeptConnection kept = connection();
  EXPECT_GT(post(kept, "/v1/traces", 40)[429], 20);
  agent_.kill();
  std::this_thread::sleep_for(milliseconds(1300));  // the lease
  EXPECT_EQ(post(kept, "/v1/traces", 100)[200], 100);
  agent_.start();
  ASSERT_TRUE(lab::eventually([&] { return post(kept, "/v1/traces", 8)[429] > 3; }))
      << "the one after it refuses on the same connection" << agent_.target("web").dump(1);
}

/// `refuse: auto` with routes: they are counted, and nothing else changes.
TEST_F(RequestsTest, WithoutARequestFormRoutesAreCountedOnly) {
  agent_.write_config(config("auto"));
  agent_.start();
  ASSERT_TRUE(agent_.running()) << agent_.log();
  std::this_thread::sleep_for(milliseconds(2500));
  ASSERT_TRUE(lab::eventually([&] {
    KeptConnection kept = connection();
    return kept.connected() && post(kept, "/v1/metrics", 1)[200] == 1 &&
           endpoint("http/metrics")["counters"].value("offered", 0) > 0;
  })) << agent_.state().dump(2);
  EXPECT_EQ(endpoint("http/metrics")["refusable"], false);
  EXPECT_EQ(endpoint("http/metrics")["counters"]["answered"], 0);
}

// ---------------------------------------------------------------- a server out of CPU

constexpr const char* kPushgateway = "/usr/bin/prometheus-pushgateway";

/// Answers of one route, while `running`: `connections` clients that each send the next request
/// `pause` after the last was answered.
struct Load {
  std::string path;
  int connections = 1;
  std::atomic<milliseconds> pause{milliseconds(0)};
  std::atomic<int> served{0}, refused{0}, lost{0};
};

void drive(const lab::Namespace& netns, const std::string& address, const std::string& body,
           Load& load, const std::atomic<bool>& running, std::vector<std::thread>& threads) {
  for (int i = 0; i < load.connections; ++i) {
    threads.emplace_back([&netns, &load, &running, address, body] {
      KeptConnection kept(netns, address);
      while (running) {
        const int status = kept.post(load.path, body).status;
        ++(status == 200 ? load.served : status == 429 ? load.refused : load.lost);
        if (status == 0) {
          kept = KeptConnection(netns, address);
        }
        std::this_thread::sleep_for(load.pause.load());
      }
    });
  }
}

TEST(RequestsUnderLoad, TheCriticalRouteIsServedWhileTheSheddableOneIsRefused) {
  HEADGATE_REQUIRES_ROOT_KERNEL();
  HEADGATE_REQUIRES(::access(kPushgateway, X_OK) == 0 ? "" : "no prometheus-pushgateway");
  const lab::Pair pair;
  const lab::Cgroup cgroup("overload");
  constexpr double kCores = 0.3;
  cgroup.limit_cpu(kCores);
  const RealServer server(
      pair.server, cgroup,
      {kPushgateway, "--web.listen-address=:8080", "--log.level=error", "--persistence.file="});
  AgentProcess agent;
  agent.write_config(fmt::format(
      "apiVersion: headgate/v1\ntargets:\n  - name: push\n    match: {{cgroup: {}}}\n"
      "    endpoints:\n      - name: http\n        port: 8080\n        protocol: http\n"
      "        refuse: 429\n        routes:\n"
      "          - {{name: batch, path: /metrics/job/batch, criticality: sheddable}}\n"
      "          - {{name: vital, path: /metrics/job/vital, criticality: critical_plus}}\n",
      cgroup.path()));
  agent.start();
  ASSERT_TRUE(agent.running()) << agent.log();
  ASSERT_TRUE(lab::eventually([&] {
    return agent.target("push").is_object() && agent.target("push")["endpoints"].size() == 4;
  }));
  std::this_thread::sleep_for(milliseconds(1500));

  std::string body;
  for (int i = 0; i < 400; ++i) {
    body += fmt::format("series_{} 1\n", i);
  }
  Load vital{"/metrics/job/vital", 2, milliseconds(200)};
  Load batch{"/metrics/job/batch", 24};
  std::atomic<bool> running{true};
  std::vector<std::thread> threads;
  const std::string address = pair.at_server().ipv4;
  const std::chrono::nanoseconds used_before = cgroup.cpu_used();
  drive(pair.client, address, body, vital, running, threads);
  std::this_thread::sleep_for(std::chrono::seconds(5));  // what a request costs is learned
  // The critical ones alone are to be a third of what this machine does, all eight times as much.
  const double cost_s =
      std::chrono::duration<double>(cgroup.cpu_used() - used_before).count() / vital.served;
  const auto pause = [&](const Load& load, double times) {
    return milliseconds(static_cast<int>(1000 * load.connections * cost_s / (kCores * times)));
  };
  vital.pause = pause(vital, 0.33);
  batch.pause = pause(batch, 7.7);
  drive(pair.client, address, body, batch, running, threads);
  std::this_thread::sleep_for(std::chrono::seconds(8));
  for (Load* load : {&vital, &batch}) {
    load->served = load->refused = load->lost = 0;
  }
  lab::Canary canary;
  std::this_thread::sleep_for(std::chrono::seconds(10));
  const int vital_served = vital.served, vital_refused = vital.refused, vital_lost = vital.lost;
  const int batch_served = batch.served, batch_refused = batch.refused;
  const nlohmann::json state = agent.target("push");
  running = false;
  for (std::thread& thread : threads) {
    thread.join();
  }
  SCOPED_TRACE(
      fmt::format("one costs {:.1f} ms; vital: {} served, {} refused, {} lost; batch: {} served, "
                  "{} refused\n{}",
                  1000 * cost_s, vital_served, vital_refused, vital_lost, batch_served,
                  batch_refused, state.dump(1)));
  EXPECT_TRUE(server.alive());
  EXPECT_GT(vital_served, 0.15 * 10 * kCores / cost_s) << "half of a third of what it can do";
  EXPECT_EQ(vital_lost, 0);
  const auto share = [](int served, int refused) {
    return static_cast<double>(served) / std::max(1, served + refused);
  };
  const double late_ms = canary.late_ms();
  std::cout << fmt::format("served: {:.3f} of vital, {:.3f} of batch; {:.2f} ms late\n",
                           share(vital_served, vital_refused), share(batch_served, batch_refused),
                           late_ms);
  if (!lab::machine_is_busy() && late_ms < lab::kLate_ms) {
    EXPECT_LE(vital_refused, vital_served / 20);
  }
  // Where others take the CPU away, what is left does for a part of them. The order holds always.
  EXPECT_GE(share(vital_served, vital_refused), 0.7);
  EXPECT_GT(share(vital_served, vital_refused), 5 * share(batch_served, batch_refused));
  EXPECT_GT(batch_refused, batch_served) << "the server is out of CPU";
  EXPECT_GT(batch_served, 0) << "what is left is theirs";
}

}  // namespace
}  // namespace headgate::e2e
