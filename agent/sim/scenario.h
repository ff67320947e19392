// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/target.h"

#include "agent/sim/profile.h"

namespace headgate::sim {

/// The load on one endpoint. A request costs
///   cost_s * cost(t) * (0.3 + 0.7 * Exp) + cost_per_kb_s * kB,
///   kB = size_kb * size(t) * (0.5 + 0.5 * Exp).
struct EndpointLoad {
  std::string name;
  Criticality criticality = Criticality::kCritical;
  double floor = 0;          ///< share that is never taken away by thinning
  double rate_per_s = 0;     ///< requests offered where rate(t) = 1
  double cost_s = 0;         ///< CPU-seconds that do not depend on the size
  double size_kb = 0;        ///< mean
  double cost_per_kb_s = 0;  ///< CPU-seconds
  Profile rate{1};
  Profile cost{1};
  Profile size{1};
  bool tcp = true;                 ///< else datagrams
  bool requests = false;           ///< of a trace: as EndpointInput has it
  bool refused_by_server = false;  ///< the same

  [[nodiscard]] double mean_cost_s() const { return cost_s + cost_per_kb_s * size_kb; }
};

/// Clients that keep connections and send many requests over each: only a new connection can be
/// refused.
struct Connections {
  double life_s = 30;          ///< mean
  double requests_per_s = 10;  ///< over each
  /// Share of the live connections that may be closed per second, where there are too many; 0 =
  /// none may be.
  double close_share_per_s = 0;
  bool operator==(const Connections&) const = default;
};

/// One experiment. Times are seconds since its start, sizes are kB = 1024 bytes, MiB.
struct Scenario {
  std::string name;
  std::string doc;
  double duration_s = 60;
  std::vector<EndpointLoad> endpoints;

  // the pod
  double capacity_cores = 2;  ///< its CPU limit, and what the agent takes for it
  std::size_t workers = 8;    ///< requests served at once, one core each
  bool hard_quota = true;     ///< CFS bandwidth control; false: up to twice the capacity is there
  Profile capacity{1};        ///< share of the limit that can be had
  Profile background_cores{0};
  double refusal_cost = 0.001;  ///< share of a mean request's cost that a refusal costs the pod
  bool async_ack = false;  ///< answers when the request is decoded: in flight covers no more of it

  // requests and clients
  bool even_arrivals = false;  ///< else Poisson
  bool even_costs = false;     ///< every request costs and weighs the mean
  double heavy_share = 0;      ///< share of the requests that cost heavy_factor times as much
  double heavy_factor = 1;
  double timeout_s = 2;  ///< a later answer is worth nothing
  int retries = 0;       ///< at most, after a refusal
  double retry_backoff_s = 0.2;
  bool retry_timeouts = false;  ///< and after a timeout; the request is worked off all the same
  std::optional<Connections> connections;

  // memory: base + per_kb * (waiting + retained) + leak
  double memory_limit_mib = 512;
  double memory_base_mib = 150;
  double memory_per_kb_mib = 0.004;
  Profile drain_kb_per_s{1e9};  ///< how fast retained data leaves after the work on it
  Profile leak_mib_per_s{0};
  bool oom_kills = false;  ///< above the limit the pod is killed
  double restart_s = 5;

  // the agent
  double tick_s = 0.1;
  double delay_s = 0.01;  ///< from the sample to the policy in force
  double noise = 0.02;    ///< of the usage that is read

  // what the metrics are about
  double overload_from_s = -1;  ///< < 0: no overload of which the end is known
  double overload_to_s = -1;

  /// Over the endpoints at rate 1.
  [[nodiscard]] double mean_cost_s() const;
  [[nodiscard]] bool has_overload() const { return overload_from_s >= 0; }
};

/// The published experiments, in their published order.
[[nodiscard]] std::span<const Scenario> named_scenarios();
/// nullptr = no such name.
[[nodiscard]] const Scenario* find_scenario(std::string_view name);

/// A pod, its load and its troubles drawn by chance: the same for the same seed.
[[nodiscard]] Scenario random_scenario(std::uint64_t seed);

}  // namespace headgate::sim
