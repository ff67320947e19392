// SPDX-License-Identifier: Apache-2.0
// What adaptive concludes from what real collectors did (tests/data/real/README.md). The gate of a
// record is not ours: each test stays within what does not depend on that.
#include "adaptive_records.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace headgate {
namespace {

using test::Csv;

constexpr double kCores = 0.5;

class Replay {
 public:
  explicit Replay(const std::string& record, double memory_mib)
      : csv_(std::string(HEADGATE_TEST_DATA) + "/real/" + record + ".csv"),
        strategy_(find_strategy("adaptive")->make({})) {
    signals_.at = Instant(std::chrono::seconds(1000));
    signals_.capacity_cores = kCores;
    signals_.memory_limit_bytes = static_cast<std::uint64_t>(memory_mib * 1048576);
    signals_.memory_pressure = Ratio{0};
    signals_.memory_limit_hits = std::uint64_t{0};
    signals_.oom_kills = std::uint64_t{0};
  }
  [[nodiscard]] std::size_t rows() const { return csv_.rows(); }
  [[nodiscard]] double at_s(std::size_t row) const { return csv_.at(row, "t") - csv_.at(0, "t"); }
  [[nodiscard]] double row(std::size_t i, const char* name) const { return csv_.at(i, name); }

  /// One tick; what our bucket would have refused of this row's attempts had they come evenly is
  /// counted before, under the decision of the tick before.
  void step(std::size_t i) {
    const auto count = [&](const char* name) {
      return static_cast<std::uint64_t>(std::llround(csv_.at(i, name)));
    };
    judge(count("off"), csv_.at(i, "T"));
    signals_.interval = Duration(std::llround(csv_.at(i, "T") * 1e9));
    signals_.at += signals_.interval;
    signals_.cpu = signals_.cpu_fast = signals_.cpu_slow = Ratio{csv_.at(i, "u")};
    signals_.periods = count("nper");
    signals_.throttled_periods = count("nthr");
    signals_.cpu_pressure = Ratio{csv_.at(i, "psi")};
    signals_.memory = Ratio{csv_.at(i, "mem")};
    endpoint_.activity = {
        .offered = count("off"),
        .admitted = count("adm"),
        .established = count("est"),
        .closed = count("closed"),
        .received_bytes = static_cast<std::uint64_t>(std::llround(csv_.at(i, "kbytes") * 1024)),
        .in_flight = count("inflight"),
        .in_flight_known = true};
    decision_ = Decision{};
    decision_.endpoints.resize(1);
    strategy_->decide({.signals = signals_, .endpoints = {&endpoint_, 1}}, decision_);
  }
  [[nodiscard]] const Decision& decision() const { return decision_; }
  [[nodiscard]] double internal(std::string_view name) const {
    for (const auto& value : strategy_->internals()) {
      if (value.name == name) return value.value;
    }
    ADD_FAILURE() << "no internal " << name;
    return 0;
  }
  /// CPU-seconds that one connection is charged.
  [[nodiscard]] double charged_s() const {
    return decision_.endpoints[0].charge_request_s * internal("bucket_rate_cores");
  }
  [[nodiscard]] double refused() const { return refused_; }
  [[nodiscard]] double offered() const { return offered_; }
  void forget_counts() { refused_ = offered_ = 0; }

 private:
  void judge(std::uint64_t attempts, double length_s) {
    if (decision_.endpoints.empty()) return;
    const EndpointDecision& gate = decision_.endpoints[0];
    for (std::uint64_t k = 0; k < attempts; ++k) {
      owed_s_ = std::max(0.0, owed_s_ - length_s / static_cast<double>(attempts));
      owed_s_ = std::min(owed_s_, gate.depth_s + gate.charge_request_s);
      offered_ += 1;
      if (decision_.circuit_open || (gate.depth_s > 0 && owed_s_ > gate.depth_s)) {
        refused_ += 1;
      } else {
        refused_ += gate.admit.complement().value();
        owed_s_ += gate.charge_request_s;
      }
    }
  }

  Csv csv_;
  std::unique_ptr<Strategy> strategy_;
  Signals signals_;
  EndpointInput endpoint_;
  Decision decision_;
  double owed_s_ = 0, refused_ = 0, offered_ = 0;
};

TEST(AdaptiveRecord, AHealthyTargetBesideBusyNeighboursIsNotRefused) {
  Replay replay("neighbour-v4", 512);
  for (std::size_t i = 0; i < replay.rows(); ++i) replay.step(i);
  ASSERT_GT(replay.offered(), 1500);
  EXPECT_LE(replay.refused(), 0.005 * replay.offered());
  EXPECT_EQ(replay.internal("capacity_cores"), kCores) << "none was believed to be lost";
}

TEST(AdaptiveRecord, CalmPhasesAreNotRefused) {
  Replay pushgateway("adaptive-bucket", 512);
  for (std::size_t i = 0; i < pushgateway.rows() && pushgateway.at_s(i) < 9.5; ++i) {
    pushgateway.step(i);
  }
  ASSERT_GT(pushgateway.offered(), 500);
  EXPECT_LE(pushgateway.refused(), 0.005 * pushgateway.offered());
  EXPECT_NEAR(pushgateway.charged_s(), 0.0035, 0.0005) << "truth: 3.3 to 3.8 ms";

  Replay collector("otel-reset", 256);
  for (std::size_t i = 0; i < collector.rows() && collector.at_s(i) < 14; ++i) {
    if (collector.at_s(i) < 2) collector.forget_counts();  // the cold start, into a burst
    collector.step(i);
  }
  ASSERT_GT(collector.offered(), 1500);
  EXPECT_LE(collector.refused(), 0.005 * collector.offered());
  EXPECT_NEAR(collector.charged_s(), 0.0023, 0.0004);
}

TEST(AdaptiveRecord, AJumpOfTheCostIsSeenBySizesAndCompletions) {
  Replay replay("jump6-v4", 512);
  std::size_t jump = 0;
  double before_s = 0;
  for (std::size_t i = 0; i < replay.rows(); ++i) {
    replay.step(i);
    const double closed = replay.row(i, "closed");
    if (jump == 0 && closed > 0 && replay.row(i, "kbytes") / closed > 4) jump = i;
    if (jump == 0) before_s = replay.charged_s();
    if (jump != 0 && i == jump + 5) {
      EXPECT_GT(replay.charged_s(), 3.5 * before_s) << "half a second after the first big request";
    }
  }
  ASSERT_GT(jump, 50U);
  EXPECT_NEAR(before_s, 0.0038, 0.0006);
}

TEST(AdaptiveRecord, AJumpTo60TimesTheCostIsNoticedInTheSecondTick) {
  Replay replay("otel-jump60", 256);
  std::size_t jump = 0;
  double before_s = 0;
  for (std::size_t i = 0; i < replay.rows(); ++i) {
    replay.step(i);
    // the second jump: requests of 2 MB; the first tick that they fill
    if (jump == 0 && replay.at_s(i) > 27.5 && replay.row(i, "mem") > 0.12) jump = i;
    if (jump == 0) before_s = replay.charged_s();
    if (jump != 0 && i == jump + 1) {
      EXPECT_GT(replay.charged_s(), 2 * before_s);
      EXPECT_EQ(replay.decision().state, State::kShedding);
    }
    if (jump != 0 && i == jump + 10) {
      EXPECT_GT(replay.charged_s(), 15 * before_s);
    }
  }
  ASSERT_GT(jump, 100U);
}

TEST(AdaptiveRecord, ACollapseKeepsTheGateShutUntilCompletionsReturn) {
  Replay replay("unprotected", 512);
  std::size_t collapsed = 0;
  for (std::size_t i = 0; i < replay.rows(); ++i) {
    replay.step(i);
    if (replay.row(i, "inflight") < 3000) continue;
    ++collapsed;
    EXPECT_LE(replay.internal("bucket_rate_cores"), 0.031 * kCores) << replay.at_s(i);
    EXPECT_TRUE(replay.decision().circuit_open || replay.decision().endpoints[0].depth_s > 0);
    EXPECT_NE(replay.decision().state, State::kNormal);
  }
  EXPECT_GT(collapsed, 300U);
}

TEST(AdaptiveRecord, TheCostIsLearnedUnderOverloadAndKept) {
  Replay replay("adaptive-bucket", 512);
  struct Mean {
    double from_s, to_s, sum = 0, n = 0;
  };
  Mean means[] = {{12, 20}, {31, 37}, {62, 69}, {75, 100}};
  for (std::size_t i = 0; i < replay.rows(); ++i) {
    replay.step(i);
    const double at_s = replay.at_s(i);
    for (Mean& mean : means) {
      if (at_s < mean.from_s || at_s >= mean.to_s) continue;
      mean.sum += replay.charged_s();
      mean.n += 1;
      if (mean.from_s < 40) {
        EXPECT_EQ(replay.decision().state, State::kShedding) << at_s;
      }
    }
  }
  for (const Mean& mean : means) {
    ASSERT_GT(mean.n, 0);
    EXPECT_NEAR(mean.sum / mean.n, 0.0035, 0.0004) << "from " << mean.from_s << " s";
  }
}

}  // namespace
}  // namespace headgate
