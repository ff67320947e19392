// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "headgate/strategy.h"

#include "agent/strategies/rolling.h"

namespace headgate {

/// Facebook's form of CoDel for a queue of requests: one that has not been empty for `interval` is
/// a standing queue, and in it a request may wait only `target`; else it may wait `interval`. Asked
/// for each request when it leaves the queue.
class AdaptiveCodel {
 public:
  AdaptiveCodel(Duration target, Duration interval) : target_(target), interval_(interval) {}

  void queue_was_empty(Instant now) { empty_at_ = now; }
  /// Is a request that has waited so long to be dropped?
  [[nodiscard]] bool drops(Duration waited, Instant now) const {
    return waited > (now - empty_at_ > interval_ ? target_ : interval_);
  }

 private:
  Duration target_;
  Duration interval_;
  Instant empty_at_{};  ///< the epoch: a queue that was never empty is a standing one
};

/// What the registry makes for `codel`. Whoever has the queue (the simulator) asks queue() for each
/// request, and the decision admits everything; on a real target, where requests are seen but not
/// the queue, it caps those in flight.
class Codel final : public Strategy {
 public:
  Codel(Duration target, Duration interval);
  void decide(const StrategyInput& in, Decision& out) override;
  [[nodiscard]] AdaptiveCodel& queue() { return queue_; }
  [[nodiscard]] std::vector<Threshold> internals() const override;

 private:
  AdaptiveCodel queue_;
  Duration target_;
  Duration interval_;
  Rolling completions_;
  Rolling least_;  ///< smallest response time of each tick
  std::optional<Instant> empty_at_;
  double limit_ = 0;  ///< 0 = not in force
};

}  // namespace headgate
