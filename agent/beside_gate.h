// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "headgate/clock.h"

namespace headgate {

/// Does traffic pass beside the gate? Over the last minute: connections that the server established
/// while the gate saw no try at all (a mesh's sidecar, another sk_lookup or sockmap program). Over
/// a window and not since the start, because one connection of before the attach must not be held
/// against the gate for ever, and one try of long ago must not hide what goes on now.
///
/// The tries are looked at for two steps longer, so that a handshake at the edge of the window does
/// not count as one without a try. Pure.
class BesideGate {
 public:
  static constexpr Duration kStep = std::chrono::seconds(10);
  static constexpr std::size_t kSteps = 6;        ///< of the window
  static constexpr std::size_t kStepsBefore = 2;  ///< in which a try still counts

  /// The kernel's cumulative counters; at least once a step.
  void update(Instant now, std::uint64_t tries, std::uint64_t established) {
    tries_ = tries;
    established_ = established;
    if (held_ > 0 && now - newest_at_ < kStep) {
      return;
    }
    newest_at_ = now;
    for (std::size_t i = marks_.size() - 1; i > 0; --i) {
      marks_[i] = marks_[i - 1];
    }
    marks_[0] = {tries, established};
    held_ = held_ < marks_.size() ? held_ + 1 : held_;
  }

  /// Connections of the last minute, where none came by the gate; 0 = all is well, or not a minute
  /// has been seen yet.
  [[nodiscard]] std::uint64_t connections() const {
    if (held_ < marks_.size() || tries_ != marks_.back().tries) {
      return 0;
    }
    return established_ - marks_[kSteps].established;
  }

 private:
  struct Mark {
    std::uint64_t tries = 0;
    std::uint64_t established = 0;
  };
  std::array<Mark, kSteps + kStepsBefore + 1> marks_{};  ///< newest first, a step apart
  std::size_t held_ = 0;
  Instant newest_at_{};
  std::uint64_t tries_ = 0;
  std::uint64_t established_ = 0;
};

}  // namespace headgate
