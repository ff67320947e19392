// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "headgate/strategy.h"

#include "agent/strategies/adaptive_settings.h"

namespace headgate::adaptive {

/// The share that memory allows: by level (memory.shed .. memory.open), by the time until the limit
/// is reached, and a breaker from memory.open on that holds until memory.close.
///
/// Three things may make it hold back without need, so with careful_memory each has its own rule:
///  - A high level alone is no danger (active page cache can be taken back): it takes pressure, a
///    hit of the limit, an OOM kill, or a rise that would reach the limit soon.
///  - A level that stays up for good (an idle runtime never returns its heap) must not keep the
///  gate
///    shut: while flat and idle it is probed, and what happens decides; each failed probe doubles
///    the wait for the next one, because where nothing drains every probe costs memory.
///  - A leak rises whatever is admitted, so shedding saves nothing and loses work. It is told apart
///    by regression of the rise on what came in, which needs no experiment.
class MemoryRule {
 public:
  explicit MemoryRule(const Settings& settings) : set_(&settings) {}

  /// `inflow`: what was let in, per second, in any unit that grows with memory (KB, else requests);
  /// < 0: not known.
  void update(const StrategyInput& in, double interval_s, double inflow);
  /// Share to admit, [0, 1].
  [[nodiscard]] double admit() const { return admit_; }
  [[nodiscard]] bool open() const { return open_; }
  [[nodiscard]] bool leaking() const { return futile_left_s_ > 0; }
  [[nodiscard]] bool probing() const { return suspended_; }
  void restart();  ///< the process has gone: its slope means nothing

 private:
  void follow_slope(double level, double interval_s);
  [[nodiscard]] double by_level(const StrategyInput& in, double level) const;
  void plain(const StrategyInput& in, double level, double interval_s, double inflow);
  void careful(const StrategyInput& in, double level, double interval_s);
  void test_futility(double interval_s, double inflow);
  [[nodiscard]] bool rise_is_not_inflow(double rise_per_s, double interval_s, double inflow);

  const Settings* set_;
  double admit_ = 1;
  bool open_ = false;
  bool has_level_ = false;
  double level_ = 0;
  double slope_ = 0;  ///< per second, smoothed over 0.5 s
  double futile_left_s_ = 0;

  // futility by experiment: slope and inflow when shedding began, against those since
  bool testing_ = false;
  double tested_slope_ = 0, tested_inflow_ = 0, inflow_ = 0, tested_s_ = 0;

  // evidence and probing
  double evidence_left_s_ = 0;
  bool armed_ = false;
  double flat_s_ = 0;
  double mark_ = 0;
  double wait_s_ = kFirstWait_s;
  bool suspended_ = false;
  double suspended_level_ = 0;
  double suspended_s_ = 0;
  static constexpr double kFirstWait_s = 1.5;

  // regression of the rise on the inflow
  double n_ = 0, x_ = 0, y_ = 0, xx_ = 0, xy_ = 0, yy_ = 0;
  unsigned leak_ticks_ = 0;
};

/// Memory as a second budget that the kernel enforces between ticks: bytes received by connections
/// that are still open. A level and a slope come too late for a jump to requests of megabytes.
class LiveBudget {
 public:
  explicit LiveBudget(const Settings& settings) : set_(&settings) {}

  void update(const StrategyInput& in, double interval_s);
  /// Bytes; 0 = no budget (no limit known, or nothing counts connections).
  [[nodiscard]] std::uint64_t bytes_max() const { return bytes_max_; }
  [[nodiscard]] double base_bytes() const { return base_bytes_; }
  void restore_base(double bytes) { base_bytes_ = bytes; }
  void restart() { base_bytes_ = -1; }

 private:
  const Settings* set_;
  double base_bytes_ = -1;   ///< < 0: not known yet
  double recent_bytes_ = 0;  ///< of connections that have just closed: their garbage is still there
  double largest_bytes_ = 0;
  std::uint64_t bytes_max_ = 0;
};

}  // namespace headgate::adaptive
