// SPDX-License-Identifier: Apache-2.0
// A port whose requests are refused: nothing is counted twice, nothing is gated twice.
#include <vector>

#include <gtest/gtest.h>

#include "agent/decision/requests.h"

namespace headgate {
namespace {

EndpointActivity connections(std::uint64_t n) {
  EndpointActivity out;
  out.offered = out.admitted = out.established = out.closed = n;
  out.received_bytes = 1000 * n;
  out.in_flight = 20;
  out.in_flight_known = true;
  return out;
}

TEST(Unrecognized, APortOfRequestsAloneCostsNothingByItself) {
  Unrecognized part;
  std::uint64_t established = 0;
  for (int tick = 0; tick < 100; ++tick) {
    EndpointActivity activity = connections(10);
    part.reduce(activity, tick == 0 ? 5 : 10, 0);  // the last five speak a tick later
    established += activity.established;
    EXPECT_LE(activity.in_flight, 20U);
  }
  EXPECT_EQ(established, 0U);
  EXPECT_LT(part.share(), kUnrecognizedLeast);
}

TEST(Unrecognized, APortOfTlsIsGatedAsBefore) {
  Unrecognized part;
  EndpointActivity activity;
  for (int tick = 0; tick < 100; ++tick) {
    activity = connections(10);
    part.reduce(activity, 0, 10);
  }
  EXPECT_GT(part.share(), 0.97);
  EXPECT_EQ(activity.established, 10U);
  EXPECT_GE(activity.offered, 9U);
  EXPECT_GE(activity.in_flight, 19U);
}

TEST(Unrecognized, OfAMixtureItsPartIsCounted) {
  Unrecognized part;
  std::uint64_t offered = 0;
  std::uint64_t established = 0;
  for (int tick = 0; tick < 400; ++tick) {
    EndpointActivity activity = connections(3);
    part.reduce(activity, 2, 1);
    offered += activity.offered;
    established += activity.established;
  }
  EXPECT_NEAR(part.share(), 1.0 / 3, 0.05);
  EXPECT_NEAR(static_cast<double>(established), 400, 5);
  EXPECT_NEAR(static_cast<double>(offered), 400, 40);
}

/// A fleet that connects at once, or keeps more connections than it uses.
TEST(Unrecognized, SilentConnectionsAreNoWork) {
  Unrecognized part;
  EndpointActivity activity = connections(64);
  part.reduce(activity, 6, 0);
  EXPECT_EQ(activity.established, 0U);
  EXPECT_EQ(activity.offered, 0U);
  EXPECT_LT(part.share(), kUnrecognizedLeast);
}

TEST(RequestActivity, ARequestIsWhatAConnectionIsElsewhere) {
  headgate_counters before{};
  before.offered = 100;
  before.payload_bytes = 5000;
  headgate_counters now = before;
  now.offered += 10;
  now.admitted += 7;
  now.answered += 3;
  now.payload_bytes += 10'240;
  now.admitted_bytes += 7168;
  now.responses += 5;
  now.response_ns += 50'000'000;
  now.closed += 1;
  const EndpointActivity seen = request_activity(now, before, 2, true);
  EXPECT_EQ(seen.offered, 10U);
  EXPECT_EQ(seen.refused, 3U);
  EXPECT_EQ(seen.established, 7U);
  EXPECT_EQ(seen.closed, 6U) << "answered, or ended with their connection";
  EXPECT_EQ(seen.in_flight, 2U);
  EXPECT_TRUE(seen.in_flight_known && seen.responses_known && seen.sizes_known);
  EXPECT_EQ(seen.offered_bytes, 10'240U);
  EXPECT_EQ(seen.admitted_bytes, 7168U);
  EXPECT_DOUBLE_EQ(seen.response_s_sum, 0.05);
  const EndpointActivity grpc = request_activity(now, before, 2, false);
  EXPECT_FALSE(grpc.in_flight_known || grpc.responses_known);
  EXPECT_EQ(grpc.closed, 0U);
  EXPECT_EQ(grpc.admitted, 7U);
}

EndpointDecision gated() {
  EndpointDecision out;
  out.admit = Probability::admitting(0.4);
  out.reason = HEADGATE_REASON_SHARE;
  out.charge_request_s = 0.01;
  out.depth_s = 0.1;
  out.rate_per_s = 100;
  out.connections_max = 10;
  return out;
}

TEST(ForUnrecognized, NothingIsLeftWhereAllAreRequests) {
  const EndpointDecision out = for_unrecognized(gated(), 0.01);
  EXPECT_EQ(out.admit, Probability::always());
  EXPECT_EQ(out.reason, HEADGATE_REASON_NONE);
  EXPECT_EQ(out.charge_request_s, 0);
  EXPECT_EQ(out.depth_s, 0) << "a bucket without a charge would still refuse while it is full";
  EXPECT_EQ(out.rate_per_s, 0);
  EXPECT_EQ(out.connections_max, 0U);
}

TEST(ForUnrecognized, ItsPartIsGated) {
  EXPECT_EQ(for_unrecognized(gated(), 1).admit, gated().admit);
  const EndpointDecision out = for_unrecognized(gated(), 0.5);
  EXPECT_DOUBLE_EQ(out.admit.value(), 0.7) << "of those that are gated 0.4";
  EXPECT_DOUBLE_EQ(out.charge_request_s, 0.005);
  EXPECT_DOUBLE_EQ(out.rate_per_s, 200);
  EXPECT_EQ(out.connections_max, 20U);
}

EndpointInput in_flight(std::uint64_t n, Criticality criticality, bool requests = true) {
  EndpointInput out;
  out.requests = requests;
  out.criticality = criticality;
  out.activity.in_flight = n;
  out.activity.in_flight_known = true;
  return out;
}

TEST(SpreadInFlight, TheMoreCriticalGoFirst) {
  const std::vector<EndpointInput> inputs{
      in_flight(2, Criticality::kCritical, false), in_flight(5, Criticality::kSheddable),
      in_flight(3, Criticality::kCritical), in_flight(0, Criticality::kCriticalPlus)};
  std::vector<EndpointDecision> out(inputs.size());
  spread_in_flight(10, inputs, out);
  EXPECT_EQ(out[0].connections_max, 0U) << "connections have the cap of the target";
  EXPECT_EQ(out[1].connections_max, 5U) << "2 and 3 are taken";
  EXPECT_EQ(out[2].connections_max, 8U) << "the sheddable ones make way";
  EXPECT_EQ(out[3].connections_max, 10U);
  spread_in_flight(4, inputs, out);
  EXPECT_EQ(out[1].connections_max, 1U) << "never shut for good";
  spread_in_flight(0, inputs, out);
  EXPECT_EQ(out[1].connections_max, 1U) << "no cap changes nothing";
}

}  // namespace
}  // namespace headgate
