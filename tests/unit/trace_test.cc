// SPDX-License-Identifier: Apache-2.0
// The trace: what is written is read again; what is broken is said with line and column. The
// recorder: lines by number, old ones go. The verb `replay` over the reference vectors.
#include "agent/trace.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "agent/cli/replay.h"
#include "agent/recorder.h"

namespace headgate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TraceHeader two_endpoints() {
  TraceHeader header;
  header.target = "otel \"gateway\"";
  header.agent_version = "1.2.3";
  header.started_unix_ms = 1'700'000'000'123;
  header.strategy = "graded";
  header.params.numbers["enter"] = 0.8;
  header.params.words["memory_evidence"] = "off";
  header.params.points = {{0.5, 0}, {0.9, 1}};
  header.params.parts = {"bbr", "graded"};
  header.use_target = 0.85;
  header.memory_open = 0.9;
  header.bucket_enforced = false;
  header.endpoints = {{"grpc", Criticality::kCriticalPlus, 0.2, true},
                      {"statsd", Criticality::kSheddable, 0, false, true, true}};
  return header;
}

TraceTick full_tick() {
  TraceTick tick;
  tick.at_s = 12.3;
  tick.signals.interval = std::chrono::milliseconds(100);
  tick.signals.capacity_cores = 0.5;
  tick.signals.cpu = Ratio{1.21};
  tick.signals.cpu_fast = Ratio{0.9};
  tick.signals.cpu_slow = Ratio{0.7};
  tick.signals.periods = std::uint64_t{1};
  tick.signals.throttled_periods = std::uint64_t{1};
  tick.signals.cpu_pressure = Unknown::kUnsupported;
  tick.signals.memory = Ratio{0.25};
  tick.signals.memory_slope_per_second = -0.001;
  tick.signals.memory_limit_bytes = std::uint64_t{268'435'456};
  tick.signals.oom_kills = std::uint64_t{0};
  tick.restarted = true;
  tick.live_bytes_known = true;
  tick.live_bytes = 1'234'567;
  tick.largest_request_bytes = 2'000'000;
  tick.endpoints.resize(2);
  EndpointActivity& a = tick.endpoints[0];
  a.offered = 30;
  a.admitted = 12;
  a.refused = 18;
  a.established = 11;
  a.closed = 10;
  a.received_bytes = 400'000;
  a.in_flight = 7;
  a.in_flight_known = true;
  a.responses = 10;
  a.responses_known = true;
  a.response_s_sum = 0.25;
  a.response_s_min = 0.0125;
  a.response_s_p99 = 0.06;
  EndpointActivity& b = tick.endpoints[1];
  b.offered = b.admitted = 5;
  b.offered_bytes = b.admitted_bytes = 1500;
  b.sizes_known = true;
  tick.state = State::kOpen;
  tick.admitted_share = {0.4, 1};
  return tick;
}

TEST(Trace, IsReadAsItWasWritten) {
  TraceTick second = full_tick();
  second.at_s = 12.4;
  second.state = State::kUnknown;
  second.signals.cpu = Unknown::kIo;
  const std::string text =
      trace_head(two_endpoints()) + trace_line(full_tick()) + trace_line(second);
  const auto trace = read_trace(text, "a.trace");
  ASSERT_TRUE(trace) << trace.error().message;
  const TraceHeader& h = trace->header;
  EXPECT_TRUE(trace->has_header);
  EXPECT_EQ(h.target, "otel \"gateway\"");
  EXPECT_EQ(h.started_unix_ms, 1'700'000'000'123);
  EXPECT_EQ(h.strategy, "graded");
  EXPECT_EQ(h.params, two_endpoints().params);
  EXPECT_EQ(h.use_target, 0.85);
  EXPECT_EQ(h.memory_open, 0.9);
  EXPECT_FALSE(h.bucket_enforced);
  ASSERT_EQ(h.endpoints.size(), 2U);
  EXPECT_EQ(h.endpoints[0].criticality, Criticality::kCriticalPlus);
  EXPECT_EQ(h.endpoints[0].floor, 0.2);
  EXPECT_FALSE(h.endpoints[1].tcp);
  EXPECT_FALSE(h.endpoints[0].requests);
  EXPECT_TRUE(h.endpoints[1].requests);
  EXPECT_FALSE(h.endpoints[0].refused_by_server);
  EXPECT_TRUE(h.endpoints[1].refused_by_server);
  ASSERT_EQ(trace->ticks.size(), 2U);
  // What a number is printed as says all about it.
  EXPECT_EQ(trace_line(trace->ticks[0]), trace_line(full_tick()));
  EXPECT_EQ(trace_line(trace->ticks[1]), trace_line(second));
  EXPECT_FALSE(trace->ticks[1].signals.cpu.known());
  EXPECT_FALSE(trace->ticks[0].signals.cpu_pressure.known());
  EXPECT_FALSE(trace->ticks[0].endpoints[1].in_flight_known);
  EXPECT_FALSE(trace->ticks[0].endpoints[0].sizes_known);
}

TEST(Trace, LeavesColumnsOfALaterVersionAlone) {
  const auto trace = read_trace("t,u,off0,adm0,novelty\n0.1,0.5,3,3,x\n", "a.csv");
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace->ticks[0].endpoints[0].offered, 3U);
}

TEST(Trace, DerivesWhatAVectorDoesNotHave) {
  const auto trace = read_trace(
      "t,u,nper,nthr,psi,mem,off0,adm0,offKB0,admKB0\n"
      "0.1,0.5,1,0,0,0.30,3,2,1.5,1\n0.2,1,1,1,0,0.31,3,2,1.5,1\n",
      "a.csv");
  ASSERT_TRUE(trace) << trace.error().message;
  const TraceTick& tick = trace->ticks[1];
  EXPECT_EQ(tick.signals.interval, std::chrono::milliseconds(100));
  EXPECT_EQ(tick.signals.capacity_cores, 2);
  EXPECT_GT((*tick.signals.cpu_fast).value, (*tick.signals.cpu_slow).value);
  EXPECT_NEAR(*tick.signals.memory_slope_per_second, 0.1, 1e-9);
  EXPECT_EQ(tick.endpoints[0].offered_bytes, 1536U);
  EXPECT_EQ((*tick.signals.throttled).value, 1);
}

struct Broken {
  const char* name;
  const char* text;
  const char* place;
  const char* message;
};
void PrintTo(const Broken& row, std::ostream* out) { *out << row.name; }
class BrokenTrace : public testing::TestWithParam<Broken> {};

TEST_P(BrokenTrace, IsSaidWithItsPlace) {
  const auto trace = read_trace(GetParam().text, "a.csv");
  ASSERT_FALSE(trace);
  EXPECT_THAT(trace.error().message,
              AllOf(HasSubstr(GetParam().place), HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Texts, BrokenTrace,
    testing::Values(
        Broken{"Empty", "", "a.csv:1: ", "no column 't'"},
        Broken{"NoTicks", "t,u,off0,adm0\n", "a.csv:1: ", "no tick"},
        Broken{"NotANumber", "t,u,off0,adm0\n0.1,0.5,3,3\n0.2,many,3,3\n",
               "a.csv:3: ", "column 'u': 'many' is no number"},
        Broken{"NaN", "t,u,off0,adm0\n0.1,nan,3,3\n", "a.csv:2: ", "column 'u': 'nan'"},
        Broken{"Fraction", "t,u,off0,adm0\n0.1,0.5,3.5,3\n", "a.csv:2: ", "column 'off0'"},
        Broken{"Negative", "t,u,off0,adm0\n0.1,0.5,-3,3\n", "a.csv:2: ", "column 'off0'"},
        Broken{"TooFewCells", "t,u,off0,adm0\n0.1,0.5,3\n", "a.csv:2: ", "3 cells, but 4 columns"},
        Broken{"TimeStands", "t,u,off0,adm0\n0.1,0.5,3,3\n0.1,0.5,3,3\n",
               "a.csv:3: ", "time does not advance"},
        Broken{"Twice", "t,u,u,off0,adm0\n", "a.csv:1: ", "'u' is there twice"},
        Broken{"OtherVersion", "# headgate-trace {\"version\":2}\nt\n", "a.csv:1: ", "version 2"},
        Broken{"BrokenHead", "# headgate-trace {\"version\":1\nt\n", "a.csv:1: ", "first line"},
        Broken{"BadFloor",
               "# headgate-trace {\"version\":1,\"endpoints\":[{\"floor\":2}]}\nt,u,off0,adm0\n",
               "a.csv:1: ", "'floor' is 2"},
        Broken{"OtherEndpoints",
               "# headgate-trace {\"version\":1,\"endpoints\":[{},{}]}\nt,u,off0,adm0\n",
               "a.csv:2: ", "columns of 1 endpoints, but the first line has 2"}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(Recorder, HandsOutLinesByNumberAndForgetsOldOnes) {
  const Instant start{std::chrono::seconds(5)};
  Recorder recorder(two_endpoints(), start);
  TraceTick tick = full_tick();
  for (std::size_t i = 0; i < Recorder::kLinesKept + 3; ++i) {
    tick.signals.at = start + (i + 1) * tick.signals.interval;
    recorder.add(tick);
  }
  const auto all = recorder.fetch(1, start + std::chrono::seconds(9));
  EXPECT_EQ(all.lines.size(), Recorder::kLinesKept);
  EXPECT_EQ(all.missed, 2U);
  EXPECT_EQ(all.next, Recorder::kLinesKept + 3);
  EXPECT_EQ(recorder.fetch(all.next, start).lines.size(), 0U);
  EXPECT_EQ(recorder.fetch(all.next - 1, start).lines.size(), 1U);
  const auto trace = read_trace(all.head + all.lines[0] + all.lines[1], "t");
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_NEAR(trace->ticks[0].at_s, 0.4, 1e-9) << "seconds since the first tick began";
  EXPECT_FALSE(recorder.abandoned(start + std::chrono::seconds(10)));
  EXPECT_TRUE(recorder.abandoned(start + std::chrono::seconds(11)));
}

// ---------------------------------------------------------------- the verb

std::string data(const std::string& file) { return std::string(HEADGATE_TEST_DATA) + "/" + file; }

struct Ran {
  int status = 0;
  std::string out;
  std::string err;
};
Ran replay(const ReplayOptions& options) {
  std::ostringstream out;
  std::ostringstream err;
  const int status = run_replay(options, out, err);
  return {status, out.str(), err.str()};
}

std::vector<std::vector<std::string>> cells(const std::string& text) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> row;
    std::istringstream fields(line);
    for (std::string field; std::getline(fields, field, ',');) row.push_back(field);
    rows.push_back(std::move(row));
  }
  return rows;
}

class ReplayVerb : public testing::TestWithParam<const char*> {};

TEST_P(ReplayVerb, PrintsTheVectorsOfTheSpecification) {
  ReplayOptions options;
  options.file = data("gold/" + std::string(GetParam()) + ".csv");
  options.strategies = {"adaptive"};
  options.spec_profile = true;
  options.output = ReplayOptions::Output::kCsv;
  const Ran ran = replay(options);
  ASSERT_EQ(ran.status, kExitOk) << ran.err;
  std::ifstream file(options.file);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const auto want = cells(text);
  const auto got = cells(ran.out);
  ASSERT_EQ(got.size(), want.size());
  ASSERT_EQ(got[0], want[0]) << "the columns";
  for (std::size_t row = 1; row < want.size(); ++row) {
    for (std::size_t i = 0; i < want[row].size(); ++i) {
      const std::string& name = want[0][i];
      if (name == "sat" || name == "esc" || name == "state") {
        ASSERT_EQ(got[row][i], want[row][i]) << name << " in line " << row + 1;
      } else if (name == "g" || name[0] == 'f') {
        ASSERT_NEAR(std::stod(got[row][i]), std::stod(want[row][i]),
                    1e-3 * std::stod(want[row][i]) + 2e-6)
            << name << " in line " << row + 1;
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Gold, ReplayVerb, testing::Values("B10", "MIX2.5", "MEMstall"),
                         [](const auto& row) {
                           std::string name = row.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

TEST(ReplayVerb, ComparesStrategiesInOneTable) {
  ReplayOptions options;
  options.file = data("gold/B10.csv");
  options.strategies = {"adaptive", "graded"};
  const Ran ran = replay(options);
  ASSERT_EQ(ran.status, kExitOk) << ran.err;
  EXPECT_THAT(ran.out, AllOf(HasSubstr("599 ticks"), HasSubstr("adaptive"), HasSubstr("graded"),
                             HasSubstr("normal -> shedding")));
  options.output = ReplayOptions::Output::kCsv;
  EXPECT_EQ(replay(options).status, kExitUsage) << "one strategy at a time";
}

TEST(ReplayVerb, TakesTheStrategyOfTheTrace) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("headgate-trace-" + std::to_string(::getpid()) + ".trace");
  TraceHeader header = two_endpoints();
  header.params = {};
  header.params.numbers["enter"] = 0.75;
  std::ofstream(path) << trace_head(header) << trace_line(full_tick());
  ReplayOptions options;
  options.file = path;
  options.output = ReplayOptions::Output::kJson;
  const Ran ran = replay(options);
  std::filesystem::remove(path);
  ASSERT_EQ(ran.status, kExitOk) << ran.err;
  const auto json = nlohmann::json::parse(ran.out);
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["target"], "otel \"gateway\"");
  EXPECT_EQ(json["replays"][0]["strategy"], "graded");
  EXPECT_EQ(json["replays"][0]["decisions"].size(), 1U);
  EXPECT_EQ(json["replays"][0]["decisions"][0]["endpoints"][1]["name"], "statsd");
}

TEST(ReplayVerb, SaysWhatIsWrong) {
  ReplayOptions options;
  options.file = "/no/such.trace";
  EXPECT_EQ(replay(options).status, kExitFailure);
  options.file = data("gold/B10.csv");
  options.strategies = {"adaptve"};
  const Ran ran = replay(options);
  EXPECT_EQ(ran.status, kExitUsage);
  EXPECT_THAT(ran.err, HasSubstr("adaptive"));
  options.output = ReplayOptions::Output::kJson;
  EXPECT_TRUE(nlohmann::json::parse(replay(options).out).contains("error"));
}

}  // namespace
}  // namespace headgate
