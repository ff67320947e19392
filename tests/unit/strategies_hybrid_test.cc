// SPDX-License-Identifier: Apache-2.0
#include <array>

#include <gtest/gtest.h>

#include "strategy_harness.h"

namespace headgate {
namespace {

using test::make_strategy;
using test::Ticks;

std::unique_ptr<Strategy> hybrid(std::vector<std::string> parts) {
  Params params;
  params.parts = std::move(parts);
  return make_strategy("hybrid", params);
}

TEST(Hybrid, TakesTheFirstPartThatRefuses) {
  // scaled refuses 0.2 at 0.83, graded's curve 0.95 x (0.83 - 0.70) / 0.20 = 0.6175.
  for (const auto& [parts, admit] :
       {std::pair{std::vector<std::string>{"scaled", "graded"}, 1 - 0.2},
        {std::vector<std::string>{"graded", "scaled"}, 1 - 0.6175}}) {
    const auto law = hybrid(parts);
    Ticks ticks(*law);
    ticks.traffic(10, 1).cpu(0.83).run(3);
    EXPECT_NEAR(ticks.admit(), admit, 1e-9);
    EXPECT_EQ(ticks.decision.state, State::kShedding);
  }
}

TEST(Hybrid, AsksTheNextWhileTheFirstDoesNotRefuse) {
  const auto law = hybrid({"scaled", "graded"});
  Ticks ticks(*law);
  ticks.traffic(10, 1).cpu(0.83).run(3);
  ticks.cpu(0.76).run(30);  // below scaled's ramp, above graded's exit
  EXPECT_NEAR(ticks.admit(), 1 - 0.95 * 0.06 / 0.20, 1e-9);
  EXPECT_EQ(ticks.decision.why, "cpu_slow is on the curve (above enter, not yet below exit)");
}

TEST(Hybrid, KeepsTheCapsOfEveryPart) {
  // aimd: 64 x 0.85 = 54.4; sre: 2000. A cap that is not reached does not hide the next part.
  const auto law = hybrid({"sre", "aimd", "scaled"});
  Ticks ticks(*law);
  ticks.traffic(10, 5).cpu(0.875).run();
  EXPECT_EQ(ticks.decision.connections_max, 55U);
  EXPECT_NEAR(ticks.admit(), 0.5, 1e-9) << "scaled";
  EXPECT_EQ(ticks.decision.why, "scaled: CPU is above cpu_from");
}

TEST(Hybrid, PassesOverAPartThatDoesNotKnow) {
  const auto law = hybrid({"gradient", "scaled"});
  Ticks ticks(*law);
  ticks.traffic(10, 500).cpu(0.83);
  ticks.endpoints[0].activity.responses_known = false;
  ticks.run();
  EXPECT_EQ(ticks.decision.connections_max, 0U);
  EXPECT_NEAR(ticks.admit(), 0.8, 1e-9);
  ticks.cpu_unknown().run();
  EXPECT_EQ(ticks.decision.state, State::kUnknown) << "now none knows";
  EXPECT_EQ(ticks.admit(), 1.0);
}

TEST(Hybrid, OpensTheCircuitOfAPart) {
  const auto law = hybrid({"aimd", "graded"});
  Ticks ticks(*law);
  ticks.traffic(10, 0).cpu(0.95).run(2);
  EXPECT_TRUE(ticks.decision.circuit_open);
  EXPECT_EQ(ticks.decision.state, State::kOpen);
  EXPECT_EQ(ticks.decision.endpoints[0].reason, HEADGATE_REASON_CIRCUIT);
}

TEST(Hybrid, SavesEachPartAndGivesItBack) {
  const auto law = hybrid({"aimd", "scaled", "gradient"});
  Ticks ticks(*law);
  ticks.traffic(50, 400, 50, 0.010).cpu(0.9).run(5);
  std::array<std::byte, 432> bytes{};
  const std::size_t used = law->save(bytes);
  const auto next = hybrid({"aimd", "scaled", "gradient"});
  ASSERT_TRUE(next->restore(std::span(bytes).first(used)));
  EXPECT_EQ(next->internals()[0].value, law->internals()[0].value) << "the limit of aimd";
  EXPECT_EQ(next->internals()[2].value, law->internals()[2].value) << "of gradient";
  const auto other = hybrid({"gradient", "aimd"});
  EXPECT_FALSE(other->restore(std::span(bytes).first(used))) << "no part knows its bytes";
  EXPECT_FALSE(next->restore(std::span(bytes).first(3)));
}

TEST(Hybrid, FindsRoomForWhatFits) {
  const auto law = hybrid({"klimiter", "aimd"});
  Ticks ticks(*law);
  ticks.traffic(50, 400).cpu(0.9).run(5);
  std::array<std::byte, 40> bytes{};  // not enough for klimiter
  const std::size_t used = law->save(bytes);
  ASSERT_GT(used, 0U);
  const auto next = hybrid({"klimiter", "aimd"});
  EXPECT_TRUE(next->restore(std::span(bytes).first(used)));
}

TEST(Hybrid, AdmitsEverythingWithoutParts) {
  const auto law = hybrid({});
  Ticks ticks(*law);
  ticks.traffic(10, 5).cpu(2).run();
  EXPECT_EQ(ticks.admit(), 1.0);
  EXPECT_EQ(ticks.decision.state, State::kUnknown);
}

}  // namespace
}  // namespace headgate
