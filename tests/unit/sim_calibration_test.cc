// SPDX-License-Identifier: Apache-2.0
// Before a law is judged by the simulator, the simulator is: without a law, and with a plain rate
// limit, it reproduces the published figures of all scenarios (means of the seeds 1 to 3).
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "agent/sim/baselines.h"
#include "agent/sim/simulate.h"

namespace headgate::sim {
namespace {

struct Published {
  std::string metric;
  std::string value;  ///< as printed: its last digit is how exact it is
};
using Key = std::tuple<std::string, std::string>;  ///< scenario, strategy

std::map<Key, std::vector<Published>> read_published() {
  std::map<Key, std::vector<Published>> table;
  std::ifstream file(HEADGATE_TEST_DATA "/sim/published.csv");
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream cells(line);
    std::string scenario;
    std::string strategy;
    Published row;
    std::getline(cells, scenario, ',');
    std::getline(cells, strategy, ',');
    std::getline(cells, row.metric, ',');
    std::getline(cells, row.value);
    table[{scenario, strategy}].push_back(row);
  }
  return table;
}

std::map<std::string, double> mean_of_three(const Scenario& s, const BaselineInfo& baseline) {
  std::map<std::string, double> mean;
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    const auto guard = baseline.make(s);
    const Metrics m = simulate(s, *guard, {.seed = seed}).metrics;
    mean["goodput"] += m.goodput / 3;
    mean["p99_delay_ms"] += m.p99_delay_ms / 3;
    mean["peak_backlog_s"] += m.peak_backlog_s / 3;
    mean["danger_s"] += m.danger_s / 3;
    mean["time_to_protect_s"] += m.time_to_protect_s / 3;
    mean["time_to_recover_s"] += m.time_to_recover_s / 3;
    mean["flips"] += m.flips / 3.0;
    mean["total_variation"] += m.total_variation / 3;
    mean["false_refused_share"] += m.false_refused_share / 3;
    mean["adherence"] += m.adherence / 3;
    mean["oom_kills"] += m.oom_kills / 3.0;
  }
  return mean;
}

double last_digit(const std::string& printed) {
  const auto dot = printed.find('.');
  return dot == std::string::npos ? 1
                                  : std::pow(10, -static_cast<double>(printed.size() - dot - 1));
}

TEST(SimCalibration, BaselinesReproduceThePublishedFigures) {
  const auto published = read_published();
  ASSERT_EQ(published.size(), 2 * named_scenarios().size());
  int compared = 0;
  for (const BaselineInfo& baseline : baselines()) {
    for (const Scenario& s : named_scenarios()) {
      const auto rows = published.find({s.name, std::string(baseline.name)});
      if (rows == published.end()) continue;  // CoDel is not in the data
      const auto mean = mean_of_three(s, baseline);
      for (const Published& row : rows->second) {
        const double expected = std::stod(row.value);
        EXPECT_NEAR(mean.at(row.metric), expected, 0.02 * expected + 0.51 * last_digit(row.value))
            << s.name << ", " << baseline.name << ", " << row.metric;
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 768);
}

}  // namespace
}  // namespace headgate::sim
