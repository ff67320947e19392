// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strategy_harness.h"

namespace headgate {
namespace {

using test::make_strategy;

TEST(Registry, KnowsEveryNameOfTheSchema) {
  for (const char* name :
       {"adaptive", "graded", "curve", "fixed", "bbr", "aimd", "gradient", "codel", "sre",
        "four_layer", "scaled", "klimiter", "token_bucket", "concurrency", "sentinel", "hybrid"}) {
    EXPECT_NE(find_strategy(name), nullptr) << name;
  }
  EXPECT_EQ(find_strategy("grade"), nullptr);
}

TEST(Registry, MakesWhatIsBuiltAndNamesABuiltOneForTheRest) {
  for (const StrategyInfo& info : strategies()) {
    EXPECT_FALSE(info.doc.empty()) << info.name;
    if (info.built) {
      EXPECT_NE(make_strategy(info.name), nullptr) << info.name;
      EXPECT_EQ(info.instead.empty(), !info.needs_requests) << info.name;
    } else {
      EXPECT_EQ(info.make, nullptr) << info.name;
      const StrategyInfo* instead = find_strategy(info.instead);
      ASSERT_NE(instead, nullptr) << info.name;
      EXPECT_TRUE(instead->built) << info.name;
    }
  }
}

TEST(Registry, HasABuiltDefault) {
  const StrategyInfo* info = find_strategy(kDefaultStrategy);
  ASSERT_NE(info, nullptr);
  EXPECT_TRUE(info->built);
}

TEST(Registry, HasDefaultsWithinTheirRanges) {
  for (const StrategyInfo& info : strategies()) {
    for (const ParamSpec& spec : info.params) {
      EXPECT_FALSE(spec.doc.empty()) << info.name << '.' << spec.name;
      if (spec.kind == ParamSpec::Kind::kWord) {
        EXPECT_THAT(spec.words, testing::Contains(spec.default_word)) << spec.name;
      } else {
        EXPECT_LE(spec.minimum, spec.default_value) << info.name << '.' << spec.name;
        EXPECT_GE(spec.maximum, spec.default_value) << info.name << '.' << spec.name;
      }
    }
    if (info.check != nullptr) {
      EXPECT_EQ(info.check({}), "") << info.name;
    }
  }
}

TEST(Registry, SaysWhatIsWrongBetweenTheValuesOfGraded) {
  const StrategyInfo* graded = find_strategy("graded");
  Params params;
  params.numbers["exit"] = 0.85;  // enter is 0.80
  EXPECT_EQ(graded->check(params), "exit must be below enter");
  params.numbers["enter"] = 0.90;
  EXPECT_EQ(graded->check(params), "");
  params.numbers["circuit_close"] = 0.95;
  EXPECT_EQ(graded->check(params), "circuit_close must be below circuit_open");
}

TEST(Registry, SaysWhatIsWrongWithThePointsOfACurve) {
  const StrategyInfo* curve = find_strategy("curve");
  Params params;
  params.points = {{0.9, 0.5}, {0.7, 0.9}};
  EXPECT_EQ(curve->check(params), "the levels of points must not fall");
  params.points = {{0.7, 0}, {0.9, 1.5}};
  EXPECT_NE(curve->check(params), "");
  params.points = {{0.7, 0}, {0.9, 1}};
  EXPECT_EQ(curve->check(params), "");
}

}  // namespace
}  // namespace headgate
