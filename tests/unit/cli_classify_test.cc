// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "agent/cli/classify.h"
#include "agent/strategies/registry.h"
#include "tests/unit/http1_streams.h"

namespace headgate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// A directory of its own with one configuration and one file.
class ClassifyTest : public testing::Test {
 protected:
  ClassifyTest()
      : directory_(std::filesystem::temp_directory_path() /
                   ("headgate-classify-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(directory_);
    write("headgate.yaml",
          "apiVersion: headgate/v1\ntargets:\n"
          "  - name: a\n    match: {unit: a.service}\n    endpoints:\n"
          "      - {name: otlp, port: 4318, protocol: http}\n"
          "      - {name: statsd, port: 8125, protocol: udp}\n");
  }
  ~ClassifyTest() override { std::filesystem::remove_all(directory_); }

  std::string write(const std::string& name, const std::string& bytes) {
    std::ofstream(directory_ / name, std::ios::binary) << bytes;
    return directory_ / name;
  }

  int run(ClassifyOptions options) {
    options.config_path = directory_ / "headgate.yaml";
    out_.str({});
    err_.str({});
    return run_classify(options, strategies(), out_, err_);
  }

  std::filesystem::path directory_;
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(ClassifyTest, PrintsOneObjectARequest) {
  const std::string file =
      write("two", "POST /a?b HTTP/1.1\r\nContent-Length: 2\r\n\r\nhiGET /.. HTTP/1.1\r\n\r\n");
  ASSERT_EQ(run({.port = 4318, .file = file, .json = true}), kExitOk) << err_.str();
  std::istringstream lines(out_.str());
  std::string first;
  std::string second;
  std::getline(lines, first);
  std::getline(lines, second);
  EXPECT_EQ(nlohmann::json::parse(first),
            nlohmann::json::parse(R"({"schema":1,"request":1,"protocol":"http/1.1","route":null,
              "exempt":false,"method":"POST","path":"/a","reason":null,"offset_bytes":0})"));
  EXPECT_EQ(nlohmann::json::parse(second),
            nlohmann::json::parse(R"({"schema":1,"request":2,"protocol":"http/1.1","route":null,
              "exempt":false,"method":"GET","path":null,"reason":"target","offset_bytes":43})"));
}

TEST_F(ClassifyTest, PrintsATableForPeople) {
  const std::string file = write("one", "GET /a HTTP/1.1\r\n\r\nGET /b HT");
  ASSERT_EQ(run({.port = 4318, .file = file}), kExitOk) << err_.str();
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("METHOD"), HasSubstr("/a"), HasSubstr("the port's rule"),
                                HasSubstr("The last 9 bytes begin a request")));
}

TEST_F(ClassifyTest, SaysWhatIsWrong) {
  const std::string file = write("one", "GET /a HTTP/1.1\r\n\r\n");
  EXPECT_EQ(run({.port = 80, .file = file}), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("no endpoint with port 80"));
  EXPECT_THAT(err_.str(), HasSubstr("4318/http, 8125/udp"));
  EXPECT_EQ(run({.port = 8125, .file = file}), kExitUsage) << "datagrams are no requests";
  EXPECT_EQ(run({.port = 4318, .file = directory_ / "none"}), kExitFailure);
  EXPECT_THAT(err_.str(), HasSubstr("cannot read"));
  write("headgate.yaml", "targets: 3\n");
  EXPECT_EQ(run({.port = 4318, .file = file}), kExitUsage);
}

TEST(Classify, CutsMakePackets) {
  const cli::PortRoutes routes = test::otlp_routes();
  const auto seen = cli::classify("GET /v1/traces HTTP/1.1\r\n\r\n", 1, {3, 17, 18, 900}, routes);
  ASSERT_TRUE(seen);
  ASSERT_EQ(seen->size(), 1U);
  ASSERT_EQ((*seen)[0].requests.size(), 1U);
  EXPECT_EQ((*seen)[0].requests[0].route, "traces");
}

Result<Command> parse(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "classify");
  return parse_command_line(arguments, {});
}

TEST(ClassifyOptions, CutsRise) {
  const auto command = parse({"--port=1", "--cut=3,17,18", "x"});
  ASSERT_TRUE(command);
  EXPECT_THAT(std::get<ClassifyOptions>(*command).cuts, testing::ElementsAre(3, 17, 18));
  for (const char* wrong : {"--cut=3,3", "--cut=0", "--cut=a", "--cut=1,", "--cut=5,2"}) {
    const auto error = parse({"--port=1", wrong, "x"});
    ASSERT_FALSE(error) << wrong;
    EXPECT_THAT(error.error().message, HasSubstr("--cut")) << wrong;
  }
}

TEST(ClassifyOptions, NeedsAFileAndAPort) {
  EXPECT_THAT(parse({"--port=1"}).error().message, HasSubstr("FILE"));
  EXPECT_THAT(parse({"x"}).error().message, HasSubstr("--port"));
  for (const char* wrong : {"--port=0", "--port=65536", "--port=x", "--port=1/http"}) {
    EXPECT_THAT(parse({wrong, "x"}).error().message, HasSubstr("is no port")) << wrong;
  }
}

}  // namespace
}  // namespace headgate
