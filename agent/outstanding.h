// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "headgate/clock.h"

namespace headgate {

/// The kernel counts what begins and what ends (tickets, deferred attempts); what is begun and then
/// given up by its client ends nowhere. After `horizon` whatever had begun before is taken as given
/// up: the number to subtract, cumulative, that the kernel reads as *_written_off. Pure.
class Outstanding {
 public:
  /// Goes on from the count that is in force in the kernel: after a restart or a reload what was
  /// given up before must not seem to wait again.
  void resume(std::uint64_t written_off) { written_off_ = written_off; }

  /// Once a tick. Returns the written-off count. It falls only where something ends after all that
  /// had been given up: no more can be written off than has begun and not ended.
  std::uint64_t update(Instant now, std::uint64_t begun, std::uint64_t ended, Duration horizon) {
    const std::uint64_t open = begun > ended ? begun - ended : 0;
    written_off_ = written_off_ < open ? written_off_ : open;
    const Duration spacing = horizon / static_cast<int>(kMarks);
    if (count_ == 0 || now - last_mark_ >= spacing) {
      marks_[next_ % kMarks] = {now, begun};
      ++next_;
      count_ = count_ < kMarks ? count_ + 1 : kMarks;
      last_mark_ = now;
    }
    const std::size_t oldest = count_ < kMarks ? 0 : next_ % kMarks;
    for (std::size_t i = 0; i < count_; ++i) {
      const Mark& mark = marks_[(oldest + i) % kMarks];
      if (now - mark.at < horizon) {
        break;
      }
      const auto overdue = static_cast<std::int64_t>(mark.begun - ended - written_off_);
      if (overdue > 0) {
        written_off_ += static_cast<std::uint64_t>(overdue);
      }
    }
    return written_off_;
  }
  [[nodiscard]] std::uint64_t written_off() const { return written_off_; }

 private:
  static constexpr std::size_t kMarks = 32;
  struct Mark {
    Instant at{};
    std::uint64_t begun = 0;
  };
  std::array<Mark, kMarks> marks_{};
  std::size_t next_ = 0;
  std::size_t count_ = 0;
  Instant last_mark_{};
  std::uint64_t written_off_ = 0;
};

}  // namespace headgate
