// SPDX-License-Identifier: Apache-2.0
// `headgate simulate` from the command line to what it prints.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <variant>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "agent/cli/simulate.h"

namespace headgate {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

struct Ran {
  int status = 0;
  std::string out;
  std::string err;
};

Ran run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "simulate");
  const auto command = parse_command_line(arguments, {});
  if (!command) return {kExitUsage, "", command.error().message};
  std::ostringstream out;
  std::ostringstream err;
  const int status = run_simulate(std::get<SimulateOptions>(*command), out, err);
  return {status, out.str(), err.str()};
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

TEST(CliSimulate, TableHasARowPerScenarioAndStrategy) {
  const Ran ran = run({"B2", "CJ2", "--strategy=None,graded"});
  EXPECT_EQ(ran.status, kExitOk);
  const auto rows = lines(ran.out);
  ASSERT_EQ(rows.size(), 5U);
  EXPECT_THAT(rows[0], AllOf(HasSubstr("goodput"), HasSubstr("peak cpu-s")));
  EXPECT_THAT(rows[1], AllOf(StartsWith("B2 "), HasSubstr("None"), HasSubstr("0.771")));
  EXPECT_THAT(rows[4], AllOf(StartsWith("CJ2 "), HasSubstr("graded")));
}

TEST(CliSimulate, SameCallSamePrint) {
  const std::vector<std::string> call{"META", "--strategy=graded,None", "--seeds=2"};
  EXPECT_EQ(run(call).out, run(call).out);
}

TEST(CliSimulate, CsvOfOneRunHasTheColumnsOfTheVectors) {
  const Ran ran = run({"MIX2.5", "--strategy=adaptive", "--csv"});
  EXPECT_EQ(ran.status, kExitOk);
  const auto rows = lines(ran.out);
  ASSERT_EQ(rows.size(), 600U);
  EXPECT_EQ(rows[0],
            "t,u,nper,nthr,psi,mem,off0,adm0,offKB0,admKB0,off1,adm1,offKB1,admKB1,off2,adm2,"
            "offKB2,admKB2,off3,adm3,offKB3,admKB3,sat,esc,E,g,base_cores,Bhat_cpus,W_cores,"
            "bucket_rate_cores,state,c0_s,d0_s_per_KB,f0,c1_s,d1_s_per_KB,f1,c2_s,d2_s_per_KB,f2,"
            "c3_s,d3_s_per_KB,f3");
  EXPECT_THAT(rows[1], StartsWith("0.100,0.680513"));  // the recorded first tick
}

TEST(CliSimulate, CsvOfSeveralRunsIsALineEach) {
  const Ran ran = run({"B2", "--strategy=None,QPSLimiter", "--csv", "--seeds=3"});
  const auto rows = lines(ran.out);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_THAT(rows[0], StartsWith("scenario,strategy,seeds,goodput,"));
  EXPECT_THAT(rows[1], StartsWith("B2,None,3,0.762,"));  // published
  EXPECT_THAT(rows[2], StartsWith("B2,QPSLimiter,3,0.984,"));
}

TEST(CliSimulate, FuzzJsonIsAnInterface) {
  const Ran ran = run({"--fuzz=12", "--seed=9000", "--strategy=None", "--json"});
  EXPECT_EQ(ran.status, kExitOk);
  const json j = json::parse(ran.out);
  EXPECT_EQ(j.at("schema"), 1);
  EXPECT_EQ(j.at("scenarios"), 12);
  EXPECT_EQ(j.at("per_scenario").size(), 12U);
  EXPECT_EQ(j.at("per_scenario").at(1).at("seed"), 9001);
  // Nothing is refused, so the worst of twelve is far from well.
  EXPECT_LT(j.at("goodput").at("min").get<double>(), 0.4);
  EXPECT_LE(j.at("goodput").at("min"), j.at("goodput").at("p10"));
  EXPECT_LE(j.at("goodput").at("p10"), j.at("goodput").at("mean"));
  EXPECT_GT(j.at("peak_backlog_s").at("p90").get<double>(), 10);
}

TEST(CliSimulate, JsonOfScenarios) {
  const json j = json::parse(run({"B2", "--strategy=None", "--json", "--seeds=3"}).out);
  EXPECT_EQ(j.at("schema"), 1);
  ASSERT_EQ(j.at("results").size(), 1U);
  EXPECT_EQ(j.at("results")[0].at("scenario"), "B2");
  EXPECT_NEAR(j.at("results")[0].at("goodput").get<double>(), 0.762, 0.0006);
  EXPECT_NEAR(j.at("results")[0].at("peak_backlog_cpu_s").get<double>(), 7.975, 0.0006);
}

TEST(CliSimulate, PlotIsWritten) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("simulate" + std::to_string(getpid()) + ".svg"))
          .string();
  const Ran ran = run({"B2", "--strategy=None,graded", "--plot=" + path});
  EXPECT_EQ(ran.status, kExitOk) << ran.err;
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_THAT(text.str(), AllOf(StartsWith("<svg"), HasSubstr("B2, graded")));
  std::filesystem::remove(path);
  EXPECT_EQ(run({"B2", "--plot=/nonexistent/x.svg"}).status, kExitFailure);
}

TEST(CliSimulate, ListHasEverything) {
  const Ran ran = run({"--list"});
  EXPECT_EQ(ran.status, kExitOk);
  EXPECT_THAT(ran.out,
              AllOf(HasSubstr("COLD-2x"), HasSubstr("QPSLimiter"), HasSubstr("rate_factor")));
  EXPECT_EQ(json::parse(run({"--list", "--json"}).out).at("scenarios").size(), 49U);
}

TEST(CliSimulate, BadUsageIsNamedAndIsStatus2) {
  struct Case {
    std::vector<std::string> arguments;
    std::string says;
  };
  const std::vector<Case> cases{
      {{"B11"}, "unknown scenario 'B11', the nearest is 'B10'"},
      {{"B10", "--strategy=gradd"}, "graded"},
      {{"B10", "--seeds=0"}, "--seeds: '0' is not a whole number from 1"},
      {{"B10", "--seeds=many"}, "many"},
      {{"B10", "--target=9"}, "--target: '9'"},
      {{"B10", "--profile=fast"}, "default, spec"},
      {{"B10", "--csv", "--json"}, "exclude each other"},
      {{"B10", "--plot=a.png"}, ".svg"},
      {{"B10", "--fuzz=10"}, "--fuzz makes its own scenarios"},
      {{"B10", "--seed=3"}, "--seed0"},
      {{"B10", "--sed0=3"}, "--seed0"},
      {{"B10", "--param=x"}, "NAME=VALUE"},
      {{"B10", "--strategy=None", "--csv"}, "no trace"},
      {{"--file=/nonexistent/s.yaml"}, "No such file"},
      {{"all", "--strategy=None,QPSLimiter", "--plot=/nonexistent/x.svg"}, "at most 64"},
  };
  for (const Case& c : cases) {
    const Ran ran = run(c.arguments);
    EXPECT_EQ(ran.status, kExitUsage) << c.arguments.back();
    EXPECT_THAT(ran.err, HasSubstr(c.says)) << c.arguments.back();
  }
  EXPECT_THAT(json::parse(run({"B11", "--json"}).out).at("error").get<std::string>(),
              HasSubstr("B10"));
}

}  // namespace
}  // namespace headgate
