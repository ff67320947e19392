// SPDX-License-Identifier: Apache-2.0
// Everything that can be wrong with a configuration, with the message it must give, whole: a
// message is what a person has to go by.
#include <cstddef>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include "agent/config/load.h"
#include "tests/unit/config_strategies.h"

namespace headgate {
namespace {

using test::strategy_table;
using testing::AllOf;
using testing::HasSubstr;

LoadedConfig load(std::string_view text) { return load_config(text, "f", strategy_table()); }

std::string report(std::string_view text) {
  std::string out;
  for (const Problem& problem : load(text).problems) {
    out += (out.empty() ? "" : "\n") + to_string(problem);
  }
  return out;
}

struct Case {
  const char* name;
  std::string text;
  std::string expected;  ///< all problems, one a line
};
void PrintTo(const Case& row, std::ostream* out) { *out << row.name; }  // NOLINT: gtest's name

/// Line 4 is `line`, within the target; line 5 has its endpoints.
std::string in_target(const std::string& line) {
  return "apiVersion: headgate/v1\ntargets:\n- {name: a, match: {unit: a.service},\n   " + line +
         ",\n   endpoints: [{port: 80}]}\n";
}
/// Line 4 has the keys of an endpoint besides `port: 80`.
std::string in_endpoint(const std::string& keys) {
  return "apiVersion: headgate/v1\ntargets:\n- {name: a, match: {unit: a.service}, endpoints: [{\n"
         "   port: 80, " +
         keys + "}]}\n";
}
std::string with_port(const std::string& port) {
  return "apiVersion: headgate/v1\ntargets:\n- {name: a, match: {unit: a.service}, endpoints: [{\n"
         "   port: " +
         port + "}]}\n";
}
std::string with_match(const std::string& match) {
  return "apiVersion: headgate/v1\ntargets:\n- {name: a, endpoints: [{port: 80}],\n   match: " +
         match + "}\n";
}
std::string at_top(const std::string& lines) {
  return "apiVersion: headgate/v1\ntargets: []\n" + lines;
}
const std::string kNoTargets = "f:2:10: warning: targets: the list is empty: nothing is protected";
const std::string kPorts =
    "; allowed: a port from 1 to 65535, a range such as 4317-4318, or a list of them";
const std::string kTargetKeys =
    "Allowed here: name, match, capacity, mode, strategy, target, memory, max_refuse, "
    "max_refuse_duration, storm, exempt, endpoints";

std::vector<Case> cases() {
  return {
#include "tests/unit/config_problems.inc"
  };
}

class ConfigProblem : public testing::TestWithParam<Case> {};

TEST_P(ConfigProblem, HasThisMessage) { EXPECT_EQ(report(GetParam().text), GetParam().expected); }

INSTANTIATE_TEST_SUITE_P(Table, ConfigProblem, testing::ValuesIn(cases()),
                         [](const auto& row) { return std::string(row.param.name); });

// The premise of reading events: a loader hides the second key.
TEST(ConfigProblems, C08_TheYamlLibraryItselfAcceptsDuplicates) {
  const YAML::Node node = YAML::Load("mode: off\nmode: enforce\n");
  EXPECT_EQ(node["mode"].as<std::string>(), "off");
}

TEST(ConfigProblems, C08_DuplicateKeysAreErrorsWithBothLines) {
  const LoadedConfig loaded = load(
      "apiVersion: headgate/v1\nmode: off\ntargets:\n  - name: a\n    match: {unit: a.service}\n"
      "    endpoints:\n      - port: 80\n        floor: 0.1\n        floor: 0.2\nmode: enforce\n");
  EXPECT_FALSE(loaded.valid());
  ASSERT_EQ(loaded.problems.size(), 2U);
  EXPECT_EQ(loaded.problems[0].key, "targets[0].endpoints[0].floor");
  EXPECT_THAT(loaded.problems[0].message, HasSubstr("lines 8 and 9"));
  EXPECT_EQ(loaded.problems[1].key, "mode");
  EXPECT_EQ(loaded.problems[1].value, "enforce");
  EXPECT_THAT(loaded.problems[1].message, HasSubstr("lines 2 and 10"));
}

TEST(ConfigProblems, C09_AnUnknownKeyNamesTheNearestAndWhatIsAllowed) {
  const LoadedConfig loaded = load(in_target("strategy: {name: graded, entre: 0.8}"));
  ASSERT_EQ(loaded.problems.size(), 1U);
  EXPECT_EQ(loaded.problems[0].key, "targets[0].strategy.entre");
  EXPECT_EQ(loaded.problems[0].value, "0.8");
  EXPECT_EQ(loaded.problems[0].nearest, "enter");
  EXPECT_EQ(loaded.problems[0].place.line, 4);
  EXPECT_THAT(loaded.problems[0].message,
              AllOf(HasSubstr("did you mean 'enter'?"), HasSubstr("name, enter, exit, hold")));
}

TEST(ConfigProblems, C09_TresholdHasANearestNameWhereverItStands) {
  for (const std::string& text :
       {at_top("treshold: 0.8\n"), in_target("treshold: 0.8"), in_endpoint("treshold: 0.8"),
        in_target("memory: {treshold: 0.8}"), in_target("strategy: {name: graded, treshold: 0.8}"),
        in_target("exempt: {treshold: 0.8}"), in_target("capacity: {treshold: 0.8}")}) {
    const LoadedConfig loaded = load(text);
    EXPECT_FALSE(loaded.valid()) << text;
    bool found = false;
    for (const Problem& problem : loaded.problems) {
      found = found || (problem.key.ends_with("treshold") && !problem.nearest.empty());
    }
    EXPECT_TRUE(found) << text;
  }
}

TEST(ConfigProblems, C12_TwoRulesForOnePortNameBoth) {
  const LoadedConfig loaded = load(
      "apiVersion: headgate/v1\ntargets:\n- name: a\n  match: {unit: a.service}\n  endpoints:\n"
      "  - {name: one, port: 4317-4320}\n  - {name: two, port: 4320, protocol: grpc}\n"
      "- name: b\n  match: {unit: a.service}\n  endpoints:\n  - {name: three, port: 4318}\n");
  EXPECT_FALSE(loaded.valid());
  ASSERT_EQ(loaded.problems.size(), 2U);
  EXPECT_EQ(loaded.problems[0].key, "targets[0].endpoints[1].port");
  EXPECT_THAT(loaded.problems[0].message,
              AllOf(HasSubstr("TCP port 4320"), HasSubstr("'one-4320' of target 'a' (line 6)"),
                    HasSubstr("'two' of target 'a' (line 7)")));
  EXPECT_THAT(loaded.problems[1].message,
              AllOf(HasSubstr("TCP port 4318"), HasSubstr("'one-4318' of target 'a' (line 6)"),
                    HasSubstr("'three' of target 'b' (line 11)")));
}

TEST(ConfigProblems, ACgroupWithinAnotherTargetsIsAWarning) {
  const LoadedConfig loaded = load(
      "apiVersion: headgate/v1\ntargets:\n"
      "- {name: a, match: {cgroup: /x}, endpoints: [{port: 80}]}\n"
      "- {name: b, match: {cgroup: /x/y}, endpoints: [{port: 80}, {port: 81}]}\n"
      "- {name: c, match: {cgroup: /xy}, endpoints: [{port: 80}]}\n");
  EXPECT_TRUE(loaded.valid());
  ASSERT_EQ(loaded.problems.size(), 1U);
  EXPECT_EQ(loaded.problems[0].key, "targets[1].endpoints[0].port");
  EXPECT_THAT(loaded.problems[0].message, HasSubstr("target 'a' (line 3)"));
}

TEST(ConfigProblems, AreInTheOrderOfTheFileAndAllThere) {
  EXPECT_EQ(load(at_top("tick: 1\nlease: 2\nmode: on\nx: 1\n")).problems.size(), 5U);
  int line = 0;
  for (const Problem& p : load(at_top("tick: 1\nlease: 2\nmode: on\nx: 1\n")).problems) {
    EXPECT_GT(p.place.line, line);
    line = p.place.line;
  }
}

TEST(ConfigProblems, AHostileTextGivesABoundedReport) {
  std::string text = "apiVersion: headgate/v1\ntargets: []\n";
  for (int i = 0; i < 5000; ++i) {
    text += "k" + std::to_string(i) + ": 1\n";
  }
  EXPECT_EQ(load(text).problems.size(), 1000U);
  EXPECT_EQ(load(std::string((1U << 20U) + 1, '#')).problems.size(), 1U);
  EXPECT_EQ(load(std::string(100000, '[')).problems.size(), 1U);
  EXPECT_FALSE(load(std::string(1000, '[') + std::string(1000, ']')).valid());
  std::string ports = "1";
  for (int port = 3; port < 65536; port += 2) {
    ports += "," + std::to_string(port);
  }
  EXPECT_THAT(report(with_port("\"" + ports + "\"")), HasSubstr("allowed: at most 4096 in all"));
}

TEST(ConfigProblems, ALongValueIsCut) {
  const std::string value(5000, 'x');
  const LoadedConfig loaded = load(at_top("mode: " + value + "\n"));
  ASSERT_EQ(loaded.problems.size(), 2U);
  EXPECT_LT(loaded.problems[1].value.size(), 100U);
  EXPECT_LT(loaded.problems[1].message.size(), 300U);
}

}  // namespace
}  // namespace headgate
