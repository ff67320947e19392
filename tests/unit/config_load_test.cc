// SPDX-License-Identifier: Apache-2.0
// What a configuration means. What is wrong with one: config_problems_test.cc.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/base/hash.h"
#include "agent/config/load.h"
#include "tests/unit/config_strategies.h"

namespace headgate {
namespace {

using test::strategy_table;
using testing::ElementsAre;
using testing::HasSubstr;

LoadedConfig load(std::string_view text) { return load_config(text, "t.yaml", strategy_table()); }

std::string report(const LoadedConfig& loaded) {
  std::string out;
  for (const Problem& problem : loaded.problems) {
    out += to_string(problem) + "\n";
  }
  return out;
}

Config must_load(std::string_view text) {
  LoadedConfig loaded = load(text);
  EXPECT_TRUE(loaded.valid()) << report(loaded);
  return std::move(loaded.config);
}

/// One target with these lines (indented by 4) besides name and match.
std::string target(std::string_view lines) {
  return "apiVersion: headgate/v1\ntargets:\n  - name: a\n    match: {cgroup: /a}\n" +
         std::string(lines);
}
constexpr std::string_view kEndpoints = "    endpoints: [{port: 80}]\n";

class SampleFile : public testing::Test {
 protected:
  LoadedConfig loaded = load_config_file(
      std::string(HEADGATE_SOURCE_DIR) + "/tests/data/config/design.yaml", strategy_table());
};

TEST_F(SampleFile, IsReadWithoutAWarning) {
  EXPECT_TRUE(loaded.valid());
  EXPECT_EQ(report(loaded), "");
  EXPECT_EQ(loaded.config.targets.size(), 3U);
  EXPECT_NE(loaded.config.hash, 0U);
}

TEST_F(SampleFile, GivesEveryValue) {
  ASSERT_EQ(loaded.config.targets.size(), 3U);
  const TargetConfig& t = loaded.config.targets[0];
  EXPECT_EQ(t.name, "otel-gateway");
  EXPECT_EQ(std::get<MatchUnit>(t.match).unit, "otelcol.service");
  EXPECT_EQ(t.capacity.cpu_cores, 1.5);
  EXPECT_EQ(t.capacity.memory_bytes, 3ULL << 30U);
  EXPECT_EQ(t.mode, Mode::kObserve);
  EXPECT_EQ(t.strategy.name, "graded");
  EXPECT_EQ(t.strategy.params.numbers.at("enter"), 0.85);
  EXPECT_EQ(t.strategy.params.numbers.at("hold"), 0.57);
  EXPECT_EQ(t.max_refuse.value(), 0.5);
  EXPECT_EQ(t.max_refuse_duration, std::chrono::minutes(15));
  EXPECT_THAT(t.exempt.sources.value(), ElementsAre("node", "10.9.0.0/16", "fd00::/8"));
  ASSERT_EQ(t.endpoints.size(), 3U);
  EXPECT_EQ(t.endpoints[0].protocol, Protocol::kGrpc);
  EXPECT_EQ(t.endpoints[0].refuse.form, RefuseForm::kAuto);
  EXPECT_EQ(t.endpoints[0].floor.value(), 0.2);
  EXPECT_EQ(t.endpoints[1].refuse.form, RefuseForm::kDefer);
  EXPECT_EQ(t.endpoints[1].refuse.defer_deadline, std::chrono::seconds(8));
  EXPECT_EQ(t.endpoints[2].criticality, Criticality::kSheddablePlus);
  EXPECT_EQ(t.endpoints[2].refuse.form, RefuseForm::kReset);
  const TargetConfig& curve = loaded.config.targets[1];
  EXPECT_EQ(std::get<MatchCgroup>(curve.match).path, "/my/collector");
  EXPECT_EQ(curve.strategy.params.words.at("signal"), "cpu_fast");
  EXPECT_THAT(curve.strategy.params.points, ElementsAre(CurvePoint{0.7, 0}, CurvePoint{0.9, 0.95}));
  const TargetConfig& drill = loaded.config.targets[2];
  EXPECT_EQ(std::get<MatchProcess>(drill.match).exe, "/usr/bin/otelcol");
  EXPECT_EQ(drill.strategy.params.numbers.at("admit"), 0.7);
}

TEST_F(SampleFile, C14_EveryRuleKnowsItsLine) {
  ASSERT_EQ(loaded.config.targets.size(), 3U);
  const TargetConfig& t = loaded.config.targets[0];
  EXPECT_EQ(loaded.config.source,
            std::string(HEADGATE_SOURCE_DIR) + "/tests/data/config/design.yaml");
  EXPECT_EQ(t.place.line, 7);
  EXPECT_EQ(t.place.column, 5);
  EXPECT_EQ(t.strategy.place.line, 12);
  EXPECT_EQ(t.endpoints[0].place.line, 19);
  EXPECT_EQ(t.endpoints[1].place.line, 20);
  EXPECT_EQ(t.endpoints[2].place.line, 24);
  EXPECT_EQ(loaded.config.targets[1].endpoints[1].place.line, 29) << "of its range";
}

TEST(ConfigLoad, LeavesTheDefaultsWhereNothingIsGiven) {
  const Config config = must_load(target(kEndpoints));
  EXPECT_EQ(config.mode, Mode::kEnforce);
  EXPECT_EQ(config.tick, std::chrono::milliseconds(100));
  EXPECT_EQ(config.lease, std::chrono::seconds(1));
  const TargetConfig& t = config.targets.at(0);
  EXPECT_EQ(t.mode, std::nullopt);
  EXPECT_EQ(t.capacity.cpu_cores, std::nullopt);
  EXPECT_EQ(t.exempt.sources, std::nullopt);
  EXPECT_EQ(t.strategy.name, "adaptive");
  EXPECT_EQ(t.strategy.params.numbers.at("drain"), 0.2) << "defaults of the law are shown";
  EXPECT_EQ(t.endpoints.at(0).name, "tcp-80");
  EXPECT_EQ(t.endpoints.at(0).refuse.form, RefuseForm::kReset);
}

TEST(ConfigLoad, WrittenDefaultsChangeNothing) {
  EXPECT_EQ(must_load(target(kEndpoints)),
            must_load("mode: enforce\ntick: 100ms\nlease: 1s\n" +
                      target("    capacity: {cpu: auto, memory: auto}\n"
                             "    strategy: adaptive\n    target: 0.9\n"
                             "    memory: {shed: 0.8, open: 0.92, close: 0.87, live_budget: auto}\n"
                             "    max_refuse: 1\n    max_refuse_duration: 0s\n    storm: auto\n"
                             "    exempt: {rate: 20, paths: []}\n"
                             "    endpoints: [{name: tcp-80, port: 80, protocol: tcp, "
                             "criticality: critical, floor: 0, refuse: reset}]\n")));
}

TEST(ConfigLoad, TheFormOfARefusalFollowsTheProtocol) {
  const Config config = must_load(
      target("    endpoints: [{port: 1}, {port: 2, protocol: udp}, {port: 3, protocol: http}, "
             "{port: 4, protocol: grpc}]\n"));
  const auto& endpoints = config.targets.at(0).endpoints;
  EXPECT_EQ(endpoints.at(0).refuse.form, RefuseForm::kReset);
  EXPECT_EQ(endpoints.at(1).refuse.form, RefuseForm::kReset);
  EXPECT_EQ(endpoints.at(2).refuse.form, RefuseForm::kAuto);
  EXPECT_EQ(endpoints.at(3).refuse.form, RefuseForm::kAuto);
}

TEST(ConfigLoad, TcpAndUdpOfOnePortAreTwoEndpoints) {
  EXPECT_EQ(must_load(target("    endpoints: [{port: 53}, {port: 53, protocol: udp}]\n"))
                .targets.at(0)
                .endpoints.size(),
            2U);
}

TEST(ConfigLoad, C12_ARangeBecomesOneEndpointAPort) {
  const Config config =
      must_load(target("    endpoints: [{name: otlp, port: 4317-4318}, {port: [80, 90-91]}]\n"));
  std::vector<std::string> names;
  for (const EndpointConfig& endpoint : config.targets.at(0).endpoints) {
    names.push_back(endpoint.name + "=" + std::to_string(endpoint.port));
  }
  EXPECT_THAT(names, ElementsAre("otlp-4317=4317", "otlp-4318=4318", "tcp-80=80", "tcp-90=90",
                                 "tcp-91=91"));
}

TEST(ConfigLoad, C06_ScientificIntegersAreNormalisedWithAWarning) {
  const LoadedConfig loaded =
      load(target("    capacity: {memory: 1.048576e+06}\n    endpoints: [{port: 4.317e+03}]\n"));
  ASSERT_TRUE(loaded.valid()) << report(loaded);
  EXPECT_EQ(loaded.config.targets.at(0).capacity.memory_bytes, 1'048'576U);
  EXPECT_EQ(loaded.config.targets.at(0).endpoints.at(0).port, 4317);
  ASSERT_EQ(loaded.problems.size(), 2U);
  EXPECT_EQ(loaded.problems[0].severity, Problem::Severity::kWarning);
  EXPECT_EQ(loaded.problems[0].key, "targets[0].capacity.memory");
  EXPECT_EQ(loaded.problems[0].value, "1.048576e+06");
  EXPECT_THAT(loaded.problems[0].message, HasSubstr("is taken as 1048576"));
  EXPECT_EQ(loaded.problems[1].key, "targets[0].endpoints[0].port");
  EXPECT_THAT(loaded.problems[1].message, HasSubstr("'4.317e+03' is taken as 4317"));
}

TEST(ConfigLoad, AnOffThatATemplateTurnedIntoFalseIsTaken) {
  const LoadedConfig loaded = load("mode: false\n" + target(kEndpoints));
  EXPECT_TRUE(loaded.valid()) << report(loaded);
  EXPECT_EQ(loaded.config.mode, Mode::kOff);
  ASSERT_EQ(loaded.problems.size(), 1U);
  EXPECT_THAT(loaded.problems[0].message, HasSubstr("'false' is taken as off"));
}

TEST(ConfigLoad, TheWeakerModeHolds) {
  Config config;
  TargetConfig t;
  EXPECT_EQ(effective_mode(config, t), Mode::kEnforce);
  t.mode = Mode::kObserve;
  EXPECT_EQ(effective_mode(config, t), Mode::kObserve);
  config.mode = Mode::kOff;
  EXPECT_EQ(effective_mode(config, t), Mode::kOff);
  t.mode = Mode::kEnforce;
  config.mode = Mode::kObserve;
  EXPECT_EQ(effective_mode(config, t), Mode::kObserve);
}

TEST(ConfigLoad, StrategiesHaveFourForms) {
  const auto strategy = [](const std::string& text) {
    return must_load(target("    strategy: " + text + "\n" + std::string(kEndpoints)))
        .targets.at(0)
        .strategy;
  };
  EXPECT_EQ(strategy("fixed"), strategy("{name: fixed}"));
  EXPECT_EQ(strategy("fixed"), strategy("{fixed: {}}"));
  EXPECT_EQ(strategy("{name: fixed, admit: 0.7}"), strategy("{fixed: {admit: 0.7}}"));
  EXPECT_NE(strategy("fixed"), strategy("{fixed: {admit: 0.7}}"));
  EXPECT_THAT(strategy("{hybrid: [graded, fixed]}").params.parts, ElementsAre("graded", "fixed"));
  EXPECT_EQ(strategy("{hybrid: [graded]}").name, "hybrid");
  EXPECT_EQ(strategy("{name: curve, signal: memory, points: [[0.5, 0], [1.5, 1]]}"),
            strategy("{curve: {signal: memory, points: [[0.5, 0], [1.5, 1]]}}"));
}

TEST(ConfigLoad, QuotedValuesAndABomAreRead) {
  EXPECT_EQ(must_load("\xEF\xBB\xBF" + target("    endpoints: [{port: \"80\", floor: '0.5'}]\n")),
            must_load(target("    endpoints: [{port: 80, floor: 0.5}]\n")));
}

TEST(ConfigLoad, APathOfACgroupLosesItsLastSlash) {
  const Config config = must_load(
      "apiVersion: headgate/v1\ntargets: [{name: a, match: {cgroup: /a/b/}, endpoints: [{port: "
      "1}]}]\n");
  EXPECT_EQ(std::get<MatchCgroup>(config.targets.at(0).match).path, "/a/b");
}

TEST(ConfigLoad, TheHashIsThatOfTheText) {
  const std::string text = target(kEndpoints);
  EXPECT_EQ(load(text).config.hash, fnv1a(text));
}

TEST(ConfigLoad, EqualityIsAboutWhatIsSaid) {
  const Config a = must_load(target(kEndpoints));
  EXPECT_EQ(a, must_load("# moved down\n\n" + target(kEndpoints)));
  Config b = a;
  b.targets[0].endpoints[0].floor = Probability::always();
  EXPECT_NE(a, b);
  b = a;
  b.targets[0].memory.close = 0.5;
  EXPECT_NE(a, b);
}

TEST(ConfigLoad, C11_AnInvalidTextSaysSoAndStillNamesItsSource) {
  const LoadedConfig loaded = load("apiVersion: headgate/v1\n");
  EXPECT_FALSE(loaded.valid());
  EXPECT_EQ(loaded.config.source, "t.yaml");
  ASSERT_EQ(loaded.problems.size(), 1U);
  EXPECT_EQ(loaded.problems[0].key, "targets");
}

TEST(ConfigLoad, AFileThatCannotBeReadIsOneProblem) {
  const LoadedConfig loaded = load_config_file("/nonexistent/headgate.yaml", strategy_table());
  EXPECT_EQ(report(loaded),
            "/nonexistent/headgate.yaml: error: cannot be read: open: No such file or directory; "
            "give a readable file with --config\n");
  EXPECT_EQ(report(load_config_file("/tmp", strategy_table())),
            "/tmp: error: cannot be read: it is a directory; give a readable file with --config\n");
}

}  // namespace
}  // namespace headgate
