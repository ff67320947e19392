// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "deploy/demo/loadgen.h"
#include "deploy/demo/scenario.h"

namespace headgate::demo {

/// What became of one request: a Record that nobody writes any more.
struct Finished {
  double lag_s = 0;
  double connect_s = 0;  ///< 0 = never connected
  double latency_s = 0;
  Outcome outcome = Outcome::kNotSent;
};

/// The collector's cgroup and sockets at one moment, ten times a second.
struct Sample {
  double t_s = 0;
  std::uint64_t usage_ns = 0;
  std::uint64_t periods = 0;
  std::uint64_t throttled = 0;
  std::uint64_t memory_bytes = 0;
  std::uint64_t sockets = 0;  ///< TCP sockets in the collector's namespace, without TIME_WAIT
};

struct Restart {
  double t_s = 0;    ///< when it died
  bool oom = false;  ///< the kernel's OOM killer, by the cgroup's own counter
  std::string how;
};

struct Limits {
  double cpu_cores = 0.5;
  std::uint64_t memory_bytes = 256ULL << 20;
  double deadline_s = 2;
};

/// What the protected run is protected by: values of the configuration.
struct Protection {
  std::string strategy = "adaptive";
  std::string refuse = "reset";
};

/// One run, as measured.
struct Run {
  bool with_headgate = false;
  Traffic traffic = Traffic::kConnections;
  std::vector<Phase> phases;
  std::vector<Arrival> arrivals;
  std::vector<Finished> requests;  ///< as many as arrivals
  std::vector<Sample> samples;
  std::vector<Restart> restarts;
  double agent_cpu_cores = 0;         ///< mean over the run
  std::uint64_t agent_rss_bytes = 0;  ///< at the end
  std::string agent_failure;          ///< empty = it ran to the end
  /// Requests on live connections that it says it has refused.
  std::optional<std::uint64_t> agent_refused_requests;
  std::vector<std::string> notes;  ///< what the agent says is degraded
};

/// One phase. A request belongs to the phase in which it was offered.
struct PhaseSummary {
  Phase phase;
  double begin_s = 0;
  std::uint64_t offered = 0, ok = 0, refused = 0, reset = 0, timed_out = 0, http_error = 0;
  std::uint64_t local = 0;  ///< faults of the generator
  std::uint64_t deferred =
      0;  ///< served or not, connected by a SYN sent again (after 0.9 s or more)
  std::uint64_t critical_offered = 0, critical_ok = 0;
  std::optional<double> critical_p99_s;  ///< as p99_s, of the critical class alone
  double served_per_s = 0;
  double served_soon_per_s = 0;  ///< within kSoon_s of when they were due
  double refused_ratio = 0;      ///< of those offered
  /// Over everything admitted: a request that timed out or was cut off counts as the deadline.
  std::optional<double> p50_s, p99_s;
  double cpu_of_quota = 0;
  std::uint64_t periods = 0, throttled = 0;
  std::uint64_t memory_peak_bytes = 0, sockets_peak = 0;
  std::uint64_t restarts = 0, oom_kills = 0;
  double lag_p99_s = 0;  ///< how late the generator itself was
  /// Calm phases after another kind: seconds until nine in ten are served again for the rest of the
  /// phase, and eight in ten in the second that follows. Empty = never, or not such a phase.
  std::optional<double> back_s;
  /// Calm phases: share refused of what was offered later than kSettled_s after their begin.
  double settled_refused_ratio = 0;
  /// Calm phases after another kind: the most connections the collector got in one second, over
  /// what was offered in one. What waited outside comes in late, and must not come in all at once.
  double surge = 0;
  bool wants_back = false;
  PhaseKind after = PhaseKind::kCalm;  ///< kind of the phase before
};

inline constexpr double kSoon_s = 0.5;
inline constexpr double kSettled_s = 5;

[[nodiscard]] std::vector<PhaseSummary> summarise(const Run& run, const Limits& limits);

[[nodiscard]] bool has_critical(const std::vector<PhaseSummary>& phases);
/// Of the critical class, served over offered; 1 where nothing was offered.
[[nodiscard]] double critical_share(const PhaseSummary& phase);

/// Exact quantile (nearest rank) of an unsorted list; empty = none.
[[nodiscard]] std::optional<double> quantile(std::vector<double> values, double q);

struct Check {
  std::string what;      ///< "served at x10"
  std::string measured;  ///< "132/s, 91.2 % of capacity"
  std::string promised;  ///< "at least 75 % of capacity"
  bool kept = false;
};

enum class Conclusion : std::uint8_t { kSaved, kNotSaved, kInconclusive };

struct Verdict {
  Conclusion conclusion = Conclusion::kInconclusive;
  std::string sentence;
  std::vector<Check> checks;        ///< of the protected run
  std::vector<std::string> doubts;  ///< why the machine does not let us conclude
  [[nodiscard]] int exit_status() const;
};

struct Calibration {
  double capacity_per_s = 0;  ///< quota / CPU of a request
  double light_cost_s = 0;    ///< CPU seconds of a request
  double heavy_cost_s = 0;    ///< of one in the cost phase
  std::size_t light_units = 0, heavy_units = 0;
  double quota_reached = 0;  ///< CPU used over the quota with more work than it could do
};

/// Judges what was run (either may be missing). The promises depend on strategy and traffic:
/// * `adaptive` with `refuse: reset`, one connection a request: at least 90 % of capacity served
///   within 500 ms at x3 and x10, p99 below 100 ms there and below 300 ms where requests become
///   dear, at most 2 % refused while calm (from 5 s after a change on), no surge above 1.5 times
///   the offered rate afterwards.
/// * `adaptive` on connections that are kept: at least 80 % served, p99 and calm as before; of the
///   critical class at least 99 % served under overload, 85 % where the others become dear.
/// * `adaptive`, gRPC: at least 40 % served at x3 (at x10 refusing takes all of the CPU, and no
///   share is promised), p99 below 500 ms, calm as before.
/// * Any other: at least 75 % of capacity served, p99 below 1.5 s (nothing of it where clients wait
///   to be let in: `auto`, `defer`), at most 9 % refused while calm.
/// All: back within 3 s (10 s after requests of 2 MB, which must not take all of the memory), no
/// restart; on connections that are kept, Headgate and the clients count
/// the same refusals.
[[nodiscard]] Verdict judge(const std::optional<Run>& unprotected,
                            const std::optional<Run>& with_headgate, const Calibration& calibration,
                            const Limits& limits, const Protection& protection);

}  // namespace headgate::demo
