// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/bpf_abi.h"
#include "headgate/clock.h"
#include "headgate/params.h"
#include "headgate/result.h"
#include "headgate/signal.h"
#include "headgate/target.h"
#include "headgate/units.h"

namespace headgate {

/// What came to one endpoint in one tick: differences of the kernel's exact counters.
struct EndpointActivity {
  std::uint64_t offered = 0;  ///< distinct attempts
  std::uint64_t admitted = 0;
  std::uint64_t refused = 0;  ///< reset, expired, dropped (not deferred)
  std::uint64_t deferred = 0;
  std::uint64_t established = 0;
  std::uint64_t closed = 0;
  std::uint64_t received_bytes = 0;  ///< of the connections closed in this tick
  std::uint64_t in_flight = 0;       ///< live connections now, legacy ones included
  bool in_flight_known = false;      ///< false without sock_ops

  // Sizes as the hook sees them before the verdict: datagrams, requests. A SYN has none.
  std::uint64_t offered_bytes = 0;
  std::uint64_t admitted_bytes = 0;
  bool sizes_known = false;

  // Response times of what ended in this tick: from established to closed where a connection
  // carries one request, else from request to response where requests are seen.
  std::uint64_t responses = 0;
  double response_s_sum = 0;  ///< seconds
  double response_s_min = 0;  ///< meaningful where responses > 0
  double response_s_p99 = 0;  ///< the same
  bool responses_known = false;
};

struct EndpointInput {
  Criticality criticality = Criticality::kCritical;
  Probability floor{};  ///< share of its demand that is never taken away by thinning
  bool tcp = true;
  /// Its attempts are requests on live connections: admitted is established, answered is closed.
  bool requests = false;
  /// They are refused by the server's own stack (gRPC), which is not free; else by the kernel.
  bool refused_by_server = false;
  EndpointActivity activity;
};

/// All that a strategy may know. It reads no file, no clock and no map, and draws no chance.
struct StrategyInput {
  const Signals& signals;
  std::span<const EndpointInput> endpoints;
  Ratio target{0.9};  ///< share of the capacity to use
  double memory_shed = 0.80;
  double memory_open = 0.92;
  double memory_close = 0.87;
  bool restarted = false;       ///< the process behind the target has changed since the last tick
  bool bucket_enforced = true;  ///< the hook in front charges the CPU budget per attempt
  // Payload received and not answered yet, by connections that are open, as the kernel judges it.
  std::uint64_t live_bytes = 0;
  std::uint64_t largest_request_bytes = 0;  ///< that any endpoint has taken in one turn
  bool live_bytes_known = false;            ///< false: Decision::live_bytes_max has no effect
};

/// The decision for one endpoint. What a strategy leaves alone does not refuse.
struct EndpointDecision {
  Probability admit = Probability::always();
  headgate_reason reason = HEADGATE_REASON_NONE;  ///< what `admit` < 1 is for
  bool probe = true;  ///< one attempt a second is admitted in any state (not under fixed)
  // CPU budget: a leaky bucket, off while depth is 0. In seconds of bucket time.
  double charge_request_s = 0;
  double charge_kb_s = 0;
  double depth_s = 0;
  std::uint64_t connections_max = 0;  ///< 0 = no cap
  double rate_per_s = 0;              ///< hard cap; 0 = none
  double rate_burst_s = 0.1;          ///< how far ahead of the clock that rate may run
};

struct Decision {
  State state = State::kNormal;
  bool circuit_open = false;         ///< refuse everything but the probe
  std::string_view why;              ///< a static text: which rule led here
  std::uint64_t live_bytes_max = 0;  ///< 0 = no budget
  std::uint64_t connections_max = 0;
  std::uint64_t waiting_max =
      0;  ///< how many attempts may wait under refuse: auto; 0 = reset at once
  std::vector<EndpointDecision> endpoints;  ///< as many as the input's; sized by the caller

  /// Back to "admit all" before the next tick; the endpoints stay as many. Allocates nothing.
  void reset() {
    state = State::kNormal;
    circuit_open = false;
    why = {};
    live_bytes_max = connections_max = waiting_max = 0;
    for (EndpointDecision& endpoint : endpoints) endpoint = EndpointDecision{};
  }
};

/// A control law. Pure: the same inputs in the same order give the same decisions. One instance
/// serves one target. decide() allocates nothing after the first call.
class Strategy {
 public:
  Strategy() = default;
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;
  Strategy(Strategy&&) = delete;
  Strategy& operator=(Strategy&&) = delete;
  virtual ~Strategy() = default;

  /// One tick. `out.endpoints` has the size of `in.endpoints` and is reset to "admit all".
  virtual void decide(const StrategyInput& in, Decision& out) = 0;

  /// What it has learned, at most HEADGATE_MODEL_BYTES; returns the bytes used, 0 = nothing.
  [[nodiscard]] virtual std::size_t save(std::span<std::byte> /*out*/) const { return 0; }
  /// The counterpart; false = not understood, the strategy starts cold.
  virtual bool restore(std::span<const std::byte> /*data*/) { return false; }

  /// Thresholds in force, for headgate_threshold_ratio{threshold} and explain.
  struct Threshold {
    std::string_view name;
    double value;
  };
  [[nodiscard]] virtual std::vector<Threshold> thresholds() const { return {}; }
  /// What it has learned and how it got to the last decision, by name, for `replay`, `record` and
  /// explain. Allocates; never called by the tick.
  [[nodiscard]] virtual std::vector<Threshold> internals() const { return {}; }
};

/// One row of the table of strategies (agent/strategies/registry.cc).
struct StrategyInfo {
  std::string_view name;
  std::string_view doc;
  std::span<const ParamSpec> params;
  bool takes_points = false;
  bool built = true;  ///< false: known to the schema, its law is not built yet
  /// It judges by how long requests take: on a real target only where those of HTTP/1.1 are seen
  /// and refused one by one.
  bool needs_requests = false;
  std::string_view instead{};  ///< for those two: what to use
  std::unique_ptr<Strategy> (*make)(const Params& params) = nullptr;
  /// What is wrong between the values given (each is in its own range): a sentence for the
  /// configuration's error that names the parameters; empty = nothing.
  std::string (*check)(const Params& params) = nullptr;
};

}  // namespace headgate
