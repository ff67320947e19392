// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headgate/bpf_abi.h"
#include "headgate/hook.h"
#include "headgate/sample.h"
#include "headgate/signal.h"
#include "headgate/strategy.h"

#include "agent/config/config.h"
#include "agent/targets/kube_events.h"
#include "agent/targets/locate.h"
#include "agent/targets/pod_source.h"

namespace headgate {

/// The agent as others may see it: passive data, copied out of the loop at most once a second and
/// when somebody asks. /metrics, /api/v1/state, status, top and the record file are all made from
/// this and from nothing else. Immutable once shared.

struct Transition {
  std::int64_t unix_ms = 0;
  State from = State::kUnknown;
  State to = State::kUnknown;
  std::string why;
  std::optional<double> cpu_fast, cpu_slow, memory;
};

struct EndpointSnapshot {
  std::string name;
  std::uint16_t port = 0;
  Protocol protocol = Protocol::kTcp;
  Criticality criticality = Criticality::kCritical;
  RefuseForm refuse = RefuseForm::kReset;
  int config_line = 0;
  EndpointDecision decision;          ///< as decided in the last tick
  headgate_endpoint_policy policy{};  ///< as published
  headgate_counters counters{};       ///< summed over CPUs, cumulative
  headgate_counters rates{};          ///< the same per second, over the last second
  std::uint64_t in_flight = 0;
  bool in_flight_known = false;
  std::uint64_t beside_gate =
      0;               ///< connections of the last minute, if none of them was tried here
  bool storm = false;  ///< its clients reconnect in a hot loop and get silence

  // Of a route, or of what has none: `name` is PORT/ROUTE, an attempt is a request.
  bool requests = false;
  std::string path;       ///< of a route; empty = what has none
  bool refusable = true;  ///< false: counted only

  // Of a port whose requests are looked at.
  bool sees_requests = false;
  double unrecognized_ratio = 1;  ///< of its connections: carry no requests that can be seen
  std::array<std::uint64_t, HEADGATE_UNKNOWN_COUNT> unknown{};  ///< by headgate_unknown
};

struct TargetSnapshot {
  std::string name;
  std::string instance;  ///< what matched: cgroup path, unit, pod
  std::string cgroup_path;
  std::optional<Located::Pod> pod;
  std::string strategy;
  Mode mode = Mode::kEnforce;
  int config_line = 0;
  bool present = false;  ///< its cgroup exists
  std::string absent_why;
  State state = State::kUnknown;
  std::string why;  ///< rule behind the state
  Sample sample;
  Signals signals;
  std::optional<double> sample_age_s;
  std::vector<Strategy::Threshold> thresholds;
  headgate_target_policy policy{};
  bool lease_valid = false;
  std::uint64_t waiting = 0;   ///< deferred attempts that wait now
  std::uint64_t restarts = 0;  ///< ends of the serving process seen since the target was found
  std::vector<EndpointSnapshot> endpoints;
  std::vector<HookStatus> hooks;
  std::vector<Transition> transitions;  ///< the last ones, oldest first
  std::array<std::uint64_t, static_cast<std::size_t>(Unknown::kCount)> sample_errors{};
  /// the same by file: (file, reason) -> count
  std::vector<std::pair<std::pair<std::string, Unknown>, std::uint64_t>> sample_errors_by_file;
  std::vector<std::string> warnings;
};

/// Attaches of a hook that failed since the start, by errno.
struct AttachErrors {
  std::string hook;
  int sys_errno = 0;
  std::uint64_t count = 0;
};

struct AgentSnapshot {
  std::string version;
  std::string revision;
  std::string compiler;
  std::int64_t unix_ms = 0;
  Duration uptime{};
  std::uint32_t generation = 0;  ///< ticks since start
  Mode mode = Mode::kEnforce;
  bool standby = false;        ///< waits for the lock of another agent
  bool killed_switch = false;  ///< headgate off
  std::string config_file;
  std::uint64_t config_hash = 0;
  bool config_last_reload_successful = true;
  std::int64_t config_last_reload_success_unix_s = 0;
  std::string config_last_error;
  std::string kernel_release;
  std::string cgroup_mode;  ///< v1, v2, hybrid
  std::string pin_path;
  bool pinned = false;
  std::vector<std::string> degraded;  ///< what is missing and what it costs, for /readyz?verbose
  std::vector<TargetSnapshot> targets;
  std::optional<PodSourceStatus> pods;     ///< empty: no target is matched by pods, or nobody tells
  std::optional<KubeEventsStatus> events;  ///< empty: none are sent
  std::uint64_t orphans_removed = 0;
  std::uint64_t map_update_errors = 0;
  std::uint64_t ticks_missed = 0;
  Duration tick{};
  Duration lease{};
  Duration last_tick_cost{};  ///< time spent in the last tick
  Duration last_tick_lag{};   ///< how late it began
  /// <= 2^i * 62.5 us; the last is +Inf. Not cumulative: each tick counts in one bucket.
  std::array<std::uint64_t, 12> tick_cost_histogram{};
  double tick_cost_seconds_sum = 0;  ///< over all ticks
  /// How late ticks began, in the same buckets.
  std::array<std::uint64_t, 12> tick_lag_histogram{};
  double tick_lag_seconds_sum = 0;
  std::vector<AttachErrors> attach_errors;
  std::vector<HookStatus> interfaces;  ///< XDP, or what stands in for it
  std::array<std::uint64_t, HEADGATE_LEFT_COUNT> left_to_socket{};  ///< by enum headgate_left
  double agent_cpu_seconds = 0;
  std::uint64_t agent_resident_bytes = 0;
};

using SnapshotPtr = std::shared_ptr<const AgentSnapshot>;

/// Where the web server and the verbs' socket get it from. Thread-safe.
class SnapshotSource {
 public:
  SnapshotSource() = default;
  SnapshotSource(const SnapshotSource&) = delete;
  SnapshotSource& operator=(const SnapshotSource&) = delete;
  SnapshotSource(SnapshotSource&&) = delete;
  SnapshotSource& operator=(SnapshotSource&&) = delete;
  virtual ~SnapshotSource() = default;
  /// The newest one, at most a second old; never null after the agent's first tick, else null.
  [[nodiscard]] virtual SnapshotPtr snapshot() = 0;
  /// True while the loop ticks: for /healthz.
  [[nodiscard]] virtual bool alive() const = 0;
};

}  // namespace headgate
