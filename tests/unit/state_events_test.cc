// SPDX-License-Identifier: Apache-2.0
#include "agent/state_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headgate {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const Instant kStart = Instant{} + std::chrono::hours(1);

TargetSnapshot in_state(State state) {
  TargetSnapshot out;
  out.name = "gateway";
  out.pod = {"obs", "collector-0", "uid-0", "otc"};
  out.state = state;
  out.why = "demand is above the CPU budget";
  out.signals.capacity_cores = 0.5;
  out.signals.cpu_fast = Ratio{0.97};
  out.signals.memory = Ratio{0.61};
  out.signals.memory_limit_bytes = std::uint64_t{256} << 20;
  EndpointSnapshot grpc;
  grpc.name = "otlp-grpc";
  grpc.counters.offered = 10'000;
  grpc.counters.reset = 600;
  grpc.rates.offered = 800;
  grpc.rates.reset = 496;
  EndpointSnapshot http;
  http.name = "otlp-http";
  http.counters.offered = 50;
  http.rates.offered = 5;
  out.endpoints = {grpc, http};
  return out;
}

TEST(StateEvents, WaitsForTheNumbersOfOneSecond) {
  StateEvents events;
  EXPECT_FALSE(events.due(kStart));
  events.changed(kStart);
  EXPECT_FALSE(events.due(kStart + milliseconds(999)));
  EXPECT_TRUE(events.due(kStart + seconds(1)));
  (void)events.make(in_state(State::kShedding), kStart + seconds(1), 1);
  EXPECT_FALSE(events.due(kStart + seconds(2)));
}

TEST(StateEvents, SheddingIsAWarningWithNumbers) {
  StateEvents events;
  events.changed(kStart);
  const auto event = events.make(in_state(State::kShedding), kStart + seconds(1), 1'700'000'000);
  ASSERT_TRUE(event);
  EXPECT_TRUE(event->warning);
  EXPECT_EQ(event->reason, "LoadShedding");
  EXPECT_EQ(event->action, "RefuseExcess");
  EXPECT_EQ(event->pod, "collector-0");
  EXPECT_EQ(event->container, "otc");
  EXPECT_EQ(event->unix_us, 1'700'000'000);
  EXPECT_EQ(event->note,
            "target gateway refuses the excess: otlp-grpc 62 % of 800/s; CPU 97 % of 0.5 cores, "
            "memory 61 % of 256 MiB; why: demand is above the CPU budget");
}

TEST(StateEvents, AnOpenCircuitIsSaid) {
  StateEvents events;
  events.changed(kStart);
  const auto event = events.make(in_state(State::kOpen), kStart + seconds(1), 1);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->reason, "CircuitOpen");
  EXPECT_THAT(event->note, HasSubstr("refuses all but probes: otlp-grpc 62 %"));
}

TEST(StateEvents, InObserveModeItSaysWhatWouldHaveBeen) {
  TargetSnapshot target = in_state(State::kShedding);
  target.mode = Mode::kObserve;
  target.endpoints[0].rates.reset = 0;
  target.endpoints[0].rates.admitted_observed = 80;
  StateEvents events;
  events.changed(kStart);
  const auto event = events.make(target, kStart + seconds(1), 1);
  ASSERT_TRUE(event);
  EXPECT_THAT(event->note, HasSubstr("would refuse (mode: observe) the excess: otlp-grpc 10 % of"));
  EXPECT_EQ(event->action, "Observe");
}

TEST(StateEvents, RecoveryTellsWhatWasRefusedMeanwhile) {
  StateEvents events;
  events.changed(kStart);
  ASSERT_TRUE(events.make(in_state(State::kShedding), kStart + seconds(1), 1));
  TargetSnapshot target = in_state(State::kNormal);
  target.endpoints[0].counters.offered = 20'000;
  target.endpoints[0].counters.reset = 5'600;
  events.changed(kStart + seconds(60));
  const auto event = events.make(target, kStart + seconds(64), 1);
  ASSERT_TRUE(event);
  EXPECT_FALSE(event->warning);
  EXPECT_EQ(event->reason, "Recovered");
  // From a second before the first Event on: what had come until then is in its rates.
  EXPECT_THAT(event->note, HasSubstr("takes everything again after 63 s: otlp-grpc refused 5496 "
                                     "of 10800; CPU"));
  EXPECT_THAT(event->note, Not(HasSubstr("otlp-http")));
}

TEST(StateEvents, BeginningAndTippingOverForAMomentAreNoNews) {
  StateEvents events;
  events.changed(kStart);
  EXPECT_FALSE(events.make(in_state(State::kNormal), kStart + seconds(1), 1));
  events.changed(kStart + seconds(5));
  events.changed(kStart + seconds(5) + milliseconds(200));
  EXPECT_FALSE(events.make(in_state(State::kNormal), kStart + seconds(6), 1));
}

TEST(StateEvents, ChangesWithinTheSecondAreCounted) {
  StateEvents events;
  for (int i = 0; i < 3; ++i) {
    events.changed(kStart + milliseconds(100 * i));
  }
  const auto event = events.make(in_state(State::kShedding), kStart + seconds(1), 1);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->times, 3U);
}

TEST(StateEvents, ATargetThatCannotBeMeasuredAnyMoreIsAWarning) {
  StateEvents events;
  events.changed(kStart);
  ASSERT_TRUE(events.make(in_state(State::kShedding), kStart + seconds(1), 1));
  TargetSnapshot target = in_state(State::kUnknown);
  target.signals = {};
  events.changed(kStart + seconds(5));
  const auto event = events.make(target, kStart + seconds(6), 1);
  ASSERT_TRUE(event);
  EXPECT_TRUE(event->warning);
  EXPECT_EQ(event->reason, "NotMeasured");
  EXPECT_THAT(event->note, AllOf(HasSubstr("cannot be measured and admits everything"),
                                 HasSubstr("CPU unknown ("), HasSubstr("memory unknown (")));
}

TEST(ConfigEvent, RefusedThenTakenOver) {
  const KubeEvent refused = config_event("headgate.yaml:3:5: tick: 'x' is no duration", "f", 7);
  EXPECT_TRUE(refused.warning);
  EXPECT_EQ(refused.reason, "ConfigRefused");
  EXPECT_THAT(refused.note,
              HasSubstr("headgate.yaml:3:5: tick: 'x' is no duration; the last good"));
  const KubeEvent taken = config_event("", "/etc/headgate/headgate.yaml", 8);
  EXPECT_FALSE(taken.warning);
  EXPECT_EQ(taken.reason, "ConfigTakenOver");
  EXPECT_EQ(taken.note, "/etc/headgate/headgate.yaml is valid again and in force");
}

}  // namespace
}  // namespace headgate
