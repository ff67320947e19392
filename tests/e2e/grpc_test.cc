// SPDX-License-Identifier: Apache-2.0
// gRPC calls through the whole agent: a real server (grpc-go) out of CPU, real clients on
// connections that live on, routes of two classes by method.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/e2e/agent_process.h"
#include "tests/support/busy.h"
#include "tests/support/child.h"
#include "tests/support/net_lab.h"

namespace headgate::e2e {
namespace {

using Statuses = std::map<std::string, int>;

constexpr const char* kTraces = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
constexpr const char* kLogs = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";
constexpr double kCores = 0.3;
constexpr const char* kWork_kib = "2000";  ///< a few milliseconds of CPU a call

class GrpcUnderLoad : public ::testing::Test {
 protected:
  void SetUp() override {
    HEADGATE_REQUIRES_ROOT_KERNEL();
    HEADGATE_REQUIRES(std::string_view(HEADGATE_GRPC_PEER).empty()
                          ? "needs the Debian packages golang-go and golang-google-grpc-dev"
                          : "");
    pair_ = std::make_unique<lab::Pair>();
    cgroup_ = std::make_unique<lab::Cgroup>("grpc-load");
    cgroup_->limit_cpu(kCores);
    server_ = std::make_unique<lab::Child>(pair_->server, *cgroup_, [] {
      ::execl(HEADGATE_GRPC_PEER, "grpc_peer", "serve", "0.0.0.0:4317", "4194304", kWork_kib,
              nullptr);
    });
    ASSERT_EQ(server_->read(6), "ready\n");
    const std::chrono::nanoseconds before = cgroup_->cpu_used();
    ASSERT_EQ(call(kLogs, kMeasuredCalls, 1, 10), (Statuses{{"OK", kMeasuredCalls}}));
    call_cost_ms_ =
        std::chrono::duration<double, std::milli>(cgroup_->cpu_used() - before).count() /
        kMeasuredCalls;
    agent_.write_config(fmt::format(
        "apiVersion: headgate/v1\ntargets:\n  - name: otel\n    match: {{cgroup: {}}}\n"
        "    endpoints:\n      - name: grpc\n        port: 4317\n        protocol: grpc\n"
        "        refuse: grpc-exhausted\n        routes:\n"
        "          - {{name: traces, path: {}, criticality: sheddable}}\n"
        "          - {{name: logs, path: {}, criticality: critical_plus}}\n",
        cgroup_->path(), kTraces, kLogs));
    agent_.start();
    ASSERT_TRUE(agent_.running()) << agent_.log();
    ASSERT_TRUE(lab::eventually([&] {
      const auto target = agent_.target("otel");
      return target.is_object() && target["endpoints"].size() == 4;
    })) << agent_.log();
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // its ports are entered
  }
  /// Statuses of so many calls by so many callers on one connection.
  [[nodiscard]] Statuses call(const char* method, int calls, int callers, int pause_ms) const {
    return lab::numbers_of(
        pair_->client.command({HEADGATE_GRPC_PEER, "call", pair_->at_server().ipv4 + ":4317",
                               method, std::to_string(calls), std::to_string(callers), "2000",
                               fmt::format("pause={}", pause_ms)}));
  }
  [[nodiscard]] nlohmann::json counters(const std::string& endpoint) const {
    for (const auto& one : agent_.target("otel").value("endpoints", nlohmann::json::array())) {
      if (one["name"] == endpoint) {
        return one["counters"];
      }
    }
    return {};
  }

  /// How long `callers` pause, so that they ask for `times` what the server can do on this machine.
  [[nodiscard]] int pause_ms(int callers, double times) const {
    return std::max(1, static_cast<int>(callers * call_cost_ms_ / (kCores * times)));
  }

  static constexpr int kMeasuredCalls = 30;
  double call_cost_ms_ = 0;
  std::unique_ptr<lab::Pair> pair_;
  std::unique_ptr<lab::Cgroup> cgroup_;
  std::unique_ptr<lab::Child> server_;
  AgentProcess agent_;
};

TEST_F(GrpcUnderLoad, TheCriticalMethodIsServedWhileTheSheddableOneIsExhausted) {
  SCOPED_TRACE(fmt::format("a call costs {:.1f} ms of CPU", call_cost_ms_));
  const int logs_pause_ms = pause_ms(2, 0.33);
  lab::Canary canary;
  Statuses calm = call(kLogs, 80, 2, logs_pause_ms);
  Statuses traces;
  std::thread flood([&] { traces = call(kTraces, 2400, 24, pause_ms(24, 3)); });
  std::this_thread::sleep_for(std::chrono::seconds(2));  // what a call costs is learned
  Statuses logs = call(kLogs, 120, 2, logs_pause_ms);
  flood.join();
  SCOPED_TRACE(fmt::format("logs: {} OK, {} exhausted; traces: {} OK, {} exhausted\n{}", logs["OK"],
                           logs["ResourceExhausted"], traces["OK"], traces["ResourceExhausted"],
                           agent_.target("otel").dump(1)));
  EXPECT_EQ(logs["OK"] + logs["ResourceExhausted"], 120) << "another status";
  EXPECT_EQ(traces["OK"] + traces["ResourceExhausted"], 2400) << "another status";
  const double late_ms = canary.late_ms();
  std::cout << fmt::format(
      "served: {} of 80 logs in calm, {} of 120 logs and {} of 2400 traces; {:.2f} ms late\n",
      calm["OK"], logs["OK"], traces["OK"], late_ms);
  EXPECT_EQ(calm["OK"] + calm["ResourceExhausted"], 80) << "another status";
  if (!lab::machine_is_busy() && late_ms < lab::kLate_ms) {
    EXPECT_EQ(calm["OK"], 80);
    EXPECT_GE(logs["OK"], 114);  // as requests_test: no more than a twentieth
  }
  // Where others take the CPU away, what is left does for a part of them. The order holds always.
  EXPECT_GE(calm["OK"], 72);
  EXPECT_GE(logs["OK"], 84);
  EXPECT_GT(logs["OK"] * 2400, 3 * traces["OK"] * 120);
  EXPECT_GT(traces["ResourceExhausted"], traces["OK"]) << "the server is out of CPU";
  EXPECT_GT(traces["OK"], 0) << "what is left is theirs";

  ASSERT_TRUE(lab::eventually([&] {
    return counters("grpc/traces").value("offered", 0) == 2400 &&
           counters("grpc/logs").value("offered", 0) == 200;
  }));
  EXPECT_EQ(counters("grpc/traces")["answered"], traces["ResourceExhausted"]);
  EXPECT_EQ(counters("grpc/traces")["admitted"], traces["OK"]);
  EXPECT_EQ(counters("grpc/logs")["answered"],
            calm["ResourceExhausted"] + logs["ResourceExhausted"]);
  const Statuses handled = lab::numbers_of(server_->finish());
  EXPECT_EQ(handled.at(kTraces), traces["OK"]) << "a refused call is no call of the handler's";
  EXPECT_EQ(handled.at(kLogs), kMeasuredCalls + calm["OK"] + logs["OK"]);
}

}  // namespace
}  // namespace headgate::e2e
