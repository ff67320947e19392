// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "agent/signals/signals.h"

namespace headgate {
namespace {

using namespace std::chrono_literals;

constexpr Duration kStaleAfter = 1s;

/// A target that can be told how much CPU it uses; time and counters go on by themselves.
class Target {
 public:
  Sample sample;

  explicit Target(double cores = 0.5) {
    sample.at = Instant(1000s);
    sample.details_at = sample.at;
    sample.cpu_usage_ns = std::uint64_t{5'000'000'000};
    sample.limits.cpu_cores = cores;
    sample.limits.cpu_source = LimitSource::kOwn;
  }
  /// `cores` used for `dt`.
  Target& run(double cores, Duration dt) {
    sample.at += dt;
    *sample.cpu_usage_ns.value +=
        static_cast<std::uint64_t>(std::llround(cores * 1e9 * seconds(dt)));
    return *this;
  }
};

/// A deriver that has seen `ratio` of the limit for 20 s: its means are that ratio.
SignalDeriver steady(Target& target, double ratio, Duration tick = 100ms) {
  SignalDeriver deriver;
  deriver.update(target.sample, kStaleAfter);
  const double cores = *target.sample.limits.cpu_cores * ratio;
  for (Duration t{}; t < 20s; t += tick) {
    deriver.update(target.run(cores, tick).sample, kStaleAfter);
  }
  return deriver;
}

TEST(CpuRatio, IsCoresUsedOverEffectiveCores_A24) {
  // Case A24 (Sentinel#3120): quota 125000 of 100000 us = 1.25 cores, all of it used. Taking it for
  // 2 cores would read 0.625.
  Target target(1.25);
  SignalDeriver deriver;
  deriver.update(target.sample, kStaleAfter);
  const Signals& signals = deriver.update(target.run(1.25, 1s).sample, kStaleAfter);
  EXPECT_NEAR((*signals.cpu).value, 1.0, 1e-9);
  EXPECT_EQ(signals.capacity_cores, 1.25);
}

TEST(CpuRatio, IsNotClippedAtOne) {
  // A tick between two CFS periods can hold more than its share: 0.605 cores of 0.5 = 1.21.
  Target target;
  SignalDeriver deriver;
  deriver.update(target.sample, kStaleAfter);
  EXPECT_NEAR((*deriver.update(target.run(0.605, 100ms).sample, kStaleAfter).cpu).value, 1.21,
              1e-9);
}

TEST(CpuRatio, IsUnknownForTheTickInWhichTheCounterRoseByMoreThanTheMachineHas) {
  // Two CPUs cannot spend 40 s in 100 ms: somebody set the counter, or it was misread.
  Target target;
  SignalDeriver deriver;
  deriver.update(target.sample, kStaleAfter, 2);
  for (int i = 0; i < 50; ++i) {
    deriver.update(target.run(0.3, 100ms).sample, kStaleAfter, 2);
  }
  const Signals& signals = deriver.update(target.run(400, 100ms).sample, kStaleAfter, 2);
  EXPECT_FALSE(signals.cpu.known());
  EXPECT_EQ(signals.cpu.reason, Unknown::kImpossible);
  EXPECT_NEAR((*signals.cpu_fast).value, 0.6, 1e-3) << "the means keep their last value";
  EXPECT_EQ(deriver.distrusted().impossible, 1U);
  deriver.update(target.run(0.3, 100ms).sample, kStaleAfter, 2);
  EXPECT_NEAR((*signals.cpu).value, 0.6, 1e-6) << "the next one counts from there";
}

TEST(CpuRatio, ABurstOnAllCpusIsBelieved) {
  // All four CPUs of the machine, read 60 ms late: 4 x 160 ms of use within "100 ms".
  Target target;
  SignalDeriver deriver;
  deriver.update(target.sample, kStaleAfter, 4);
  const Signals& signals = deriver.update(target.run(6.4, 100ms).sample, kStaleAfter, 4);
  ASSERT_TRUE(signals.cpu.known());
  EXPECT_NEAR((*signals.cpu).value, 12.8, 1e-6);
  // And in a tick of 10 ms, where the error of the time stamps weighs most.
  EXPECT_TRUE(deriver.update(target.run(20, 10ms).sample, kStaleAfter, 4).cpu.known());
}

TEST(CpuRatio, AnyRiseIsBelievedWhereTheNumberOfCpusIsNotKnown) {
  Target target;
  SignalDeriver deriver;
  deriver.update(target.sample, kStaleAfter);
  EXPECT_TRUE(deriver.update(target.run(400, 100ms).sample, kStaleAfter).cpu.known());
}

TEST(CpuRatio, NeedsTwoSamples) {
  Target target;
  SignalDeriver deriver;
  const Signals& signals = deriver.update(target.sample, kStaleAfter);
  EXPECT_FALSE(signals.cpu.known());
  EXPECT_EQ(signals.cpu.reason, Unknown::kFirstSample);
  EXPECT_EQ(signals.cpu_slow.reason, Unknown::kFirstSample);
  EXPECT_EQ(signals.interval, 0ns);
}

TEST(CpuRatio, IsUnknownForTheTickInWhichTheCounterWentBack) {
  Target target;
  SignalDeriver deriver = steady(target, 0.6);
  target.run(0.3, 100ms);
  target.sample.cpu_usage_ns = std::uint64_t{17};
  const Signals& signals = deriver.update(target.sample, kStaleAfter);
  EXPECT_FALSE(signals.cpu.known());
  EXPECT_EQ(signals.cpu.reason, Unknown::kWentBack);
  EXPECT_NEAR((*signals.cpu_slow).value, 0.6, 1e-6) << "the mean keeps its last value";

  deriver.update(target.run(0.3, 100ms).sample, kStaleAfter);
  EXPECT_NEAR((*deriver.signals().cpu).value, 0.6, 1e-9) << "the new counter is the new base";
}

TEST(CpuRatio, IsUnknownWhereNoTimePassed) {
  Target target;
  SignalDeriver deriver = steady(target, 0.6);
  const Signals& signals = deriver.update(target.run(0.3, 0ms).sample, kStaleAfter);
  EXPECT_EQ(signals.cpu.reason, Unknown::kZeroInterval);
  EXPECT_FALSE(signals.cpu.known());
  EXPECT_TRUE(signals.cpu_fast.known());
}

TEST(CpuRatio, DoesNotExistWithoutALimit) {
  Target target;
  SignalDeriver deriver = steady(target, 0.9);
  target.sample.limits.cpu_cores = Unknown::kNoLimit;
  const Signals& signals = deriver.update(target.run(0.3, 100ms).sample, kStaleAfter);
  EXPECT_EQ(signals.cpu.reason, Unknown::kNoLimit);
  EXPECT_FALSE(signals.cpu_slow.known()) << "at once: it is known that there is no ratio";
  EXPECT_EQ(signals.cpu_slow.reason, Unknown::kNoLimit);
  EXPECT_EQ(signals.capacity_cores, 0);
}

TEST(CpuRatio, FollowsAResizeInTheSameTick) {
  // 0.45 of 0.5 cores = 0.9; the same use of 2 cores = 0.225, in the means too.
  Target target;
  SignalDeriver deriver = steady(target, 0.9);
  target.sample.limits.cpu_cores = 2.0;
  const Signals& signals = deriver.update(target.run(0.45, 100ms).sample, kStaleAfter);
  EXPECT_NEAR((*signals.cpu).value, 0.225, 1e-9);
  EXPECT_NEAR((*signals.cpu_fast).value, 0.225, 1e-6);
  EXPECT_NEAR((*signals.cpu_slow).value, 0.225, 1e-6);
}

TEST(CpuMean, StartsWithTheFirstDifference) {
  Target target;
  SignalDeriver deriver;
  deriver.update(target.sample, kStaleAfter);
  const Signals& signals = deriver.update(target.run(0.3, 100ms).sample, kStaleAfter);
  EXPECT_NEAR((*signals.cpu_fast).value, 0.6, 1e-9);
  EXPECT_NEAR((*signals.cpu_slow).value, 0.6, 1e-9);
}

TEST(CpuMean, OutweighsAnOddFirstValueSoon) {
  // After 0.6 comes 1.0. fast: part = 1 - exp(-100/110) = 0.59711; weights 0.59711, then
  // 0.40289 * 0.59711 + 0.59711 = 0.83768; the step is 0.59711 / 0.83768 = 0.71281 of 0.4.
  // slow: part = 1 - exp(-0.05) = 0.048771; weights 0.048771, 0.095163; step 0.51250 of 0.4.
  Target target;
  SignalDeriver deriver;
  deriver.update(target.sample, kStaleAfter);
  deriver.update(target.run(0.3, 100ms).sample, kStaleAfter);
  const Signals& signals = deriver.update(target.run(0.5, 100ms).sample, kStaleAfter);
  EXPECT_NEAR((*signals.cpu_fast).value, 0.88513, 1e-4);
  EXPECT_NEAR((*signals.cpu_slow).value, 0.80500, 1e-4);
}

TEST(CpuMean, HasTimeConstantsOf110msAnd2s) {
  // From a steady 0.6 one tick at 1.0: 0.6 + 0.4 * 0.59711 and 0.6 + 0.4 * 0.048771.
  Target target;
  SignalDeriver deriver = steady(target, 0.6);
  const Signals& signals = deriver.update(target.run(0.5, 100ms).sample, kStaleAfter);
  EXPECT_NEAR((*signals.cpu_fast).value, 0.83884, 1e-4);
  EXPECT_NEAR((*signals.cpu_slow).value, 0.61951, 1e-4);
}

TEST(CpuMean, DoesNotDependOnTheTick) {
  Target coarse, fine;
  SignalDeriver one = steady(coarse, 0.6);
  SignalDeriver two = steady(fine, 0.6, 50ms);
  one.update(coarse.run(0.5, 100ms).sample, kStaleAfter);
  two.update(fine.run(0.5, 50ms).sample, kStaleAfter);
  two.update(fine.run(0.5, 50ms).sample, kStaleAfter);
  EXPECT_NEAR((*one.signals().cpu_fast).value, (*two.signals().cpu_fast).value, 1e-6);
  EXPECT_NEAR((*one.signals().cpu_slow).value, (*two.signals().cpu_slow).value, 1e-6);
}

TEST(CpuMean, TakesALateSampleAsOneSample) {
  // A tick of 1.3 s at 1.0: slow = 0.6 + 0.4 * (1 - exp(-0.65)) = 0.79118.
  Target target;
  SignalDeriver deriver = steady(target, 0.6);
  const Signals& signals = deriver.update(target.run(0.5, 1300ms).sample, kStaleAfter);
  EXPECT_EQ(signals.interval, 1300ms);
  EXPECT_NEAR((*signals.cpu).value, 1.0, 1e-9);
  EXPECT_NEAR((*signals.cpu_slow).value, 0.79118, 1e-4);
}

TEST(CpuMean, IsUnknownOnceTheLastGoodSampleIsTooOld_A35) {
  // Case A35: the file vanishes while slow = 0.97. Up to the deadline the value stands.
  Target target;
  SignalDeriver deriver = steady(target, 0.97);
  const Measured<std::uint64_t> last = target.sample.cpu_usage_ns;
  target.sample.cpu_usage_ns = Unknown::kGone;
  for (int tick = 1; tick <= 10; ++tick) {
    target.sample.at += 100ms;
    deriver.update(target.sample, kStaleAfter);
    ASSERT_TRUE(deriver.signals().cpu_slow.known()) << tick;
    ASSERT_NEAR((*deriver.signals().cpu_slow).value, 0.97, 1e-6);
    ASSERT_EQ(deriver.signals().cpu.reason, Unknown::kGone);
  }
  target.sample.at += 100ms;
  deriver.update(target.sample, kStaleAfter);
  EXPECT_FALSE(deriver.signals().cpu_slow.known());
  EXPECT_EQ(deriver.signals().cpu_slow.reason, Unknown::kStale);
  EXPECT_EQ(deriver.signals().cpu_fast.reason, Unknown::kStale);

  // The file is back after 2 s in which 0.1 cores = 0.2 of the limit were used: the difference over
  // the gap is its mean, and the old 0.97 is forgotten.
  target.sample.cpu_usage_ns = *last + std::uint64_t{200'000'000};
  target.sample.at += 900ms;
  deriver.update(target.sample, kStaleAfter);
  EXPECT_NEAR((*deriver.signals().cpu).value, 0.2, 1e-9);
  EXPECT_NEAR((*deriver.signals().cpu_slow).value, 0.2, 1e-9);
}

TEST(CpuMean, IsForgottenWhenTheCgroupIsRecreated) {
  Target target;
  SignalDeriver deriver = steady(target, 0.97);
  deriver.reset();
  deriver.update(target.run(0.1, 100ms).sample, kStaleAfter);
  EXPECT_EQ(deriver.signals().cpu_slow.reason, Unknown::kFirstSample);
  EXPECT_FALSE(deriver.signals().cpu_slow.known());
}

TEST(Throttling, IsThrottledPeriodsOverPeriods_A16) {
  Target target;
  target.sample.cpu_periods = std::uint64_t{0};
  target.sample.cpu_throttled_periods = std::uint64_t{0};
  SignalDeriver deriver;
  deriver.update(target.sample, kStaleAfter);
  target.run(0.1, 700ms);
  target.sample.cpu_periods = std::uint64_t{7};
  target.sample.cpu_throttled_periods = std::uint64_t{2};
  const Signals& signals = deriver.update(target.sample, kStaleAfter);
  EXPECT_EQ(*signals.periods, 7U);
  EXPECT_NEAR((*signals.throttled).value, 2.0 / 7.0, 1e-12);
}

TEST(Throttling, IsAbsentWithoutTheCpuController_A17) {
  Target target;
  target.sample.cpu_periods = Unknown::kAbsent;
  target.sample.cpu_throttled_periods = Unknown::kAbsent;
  SignalDeriver deriver = steady(target, 0.6);
  EXPECT_EQ(deriver.signals().throttled.reason, Unknown::kAbsent);
  EXPECT_FALSE(deriver.signals().throttled.known());
  EXPECT_NEAR((*deriver.signals().cpu).value, 0.6, 1e-6) << "usage is still used";
}

TEST(Throttling, IsUnknownAndNotZeroWhereNoPeriodElapsed) {
  Target target;
  target.sample.cpu_periods = std::uint64_t{40};
  target.sample.cpu_throttled_periods = std::uint64_t{12};
  SignalDeriver deriver;
  deriver.update(target.sample, kStaleAfter);
  const Signals& signals = deriver.update(target.run(0, 100ms).sample, kStaleAfter);
  EXPECT_EQ(*signals.periods, 0U);
  EXPECT_FALSE(signals.throttled.known());
}

TEST(Pressure, IsTheShareOfTheIntervalAndAtMostOne) {
  Target target;
  target.sample.cpu_pressure_some_us = std::uint64_t{0};
  SignalDeriver deriver;
  deriver.update(target.sample, kStaleAfter);
  target.run(0.1, 100ms).sample.cpu_pressure_some_us = std::uint64_t{25'000};
  EXPECT_NEAR((*deriver.update(target.sample, kStaleAfter).cpu_pressure).value, 0.25, 1e-12);
  // The total was read a little later than the clock: 100.3 ms of waiting in 100 ms.
  target.run(0.1, 100ms).sample.cpu_pressure_some_us = std::uint64_t{125'300};
  EXPECT_EQ((*deriver.update(target.sample, kStaleAfter).cpu_pressure).value, 1.0);
}

TEST(Pressure, IsUnknownForTheReasonOfTheFile_A32) {
  Target target;
  target.sample.cpu_pressure_some_us = Unknown::kUnsupported;
  SignalDeriver deriver = steady(target, 0.5);
  EXPECT_EQ(deriver.signals().cpu_pressure.reason, Unknown::kUnsupported);
}

constexpr std::uint64_t kMiB = 1024 * 1024;

Target with_memory(std::uint64_t current, std::uint64_t limit) {
  Target target;
  target.sample.memory_current_bytes = current;
  target.sample.limits.memory_bytes = limit;
  target.sample.memory_inactive_file_bytes = std::uint64_t{0};
  return target;
}

TEST(Memory, IsTheWorkingSetOverTheLimit) {
  Target target = with_memory(200 * kMiB, 256 * kMiB);
  target.sample.memory_inactive_file_bytes = 72 * kMiB;
  SignalDeriver deriver;
  EXPECT_EQ((*deriver.update(target.sample, kStaleAfter).memory).value, 0.5);
}

TEST(Memory, CountsEverythingWhereInactiveFileIsNotKnown) {
  Target target = with_memory(64 * kMiB, 256 * kMiB);
  target.sample.memory_inactive_file_bytes = Unknown::kAbsent;
  SignalDeriver deriver;
  EXPECT_EQ((*deriver.update(target.sample, kStaleAfter).memory).value, 0.25);
}

TEST(Memory, IsNeverBelowZero) {
  // inactive_file is read once a second: it may be older and larger than current.
  Target target = with_memory(10 * kMiB, 256 * kMiB);
  target.sample.memory_inactive_file_bytes = 12 * kMiB;
  SignalDeriver deriver;
  EXPECT_EQ((*deriver.update(target.sample, kStaleAfter).memory).value, 0.0);
}

TEST(Memory, FollowsAResizeWithoutASlope_A26) {
  // Case A26: 137363456 / 134217728 = 1.02344, then / 432013312 = 0.31796. Nothing was allocated.
  Target target = with_memory(137'363'456, 134'217'728);
  SignalDeriver deriver;
  EXPECT_NEAR((*deriver.update(target.sample, kStaleAfter).memory).value, 1.02344, 1e-5);
  target.run(0, 100ms).sample.limits.memory_bytes = std::uint64_t{432'013'312};
  const Signals& signals = deriver.update(target.sample, kStaleAfter);
  EXPECT_NEAR((*signals.memory).value, 0.31796, 1e-5);
  EXPECT_EQ(*signals.memory_slope_per_second, 0.0);
}

TEST(Memory, HasNoRatioWithoutALimit) {
  Target target;
  target.sample.memory_current_bytes = kMiB;
  target.sample.limits.memory_bytes = Unknown::kNoLimit;
  SignalDeriver deriver;
  const Signals& signals = deriver.update(target.sample, kStaleAfter);
  EXPECT_EQ(signals.memory.reason, Unknown::kNoLimit);
  EXPECT_EQ(signals.memory_slope_per_second.reason, Unknown::kNoLimit);
}

TEST(MemorySlope, IsSmoothedOver500ms) {
  // Flat for 10 s, then 10 MiB of 200 MiB in 100 ms: 0.05 / 0.1 s = 0.5/s. One tick of it weighs
  // 1 - exp(-0.2) = 0.18127: 0.09063/s.
  Target target = with_memory(100 * kMiB, 200 * kMiB);
  SignalDeriver deriver;
  for (int i = 0; i < 100; ++i) deriver.update(target.run(0, 100ms).sample, kStaleAfter);
  EXPECT_EQ(*deriver.signals().memory_slope_per_second, 0.0);
  target.run(0, 100ms).sample.memory_current_bytes = 110 * kMiB;
  const Signals& signals = deriver.update(target.sample, kStaleAfter);
  EXPECT_NEAR(*signals.memory_slope_per_second, 0.09063, 1e-4);
}

TEST(MemoryDetails, CountARiseOnceAndKeepThePressureUntilTheNextRead) {
  Target target;
  target.sample.memory_events_max = std::uint64_t{3};
  target.sample.memory_oom_kills = std::uint64_t{0};
  target.sample.memory_pressure_some_us = std::uint64_t{0};
  SignalDeriver deriver;
  deriver.update(target.sample, kStaleAfter);
  EXPECT_EQ(deriver.signals().memory_limit_hits.reason, Unknown::kFirstSample);

  // Read again after a second: 5 hits and one kill more, 0.2 s of stalls.
  target.run(0, 1s).sample.details_at = target.sample.at;
  target.sample.memory_events_max = std::uint64_t{8};
  target.sample.memory_oom_kills = std::uint64_t{1};
  target.sample.memory_pressure_some_us = std::uint64_t{200'000};
  deriver.update(target.sample, kStaleAfter);
  EXPECT_EQ(*deriver.signals().memory_limit_hits, 5U);
  EXPECT_EQ(*deriver.signals().oom_kills, 1U);
  EXPECT_NEAR((*deriver.signals().memory_pressure).value, 0.2, 1e-12);

  deriver.update(target.run(0, 100ms).sample, kStaleAfter);  // no new read
  EXPECT_EQ(*deriver.signals().memory_limit_hits, 0U);
  EXPECT_EQ(*deriver.signals().oom_kills, 0U);
  EXPECT_NEAR((*deriver.signals().memory_pressure).value, 0.2, 1e-12);
}

TEST(Load1, IsWhatTheCallerReadOfTheNode) {
  Target target;
  SignalDeriver deriver;
  EXPECT_EQ(deriver.update(target.sample, kStaleAfter).load1.reason, Unknown::kNotRead);
  const Sample& next = target.run(0.1, 100ms).sample;
  EXPECT_EQ(*deriver.update(next, kStaleAfter, 0, 2.5).load1, 2.5);
  const Sample& last = target.run(0.1, 100ms).sample;
  EXPECT_EQ(deriver.update(last, kStaleAfter, 0, Unknown::kMissing).load1.reason, Unknown::kMissing)
      << "never an old one";
}

TEST(SignalModel, LetsARestartGoOnWhereItWas) {
  Target target;
  SignalDeriver before = steady(target, 0.88);
  std::array<std::byte, SignalDeriver::kModelBytes> model{};
  ASSERT_EQ(before.save(model), SignalDeriver::kModelBytes);

  // 500 ms without an agent at 1.0. slow = 0.88 + 0.12 * (1 - exp(-0.25)) = 0.90654, from the first
  // sample on; a cold start would know nothing.
  SignalDeriver after;
  ASSERT_TRUE(after.restore(model));
  const Signals& signals = after.update(target.run(0.5, 500ms).sample, kStaleAfter);
  EXPECT_NEAR((*signals.cpu).value, 1.0, 1e-9);
  EXPECT_NEAR((*signals.cpu_slow).value, 0.90654, 1e-4);
}

TEST(SignalModel, IsVoidWhenTheCounterWentBackWhileNobodyLooked) {
  Target target;
  SignalDeriver before = steady(target, 0.88);
  std::array<std::byte, SignalDeriver::kModelBytes> model{};
  ASSERT_GT(before.save(model), 0U);
  SignalDeriver after;
  ASSERT_TRUE(after.restore(model));
  target.sample.cpu_usage_ns = std::uint64_t{1};
  target.sample.at += 3s;
  const Signals& signals = after.update(target.sample, kStaleAfter);
  EXPECT_EQ(signals.cpu.reason, Unknown::kWentBack);
  EXPECT_EQ(signals.cpu_slow.reason, Unknown::kStale);
  EXPECT_FALSE(signals.cpu_slow.known());
}

TEST(SignalModel, RefusesWhatItCannotHaveWritten) {
  Target target;
  SignalDeriver source = steady(target, 0.88);
  std::array<std::byte, SignalDeriver::kModelBytes> model{};
  ASSERT_GT(source.save(model), 0U);

  SignalDeriver deriver;
  EXPECT_FALSE(deriver.restore(std::span(model).first(model.size() - 1)));
  auto other_version = model;
  other_version[0] = std::byte{0x77};
  EXPECT_FALSE(deriver.restore(other_version));
  auto not_a_number = model;
  for (std::size_t i = 0; i < 8; ++i) not_a_number[32 + i] = std::byte{0xff};  // the fast mean
  EXPECT_FALSE(deriver.restore(not_a_number));
  EXPECT_EQ(SignalDeriver().save(model), 0U) << "nothing learned, nothing saved";
}

}  // namespace
}  // namespace headgate
