// SPDX-License-Identifier: Apache-2.0
#include "agent/sim/baselines.h"

#include <algorithm>
#include <array>

namespace headgate::sim {
namespace {

class None final : public Guard {
 public:
  bool admits(const Attempt& /*attempt*/) override { return true; }
};

class QpsLimiter final : public Guard {
 public:
  explicit QpsLimiter(const Scenario& scenario)
      : rate_per_s_(kShare * scenario.capacity_cores / scenario.mean_cost_s()),
        tokens_(kBurstS * rate_per_s_) {}

  bool admits(const Attempt& attempt) override {
    tokens_ = std::min(kBurstS * rate_per_s_, tokens_ + (attempt.now_s - last_s_) * rate_per_s_);
    last_s_ = attempt.now_s;
    if (tokens_ < 1) return false;
    tokens_ -= 1;
    return true;
  }

 private:
  static constexpr double kShare = 0.965;
  static constexpr double kBurstS = 0.05;

  double rate_per_s_;
  double tokens_;
  double last_s_ = 0;
};

}  // namespace

std::span<const BaselineInfo> baselines() {
  static constexpr std::array<BaselineInfo, 2> kTable{{
      {"None", "admits everything",
       [](const Scenario& /*scenario*/) -> std::unique_ptr<Guard> {
         return std::make_unique<None>();
       }},
      {"QPSLimiter", "a rate limit at 0.965 of the capacity in mean requests",
       [](const Scenario& scenario) -> std::unique_ptr<Guard> {
         return std::make_unique<QpsLimiter>(scenario);
       }},
  }};
  return kTable;
}

}  // namespace headgate::sim
