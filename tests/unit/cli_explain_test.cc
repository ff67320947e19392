// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "agent/cli/explain.h"
#include "agent/strategies/registry.h"
#include "agent/web/control_socket.h"
#include "agent/web/state_json.h"
#include "tests/unit/web_snapshot.h"

namespace headgate {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

/// A copy of a v2 tree as a user would send it, and an (empty) /proc.
class CopiedTree : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "headgate_explain_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    std::filesystem::create_directories(root_ / "proc");
    write("cgroup.controllers", "cpuset cpu memory\n");
    write("cpuset.cpus.effective", "0-7\n");
    write("a/cgroup.controllers", "cpuset cpu memory\n");
    write("a/cpu.max", "50000 100000\n");
    write("a/memory.max", "max\n");
    write("a/b/cgroup.controllers", "cpu memory\n");
    write("a/b/cpu.max", "max 100000\n");
    write("a/b/cpu.stat",
          "usage_usec 5000\nuser_usec 1\nsystem_usec 1\nnr_periods 10\nnr_throttled 2\n"
          "throttled_usec 7\n");
    write("a/b/cpu.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\n");
    write("a/b/memory.current", "1000000\n");
    write("a/b/memory.max", "2000000\n");
    write("a/b/memory.stat", "anon 5\ninactive_file 300000\n");
    write("a/b/memory.events", "low 0\nhigh 0\nmax 3\noom 0\noom_kill 1\n");
    options_.target = "cgroup:/a/b";
    options_.cgroup_root = (root_ / "cgroup").string();
    options_.proc_root = (root_ / "proc").string();
    options_.socket_path = (root_ / "socket").string();
    options_.config_path = (root_ / "headgate.yaml").string();
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& file, const std::string& text) const {
    const auto path = root_ / "cgroup" / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  int run() { return run_explain(options_, strategies(), out_, err_); }
  json run_json() {
    options_.json = true;
    EXPECT_EQ(run(), 0) << err_.str();
    return json::parse(out_.str());
  }

  std::filesystem::path root_;
  ExplainOptions options_;
  std::ostringstream out_;
  std::ostringstream err_;
};

std::string reason_of(const json& explained, const std::string& signal) {
  for (const json& entry : explained["unknown"]) {
    if (entry["signal"] == signal) return entry["reason"];
  }
  return "";
}

TEST_F(CopiedTree, JsonHasItsKeysAndNumbers) {
  const json e = run_json();
  EXPECT_EQ(e["schema"], 1);
  EXPECT_EQ(e["target"], "cgroup:/a/b");
  EXPECT_EQ(e["cgroup"]["mode"], "v2");
  for (const char* controller : {"cpu", "memory", "cpuset", "psi"}) {
    EXPECT_EQ(e["cgroup"]["paths"][controller], options_.cgroup_root + "/a/b") << controller;
  }
  EXPECT_EQ(e["cpu"]["effective_cores"], 0.5);
  EXPECT_EQ(e["cpu"]["source"], "ancestor");
  EXPECT_EQ(e["memory"]["limit_bytes"], 2000000);
  EXPECT_EQ(e["memory"]["source"], "own");
  EXPECT_EQ(e["memory"]["current_bytes"], 1000000);
  EXPECT_EQ(e["memory"]["inactive_file_bytes"], 300000);
  EXPECT_EQ(e["memory"]["working_set_bytes"], 700000);
  EXPECT_TRUE(e["warnings"].is_array());
  EXPECT_TRUE(e["state"].is_null());
  EXPECT_TRUE(e["policy"].is_null());
  EXPECT_TRUE(e["hooks"].empty());
  EXPECT_TRUE(e["last_refusals"].empty());
  EXPECT_THAT(e["agent_problem"], HasSubstr("no agent is listening"));
}

TEST_F(CopiedTree, OneSampleOfACopyLeavesRatesUnknown) {
  const json e = run_json();
  for (const char* key : {"usage_cores", "throttled_ratio", "psi_some_ratio"}) {
    EXPECT_TRUE(e["cpu"][key].is_null()) << key;
    EXPECT_EQ(reason_of(e, std::string("cpu.") + key), "first_sample") << key;
  }
}

TEST_F(CopiedTree, EveryFileIsThereWithItsText) {
  const json e = run_json();
  bool found = false;
  for (const json& file : e["files"]) {
    if (file["path"] == options_.cgroup_root + "/a/cpu.max") {
      EXPECT_EQ(file["raw"], "50000 100000\n");
      EXPECT_TRUE(file["error"].is_null());
      found = true;
    }
  }
  EXPECT_TRUE(found) << e["files"].dump(1);
}

TEST_F(CopiedTree, AMissingFileIsAnErrorThereAndUnknownHere) {
  std::filesystem::remove(root_ / "cgroup/a/b/memory.stat");
  const json e = run_json();
  EXPECT_TRUE(e["memory"]["working_set_bytes"].is_null());
  EXPECT_EQ(reason_of(e, "memory.working_set_bytes"), "missing");
  bool found = false;
  for (const json& file : e["files"]) {
    if (file["path"] == options_.cgroup_root + "/a/b/memory.stat") {
      EXPECT_TRUE(file["raw"].is_null());
      EXPECT_NE(file["error"], "");
      found = true;
    }
  }
  EXPECT_TRUE(found);
}

TEST_F(CopiedTree, NoLimitAnywhereIsKnownToBeUnlimited) {
  write("a/b/memory.max", "max\n");
  const json e = run_json();
  EXPECT_TRUE(e["memory"]["limit_bytes"].is_null());
  EXPECT_EQ(e["memory"]["source"], "unlimited");
  EXPECT_EQ(reason_of(e, "memory.limit_bytes"), "");
}

TEST_F(CopiedTree, TextDerivesTheLimits) {
  EXPECT_EQ(run(), 0) << err_.str();
  const std::string text = out_.str();
  EXPECT_THAT(text, HasSubstr("/a/cpu.max: 50000 100000 -> 0.5 cores\n"));
  EXPECT_THAT(text, HasSubstr("/a/b/cpu.max: max 100000 -> no limit\n"));
  EXPECT_THAT(text, HasSubstr("CPU:    0.5 cores (source: ancestor)"));
  EXPECT_THAT(text, HasSubstr("= working set     683.6 KiB (700000) = 0.35 of the limit"));
  EXPECT_THAT(text, HasSubstr("no agent is listening"));
  EXPECT_THAT(text, HasSubstr("    nr_throttled 2\n"));
}

TEST_F(CopiedTree, AConfiguredNameIsLookedUpAndItsCapacityCounts) {
  std::ofstream(options_.config_path) << "apiVersion: headgate/v1\n"
                                         "targets:\n"
                                         "  - name: web\n"
                                         "    match: {cgroup: /a/b}\n"
                                         "    capacity: {cpu: 250m}\n"
                                         "    endpoints: [{name: x, port: 80}]\n";
  options_.target = "web";
  const json e = run_json();
  EXPECT_EQ(e["target"], "web");
  EXPECT_EQ(e["cpu"]["effective_cores"], 0.25);
  EXPECT_EQ(e["cpu"]["source"], "config");
}

TEST_F(CopiedTree, WhatTheRunningAgentProtectsIsFoundByItsNameWithoutAFile) {
  AgentSnapshot agent = test::busy_snapshot();
  agent.targets[0].cgroup_path = "/a/b";
  agent.targets[0].sample.limits.cpu_source = LimitSource::kConfig;
  agent.targets[0].sample.limits.cpu_cores = 0.3;
  ControlServer::Handlers handlers;
  handlers.state = [&] { return Result<std::string>(web::to_state_json(agent)); };
  const auto server = ControlServer::start(options_.socket_path, std::move(handlers));
  ASSERT_TRUE(server.has_value()) << server.error().message;
  options_.target = "web";
  const json e = run_json();
  EXPECT_EQ(e["cgroup"]["path"], "/a/b");
  EXPECT_EQ(e["cpu"]["effective_cores"], 0.3);
}

TEST_F(CopiedTree, ATargetOfTheCommandLineThatIsNotThereIsKnownToTheAgent) {
  AgentSnapshot agent = test::busy_snapshot();
  TargetSnapshot absent;
  absent.name = "otelcol.service";
  absent.strategy = "graded";
  absent.absent_why = "no unit otelcol.service runs";
  agent.targets.push_back(absent);
  ControlServer::Handlers handlers;
  handlers.state = [&] { return Result<std::string>(web::to_state_json(agent)); };
  const auto server = ControlServer::start(options_.socket_path, std::move(handlers));
  ASSERT_TRUE(server.has_value()) << server.error().message;
  options_.target = "otelcol.service";
  EXPECT_EQ(run(), 1);
  EXPECT_THAT(err_.str(), AllOf(HasSubstr("the running agent protects 'otelcol.service'"),
                                HasSubstr("not there now: no unit otelcol.service runs")));
}

TEST_F(CopiedTree, AFailureIsJsonWhereJsonIsAskedFor) {
  options_.target = "cgroup:/nowhere";
  options_.json = true;
  EXPECT_EQ(run(), 1);
  const json said = json::parse(out_.str());
  EXPECT_EQ(said["schema"], 1);
  EXPECT_THAT(said["error"], HasSubstr("/nowhere"));
}

TEST_F(CopiedTree, AnUnknownNameListsTheOthers) {
  std::ofstream(options_.config_path) << "apiVersion: headgate/v1\n"
                                         "targets:\n"
                                         "  - name: web\n"
                                         "    match: {cgroup: /a/b}\n"
                                         "    endpoints: [{name: x, port: 80}]\n";
  options_.target = "wbe";
  EXPECT_EQ(run(), 1);
  EXPECT_THAT(err_.str(), AllOf(HasSubstr("no target is named 'wbe'"), HasSubstr("there are: web"),
                                HasSubstr("cgroup:/PATH")));
}

TEST_F(CopiedTree, AMissingCgroupOrTreeIsAClearError) {
  options_.target = "cgroup:/nowhere";
  EXPECT_EQ(run(), 1);
  EXPECT_THAT(err_.str(), HasSubstr("/nowhere"));
  options_.cgroup_root = "/nonexistent";
  EXPECT_EQ(run(), 1);
  EXPECT_THAT(err_.str(), HasSubstr("/nonexistent"));
}

TEST_F(CopiedTree, ARunningAgentAddsStatePolicyAndRefusals) {
  AgentSnapshot agent = test::busy_snapshot();
  agent.targets[0].cgroup_path = "/a/b";
  agent.targets[0].transitions.push_back(
      {1767323041000, State::kShedding, State::kNormal, "cpu slow below exit", 0.5, 0.5, 0.5});
  ControlServer::Handlers handlers;
  handlers.state = [&] { return Result<std::string>(web::to_state_json(agent)); };
  const auto server = ControlServer::start(options_.socket_path, std::move(handlers));
  ASSERT_TRUE(server.has_value()) << server.error().message;

  const json e = run_json();
  EXPECT_EQ(e["state"], "shedding");
  EXPECT_EQ(e["policy"]["thresholds"]["enter"], 0.8);
  EXPECT_EQ(e["hooks"][0]["hook"], "sk_lookup");
  ASSERT_EQ(e["last_refusals"].size(), 1U);
  EXPECT_EQ(e["last_refusals"][0]["to"], "shedding");
  EXPECT_TRUE(e["agent_problem"].is_null());

  options_.json = false;
  out_.str("");
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(out_.str(),
              AllOf(HasSubstr("state shedding: cpu slow above enter"), HasSubstr("enter 0.8"),
                    HasSubstr("otlp-grpc: 1000 attempts offered, 300 admitted; tries refused: "
                              "share 700"),
                    HasSubstr("normal -> shedding: cpu slow above enter"),
                    HasSubstr("configured at line 4")));

  agent.targets[0].endpoints = test::port_with_routes();
  out_.str("");
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(out_.str(),
              AllOf(HasSubstr("class unknown: 3 (TLS: nothing can be seen)"),
                    HasSubstr("otlp-http/traces: 100 requests offered, 60 admitted; requests "
                              "refused: share 40"),
                    HasSubstr("/v1/traces; 40 refused by 429, 4 let through because their socket "
                              "could not be answered; 5 in flight, answered after 10.0 ms"),
                    HasSubstr("requests without a route; counted only")));

  agent.targets[0].config_line = 0;
  out_.str("");
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(out_.str(), HasSubstr("configured by the command line"));
}

TEST(ExplainMeasure, RatesComeFromTwoSamples) {
  Sample before;
  before.at = Instant{} + 1s;
  before.cpu_usage_ns = std::uint64_t{1'000'000'000};
  before.cpu_periods = std::uint64_t{10};
  before.cpu_throttled_periods = std::uint64_t{1};
  before.cpu_pressure_some_us = std::uint64_t{0};
  Sample after = before;
  after.at = Instant{} + 3s;
  after.cpu_usage_ns = std::uint64_t{2'000'000'000};
  after.cpu_periods = std::uint64_t{30};
  after.cpu_throttled_periods = std::uint64_t{6};
  after.cpu_pressure_some_us = std::uint64_t{500'000};
  cli::Explanation e;
  cli::measure(before, after, e);
  EXPECT_DOUBLE_EQ(*e.usage_cores, 0.5);
  EXPECT_DOUBLE_EQ(*e.throttled_ratio, 0.25);
  EXPECT_DOUBLE_EQ(*e.psi_some_ratio, 0.25);
}

TEST(ExplainMeasure, AnIdleCgroupIsNotThrottledAndACounterThatWentBackIsUnknown) {
  Sample before;
  before.at = Instant{} + 1s;
  before.cpu_usage_ns = std::uint64_t{5};
  before.cpu_periods = std::uint64_t{10};
  before.cpu_throttled_periods = std::uint64_t{1};
  before.cpu_pressure_some_us = Unknown::kUnsupported;
  Sample after = before;
  after.at = Instant{} + 2s;
  after.cpu_usage_ns = std::uint64_t{4};
  cli::Explanation e;
  cli::measure(before, after, e);
  EXPECT_EQ(e.throttled_ratio.value, 0.0);
  EXPECT_EQ(e.usage_cores.reason, Unknown::kWentBack);
  EXPECT_EQ(e.psi_some_ratio.reason, Unknown::kUnsupported);
}

TEST(ExplainLimits, V1QuotasAreTakenWithTheirPeriod) {
  const auto lines = cli::derive_limits({{"/c/x/cpu.cfs_quota_us", "50000\n", ""},
                                         {"/c/x/cpu.cfs_period_us", "100000\n", ""},
                                         {"/c/cpu.cfs_quota_us", "-1\n", ""},
                                         {"/c/cpu.cfs_period_us", "100000\n", ""},
                                         {"/c/memory.limit_in_bytes", "", "Permission denied"}});
  EXPECT_THAT(lines,
              Contains("/c/x/cpu.cfs_quota_us: 50000 -> over a period of 100000 us: 0.5 cores"));
  EXPECT_THAT(lines, Contains("/c/cpu.cfs_quota_us: -1 -> over a period of 100000 us: no limit"));
  EXPECT_EQ(lines.size(), 2U);
}

}  // namespace
}  // namespace headgate
