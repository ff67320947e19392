// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "headgate/strategy.h"

namespace headgate {

/// The memory rules of `graded`: a share from memory.shed on, a hard stop from memory.open on, shut
/// until memory.close.
///
/// A high working set alone is no reason (case A31: active page cache counts in it and can be taken
/// back): it needs evidence that the kernel is short of pages, that is memory pressure, a hit of
/// the limit (memory.events max) or an OOM kill within the last second. With evidence switched off
/// the level alone is the reason.
///
/// A refusal holds only while memory still rises or stalls (case H01: an idle runtime never returns
/// its heap, so the level may stay up for good): once flat for 1.5 s with an idle CPU, or for 10 s
/// whatever the CPU does, the stop ends and admission comes back over one second. What happens then
/// decides: new evidence, or a level one hundredth higher, shuts it again.
class MemoryStop {
 public:
  static constexpr Duration kEvidenceLasts = std::chrono::seconds(1);
  static constexpr Duration kFlatAndIdle = std::chrono::milliseconds(1500);
  static constexpr Duration kFlatAnyway = std::chrono::seconds(10);
  static constexpr Duration kReopen = std::chrono::seconds(1);
  static constexpr double kRisingPerSecond = 0.005;  ///< of the limit
  static constexpr double kHigher = 0.01;

  MemoryStop(bool wants_evidence, double refuse_max, double idle_below)
      : wants_evidence_(wants_evidence), refuse_max_(refuse_max), idle_below_(idle_below) {}

  /// One tick. An unknown level neither enters nor holds anything.
  void update(const StrategyInput& in);

  [[nodiscard]] bool open() const { return open_; }        ///< refuse everything but the probe
  [[nodiscard]] double refuse() const { return refuse_; }  ///< share to refuse while not open
  [[nodiscard]] bool reopening() const { return reopen_left_ > Duration::zero(); }

  /// After a restart: the stop is on and must prove itself again like any other.
  void restore_open(bool open) { open_ = open; }

 private:
  bool wants_evidence_;
  double refuse_max_;
  double idle_below_;
  bool open_ = false;
  double refuse_ = 0;
  Duration evidence_left_{};  ///< how long the last evidence still counts
  Duration flat_{};           ///< time without rise and without evidence
  Duration flat_idle_{};      ///< the same, with an idle CPU
  Duration reopen_left_{};
  bool suspended_ = false;  ///< found to be flat: the level alone is no reason any more
  double suspended_level_ = 0;
};

}  // namespace headgate
