// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "agent/web/health.h"
#include "agent/web/state_json.h"
#include "agent/web/words.h"
#include "tests/unit/web_snapshot.h"

namespace headgate::web {
namespace {

using nlohmann::json;
using test::busy_snapshot;
using test::unknown_target;
using testing::HasSubstr;
using testing::Not;

json state_of(const AgentSnapshot& snapshot) { return json::parse(to_state_json(snapshot)); }

std::string reason_of(const json& target, const std::string& signal) {
  for (const json& entry : target["unknown"]) {
    if (entry["signal"] == signal) {
      return entry["reason"];
    }
  }
  return "";
}

TEST(StateJson, CarriesTheSnapshot) {
  const json state = state_of(busy_snapshot());
  EXPECT_EQ(state["schema"], 1);
  EXPECT_EQ(state["time"], "2026-01-02T03:04:05Z");
  EXPECT_EQ(state["mode"], "enforce");
  EXPECT_EQ(state["config"]["hash"], "0123456789abcdef");
  EXPECT_EQ(state["attach_errors"][0]["errno"], "EPERM");
  const json& web = state["targets"][0];
  EXPECT_EQ(web["state"], "shedding");
  EXPECT_EQ(web["cpu"]["effective_cores"], 0.5);
  EXPECT_EQ(web["cpu"]["raw_ratio"], 1.25);
  EXPECT_EQ(web["memory"]["working_set_bytes"], 150U << 20);
  EXPECT_EQ(web["memory"]["source"], "ancestor");
  EXPECT_EQ(web["thresholds"]["enter"], 0.8);
  EXPECT_EQ(web["transitions"][0]["to"], "shedding");
  EXPECT_EQ(web["hooks"][0]["program_id"], 42);
  EXPECT_TRUE(web["unknown"].empty());
  const json& grpc = web["endpoints"][0];
  EXPECT_EQ(grpc["protocol"], "grpc");
  EXPECT_EQ(grpc["admit_ratio"], 0.25);
  EXPECT_EQ(grpc["reason"], "share");
  EXPECT_EQ(grpc["counters"]["refused"]["share"], 700);
  EXPECT_EQ(grpc["rates_per_second"]["offered"], 400);
  EXPECT_EQ(grpc["policy"]["armed"], json::array({"share"}));
  EXPECT_EQ(grpc["in_flight"], 9);
  EXPECT_TRUE(web["endpoints"][1]["in_flight"].is_null());
}

TEST(StateJson, ARouteSaysWhatItIsAndAPortWhatCouldNotBeRead) {
  AgentSnapshot agent = busy_snapshot();
  agent.targets[0].endpoints = test::port_with_routes();
  const json endpoints = state_of(agent)["targets"][0]["endpoints"];
  const json& port = endpoints[0];
  EXPECT_EQ(port["unit"], "connection");
  EXPECT_EQ(port["refuse"], "auto");
  EXPECT_EQ(port["unrecognized_ratio"], 0.25);
  EXPECT_EQ(port["unknown_requests"]["tls"]["count"], 3);
  EXPECT_EQ(port["unknown_requests"]["tls"]["means"], "TLS: nothing can be seen");
  EXPECT_FALSE(port["unknown_requests"].contains("old")) << "only what has happened";
  const json& route = endpoints[1];
  EXPECT_EQ(route["name"], "otlp-http/traces");
  EXPECT_EQ(route["unit"], "request");
  EXPECT_EQ(route["hook"], "requests");
  EXPECT_EQ(route["path"], "/v1/traces");
  EXPECT_EQ(route["refuse"], "429");
  EXPECT_EQ(route["counters"]["answered"], 40);
  EXPECT_EQ(route["counters"]["admitted_guarded"], 4);
  EXPECT_DOUBLE_EQ(route["response_seconds"], 0.01);
  EXPECT_TRUE(route["unrecognized_ratio"].is_null());
  EXPECT_EQ(endpoints[2]["refusable"], false);
  EXPECT_TRUE(endpoints[2]["path"].is_null());
  EXPECT_TRUE(endpoints[2]["response_seconds"].is_null()) << "none has been answered";
}

TEST(StateJson, WithoutALeaseEverythingIsAdmittedWhateverThePolicySays) {
  AgentSnapshot agent = busy_snapshot();
  agent.targets[0].state = State::kUnknown;
  agent.targets[0].lease_valid = false;
  agent.targets[0].endpoints[0].policy.flags = HEADGATE_ARM_CIRCUIT;
  const json grpc = state_of(agent)["targets"][0]["endpoints"][0];
  EXPECT_EQ(grpc["admit_ratio"], 1.0);
  EXPECT_EQ(grpc["reason"], "none");
}

TEST(StateJson, AnUnknownNumberIsNullAndItsReasonIsGiven) {
  AgentSnapshot agent = busy_snapshot();
  agent.targets[0].signals.cpu_slow = Unknown::kFirstSample;
  agent.targets[0].sample.memory_inactive_file_bytes = Unknown::kParse;
  agent.targets[0].sample_age_s.reset();
  const json state = state_of(agent);
  const json& web = state["targets"][0];
  EXPECT_TRUE(web["cpu"]["slow_ratio"].is_null());
  EXPECT_EQ(reason_of(web, "cpu.slow_ratio"), "first_sample");
  EXPECT_TRUE(web["memory"]["working_set_bytes"].is_null());
  EXPECT_EQ(reason_of(web, "memory.working_set_bytes"), "parse");
  EXPECT_TRUE(web["sample_age_seconds"].is_null());
}

TEST(StateJson, NoLimitIsKnownToBeNone) {
  AgentSnapshot agent = busy_snapshot();
  agent.targets[0].sample.limits.memory_bytes = Unknown::kNoLimit;
  agent.targets[0].sample.limits.memory_source = LimitSource::kUnlimited;
  const json state = state_of(agent);
  const json& web = state["targets"][0];
  EXPECT_TRUE(web["memory"]["limit_bytes"].is_null());
  EXPECT_EQ(web["memory"]["source"], "unlimited");
  EXPECT_EQ(reason_of(web, "memory.limit_bytes"), "");
}

TEST(StateJson, ALimitThatWasNotReadIsNotCalledUnlimited) {
  AgentSnapshot agent;
  agent.targets.push_back(unknown_target("x"));
  const json state = state_of(agent);
  EXPECT_TRUE(state["targets"][0]["cpu"]["source"].is_null());
  EXPECT_EQ(reason_of(state["targets"][0], "cpu.effective_cores"), "not_read");
}

TEST(StateJson, AnyBytesInATextGiveValidJson) {
  AgentSnapshot agent = busy_snapshot();
  agent.targets[0].why = "\"\\\n\xff<script>";
  EXPECT_EQ(state_of(agent)["targets"][0]["why"], "\"\\\n\uFFFD<script>");
}

TEST(StateJson, IsOneLine) {
  EXPECT_EQ(to_state_json(busy_snapshot()).find('\n'), std::string::npos);
}

TEST(DebugJson, TargetsSayWhereTheLimitsComeFrom) {
  const json debug = json::parse(to_targets_json(busy_snapshot()));
  EXPECT_EQ(debug["targets"][0]["cpu"]["source"], "own");
  EXPECT_EQ(debug["targets"][0]["config"], "/etc/headgate/headgate.yaml:4");
}

TEST(DebugJson, DecisionsOfOneTargetOrOfAll) {
  AgentSnapshot agent = busy_snapshot();
  agent.targets.push_back(unknown_target("x"));
  EXPECT_EQ(json::parse(*to_decisions_json(agent, ""))["decisions"].size(), 2U);
  const json one = json::parse(*to_decisions_json(agent, "web"));
  ASSERT_EQ(one["decisions"].size(), 1U);
  EXPECT_EQ(one["decisions"][0]["transitions"][0]["from"], "normal");
  EXPECT_FALSE(to_decisions_json(agent, "nobody").has_value());
}

TEST(Readiness, BeforeTheFirstTickIsNotReady) {
  EXPECT_FALSE(is_ready(readiness(nullptr)));
  EXPECT_THAT(to_text(readiness(nullptr), false), HasSubstr("[-]loop failed: the first tick"));
}

TEST(Readiness, ABusyAgentIsReadyWhateverItRefuses) {
  AgentSnapshot agent = busy_snapshot();
  agent.targets[0].state = State::kOpen;
  const auto checks = readiness(&agent);
  EXPECT_TRUE(is_ready(checks));
  EXPECT_EQ(to_text(checks, false), "ok\n");
  EXPECT_EQ(to_text(checks, true),
            "[+]loop ok\n[+]config ok\n[+]programs ok\n[+]sample ok\nreadyz check passed\n");
}

TEST(Readiness, StandbyIsReadyAndSaysSo) {
  AgentSnapshot agent;
  agent.standby = true;
  agent.targets.push_back(unknown_target("x"));
  EXPECT_TRUE(is_ready(readiness(&agent)));
  EXPECT_THAT(to_text(readiness(&agent), true), HasSubstr("[+]standby ok: another agent"));
}

TEST(Readiness, NothingAttachedAndNothingSampledIsNotReady) {
  AgentSnapshot agent;
  agent.targets.push_back(unknown_target("x"));
  const std::string text = to_text(readiness(&agent), false);
  EXPECT_THAT(text, HasSubstr("[-]programs failed"));
  EXPECT_THAT(text, HasSubstr("[-]sample failed"));
}

TEST(Readiness, AbsentTargetsAreNormal) {
  AgentSnapshot agent;
  agent.targets.push_back(unknown_target("x"));
  agent.targets[0].present = false;
  EXPECT_TRUE(is_ready(readiness(&agent)));
}

TEST(Readiness, AHookThatCannotAttachIsDegradedNotFailed) {
  AgentSnapshot agent = busy_snapshot();
  agent.targets[0].hooks = {{"sk_lookup", "netns 1", "off", "", 0, 1, "add CAP_NET_ADMIN"}};
  const auto checks = readiness(&agent);
  EXPECT_TRUE(is_ready(checks));
  EXPECT_THAT(to_text(checks, true),
              HasSubstr("[!]hook degraded: sk_lookup of web (EPERM): add CAP_NET_ADMIN\n"));
}

// Case C11 (AuthTranslator): a bad reload keeps the last good configuration, and stays ready.
TEST(Readiness, AFailedReloadStaysReady) {
  AgentSnapshot agent = busy_snapshot();
  agent.config_last_reload_successful = false;
  agent.config_last_error = "headgate.yaml:3: unknown key";
  const auto checks = readiness(&agent);
  EXPECT_TRUE(is_ready(checks));
  EXPECT_THAT(to_text(checks, true), HasSubstr("headgate.yaml:3: unknown key"));
}

TEST(Readiness, ATargetAddedAMomentAgoDoesNotMakeTheAgentUnready) {
  AgentSnapshot agent = busy_snapshot();
  agent.targets.push_back(unknown_target("new"));
  EXPECT_TRUE(is_ready(readiness(&agent)));
}

TEST(Words, OnlyValidUtf8Passes) {
  EXPECT_EQ(valid_utf8("aé€😀"), "aé€😀");
  EXPECT_EQ(valid_utf8("\xc0\xaf"), "\uFFFD\uFFFD");            // overlong
  EXPECT_EQ(valid_utf8("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD");  // surrogate
  EXPECT_EQ(valid_utf8("x\xe2\x82"), "x\uFFFD\uFFFD");          // cut off
}

}  // namespace
}  // namespace headgate::web
