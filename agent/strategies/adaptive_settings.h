// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "headgate/strategy.h"

namespace headgate::adaptive {

/// Soft: the capacity can be exceeded. Auto: hard until that is seen.
enum class Quota : std::uint8_t { kAuto, kHard, kSoft };

/// Parameters of `adaptive` and what its profile switches. Times in seconds, work in CPU-seconds.
struct Settings {
  // saturation and capacity
  Quota quota = Quota::kAuto;
  double saturated_at = 0.955;  ///< use of the capacity from which an interval is saturated
  double pressure_loss = 0.8;   ///< cpu.pressure above which capacity may have been lost
  unsigned pressure_ticks = 2;  ///< in a row
  unsigned min_throttled_periods = 1;

  // cost model
  double prior_cost_s = 1e-3;  ///< before anything has been learned
  double prior_byte_share = 0.6;
  double cost_memory_s = 1.0;       ///< forgetting of the common factor
  double relative_memory_s = 15;    ///< forgetting of the costs relative to each other
  double lower_bound_factor = 1.5;  ///< A3; 0 = off

  // search for a saturation that the model cannot explain
  double search_growth = 2.0;
  double search_max = 30;
  double alarm_sigmas = 2.5;

  // state and budget
  double enter_margin = 0.04;  ///< above the target
  double exit = 0.80;
  double drain_s = 0.2;  ///< time in which a known backlog is to be worked off
  double probe = 0.01;   ///< share that every endpoint keeps
  double bucket_rate = 1.06;
  double bucket_depth_s = 0.05;
  double in_flight_guard_s = 0;  ///< 0 = off

  // memory
  double safe_oom_s = 10;    ///< a time to OOM longer than this is no reason to refuse
  double leak_open = 0.97;   ///< last resort while a leak makes shedding futile
  double live_share = 0.75;  ///< of the limit, for base and live bytes together
  double live_amplification = 8;

  bool count_connections = true;  ///< for caps: kept connections, and the guard

  // what the profile switches; `spec` sets all of them to false
  bool hold_verdict = true;    ///< no CFS period in the interval: the verdict before stands
  bool log_innovation = true;  ///< else linear
  bool low_rate_smoothing = true;
  bool use_connections = true;  ///< established, closed, in flight, bytes at close
  bool loss_needs_backlog = true;
  bool bucket_alone = true;     ///< A1
  bool calm_bucket = true;      ///< depth by requests while there is no overload
  bool class_depths = true;     ///< a class has room above what a lower one may owe
  double refused_share = 0.12;  ///< of a call's cost, where the server itself refuses it; 0 = free
  double refused_most_s = 0.0003;  ///< that is at most so much: it does not grow with the work
  bool live_budget = true;         ///< A4
  bool deaths = true;              ///< A5
  bool waiting = true;             ///< A6
  bool newcomers = true;           ///< what is new has what cannot be explained
  bool steady_relative = true;     ///< relative costs change by a factor of two at most
  bool lower_first = true;         ///< who is searched for a cost that has risen
  bool informative_only = true;    ///< a window without information does not arm the bucket
  bool careful_memory = true;      ///< evidence, probing, and less lost to a leak

  void to_spec() {
    min_throttled_periods = 2;
    lower_bound_factor = refused_share = 0;
    hold_verdict = log_innovation = low_rate_smoothing = use_connections = false;
    loss_needs_backlog = bucket_alone = calm_bucket = class_depths = live_budget = false;
    deaths = waiting = newcomers = steady_relative = lower_first = informative_only =
        careful_memory = false;
  }
};

/// One interval as the law sees it: several ticks of the agent where some of them told nothing.
struct Interval {
  double length_s = 0;
  double capacity_cores = 0;
  double use = 0;         ///< CPU used over capacity, never clipped
  double work_s = 0;      ///< CPU-seconds used
  double periods = -1;    ///< CFS periods; < 0 = unknown
  double throttled = -1;  ///< of them throttled
  double pressure = -1;   ///< share of the time in which some task waited for CPU
  [[nodiscard]] double capacity_s() const { return capacity_cores * length_s; }
};

}  // namespace headgate::adaptive
