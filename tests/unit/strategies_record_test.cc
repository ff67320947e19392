// SPDX-License-Identifier: Apache-2.0
// What real collectors did, tick by tick, in front of the real law. The gate of the record is not
// this one, so only the beginning of a refusal means something: in these records there must be
// none.
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "agent/signals/signals.h"
#include "strategy_harness.h"

namespace headgate {
namespace {

struct Row {
  std::int64_t at_ms = 0;
  double cpu_ratio = 0;
  std::uint64_t offered = 0, admitted = 0, closed = 0, in_flight = 0;
};

std::vector<Row> read_record(const std::string& name) {
  std::ifstream file(std::string(HEADGATE_TEST_DATA) + "/records/" + name);
  std::vector<Row> rows;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#') || line.starts_with("at_ms")) continue;
    std::istringstream fields(line);
    Row row;
    char comma = 0;
    fields >> row.at_ms >> comma >> row.cpu_ratio >> comma >> row.offered >> comma >>
        row.admitted >> comma >> row.closed >> comma >> row.in_flight;
    EXPECT_FALSE(fields.fail()) << name << ": " << line;
    rows.push_back(row);
  }
  return rows;
}

class HealthyRecord : public testing::TestWithParam<const char*> {};

TEST_P(HealthyRecord, IsRefusedNothing) {
  const std::vector<Row> rows = read_record(GetParam());
  ASSERT_GE(rows.size(), 90U);
  constexpr double kCores = 0.5;
  const auto strategy = test::make_strategy("graded");
  SignalDeriver deriver;
  Sample sample;
  sample.limits.cpu_cores = kCores;
  sample.cpu_usage_ns = std::uint64_t{0};
  EndpointInput endpoint;
  Decision decision;
  std::int64_t before_ms = rows.front().at_ms - 100;
  std::uint64_t offered = 0;
  for (const Row& row : rows) {
    sample.at = Instant(std::chrono::hours(1) + std::chrono::milliseconds(row.at_ms));
    const double used_s = row.cpu_ratio * kCores * static_cast<double>(row.at_ms - before_ms) / 1e3;
    *sample.cpu_usage_ns.value += static_cast<std::uint64_t>(std::llround(used_s * 1e9));
    before_ms = row.at_ms;
    endpoint.activity = {.offered = row.offered,
                         .admitted = row.admitted,
                         .closed = row.closed,
                         .in_flight = row.in_flight,
                         .in_flight_known = true};
    const Signals& signals = deriver.update(sample, std::chrono::seconds(1));
    decision.endpoints.assign(1, EndpointDecision{});
    strategy->decide({.signals = signals, .endpoints = {&endpoint, 1}}, decision);
    EXPECT_FALSE(decision.circuit_open) << row.at_ms << " ms";
    EXPECT_EQ(decision.endpoints[0].admit, Probability::always()) << row.at_ms << " ms";
    offered += row.offered;
  }
  EXPECT_GT(offered, 1000U) << "the record is of a target under load";
}

INSTANTIATE_TEST_SUITE_P(Records, HealthyRecord,
                         testing::Values("healthy_beside_noisy_neighbour.csv",
                                         "otelcol_at_60_percent.csv"),
                         [](const auto& row) {
                           const std::string file = row.param;
                           return file.substr(0, file.find('.'));
                         });

}  // namespace
}  // namespace headgate
