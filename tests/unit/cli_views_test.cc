// SPDX-License-Identifier: Apache-2.0
// What status, top, check, off and on print, from a real socket where they ask an agent.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "agent/cli/check.h"
#include "agent/cli/state_view.h"
#include "agent/cli/status.h"
#include "agent/cli/switch.h"
#include "agent/cli/table.h"
#include "agent/cli/top.h"
#include "agent/cli/version.h"
#include "agent/strategies/registry.h"
#include "agent/web/control_socket.h"
#include "agent/web/state_json.h"
#include "tests/unit/web_snapshot.h"

namespace headgate {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kConfig =
    "apiVersion: headgate/v1\n"
    "targets:\n"
    "  - name: web\n"
    "    match: {unit: web.service}\n"
    "    endpoints:\n"
    "      - {name: otlp-http, port: 4318, protocol: http, refuse: reset}\n";

TEST(Table, AlignsNumbersRightAndLeavesNoBlanksBehind) {
  cli::Table table({{"NAME"}, {"N", true}, {"WHY"}});
  table.add({{"a"}, {"1"}, {""}});
  table.add({{"long"}, {"100"}, {"because"}});
  EXPECT_EQ(table.render(0, false),
            "NAME    N  WHY\n"
            "a       1\n"
            "long  100  because\n");
}

TEST(Table, FitsTheWidth) {
  cli::Table table({{"NAME"}, {"WHY"}});
  table.add({{"a"}, {"a long story"}});
  EXPECT_EQ(table.render(12, false),
            "NAME  WHY\n"
            "a     a lon…\n");
  EXPECT_EQ(table.render(3, false), "NA…\na\n");
}

TEST(Table, ColumnsLeaveInTheirOrderBeforeTheLastOneIsLost) {
  cli::Table table({{"NAME"}, {"PORT", false, 2}, {"RATE", true, 1}, {"WHY"}});
  table.add({{"web"}, {"4317"}, {"100"}, {"cpu is above its threshold"}});
  EXPECT_THAT(table.render(40, false), HasSubstr("web   4317   100  cpu is above its thre…"));
  EXPECT_THAT(table.render(30, false), HasSubstr("web   4317  cpu is above its …"));
  EXPECT_THAT(table.render(24, false), HasSubstr("web   cpu is above its …"));
}

TEST(Table, CountsCharactersNotBytes) {
  cli::Table table({{"N"}, {"X"}});
  table.add({{"é€"}, {"y"}});
  EXPECT_EQ(table.render(0, false), "N   X\né€  y\n");
  EXPECT_EQ(cli::cut("é€😀x", 3), "é€…");
}

TEST(Table, ColoursDoNotMoveColumns) {
  cli::Table table({{"A"}, {"B"}});
  table.add({{"x", cli::Color::kRed}, {"y"}});
  EXPECT_EQ(table.render(0, true), "\x1b[2mA\x1b[0m  \x1b[2mB\x1b[0m\n\x1b[31mx\x1b[0m  y\n");
}

TEST(Plain, NoNameMovesTheCursor) {
  EXPECT_EQ(cli::plain("a\x1b[2Jb\nc\x7f"), "a?[2Jb c?");
  EXPECT_EQ(cli::plain("a\xc2\x9b"
                       "2J"),
            "a?2J");  // CSI in eight bits
}

cli::StateView view_of(const AgentSnapshot& snapshot) {
  auto view = cli::parse_state(web::to_state_json(snapshot));
  EXPECT_TRUE(view.has_value()) << (view ? "" : view.error().message);
  return view ? *view : cli::StateView{};
}

TEST(StatusTable, ShowsTargetsAndEndpoints) {
  const std::string text = cli::render(view_of(test::busy_snapshot()), 0, false);
  EXPECT_EQ(text,
            "headgate 0.1.0 · enforce · up 100 s · Linux 6.1.0 · cgroup v2 · "
            "/etc/headgate/headgate.yaml\n"
            "\n"
            "TARGET  STATE      CPU   MEM  ENDPOINT   PORT       OFFERED/S  ADMIT/S  REFUSE/S  "
            "DEFER/S  P           WHY\n"
            "web     shedding  0.95  0.59  otlp-grpc  4317/grpc        400      100       300  "
            "      0  0.25 share  cpu slow above enter; 7 waiting\n"
            "                              statsd     8125/udp           0        0         0  "
            "      0  1.00\n");
}

TEST(StatusTable, ShowsRoutesBelowTheirPort) {
  AgentSnapshot agent = test::busy_snapshot();
  agent.targets[0].endpoints = test::port_with_routes();
  const std::string text = cli::render(view_of(agent), 0, false);
  EXPECT_THAT(text, HasSubstr("otlp-http         4318/http           0        0         0"));
  EXPECT_THAT(text, HasSubstr("otlp-http/traces  /v1/traces         10        6         4        0"
                              "  0.50 share"));
  EXPECT_THAT(text, HasSubstr("otlp-http/(rest)                      0        0         0        0"
                              "  counted only"));
}

TEST(StatusTable, SaysWhatAPersonShouldKnow) {
  AgentSnapshot agent = test::busy_snapshot();
  agent.killed_switch = true;
  agent.mode = Mode::kObserve;
  agent.config_last_reload_successful = false;
  agent.config_last_error = "line 3: unknown key";
  agent.degraded = {"no sk_lookup: nothing is refused"};
  agent.targets[0].hooks[0].problem = "EPERM";
  agent.targets[0].lease_valid = false;
  const std::string text = cli::render(view_of(agent), 0, false);
  EXPECT_THAT(text, AllOf(HasSubstr("! switched off"), HasSubstr("! mode observe"),
                          HasSubstr("line 3: unknown key"), HasSubstr("! no sk_lookup"),
                          HasSubstr("! web: sk_lookup: EPERM"), HasSubstr("no lease")));
}

TEST(StatusTable, UnknownIsAQuestionMarkAndAbsentSaysWhy) {
  AgentSnapshot agent;
  agent.targets.push_back(test::unknown_target("x"));
  EXPECT_THAT(cli::render(view_of(agent), 0, false),
              HasSubstr("x       unknown    ?    ?  tcp-80"));
  agent.targets[0].present = false;
  agent.targets[0].absent_why = "no unit x.service";
  EXPECT_THAT(cli::render(view_of(agent), 0, false),
              AllOf(HasSubstr("absent"), HasSubstr("no unit x.service")));
}

TEST(StatusTable, FitsAnyTerminal) {
  for (const std::size_t width : {1U, 10U, 40U, 80U, 132U}) {
    std::istringstream lines(cli::render(view_of(test::busy_snapshot()), width, false));
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(cli::width_of(line), width) << line;
    }
  }
}

TEST(StatusTable, SaysHowOldItIsAndThatALoopHangs) {
  const AgentSnapshot agent = test::busy_snapshot();
  const std::string state = web::to_state_json(agent);
  EXPECT_THAT(cli::parse_state(state, agent.unix_ms + 400)->title, HasSubstr("0.4 s ago"));
  EXPECT_TRUE(cli::parse_state(state, agent.unix_ms + 400)->notes.empty());
  EXPECT_THAT(cli::parse_state(state, agent.unix_ms + 9000)->notes.at(0),
              HasSubstr("has not ticked for 9 s"));
  EXPECT_THAT(cli::parse_state(state, agent.unix_ms - 50)->title, HasSubstr("0.0 s ago"));
}

TEST(StatusTable, AnotherSchemaIsAnError) {
  EXPECT_THAT(cli::parse_state(R"({"schema":2})").error().message, HasSubstr("schema 2"));
  EXPECT_FALSE(cli::parse_state("[]").has_value());
  EXPECT_FALSE(cli::parse_state("nonsense").has_value());
}

TEST(StatusTable, MissingAndOddValuesAreUnknown) {
  const auto view =
      cli::parse_state(R"({"schema":1,"targets":[{"name":7,"endpoints":[3,{"port":"x"}]}, 5]})");
  ASSERT_TRUE(view.has_value());
  EXPECT_NE(cli::render(*view, 0, false), "");
}

/// An agent's socket with a given state, and the verbs' view of it.
class AskedAgent : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "headgate_cli_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
    path_ = (directory_ / "headgate.sock").string();
  }
  void TearDown() override {
    server_.reset();
    std::filesystem::remove_all(directory_);
  }
  void start(std::string config = kConfig) {
    ControlServer::Handlers handlers;
    handlers.state = [] { return Result<std::string>(web::to_state_json(test::busy_snapshot())); };
    handlers.config = [config] { return Result<std::string>(config); };
    handlers.off = [this]() -> Result<void> {
      off_ = true;
      return {};
    };
    handlers.on = [this]() -> Result<void> {
      off_ = false;
      return {};
    };
    auto server = ControlServer::start(path_, std::move(handlers));
    ASSERT_TRUE(server.has_value()) << server.error().message;
    server_ = std::move(*server);
  }
  std::string write(const std::string& text) const {
    const auto file = (directory_ / "headgate.yaml").string();
    std::ofstream(file) << text;
    return file;
  }

  std::filesystem::path directory_;
  std::string path_;
  std::unique_ptr<ControlServer> server_;
  std::atomic<bool> off_{false};
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(AskedAgent, StatusPrintsTheTableOrTheJson) {
  start();
  EXPECT_EQ(run_status({path_, false}, out_, err_), 0);
  EXPECT_THAT(out_.str(), HasSubstr("otlp-grpc"));
  out_.str("");
  EXPECT_EQ(run_status({path_, true}, out_, err_), 0);
  EXPECT_EQ(json::parse(out_.str())["targets"][0]["name"], "web");
}

TEST_F(AskedAgent, WithoutAnAgentEveryVerbSaysSo) {
  EXPECT_EQ(run_status({path_, false}, out_, err_), 1);
  EXPECT_EQ(run_top({path_, true}, out_, err_), 1);
  EXPECT_EQ(run_switch({true, "/p", path_, false}, out_, err_), 1);
  EXPECT_EQ(out_.str(), "");
  EXPECT_THAT(err_.str(),
              AllOf(HasSubstr("headgate status: no agent is listening on"),
                    HasSubstr("headgate top: no agent"), HasSubstr("headgate off: no agent")));
}

TEST_F(AskedAgent, FailuresAreJsonWhereJsonIsAskedFor) {
  const auto said = [this] {
    const json object = json::parse(out_.str());
    out_.str("");
    EXPECT_EQ(object["schema"], 1);
    return object["error"].get<std::string>();
  };
  EXPECT_EQ(run_status({path_, true}, out_, err_), 1);
  EXPECT_THAT(said(), HasSubstr("no agent is listening on"));
  EXPECT_EQ(run_switch({true, "/p", path_, true}, out_, err_), 1);
  EXPECT_THAT(said(), HasSubstr("no agent is listening on"));
  EXPECT_EQ(run_check({write(kConfig), path_, true, false, true}, strategies(), out_, err_), 1);
  EXPECT_THAT(said(), HasSubstr("no agent is listening on"));
}

TEST_F(AskedAgent, TopOncePrintsOneTableWithoutColours) {
  start();
  EXPECT_EQ(run_top({path_, true}, out_, err_), 0);
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("otlp-grpc"), Not(HasSubstr("\x1b"))));
}

TEST_F(AskedAgent, OffAndOnReachTheAgent) {
  start();
  EXPECT_EQ(run_switch({true, "/p", path_, false}, out_, err_), 0);
  EXPECT_TRUE(off_);
  EXPECT_THAT(out_.str(), HasSubstr("everything is admitted"));
  out_.str("");
  EXPECT_EQ(run_switch({false, "/p", path_, true}, out_, err_), 0);
  EXPECT_FALSE(off_);
  EXPECT_EQ(json::parse(out_.str())["kill_switch"], false);
}

TEST_F(AskedAgent, OffReachesTheKernelWhereNoAgentRuns) {
  std::string pin_root;
  bool off = false;
  const PinnedSwitch pinned = [&](const std::string& root, bool value) -> Result<void> {
    pin_root = root;
    off = value;
    return {};
  };
  EXPECT_EQ(run_switch({true, "/p", path_, false}, out_, err_, pinned), 0);
  EXPECT_EQ(pin_root, "/p");
  EXPECT_TRUE(off);
  EXPECT_THAT(out_.str(), HasSubstr("no agent answered"));
}

TEST_F(AskedAgent, CheckOfAGoodFile) {
  const std::string file = write(kConfig);
  EXPECT_EQ(run_check({file, path_, false, false, false}, strategies(), out_, err_), 0);
  EXPECT_THAT(out_.str(),
              AllOf(HasSubstr(": valid; mode enforce, 1 target"), HasSubstr("unit web.service"),
                    HasSubstr("4318/http"), HasSubstr("Stock senders that lose data")));
}

TEST_F(AskedAgent, EveryConfigurationInTheReadmeIsValidWithoutAWarning) {
  std::ifstream readme(std::string(HEADGATE_SOURCE_DIR) + "/README.md");
  std::vector<std::string> blocks;
  bool inside = false;
  for (std::string line; std::getline(readme, line);) {
    if (line == "```yaml") {
      blocks.emplace_back();
      inside = true;
    } else if (line.starts_with("```")) {
      inside = false;
    } else if (inside) {
      blocks.back() += line + '\n';
    }
  }
  EXPECT_FALSE(blocks.empty());
  for (const std::string& block : blocks) {
    out_.str("");
    EXPECT_EQ(run_check({write(block), path_, false, false, true}, strategies(), out_, err_), 0);
    EXPECT_EQ(json::parse(out_.str())["problems"], json::array()) << block;
  }
}

TEST_F(AskedAgent, CheckAsJsonHasItsKeys) {
  const std::string file = write(kConfig);
  EXPECT_EQ(run_check({file, path_, false, false, true}, strategies(), out_, err_), 0);
  const json checked = json::parse(out_.str());
  EXPECT_EQ(checked["schema"], 1);
  EXPECT_EQ(checked["valid"], true);
  EXPECT_TRUE(checked["problems"].is_array());
  EXPECT_EQ(checked["targets"][0]["name"], "web");
  EXPECT_EQ(checked["targets"][0]["endpoints"][0]["name"], "otlp-http");
  EXPECT_EQ(checked["targets"][0]["endpoints"][0]["port"], 4318);
  EXPECT_EQ(checked["targets"][0]["endpoints"][0]["protocol"], "http");
}

TEST_F(AskedAgent, CheckOfABadFileExitsTwoAndNamesThePlace) {
  const std::string file = write("apiVersion: headgate/v1\ntikc: 100ms\ntargets: []\n");
  EXPECT_EQ(run_check({file, path_, true, false, false}, strategies(), out_, err_), 2);
  EXPECT_THAT(out_.str(),
              AllOf(HasSubstr("headgate.yaml:2:"), HasSubstr("tick"), HasSubstr("not valid: ")));
  out_.str("");
  EXPECT_EQ(run_check({file, path_, true, false, true}, strategies(), out_, err_), 2);
  const json checked = json::parse(out_.str());
  EXPECT_EQ(checked["valid"], false);
  const json& problem = checked["problems"][0];
  EXPECT_EQ(problem["severity"], "error");
  EXPECT_EQ(problem["file"], file);
  EXPECT_EQ(problem["line"], 2);
  EXPECT_EQ(problem["nearest"], "tick");
  for (const char* key : {"column", "key", "value", "message"}) {
    EXPECT_TRUE(problem.contains(key)) << key;
  }
}

TEST_F(AskedAgent, CheckDiffComparesWithTheRunningAgent) {
  start(std::string(kConfig) + "mode: observe\n");
  const std::string file = write(kConfig);
  EXPECT_EQ(run_check({file, path_, true, false, false}, strategies(), out_, err_), 0)
      << err_.str();
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("this would change"), HasSubstr("- mode: observe"),
                                HasSubstr("+ mode: enforce")));
  write(std::string(kConfig) + "mode: observe\n");
  out_.str("");
  EXPECT_EQ(run_check({file, path_, true, false, false}, strategies(), out_, err_), 0);
  EXPECT_THAT(out_.str(), HasSubstr("has the same configuration"));
}

TEST_F(AskedAgent, CheckDiffWithoutAnAgentFails) {
  const std::string file = write(kConfig);
  EXPECT_EQ(run_check({file, path_, true, false, false}, strategies(), out_, err_), 1);
  EXPECT_THAT(err_.str(), HasSubstr("is headgate running?"));
}

TEST_F(AskedAgent, CheckSchemaIsJson) {
  EXPECT_EQ(run_check({"", path_, false, true, false}, strategies(), out_, err_), 0);
  EXPECT_TRUE(json::parse(out_.str()).is_object());
}

TEST(Version, TextAndJson) {
  std::ostringstream out;
  EXPECT_EQ(run_version({false}, {"1.2.3", "abc", "gcc"}, out), 0);
  EXPECT_EQ(out.str(), "headgate 1.2.3 (revision abc, gcc, kernel ABI " +
                           std::to_string(HEADGATE_ABI_VERSION) + ")\n");
  out.str("");
  EXPECT_EQ(run_version({true}, {"1.2.3", "abc", "gcc"}, out), 0);
  EXPECT_EQ(json::parse(out.str())["version"], "1.2.3");
}

}  // namespace
}  // namespace headgate
