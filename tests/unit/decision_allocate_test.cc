// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "agent/decision/decide.h"

namespace headgate {
namespace {

EndpointInput endpoint(Criticality criticality, double floor = 0) {
  EndpointInput input;
  input.criticality = criticality;
  input.floor = Probability::refusing(floor);
  return input;
}

std::vector<double> shares(double refuse, const std::vector<EndpointInput>& endpoints,
                           const std::vector<double>& demand, double minimum = 0) {
  std::vector<EndpointDecision> out(endpoints.size());
  allocate(refuse, endpoints, demand, minimum, out);
  std::vector<double> admit;
  for (const EndpointDecision& decision : out) admit.push_back(decision.admit.value());
  return admit;
}

using enum Criticality;

TEST(Allocate, TakesFromTheLeastCriticalFirst) {
  // 0.25 of 400/s = 100/s: half of the 200/s that are sheddable.
  const auto admit = shares(0.25, {endpoint(kCritical), endpoint(kSheddable)}, {200, 200});
  EXPECT_DOUBLE_EQ(admit[0], 1.0);
  EXPECT_DOUBLE_EQ(admit[1], 0.5);
}

TEST(Allocate, LeavesTheFloorsInTheFirstRound) {
  // 0.5 of 400 = 200/s. Sheddable gives all above its floor: 200 * 0.75 = 150. The 50 that are
  // missing come from critical, which has 200 * 0.5 = 100 above its floor: it gives half of those,
  // so it keeps 1 - 0.5 * 0.5.
  const auto admit =
      shares(0.5, {endpoint(kCritical, 0.5), endpoint(kSheddable, 0.25)}, {200, 200});
  EXPECT_DOUBLE_EQ(admit[1], 0.25);
  EXPECT_DOUBLE_EQ(admit[0], 0.75);
}

TEST(Allocate, TakesTheRestFromEverybodyEquallyInTheSecondRound) {
  // 0.9 of 400 = 360/s; above the floors there are 200 * 0.75 + 200 * 0.5 = 250. What is kept is
  // 50 + 100 = 150, of which 110 are still missing: everybody keeps 1 - 110/150 = 4/15 of it.
  const auto admit =
      shares(0.9, {endpoint(kCritical, 0.5), endpoint(kSheddable, 0.25)}, {200, 200});
  EXPECT_NEAR(admit[0], 0.5 * 4 / 15, 1e-12);
  EXPECT_NEAR(admit[1], 0.25 * 4 / 15, 1e-12);
  EXPECT_NEAR(200 * admit[0] + 200 * admit[1], 40, 1e-9);
}

TEST(Allocate, SpreadsWithinAClassByTheSamePart) {
  // 0.2 of 300 = 60/s from one class whose endpoints have 100 and 200 * 0.5 above the floors.
  const auto admit = shares(0.2, {endpoint(kSheddable), endpoint(kSheddable, 0.5)}, {100, 200});
  EXPECT_NEAR(admit[0], 1 - 0.3, 1e-12);
  EXPECT_NEAR(admit[1], 1 - 0.3 * 0.5, 1e-12);
}

TEST(Allocate, RefusesEverywhereTheSameWhereNothingIsOffered) {
  const auto admit = shares(0.3, {endpoint(kCriticalPlus, 0.9), endpoint(kSheddable)}, {0, 0});
  EXPECT_DOUBLE_EQ(admit[0], 0.7);
  EXPECT_DOUBLE_EQ(admit[1], 0.7);
}

TEST(Allocate, ClosesAnIdleClassBeforeAMoreCriticalOneGives) {
  // Nothing sheddable is offered, so critical gives; what comes to sheddable next is refused first.
  const auto admit = shares(0.5, {endpoint(kCritical), endpoint(kSheddable, 0.1)}, {100, 0});
  EXPECT_DOUBLE_EQ(admit[0], 0.5);
  EXPECT_DOUBLE_EQ(admit[1], 0.1);
}

TEST(Allocate, NeverGoesBelowTheMinimum) {
  const auto admit = shares(1.0, {endpoint(kCritical), endpoint(kSheddable)}, {100, 100}, 0.01);
  EXPECT_DOUBLE_EQ(admit[0], 0.01);
  EXPECT_DOUBLE_EQ(admit[1], 0.01);
}

TEST(Allocate, AdmitsAllForAShareThatIsNoNumber) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double admit : shares(nan, {endpoint(kSheddable), endpoint(kCritical)}, {10, 10})) {
    EXPECT_EQ(admit, 1.0);
  }
}

TEST(Allocate, TakesABadDemandForNone) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  const auto admit =
      shares(0.5, {endpoint(kCritical), endpoint(kCritical), endpoint(kCritical)}, {nan, inf, 100});
  for (const double a : admit) EXPECT_DOUBLE_EQ(a, 0.5);
}

TEST(Allocate, GivesTheReasonOnlyWhereItRefuses) {
  const std::vector<EndpointInput> endpoints{endpoint(kCritical), endpoint(kSheddable)};
  std::vector<EndpointDecision> out(2);
  allocate(0.25, endpoints, std::vector<double>{200, 200}, 0, out);
  EXPECT_EQ(out[0].reason, HEADGATE_REASON_NONE);
  EXPECT_EQ(out[1].reason, HEADGATE_REASON_SHARE);
}

}  // namespace
}  // namespace headgate
