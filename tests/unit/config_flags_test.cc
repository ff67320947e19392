// SPDX-License-Identifier: Apache-2.0
// The command line's configuration, the printed one, and the difference of two.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/config/load.h"
#include "tests/unit/config_strategies.h"

namespace headgate {
namespace {

using test::strategy_table;
using testing::HasSubstr;

Result<Config> flags(const std::vector<std::string>& protect,
                     const std::vector<std::string>& ports) {
  return config_from_flags(protect, ports, Mode::kObserve, strategy_table());
}
std::string error_of(const std::vector<std::string>& protect,
                     const std::vector<std::string>& ports) {
  const auto config = flags(protect, ports);
  return config ? "no error" : config.error().message;
}
Config must_load(std::string_view text) {
  LoadedConfig loaded = load_config(text, "printed", strategy_table());
  for (const Problem& problem : loaded.problems) {
    ADD_FAILURE() << to_string(problem) << "\n" << text;
  }
  return std::move(loaded.config);
}

TEST(ConfigFlags, OneLineProtectsAUnit) {
  const auto config = flags({"unit:otelcol.service"}, {"4317/grpc", "8125/udp", "9091"});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->mode, Mode::kObserve);
  ASSERT_EQ(config->targets.size(), 1U);
  const TargetConfig& target = config->targets[0];
  EXPECT_EQ(target.name, "otelcol.service");
  EXPECT_EQ(std::get<MatchUnit>(target.match).unit, "otelcol.service");
  ASSERT_EQ(target.endpoints.size(), 3U);
  EXPECT_EQ(target.endpoints[0].name, "grpc-4317");
  EXPECT_EQ(target.endpoints[0].protocol, Protocol::kGrpc);
  EXPECT_EQ(target.endpoints[0].refuse.form, RefuseForm::kAuto);
  EXPECT_EQ(target.endpoints[1].protocol, Protocol::kUdp);
  EXPECT_EQ(target.endpoints[1].port, 8125);
  EXPECT_EQ(target.endpoints[2].protocol, Protocol::kTcp);
  EXPECT_EQ(target.endpoints[2].refuse.form, RefuseForm::kReset);
}

TEST(ConfigFlags, EveryKindOfTargetHasItsForm) {
  const auto match = [](const std::string& text) {
    const auto config = flags({text}, {"80"});
    EXPECT_TRUE(config) << text << ": " << config.error().message;
    return config ? config->targets.at(0) : TargetConfig{};
  };
  EXPECT_EQ(std::get<MatchUnit>(match("otelcol.service").match).unit, "otelcol.service");
  EXPECT_EQ(std::get<MatchUnit>(match("unit:a@1.scope").match).unit, "a@1.scope");
  EXPECT_EQ(std::get<MatchCgroup>(match("cgroup:/my/collector").match).path, "/my/collector");
  EXPECT_EQ(std::get<MatchCgroup>(match("cgroup:/my/collector/").match).path, "/my/collector");
  EXPECT_EQ(match("cgroup:/my/collector").name, "my-collector");
  EXPECT_EQ(match("cgroup:/x.slice/a:b:c").name, "x.slice-a-b-c");
  EXPECT_EQ(std::get<MatchProcess>(match("exe:/usr/bin/otelcol").match).exe, "/usr/bin/otelcol");
  EXPECT_EQ(match("process:/usr/bin/otelcol").name, "otelcol");
}

TEST(ConfigFlags, PodsByNameAndByUid) {
  const auto match = [](const std::string& text) {
    auto config = flags({text}, {"80"});
    EXPECT_TRUE(config) << text;
    return std::move(config->targets.at(0));
  };
  EXPECT_EQ(std::get<MatchPods>(match("pod:observability/otc-0").match),
            (MatchPods{.namespaces = {"observability"}, .name = "otc-0"}));
  EXPECT_EQ(std::get<MatchPods>(match("pod:a/b.c/otc").match),
            (MatchPods{.namespaces = {"a"}, .name = "b.c", .container = "otc"}));
  EXPECT_EQ(match("pod:a/b.c/otc").name, "b.c");
  EXPECT_EQ(std::get<MatchPods>(match("pod:4a163a05-439d-484b-8e53-2968bc15824f").match),
            (MatchPods{.uid = "4a163a05-439d-484b-8e53-2968bc15824f"}));
}

TEST(ConfigFlags, NamesStayUnique) {
  const auto config = flags({"exe:/usr/bin/a", "exe:/opt/a", "cgroup:/a"}, {"80"});
  ASSERT_TRUE(config);
  EXPECT_EQ(config->targets[0].name, "a");
  EXPECT_EQ(config->targets[1].name, "a-2");
  EXPECT_EQ(config->targets[2].name, "a-3");
}

TEST(ConfigFlags, ErrorsNameTheFlag) {
  constexpr auto kForms =
      "cgroup:/PATH (below the cgroup root), unit:NAME.service, exe:/PATH/OF/EXECUTABLE, or "
      "pod:NAMESPACE/NAME[/CONTAINER]";
  EXPECT_EQ(error_of({}, {"80"}),
            std::string("--protect is missing; give at least one: ") + kForms);
  EXPECT_EQ(error_of({"unit:a.service"}, {}),
            "--port is missing; give at least one, such as --port 4317/grpc");
  EXPECT_EQ(error_of({"otelcol"}, {"80"}),
            std::string("--protect otelcol: does not say what it is; allowed: ") + kForms);
  EXPECT_EQ(error_of({"unti:a.service"}, {"80"}),
            std::string("--protect unti:a.service: unknown kind 'unti', did you mean 'unit'? "
                        "Allowed: ") +
                kForms);
  EXPECT_EQ(error_of({"pod:name"}, {"80"}),
            "--protect pod:name: is no pod; allowed: NAMESPACE/NAME[/CONTAINER] or "
            "UID[/CONTAINER]");
  EXPECT_THAT(error_of({"pod:ns/"}, {"80"}), HasSubstr("the name of a pod"));
  EXPECT_THAT(error_of({"pod:NS/name"}, {"80"}), HasSubstr("'NS' is not valid here"));
  EXPECT_THAT(error_of({"pod:ns/name/A_B"}, {"80"}), HasSubstr("'A_B' is not valid here"));
  EXPECT_THAT(error_of({"pid:1"}, {"80"}), HasSubstr("does not outlive a restart"));
  EXPECT_THAT(error_of({"cgroup:/"}, {"80"}), HasSubstr("--protect cgroup:/: '/' is not valid"));
  EXPECT_THAT(error_of({"cgroup:/a/../b"}, {"80"}), HasSubstr("is not valid here"));
  EXPECT_EQ(error_of({"cgroup:/sys/fs/cgroup/a"}, {"80"}),
            "--protect cgroup:/sys/fs/cgroup/a: leave the mount point out and write cgroup:/a");
  EXPECT_THAT(error_of({"exe:otelcol"}, {"80"}), HasSubstr("absolute path of an executable"));
  EXPECT_THAT(error_of({"unit:otelcol"}, {"80"}), HasSubstr("ends in .service"));
  EXPECT_EQ(error_of({"unit:a.service", "a.service"}, {"80"}),
            "--protect a.service: is given twice; keep one of them");
  EXPECT_EQ(error_of({"a.service"}, {"0"}),
            "--port 0: '0' is no port; allowed: a port from 1 to 65535, a range such as 4317-4318, "
            "or a list of them, with /tcp, /udp, /http or /grpc behind it, such as 4317/grpc");
  EXPECT_EQ(error_of({"a.service"}, {"80/htpp"}),
            "--port 80/htpp: 'htpp' is not known, did you mean 'http'? Allowed: tcp, udp, http or "
            "grpc");
  EXPECT_EQ(error_of({"a.service"}, {"80", "79-81/http"}),
            "--port 79-81/http: TCP port 80 is given twice; keep one of them");
  EXPECT_THAT(error_of({"a.service"}, {"1-65535"}), HasSubstr("at most 1024 targets and 4096"));
}

TEST(ConfigFlags, TcpAndUdpOfOnePortAreTwoEndpoints) {
  EXPECT_EQ(flags({"a.service"}, {"53", "53/udp"}).value().targets[0].endpoints.size(), 2U);
}

TEST(ConfigPrint, WhatIsPrintedIsReadAgain) {
  const Config from_flags =
      flags({"unit:a@1.service", "cgroup:/x.slice/a:b", "exe:/opt/my app/on"}, {"80-81", "53/udp"})
          .value();
  EXPECT_EQ(must_load(to_yaml(from_flags)), from_flags);
  const LoadedConfig sample = load_config_file(
      std::string(HEADGATE_SOURCE_DIR) + "/tests/data/config/design.yaml", strategy_table());
  ASSERT_TRUE(sample.valid());
  EXPECT_EQ(must_load(to_yaml(sample.config)), sample.config);
}

TEST(ConfigPrint, WordsThatYamlWouldTakeForSomethingElseAreQuoted) {
  Config config = flags({"exe:/bin/on"}, {"80"}).value();
  config.mode = Mode::kOff;
  const std::string yaml = to_yaml(config);
  EXPECT_THAT(yaml, HasSubstr("mode: \"off\"\n"));
  EXPECT_THAT(yaml, HasSubstr("- name: \"on\"\n"));
  config.targets[0].match = MatchProcess{"/a b\"c\\d\n#: e"};
  config.targets[0].match = must_load(to_yaml(config)).targets.at(0).match;
  EXPECT_EQ(std::get<MatchProcess>(config.targets[0].match).exe, "/a b\"c\\d\n#: e");
}

TEST(ConfigPrint, EveryDefaultIsWrittenOut) {
  EXPECT_EQ(to_yaml(flags({"a.service"}, {"80"}).value()), R"(apiVersion: headgate/v1
mode: observe
tick: 100ms
lease: 1s
targets:
  - name: a.service
    match:
      unit: a.service
    capacity:
      cpu: auto
      memory: auto
      request_factor: 0
    strategy:
      name: adaptive
      drain: 200ms
    target: 0.9
    memory:
      shed: 0.8
      open: 0.92
      close: 0.87
      live_budget: auto
    max_refuse: 1
    max_refuse_duration: 0s
    storm: auto
    exempt:
      rate: 20
      paths: []
    endpoints:
      - name: tcp-80
        port: 80
        protocol: tcp
        criticality: critical
        floor: 0
        refuse: reset
)");
}

TEST(ConfigDiff, OfEqualConfigurationsIsEmpty) {
  const Config config = flags({"a.service"}, {"80"}).value();
  EXPECT_EQ(diff(config, config), "");
  EXPECT_EQ(diff(config, must_load("# comment\n" + to_yaml(config))), "");
}

TEST(ConfigDiff, NamesWhatChangedByNameNotByPosition) {
  const Config before = flags({"a.service", "b.service"}, {"80", "81"}).value();
  Config after = before;
  after.mode = Mode::kEnforce;
  after.targets[1].endpoints[1].floor = Probability::refusing(0.5);
  after.targets[1].endpoints[1].refuse.form = RefuseForm::kDefer;
  EXPECT_EQ(diff(before, after),
            "- mode: observe\n+ mode: enforce\n"
            "- targets[b.service].endpoints[tcp-81].floor: 0\n"
            "+ targets[b.service].endpoints[tcp-81].floor: 0.5\n"
            "- targets[b.service].endpoints[tcp-81].refuse: reset\n"
            "+ targets[b.service].endpoints[tcp-81].refuse.defer: 8s\n");
  std::swap(after.targets[0], after.targets[1]);
  EXPECT_EQ(diff(before, after).find("a.service"), std::string::npos) << "order is no difference";
}

TEST(ConfigDiff, ShowsWhatCameAndWent) {
  const Config before = flags({"a.service"}, {"80"}).value();
  const Config after = flags({"b.service"}, {"80"}).value();
  EXPECT_THAT(diff(before, after), HasSubstr("- targets[a.service].match.unit: a.service\n"));
  EXPECT_THAT(diff(before, after), HasSubstr("+ targets[b.service].match.unit: b.service\n"));
}

}  // namespace
}  // namespace headgate
