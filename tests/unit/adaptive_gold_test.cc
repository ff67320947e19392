// SPDX-License-Identifier: Apache-2.0
// adaptive against recorded vectors: gold/ are those of the specification, replayed with
// profile: spec; gold-default/ have what the defaults answered to the same inputs when they were
// recorded, so a change of what ships shows as a change of these files. To record them anew:
//   HEADGATE_RECORD_GOLD=1 <build>/tests/adaptive_test --gtest_filter='*DefaultVector*'
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "adaptive_records.h"

namespace headgate {
namespace {

using test::Csv;
using test::GoldReplay;

const char* const kVectors[] = {"B10",    "CJ4-blind", "COLD-2x",  "MEMstall", "META",
                                "MIX2.5", "MIXcost",   "NOISE1.5", "S0-seed",  "WRONGQ-B3"};

std::string data(const std::string& file) { return std::string(HEADGATE_TEST_DATA) + "/" + file; }

double relative(double a, double b) {
  return std::fabs(a - b) / std::max({1e-9, std::fabs(a), std::fabs(b)});
}

/// Differences between what the law says now and what the file says it said.
void compare(const Csv& inputs, const Csv& csv, const Params& params) {
  ASSERT_EQ(inputs.rows(), csv.rows());
  GoldReplay replay(inputs, "adaptive", params);
  double worst_factor = 0;
  double worst_share = 0;
  double worst_other = 0;
  for (std::size_t row = 0; row < csv.rows(); ++row) {
    replay.step(row);
    for (const char* word : {"sat", "esc", "state"}) {
      ASSERT_EQ(replay.internal(word), csv.at(row, word)) << word << " in row " << row;
    }
    worst_factor = std::max(worst_factor, relative(replay.internal("g"), csv.at(row, "g")));
    for (const char* name : {"base_cores", "Bhat_cpus", "W_cores", "bucket_rate_cores"}) {
      worst_other = std::max(worst_other, std::fabs(replay.internal(name) - csv.at(row, name)));
    }
    for (std::size_t i = 0; i < replay.endpoints(); ++i) {
      const std::string f = "f" + std::to_string(i);
      worst_share = std::max(worst_share, relative(replay.internal(f), csv.at(row, f)));
    }
  }
  EXPECT_LT(worst_factor, 1e-3);
  EXPECT_LT(worst_share, 1e-3);
  EXPECT_LT(worst_other, 1e-3);
  std::printf("%zu rows, no mismatch, largest error: g %.1e, f %.1e, other %.1e\n", csv.rows(),
              worst_factor, worst_share, worst_other);
}

class SpecVector : public testing::TestWithParam<const char*> {};

TEST_P(SpecVector, IsReplayed) {
  const Csv csv(data("gold/" + std::string(GetParam()) + ".csv"));
  ASSERT_GE(csv.rows(), 399U);
  compare(csv, csv, test::with_profile("spec"));
}

class DefaultVector : public testing::TestWithParam<const char*> {};

TEST_P(DefaultVector, IsWhatShips) {
  const Csv inputs(data("gold/" + std::string(GetParam()) + ".csv"));
  const std::string path = data("gold-default/" + std::string(GetParam()) + ".csv");
  if (const char* record = std::getenv("HEADGATE_RECORD_GOLD");
      record != nullptr && std::string(record) == "1") {
    std::filesystem::create_directories(data("gold-default"));
    std::ofstream out(path);
    GoldReplay replay(inputs, "adaptive", {});
    std::vector<std::string> names;
    for (const std::string& name : inputs.names()) {
      if (name == "sat" || !names.empty()) names.push_back(name);
    }
    out << "t";
    for (const std::string& name : names) out << ',' << name;
    out << '\n';
    for (std::size_t row = 0; row < inputs.rows(); ++row) {
      replay.step(row);
      char text[32];
      std::snprintf(text, sizeof text, "%.3f", inputs.at(row, "t"));
      out << text;
      for (const std::string& name : names) {
        std::snprintf(text, sizeof text, ",%.7g", replay.internal(name));
        out << text;
      }
      out << '\n';
    }
    GTEST_SKIP() << "recorded " << path;
  }
  compare(inputs, Csv(path), {});
}

std::string case_name(const testing::TestParamInfo<const char*>& row) {
  std::string name = row.param;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Gold, SpecVector, testing::ValuesIn(kVectors), case_name);
INSTANTIATE_TEST_SUITE_P(Gold, DefaultVector, testing::ValuesIn(kVectors), case_name);

}  // namespace
}  // namespace headgate
