// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "headgate/clock.h"

#include "agent/trace.h"

namespace headgate {

/// Keeps the last ticks of one target as lines of a trace, for as long as somebody fetches them.
class Recorder {
 public:
  static constexpr std::size_t kLinesKept = 1200;  ///< two minutes at ten ticks a second
  static constexpr Duration kFetchedAtLeast = std::chrono::seconds(10);

  Recorder(const TraceHeader& header, Instant now) : head_(trace_head(header)), fetched_at_(now) {}

  /// `tick.at_s` is set here: seconds since the first one.
  void add(TraceTick tick);

  struct Part {
    std::string head;                ///< the first lines of the trace
    std::vector<std::string> lines;  ///< each with its end
    std::uint64_t next = 0;          ///< what to ask for next
    std::uint64_t missed = 0;        ///< lines that were asked for too late
  };
  /// The lines from number `from` on.
  [[nodiscard]] Part fetch(std::uint64_t from, Instant now);
  [[nodiscard]] bool abandoned(Instant now) const { return now - fetched_at_ > kFetchedAtLeast; }

 private:
  std::string head_;
  std::deque<std::string> lines_;
  std::uint64_t first_ = 0;  ///< number of lines_.front()
  Instant fetched_at_;
  bool has_begun_ = false;
  Instant begin_{};
};

}  // namespace headgate
