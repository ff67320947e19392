// SPDX-License-Identifier: Apache-2.0
#include "agent/sim/strategy_guard.h"

#include <algorithm>
#include <cmath>

#include "agent/sim/clock.h"

namespace headgate::sim {

StrategyGuard::StrategyGuard(std::unique_ptr<Strategy> strategy, const Scenario& scenario,
                             Options options)
    : strategy_(std::move(strategy)),
      options_(options),
      // As long as the agent would choose it: some ticks, and never less than a second.
      lease_(std::chrono::seconds(1) + Duration(std::llround(4e9 * scenario.tick_s))),
      gate_(scenario.endpoints.size()) {
  for (const EndpointLoad& load : scenario.endpoints) {
    EndpointInput input;
    input.criticality = load.criticality;
    input.floor = Probability::refusing(load.floor);
    input.tcp = load.tcp;
    input.requests = load.requests;
    input.refused_by_server = load.refused_by_server;
    inputs_.push_back(input);
  }
  decision_.endpoints.resize(inputs_.size());
  if (auto* codel = dynamic_cast<Codel*>(strategy_.get())) queue_law_ = &codel->queue();
}

bool StrategyGuard::refuses_waiting(double waited_s, double now_s) {
  return queue_law_ != nullptr &&
         queue_law_->drops(Duration(std::llround(waited_s * 1e9)), instant(now_s));
}

void StrategyGuard::queue_is_empty(double now_s) {
  if (queue_law_ != nullptr) queue_law_->queue_was_empty(instant(now_s));
}

void StrategyGuard::observe(const Observation& observation, double now_s) {
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    inputs_[i].activity = observation.endpoints[i];
    inputs_[i].activity.in_flight_known &= options_.counts_connections;
  }
  decision_.reset();
  StrategyInput input{.signals = observation.signals, .endpoints = inputs_};
  input.target = Ratio{options_.target};
  input.restarted = observation.restarted;
  input.live_bytes_known = observation.live_bytes_known;
  input.live_bytes = observation.live_bytes;
  input.largest_request_bytes = observation.largest_request_bytes;
  input.bucket_enforced = options_.enforces_budget;
  input.memory_shed = options_.memory_shed;
  input.memory_open = options_.memory_open;
  input.memory_close = options_.memory_close;
  strategy_->decide(input, decision_);
  if (!options_.enforces_budget) {
    for (EndpointDecision& endpoint : decision_.endpoints) endpoint.depth_s = 0;
  }
  gate_.publish(decision_, now_s, lease_);
}

/// Where connections may be closed, those beyond the cap go within about a second. A little more
/// than the cap is left alone: it moves.
double StrategyGuard::close_share_per_s(double live) const {
  constexpr double kTolerance = 1.03;
  double most = static_cast<double>(decision_.connections_max);
  if (most <= 0) {
    for (const EndpointDecision& endpoint : decision_.endpoints) {
      if (endpoint.connections_max == 0) return 0;
      most += static_cast<double>(endpoint.connections_max);
    }
  }
  if (live <= most * kTolerance) return 0;
  return std::clamp((live - most) / std::max(1.0, live), 0.0, 1.0);
}

}  // namespace headgate::sim
