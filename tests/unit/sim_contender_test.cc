// SPDX-License-Identifier: Apache-2.0
// Who can be tried, under which names; and what is drawn of it.
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/sim/contender.h"
#include "agent/sim/plot.h"
#include "agent/sim/simulate.h"
#include "agent/sim/summary.h"
#include "agent/strategies/registry.h"

namespace headgate::sim {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string error_of(const std::vector<std::string>& names, const ContenderOptions& options = {}) {
  const auto found = find_contenders(names, options);
  EXPECT_FALSE(found.has_value());
  return found ? "" : found.error().message;
}

/// Whatever is offered can be made and runs.
TEST(SimContender, EveryNameRuns) {
  const Scenario* s = find_scenario("B2");
  std::set<std::string> names;
  for (const ContenderDoc& doc : contender_docs()) {
    EXPECT_TRUE(names.insert(doc.name).second) << doc.name;
    EXPECT_FALSE(doc.doc.empty()) << doc.name;
    if (doc.name == "hybrid") continue;  // nothing without its parts
    const auto found = find_contenders({doc.name}, {});
    ASSERT_TRUE(found.has_value()) << found.error().message;
    const Summary summary = summarize(*s, found->front(), 1, 1);
    EXPECT_GT(summary.mean.goodput, 0.2) << doc.name;
    EXPECT_LT(summary.mean.goodput, 1.3) << doc.name;
  }
  EXPECT_TRUE(names.contains("adaptive"));
  EXPECT_TRUE(names.contains("None"));
}

TEST(SimContender, AllIsEverythingOnce) {
  const auto found = find_contenders({"all", "None", "graded"}, {});
  ASSERT_TRUE(found.has_value());
  std::set<std::string> names;
  for (const Contender& c : *found) EXPECT_TRUE(names.insert(c.name).second) << c.name;
  EXPECT_TRUE(names.contains("QPSLimiter"));
}

TEST(SimContender, WrongNamesAndParametersAreExplained) {
  EXPECT_THAT(error_of({"grade"}),
              AllOf(HasSubstr("unknown strategy 'grade'"), HasSubstr("graded")));
  EXPECT_THAT(error_of({"graded"}, {.params = {"enter"}}), HasSubstr("NAME=VALUE"));
  EXPECT_THAT(error_of({"graded"}, {.params = {"entr=0.9"}}),
              AllOf(HasSubstr("no chosen strategy has a parameter 'entr'"), HasSubstr("enter")));
  EXPECT_THAT(error_of({"graded"}, {.params = {"enter=much"}}),
              AllOf(HasSubstr("enter of graded"), HasSubstr("much")));
  EXPECT_THAT(error_of({"graded"}, {.params = {"enter=0.5"}}),  // below exit
              HasSubstr("parameters of graded"));
  EXPECT_THAT(error_of({"None"}, {.params = {"enter=0.9"}}), HasSubstr("they have none"));
}

TEST(SimContender, ParametersAndTargetReachTheLaw) {
  const Scenario* s = find_scenario("B10");
  const auto goodput = [&](const ContenderOptions& options) {
    return summarize(*s, find_contenders({"fixed"}, options)->front(), 1, 1).mean.refused_share;
  };
  EXPECT_NEAR(goodput({.params = {"admit=0.25"}}), 0.75, 0.01);
  EXPECT_NEAR(goodput({.params = {"admit=0.5"}}), 0.5, 0.01);
  const auto useful = [&](double target) {
    return summarize(*s, find_contenders({"adaptive"}, {.target = target})->front(), 1, 1)
        .mean.useful_work_s;
  };
  EXPECT_GT(useful(0.9), useful(0.7) + 3);
}

/// What looks into the pod's queue keeps it short, whatever comes.
TEST(SimContender, CodelRefusesOutOfTheQueue) {
  const auto codel = find_contenders({"CoDel"}, {});
  ASSERT_TRUE(codel.has_value());
  const Summary summary = summarize(*find_scenario("B5"), codel->front(), 1, 3);
  EXPECT_NEAR(summary.mean.goodput, 0.954, 0.02);  // published
  EXPECT_NEAR(summary.mean.p99_delay_ms, 140, 15);
  EXPECT_NEAR(summary.mean.danger_s, 20.7, 0.5);
}

TEST(SimFuzz, SummaryIsThatOfItsRuns) {
  const auto none = find_contenders({"None"}, {});
  const FuzzSummary s = fuzz(none->front(), 9000, 30);
  ASSERT_EQ(s.outcomes.size(), 30U);
  double sum = 0;
  double least = 9;
  for (const FuzzOutcome& o : s.outcomes) {
    sum += o.metrics.goodput;
    least = std::min(least, o.metrics.goodput);
  }
  EXPECT_NEAR(s.goodput_mean, sum / 30, 1e-9);
  EXPECT_EQ(s.goodput_min, least);
  EXPECT_LE(s.goodput_min, s.goodput_p10);
  EXPECT_LE(s.peak_p50_s, s.peak_p90_s);
  EXPECT_LE(s.peak_p90_s, s.peak_max_s);
}

TEST(SimQuantile, IsTheValueAtItsRank) {
  EXPECT_EQ(quantile({}, 0.5), 0);
  EXPECT_EQ(quantile({3, 1, 2}, 0), 1);
  EXPECT_EQ(quantile({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(quantile({3, 1, 2}, 0.99), 2);
  EXPECT_EQ(quantile({3, 1, 2}, 1), 3);
}

TEST(SimPlot, IsOneDocumentWithARowPerRun) {
  Scenario s = *find_scenario("B2");
  s.name = "a<b&c";
  const auto graded = find_contenders({"graded"}, {});
  std::vector<PlotRow> rows;
  for (int i = 0; i < 2; ++i) {
    const auto guard = graded->front().make(s);
    Outcome outcome = simulate(s, *guard, {.keeps_windows = true});
    rows.push_back({&s, "graded", outcome.metrics, outcome.windows});
  }
  const std::string svg = plot_svg(rows);
  EXPECT_THAT(svg, AllOf(HasSubstr("<svg xmlns"), HasSubstr("a&lt;b&amp;c, graded"),
                         HasSubstr("</svg>"), Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
  std::size_t lines = 0;
  for (std::size_t at = svg.find("<polyline"); at != std::string::npos;
       at = svg.find("<polyline", at + 1)) {
    ++lines;
  }
  EXPECT_EQ(lines, 6U);  // admitted, CPU, memory of each
  EXPECT_THAT(plot_html(rows), AllOf(HasSubstr("<!doctype html>"), HasSubstr("</html>")));
  EXPECT_THAT(svg, Not(HasSubstr("http://www.w3.org/1999")));  // nothing to load
}

}  // namespace
}  // namespace headgate::sim
