// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "headgate/strategy.h"

#include "agent/sim/guard.h"
#include "agent/sim/kernel_gate.h"
#include "agent/sim/scenario.h"
#include "agent/strategies/codel.h"

namespace headgate::sim {

/// A strategy of the product behind the product's kernel gate.
class StrategyGuard final : public Guard {
 public:
  struct Options {
    double target = 0.9;
    /// The hook counts live connections (sock_ops).
    bool counts_connections = true;
    /// The hook charges the CPU budget per attempt.
    bool enforces_budget = true;
    // Of the memory limit.
    double memory_shed = 0.80;
    double memory_open = 0.92;
    double memory_close = 0.87;
  };
  StrategyGuard(std::unique_ptr<Strategy> strategy, const Scenario& scenario, Options options);

  bool admits(const Attempt& attempt) override { return gate_.admits(attempt); }
  void see_load(const Load& load) override { gate_.see_load(load); }
  void observe(const Observation& observation, double now_s) override;
  // Of the strategies only codel looks into the pod.
  [[nodiscard]] bool refuses_waiting(double waited_s, double now_s) override;
  void queue_is_empty(double now_s) override;
  [[nodiscard]] double close_share_per_s(double live) const override;
  [[nodiscard]] const Decision* decision() const override { return &decision_; }
  [[nodiscard]] std::vector<Strategy::Threshold> internals() const override {
    return strategy_->internals();
  }

 private:
  std::unique_ptr<Strategy> strategy_;
  AdaptiveCodel* queue_law_ = nullptr;  ///< of strategy_
  Options options_;
  Duration lease_;
  std::vector<EndpointInput> inputs_;
  Decision decision_;
  KernelGate gate_;
};

}  // namespace headgate::sim
