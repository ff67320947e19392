// SPDX-License-Identifier: Apache-2.0
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/cli/options.h"

namespace headgate {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Result<Command> parse(std::vector<std::string> arguments, const Environment& environment = {}) {
  return parse_command_line(arguments, environment);
}

template <class T>
T parsed(std::vector<std::string> arguments, const Environment& environment = {}) {
  const auto command = parse(std::move(arguments), environment);
  EXPECT_TRUE(command.has_value()) << (command ? "" : command.error().message);
  if (!command || !std::holds_alternative<T>(*command)) {
    ADD_FAILURE() << "another command";
    return {};
  }
  return std::get<T>(*command);
}

std::string error_of(std::vector<std::string> arguments, const Environment& environment = {}) {
  const auto command = parse(std::move(arguments), environment);
  EXPECT_FALSE(command.has_value());
  return command ? "" : command.error().message;
}

TEST(Options, RunHasItsDefaults) {
  const auto run = parsed<RunOptions>({"run"});
  EXPECT_EQ(run.config_path, "/etc/headgate/headgate.yaml");
  EXPECT_EQ(run.web_listen_address, "127.0.0.1:9749");
  EXPECT_EQ(run.pin_root, "/sys/fs/bpf/headgate");
  EXPECT_EQ(run.cgroup_root, "/sys/fs/cgroup");
  EXPECT_EQ(run.proc_root, "/proc");
  EXPECT_EQ(run.socket_path, "/run/headgate/headgate.sock");
  EXPECT_EQ(run.on_exit, OnExit::kLeave);
  EXPECT_EQ(run.log_level, log::Level::kInfo);
  EXPECT_TRUE(run.wait);
  EXPECT_FALSE(run.observe);
  EXPECT_FALSE(run.config_check);
}

TEST(Options, RunTakesEveryFlag) {
  const auto run = parsed<RunOptions>(
      {"run", "--protect=unit:a.service", "--protect", "cgroup:/b", "--port=4317/grpc", "--port=80",
       "--observe", "--web.listen-address=[::1]:1", "--log.level=debug", "--log.format=json",
       "--pin-root=/p", "--cgroup-root=/c", "--proc-root=/q", "--on-exit=purge", "--no-wait",
       "--socket=/s"});
  EXPECT_THAT(run.protect, ElementsAre("unit:a.service", "cgroup:/b"));
  EXPECT_THAT(run.ports, ElementsAre("4317/grpc", "80"));
  EXPECT_TRUE(run.observe);
  EXPECT_EQ(run.web_listen_address, "[::1]:1");
  EXPECT_EQ(run.log_level, log::Level::kDebug);
  EXPECT_EQ(run.log_format, log::Format::kJson);
  EXPECT_EQ(run.pin_root, "/p");
  EXPECT_EQ(run.cgroup_root, "/c");
  EXPECT_EQ(run.proc_root, "/q");
  EXPECT_EQ(run.on_exit, OnExit::kPurge);
  EXPECT_FALSE(run.wait);
  EXPECT_EQ(run.socket_path, "/s");
}

TEST(Options, TheWebServerCanBeSwitchedOff) {
  EXPECT_EQ(parsed<RunOptions>({"run", "--web.listen-address=none"}).web_listen_address, "");
}

TEST(Options, EveryFlagCanComeFromTheEnvironmentAndTheCommandLineWins) {
  const Environment environment{{"HEADGATE_WEB_LISTEN_ADDRESS", ":1"},
                                {"HEADGATE_LOG_LEVEL", "warn"},
                                {"HEADGATE_OBSERVE", "true"},
                                {"HEADGATE_NO_WAIT", "0"},
                                {"HEADGATE_PROTECT", "unit:a,unit:b"},
                                {"HEADGATE_PORT", "4317,4318"},
                                {"HEADGATE_CONFIG_CHECK", "1"},
                                {"HEADGATE_SOCKET", ""},
                                {"OTHER", "x"}};
  const auto run = parsed<RunOptions>({"run", "--log.level=error"}, environment);
  EXPECT_EQ(run.web_listen_address, ":1");
  EXPECT_EQ(run.log_level, log::Level::kError);
  EXPECT_TRUE(run.observe);
  EXPECT_TRUE(run.wait);
  EXPECT_TRUE(run.config_check);
  EXPECT_THAT(run.protect, ElementsAre("unit:a", "unit:b"));
  EXPECT_THAT(run.ports, ElementsAre("4317", "4318"));
  EXPECT_EQ(run.socket_path, "/run/headgate/headgate.sock");
}

// The kubelet sets HEADGATE_PORT for a Service named "headgate" in the same namespace.
TEST(Options, TheServiceLinksOfKubernetesAreNotOurs) {
  const auto run = parsed<RunOptions>({"run"}, {{"HEADGATE_PORT", "tcp://10.0.0.1:9749"}});
  EXPECT_TRUE(run.ports.empty());
}

TEST(Options, AnUnknownFlagNamesTheNearest) {
  EXPECT_THAT(error_of({"run", "--confg=x"}),
              AllOf(HasSubstr("--confg"), HasSubstr("the nearest is --config"),
                    HasSubstr("headgate run --help")));
  EXPECT_THAT(error_of({"status", "--jsn"}), HasSubstr("the nearest is --json"));
}

TEST(Options, FlagsAreNotAbbreviated) {
  EXPECT_THAT(error_of({"run", "--obs"}), HasSubstr("unknown flag"));
}

TEST(Options, AnUnknownVerbNamesTheNearest) {
  EXPECT_THAT(error_of({"stauts"}),
              AllOf(HasSubstr("unknown verb 'stauts'"), HasSubstr("'status'")));
  EXPECT_THAT(error_of({"--config=x"}), HasSubstr("flags follow it"));
  EXPECT_THAT(error_of({}), AllOf(HasSubstr("no verb"), HasSubstr("explain")));
}

TEST(Options, BadValuesNameTheFlagAndWhatIsAllowed) {
  EXPECT_THAT(error_of({"run", "--log.level=loud"}),
              AllOf(HasSubstr("--log.level"), HasSubstr("debug, info, warn, error")));
  EXPECT_THAT(error_of({"run", "--log.format=xml"}), HasSubstr("text, json"));
  EXPECT_THAT(error_of({"run", "--on-exit=keep"}), HasSubstr("leave, purge, handover"));
  EXPECT_THAT(error_of({"run", "--web.listen-address=9749"}),
              AllOf(HasSubstr("--web.listen-address"), HasSubstr("[IPV6]:PORT")));
  EXPECT_THAT(error_of({"run", "--config"}), HasSubstr("--config"));
  EXPECT_THAT(error_of({"run"}, {{"HEADGATE_OBSERVE", "maybe"}}), HasSubstr("maybe"));
}

TEST(Options, ProtectAndPortBelongTogether) {
  EXPECT_THAT(error_of({"run", "--protect=unit:a"}), HasSubstr("needs a --port"));
  EXPECT_THAT(error_of({"run", "--port=1"}), HasSubstr("needs a --protect"));
  EXPECT_THAT(error_of({"run", "--protect=unit:a", "--port=1", "--config=x"}),
              HasSubstr("exclude each other"));
}

TEST(Options, CheckTakesAFileWithAndWithoutTheFlag) {
  EXPECT_EQ(parsed<CheckOptions>({"check", "a.yaml", "--diff"}).config_path, "a.yaml");
  EXPECT_TRUE(parsed<CheckOptions>({"check", "a.yaml", "--diff"}).diff);
  EXPECT_EQ(parsed<CheckOptions>({"check", "--config=b.yaml"}).config_path, "b.yaml");
  EXPECT_THAT(error_of({"check", "a", "b"}), HasSubstr("unexpected argument 'b'"));
}

TEST(Options, ExplainNeedsATarget) {
  EXPECT_EQ(parsed<ExplainOptions>({"explain", "--json", "unit:a"}).target, "unit:a");
  EXPECT_THAT(error_of({"explain"}), AllOf(HasSubstr("no TARGET"), HasSubstr("pid:NUMBER")));
}

TEST(Options, OffAndOnAreOneSwitch) {
  EXPECT_TRUE(parsed<SwitchOptions>({"off"}).off);
  EXPECT_FALSE(parsed<SwitchOptions>({"on"}).off);
}

TEST(Options, VersionIsAVerbAndAFlag) {
  EXPECT_TRUE(parsed<VersionOptions>({"version", "--json"}).json);
  EXPECT_FALSE(parsed<VersionOptions>({"--version"}).json);
}

class HelpOf : public testing::TestWithParam<const char*> {};

TEST_P(HelpOf, HasFlagsAndExamples) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {GetParam(), "--help"}, {GetParam(), "-h"}, {"help", GetParam()}}) {
    const std::string text = parsed<HelpOptions>(arguments).text;
    EXPECT_THAT(text, AllOf(HasSubstr(std::string("Usage: headgate ") + GetParam()),
                            HasSubstr("--help"), HasSubstr("Examples:\n")));
  }
}

INSTANTIATE_TEST_SUITE_P(Options, HelpOf,
                         testing::Values("run", "check", "status", "top", "explain", "doctor",
                                         "report", "off", "on", "version"));

TEST(Options, TheManPageHasEveryVerbAndNoRequestByAccident) {
  const std::string page = parsed<HelpOptions>({"help", "--man"}).text;
  for (const char* verb : {"run", "check", "status", "top", "explain", "doctor", "report", "off"}) {
    EXPECT_THAT(page, HasSubstr(std::string("\n.SS ") + verb + "\n"));
  }
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('.')) {
      EXPECT_TRUE(line.starts_with(".S") || line.starts_with(".TH") || line.starts_with(".B") ||
                  line.starts_with(".I") || line == ".nf" || line == ".fi")
          << line;
    }
  }
}

TEST(Options, HelpIsGivenEvenBesideOtherMistakes) {
  EXPECT_THAT(parsed<HelpOptions>({"run", "--port=1", "--help"}).text, HasSubstr("Usage"));
  EXPECT_THAT(parsed<HelpOptions>({"--help"}).text, HasSubstr("doctor"));
  EXPECT_THAT(parsed<HelpOptions>({"help"}).text, HasSubstr("Exit status"));
}

}  // namespace
}  // namespace headgate
