// SPDX-License-Identifier: Apache-2.0
// adaptive in a closed loop with a model of a half-core server (closed_loop_model.h), whose cost
// jumps are blind: no size tells them.
#include <gtest/gtest.h>

#include "closed_loop_model.h"
#include "strategy_harness.h"

namespace headgate {
namespace {

using test::kCapacity;
using test::LoopRun;
using test::LoopSetup;
using test::make_strategy;

class AdaptiveLoop : public testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  static bool counted() { return std::get<1>(GetParam()); }
  LoopRun run =
      test::run_story("adaptive", static_cast<std::uint64_t>(std::get<0>(GetParam())), counted());
};

TEST_P(AdaptiveLoop, ServesNearlyTheCapacityAtX3AndX10) {
  EXPECT_GE(run.served_per_s(10, 20), (counted() ? 0.89 : 0.83) * kCapacity);
  EXPECT_GE(run.served_per_s(30, 40), (counted() ? 0.89 : 0.83) * kCapacity);
  EXPECT_GE(run.served_per_s(50, 60), 0.75 * kCapacity / 4) << "four times the cost";
}

TEST_P(AdaptiveLoop, AnswersTheAdmittedQuickly) {
  EXPECT_LT(run.p99_s(10, 20), 0.15);
  EXPECT_LT(run.p99_s(30, 40), 0.15);
  EXPECT_LT(run.p99_s(50, 60), 1.0);
}

TEST_P(AdaptiveLoop, RefusesHardlyAnybodyInCalmPhases) {
  EXPECT_LE(run.refused_share(3, 10), 0.005);
  EXPECT_LE(run.refused_share(20, 30), 0.02);
  EXPECT_LE(run.refused_share(40, 50), 0.02);
  EXPECT_LE(run.refused_share(65, 70), 0.02);
}

INSTANTIATE_TEST_SUITE_P(Seeds, AdaptiveLoop,
                         testing::Combine(testing::Range(1, 9), testing::Bool()), test::story_name);

class AdaptiveHealthy : public testing::TestWithParam<double> {};

/// Whatever the request rate: at most 0.5 % at a steady three quarters, where ten come a tick.
TEST_P(AdaptiveHealthy, IsNotRefusedAtThreeQuartersOfTheCapacity) {
  const double cost_s = GetParam();
  double worst = 0;
  double sum = 0;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const auto strategy = make_strategy("adaptive");
    LoopSetup setup;
    setup.cost_s = cost_s;
    setup.seed = seed;
    setup.end_s = 40;
    setup.rate_per_s = [cost_s](double) { return 0.75 * 0.5 / cost_s; };
    const LoopRun run = test::run_closed_loop(*strategy, setup);
    worst = std::max(worst, run.refused_share(2, 40));
    sum += run.refused_share(2, 40);
  }
  EXPECT_LE(sum / 6, 0.005);
  EXPECT_LE(worst, 0.01);
}

INSTANTIATE_TEST_SUITE_P(CostsOfARequest, AdaptiveHealthy,
                         testing::Values(0.0003, 0.0009, 0.0018, 0.0036), [](const auto& row) {
                           return std::to_string(std::lround(row.param * 1e6)) + "us";
                         });

}  // namespace
}  // namespace headgate
