// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/web/metrics.h"
#include "tests/unit/web_snapshot.h"

namespace headgate::web {
namespace {

using test::busy_snapshot;
using test::unknown_target;
using testing::HasSubstr;
using testing::Not;

std::set<std::string> lines_of(const std::string& text) {
  std::set<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    EXPECT_TRUE(line.empty() || line[0] == '#' || lines.insert(line).second) << "twice: " << line;
  }
  return lines;
}

class MustHave : public testing::TestWithParam<const char*> {};

TEST_P(MustHave, Series) {
  const auto lines = lines_of(to_metrics(busy_snapshot()));
  EXPECT_TRUE(lines.contains(GetParam())) << to_metrics(busy_snapshot());
}

INSTANTIATE_TEST_SUITE_P(
    Metrics, MustHave,
    testing::Values(
        R"(headgate_build_info{version="0.1.0",revision="abc123",compiler="gcc 12.2"} 1)",
        R"(headgate_verdicts_total{target="web",endpoint="otlp-grpc",hook="sk_lookup",verdict="admit",reason="none"} 270)",
        R"(headgate_verdicts_total{target="web",endpoint="otlp-grpc",hook="sk_lookup",verdict="admit",reason="exempt"} 20)",
        R"(headgate_verdicts_total{target="web",endpoint="otlp-grpc",hook="sk_lookup",verdict="admit",reason="ticket"} 10)",
        R"(headgate_verdicts_total{target="web",endpoint="otlp-grpc",hook="sk_lookup",verdict="refuse",reason="share"} 700)",
        R"(headgate_would_refuse_total{target="web",endpoint="otlp-grpc",hook="sk_lookup",reason="share"} 730)",
        R"(headgate_attempts_offered_total{target="web",endpoint="otlp-grpc"} 1000)",
        R"(headgate_attempts_reset_total{target="web",endpoint="otlp-grpc"} 700)",
        R"(headgate_admit_ratio{target="web",endpoint="otlp-grpc"} 0.25)",
        R"(headgate_admit_ratio{target="web",endpoint="statsd"} 1)",
        R"(headgate_water_level_ratio{target="web",resource="cpu",kind="raw"} 1.25)",
        R"(headgate_water_level_ratio{target="web",resource="cpu",kind="slow"} 0.9)",
        R"(headgate_water_level_ratio{target="web",resource="memory",kind="raw"} 0.586)",
        R"(headgate_threshold_ratio{target="web",threshold="enter"} 0.8)",
        R"(headgate_state{target="web",state="shedding"} 1)",
        R"(headgate_state{target="web",state="normal"} 0)",
        R"(headgate_state{target="web",state="open"} 0)",
        R"(headgate_sample_age_seconds{target="web"} 0.05)",
        R"(headgate_limit_source{target="web",resource="cpu",source="own"} 1)",
        R"(headgate_limit_source{target="web",resource="memory",source="ancestor"} 1)",
        R"(headgate_hook_info{target="web",hook="sk_lookup",where="netns 4026532281",mode="attached",variant="atomic",prog_id="42"} 1)",
        R"(headgate_attach_errors_total{hook="sk_lookup",errno="EPERM"} 3)",
        R"(headgate_map_update_errors_total 0)", R"(headgate_config_last_reload_successful 1)",
        R"(headgate_orphans_removed_total 4)", R"(headgate_mode{mode="enforce"} 1)",
        R"(headgate_mode{mode="observe"} 0)", R"(headgate_kill_switch 0)",
        R"(headgate_lease_valid{target="web"} 1)",
        R"(headgate_connections_in_flight{target="web",endpoint="otlp-grpc"} 9)",
        R"(headgate_waiting_attempts{target="web"} 7)",
        R"(headgate_tick_duration_seconds_bucket{le="6.25e-05"} 10)",
        R"(headgate_tick_duration_seconds_bucket{le="0.00025"} 15)",
        R"(headgate_tick_duration_seconds_bucket{le="+Inf"} 16)",
        R"(headgate_tick_duration_seconds_count 16)", R"(headgate_tick_duration_seconds_sum 0.5)",
        R"(headgate_ticks_missed_total 2)", R"(process_cpu_seconds_total 1.5)",
        R"(process_resident_memory_bytes 20971520)"));

TEST(Metrics, RequestsHaveSeriesOfTheirOwn) {
  AgentSnapshot agent = busy_snapshot();
  agent.targets[0].endpoints = test::port_with_routes();
  const std::string text = to_metrics(agent);
  const auto lines = lines_of(text);
  const std::string route = R"({target="web",endpoint="otlp-http/traces"})";
  const std::string verdict =
      R"(headgate_verdicts_total{target="web",endpoint="otlp-http/traces",hook="requests",verdict=)";
  for (const std::string& line :
       {"headgate_requests_offered_total" + route + " 100",
        "headgate_requests_answered_total" + route + " 40",
        std::string(
            R"x(headgate_requests_answered_total{target="web",endpoint="otlp-http/(rest)"} 0)x"),
        "headgate_request_bytes_total" + route + " 102400",
        "headgate_request_response_seconds_total" + route + " 0.55",
        "headgate_requests_in_flight" + route + " 5", "headgate_admit_ratio" + route + " 0.5",
        std::string(
            R"(headgate_requests_unknown_total{target="web",endpoint="otlp-http",reason="tls"} 3)"),
        std::string(
            R"(headgate_requests_unknown_total{target="web",endpoint="otlp-http",reason="old"} 0)"),
        std::string(
            R"(headgate_unrecognized_connections_ratio{target="web",endpoint="otlp-http"} 0.25)"),
        verdict + R"("refuse",reason="share"} 40)", verdict + R"("admit",reason="none"} 56)",
        verdict + R"("admit",reason="guarded"} 4)"}) {
    EXPECT_TRUE(lines.contains(line)) << line << " is not in\n" << text;
  }
  EXPECT_THAT(text, Not(HasSubstr(R"(attempts_offered_total{target="web",endpoint="otlp-http/)")))
      << "a request is no attempt to connect";
  EXPECT_THAT(text, Not(HasSubstr(R"(connections_in_flight{target="web",endpoint="otlp-http/)")));
}

TEST(Metrics, OneStateIsSetAndTheHashIsExact) {
  const std::string text = to_metrics(busy_snapshot());
  EXPECT_THAT(text, HasSubstr("\nheadgate_config_hash 76310993685999\n"));  // 0x456789abcdef
  EXPECT_THAT(text,
              HasSubstr("\nheadgate_config_last_reload_success_timestamp_seconds 1767322945\n"));
}

TEST(Metrics, WhatIsNotKnownHasNoSeries) {
  AgentSnapshot agent;
  agent.targets.push_back(unknown_target("x"));
  const std::string text = to_metrics(agent);
  EXPECT_THAT(text, Not(HasSubstr("headgate_water_level_ratio")));
  EXPECT_THAT(text, Not(HasSubstr("headgate_sample_age_seconds")));
  EXPECT_THAT(text, Not(HasSubstr("headgate_admit_ratio")));
  EXPECT_THAT(text, Not(HasSubstr("headgate_connections_in_flight")));
  EXPECT_THAT(text, Not(HasSubstr("headgate_cpu_limit_cores")));
  EXPECT_THAT(text, Not(HasSubstr("headgate_limit_source")));
  EXPECT_THAT(text, Not(HasSubstr("process_resident_memory_bytes")));
  EXPECT_THAT(text, Not(HasSubstr("Nan")));
  EXPECT_THAT(text, HasSubstr("headgate_state{target=\"x\",state=\"unknown\"} 1\n"));
}

TEST(Metrics, AnOpenCircuitAdmitsNothing) {
  AgentSnapshot agent = busy_snapshot();
  agent.targets[0].state = State::kOpen;
  agent.targets[0].endpoints[0].policy.flags |= HEADGATE_ARM_CIRCUIT;
  EXPECT_THAT(to_metrics(agent),
              HasSubstr("headgate_admit_ratio{target=\"web\",endpoint=\"otlp-grpc\"} 0\n"));
}

TEST(Metrics, TwoInstancesOfOneTargetStayApart) {
  AgentSnapshot agent;
  agent.targets = {unknown_target("x"), unknown_target("x"), unknown_target("x")};
  agent.targets[1].instance = "/b";
  agent.targets[2].instance = "/b";
  const std::string text = to_metrics(agent);
  lines_of(text);
  EXPECT_THAT(text, HasSubstr("headgate_target_present{target=\"x\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("headgate_target_present{target=\"x@/b\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("headgate_target_present{target=\"x@/b#2\"} 1\n"));
}

TEST(Metrics, PodsOfOneTargetHaveLabelsOfTheirOwn) {
  AgentSnapshot agent;
  agent.targets = {unknown_target("x"), unknown_target("x"), unknown_target("x")};
  agent.targets[0].instance = "obs/a/otc";
  agent.targets[0].pod = {"obs", "a", "uid-a", "otc"};
  agent.targets[1].instance = "obs/b/otc";
  agent.targets[1].pod = {"obs", "b", "uid-b", "otc"};
  agent.targets[2].instance = "/kubepods/poduid-c/1";
  agent.targets[2].pod = {"", "", "uid-c", "1"};
  const std::string text = to_metrics(agent);
  lines_of(text);
  EXPECT_THAT(text, HasSubstr("headgate_target_present{target=\"x\",namespace=\"obs\",pod=\"a\","
                              "container=\"otc\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("headgate_target_present{target=\"x\",namespace=\"obs\",pod=\"b\","
                              "container=\"otc\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("headgate_target_present{target=\"x\",namespace=\"\","
                              "pod=\"uid-c\",container=\"1\"} 1\n"));
}

TEST(Metrics, WhoTellsOfPods) {
  AgentSnapshot agent;
  EXPECT_THAT(to_metrics(agent), Not(HasSubstr("headgate_pods_")));
  agent.pods.emplace();
  agent.pods->source = "api";
  agent.pods->where = "https://10.96.0.1:443";
  agent.pods->node_name = "n1";
  agent.pods->synced = true;
  agent.pods->pods = 31;
  agent.pods->expired = 2;
  agent.pods->heard_age_s = 1.5;
  const std::string text = to_metrics(agent);
  lines_of(text);
  EXPECT_THAT(text, HasSubstr("headgate_pods_info{source=\"api\",where=\"https://10.96.0.1:443\","
                              "node=\"n1\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("headgate_pods_synced 1\n"));
  EXPECT_THAT(text, HasSubstr("headgate_pods_known 31\n"));
  EXPECT_THAT(text, HasSubstr("headgate_pods_expired_total 2\n"));
  EXPECT_THAT(text, HasSubstr("headgate_pods_heard_age_seconds 1.5\n"));
}

TEST(Metrics, RestartsOfATargetAreCounted) {
  AgentSnapshot agent = busy_snapshot();
  agent.targets[0].restarts = 3;
  EXPECT_THAT(to_metrics(agent), HasSubstr("headgate_target_restarts_total{target=\"" +
                                           agent.targets[0].name + "\"} 3\n"));
}

TEST(Metrics, ReadErrorsAreSummedByFileName) {
  AgentSnapshot agent = busy_snapshot();
  agent.targets.push_back(unknown_target("x"));
  agent.targets[0].sample_errors_by_file = {{{"/sys/fs/cgroup/a/cpu.stat", Unknown::kParse}, 2}};
  agent.targets[1].sample_errors_by_file = {{{"/sys/fs/cgroup/b/cpu.stat", Unknown::kParse}, 3}};
  EXPECT_THAT(to_metrics(agent),
              HasSubstr("headgate_sample_errors_total{file=\"cpu.stat\",reason=\"parse\"} 5\n"));
}

TEST(Metrics, ACounterReadBeforeItsPartDoesNotWrap) {
  AgentSnapshot agent = busy_snapshot();
  agent.targets[0].endpoints[0].counters.admitted = 5;  // less than exempt + probe
  EXPECT_THAT(to_metrics(agent), HasSubstr("verdict=\"admit\",reason=\"none\"} 0\n"));
}

TEST(Metrics, NoNameBreaksTheFormat) {
  AgentSnapshot agent = busy_snapshot();
  agent.targets[0].name = "quote\" back\\ line\n bad\xff";
  EXPECT_THAT(to_metrics(agent),
              HasSubstr("target=\"quote\\\" back\\\\ line\\n bad\xef\xbf\xbd\""));
}

TEST(Metrics, PromtoolHasNothingToSay) {
  if (std::system("command -v promtool >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "promtool (package prometheus) is not installed";
  }
  AgentSnapshot agent = busy_snapshot();
  agent.targets.push_back(unknown_target("x"));
  agent.targets[1].sample_errors_by_file = {{{"cpu.stat", Unknown::kParse}, 3}};
  const std::string base = testing::TempDir() + "headgate_metrics_" + std::to_string(getpid());
  std::ofstream(base) << to_metrics(agent);
  const std::string command = "promtool check metrics <'" + base + "' >'" + base + ".out' 2>&1";
  const int status = std::system(command.c_str());
  std::ostringstream said;
  said << std::ifstream(base + ".out").rdbuf();
  std::remove(base.c_str());
  std::remove((base + ".out").c_str());
  EXPECT_EQ(status, 0) << said.str();
  EXPECT_EQ(said.str(), "");
}

}  // namespace
}  // namespace headgate::web
