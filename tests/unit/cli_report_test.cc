// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "agent/cli/report.h"
#include "agent/strategies/registry.h"
#include "agent/web/control_socket.h"
#include "agent/web/server.h"
#include "agent/web/state_json.h"
#include "tests/unit/web_snapshot.h"

namespace headgate {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(MaskSecrets, HidesWhatLooksLikeOneAndNothingElse) {
  EXPECT_EQ(cli::mask_secrets("password: hunter2\n"), "password: ***\n");
  EXPECT_EQ(cli::mask_secrets("# API_KEY=abc def\n"), "# API_KEY=***\n");
  EXPECT_EQ(cli::mask_secrets("\"token\": \"abc\"\n"), "\"token\": ***\n");
  EXPECT_EQ(cli::mask_secrets("Authorization: Bearer x.y\n"), "Authorization: ***\n");
  EXPECT_EQ(cli::mask_secrets("url: https://me:secret@host/x\n"), "url: https://***@host/x\n");
  const std::string plain = "port: 4317\nwhy: tokens are fine, and so is a key\ntick: 100ms\n";
  EXPECT_EQ(cli::mask_secrets(plain), plain);
}

class Report : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "headgate_report_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
    options_.directory = (directory_ / "report").string();
    options_.config_path = (directory_ / "headgate.yaml").string();
    options_.cgroup_root = "/sys/fs/cgroup";
    options_.proc_root = "/proc";
    options_.socket_path = (directory_ / "socket").string();
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  int run() { return run_report(options_, {"1.2.3", "abc", "gcc"}, strategies(), out_, err_); }
  [[nodiscard]] std::string file(const std::string& name) const {
    std::ifstream in(std::filesystem::path(options_.directory) / name);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::filesystem::path directory_;
  ReportOptions options_;
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(Report, GathersWhatARunningAgentKnows) {
  std::ofstream(options_.config_path) << "apiVersion: headgate/v1  # token: abc\n";
  test::FixedSource source(std::make_shared<AgentSnapshot>(test::busy_snapshot()));
  WebServer::Options web_options;
  web_options.listen_address = "127.0.0.1:0";
  const auto server = WebServer::start(source, web_options);
  ASSERT_TRUE(server.has_value()) << server.error().message;
  options_.web_listen_address = "127.0.0.1:" + std::to_string((*server)->port());
  ControlServer::Handlers handlers;
  handlers.state = [] { return Result<std::string>(web::to_state_json(test::busy_snapshot())); };
  handlers.config = [] { return Result<std::string>("mode: enforce\n"); };
  const auto control = ControlServer::start(options_.socket_path, std::move(handlers));
  ASSERT_TRUE(control.has_value()) << control.error().message;

  EXPECT_EQ(run(), 0) << err_.str();
  struct stat made {};
  ASSERT_EQ(stat(options_.directory.c_str(), &made), 0);
  EXPECT_EQ(made.st_mode & 0777U, 0700U);
  EXPECT_EQ(json::parse(file("version.json"))["version"], "1.2.3");
  EXPECT_EQ(json::parse(file("state.json"))["targets"][0]["name"], "web");
  EXPECT_TRUE(json::parse(file("doctor.json"))["checks"].is_array());
  EXPECT_THAT(file("metrics.txt"), HasSubstr("headgate_build_info{"));
  EXPECT_EQ(file("config-in-force.yaml"), "mode: enforce\n");
  EXPECT_THAT(file("config.yaml"), AllOf(HasSubstr("headgate/v1"), Not(HasSubstr("abc"))));
  EXPECT_THAT(file("README.txt"), HasSubstr("explain-01.txt is missing: cgroup:/system.slice/"))
      << "that cgroup is not on this machine";
  EXPECT_THAT(out_.str(), HasSubstr("tar -czf"));
}

TEST_F(Report, WithoutAnAgentItSaysWhatIsMissingAndWhy) {
  options_.json = true;
  EXPECT_EQ(run(), 0) << err_.str();
  const json said = json::parse(out_.str());
  EXPECT_EQ(said["directory"], options_.directory);
  for (const json& entry : said["files"]) {
    if (entry["name"] == "state.json") {
      EXPECT_THAT(entry["missing"], HasSubstr("no agent is listening"));
    }
    if (entry["name"] == "doctor.txt") {
      EXPECT_TRUE(entry["missing"].is_null());
    }
  }
}

TEST_F(Report, ADirectoryThatIsThereIsNotTouched) {
  std::filesystem::create_directory(options_.directory);
  EXPECT_EQ(run(), 1);
  EXPECT_THAT(err_.str(), HasSubstr("EEXIST"));
  EXPECT_TRUE(std::filesystem::is_empty(options_.directory));
}

}  // namespace
}  // namespace headgate
