// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "headgate/strategy.h"

#include "agent/strategies/adaptive_cost.h"
#include "agent/strategies/adaptive_demand.h"
#include "agent/strategies/adaptive_settings.h"

namespace headgate::adaptive {

/// What came in and what was used, gathered from ticks into intervals to judge by: a tick whose CPU
/// could not be read is merged with the next, whose usage is the mean over both, and so are ticks
/// so close together that their usage is noise.
class Intake {
 public:
  explicit Intake(const Settings& settings) : set_(&settings) {}

  /// Allocates; only when the number of endpoints changes.
  void resize(std::size_t endpoints);
  /// A connection counts as a request when it is established, not when it is admitted: a listener
  /// that is down, SYN cookies and a full accept queue make the two differ, and only the former
  /// costs anything. Its size is known when it closes, one service time late.
  void add(const StrategyInput& in, const Arrivals& arrivals, const CostModel& cost);
  /// True where what was added is an interval: it is in `out` then.
  [[nodiscard]] bool finish(const Signals& signals, Interval& out);
  void clear();

  /// Requests of endpoint i at [i], their KB at [n + i].
  [[nodiscard]] std::span<const double> admitted() const { return admitted_; }
  /// The same of what was refused and is not free, in requests that cost as much: a gRPC call that
  /// is refused is refused by the server's own stack. It is in admitted(), too.
  [[nodiscard]] std::span<const double> refused() const { return refused_; }
  [[nodiscard]] std::span<const double> completed() const { return completed_; }
  [[nodiscard]] double offered(std::size_t i) const { return offered_[i]; }
  [[nodiscard]] double offered_kb(std::size_t i) const { return offered_kb_[i]; }
  [[nodiscard]] double sized(std::size_t i) const { return sized_[i]; }
  [[nodiscard]] std::uint64_t in_flight(std::size_t i) const { return in_flight_[i]; }
  [[nodiscard]] bool sizes_known(std::size_t i) const { return sizes_known_[i]; }
  /// KB admitted a second, where sizes are not known requests.
  [[nodiscard]] double inflow_per_s(double tick_s) const;

 private:
  const Settings* set_;
  std::size_t count_ = 0;
  std::vector<double> admitted_, refused_, completed_;
  std::vector<double> offered_, offered_kb_, sized_;
  std::vector<std::uint64_t> in_flight_;
  std::vector<bool> sizes_known_;
  double gathered_s_ = 0, work_s_ = 0, blind_s_ = 0;
  double pressure_s_ = 0, pressure_known_s_ = 0;
  double periods_ = -1, throttled_ = -1;
};

}  // namespace headgate::adaptive
