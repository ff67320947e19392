// SPDX-License-Identifier: Apache-2.0
#include "agent/recorder.h"

#include <algorithm>
#include <utility>

namespace headgate {

void Recorder::add(TraceTick tick) {
  if (!has_begun_) {
    has_begun_ = true;
    begin_ = tick.signals.at - tick.signals.interval;
  }
  tick.at_s = seconds(tick.signals.at - begin_);
  lines_.push_back(trace_line(tick));
  if (lines_.size() > kLinesKept) {
    lines_.pop_front();
    ++first_;
  }
}

Recorder::Part Recorder::fetch(std::uint64_t from, Instant now) {
  fetched_at_ = now;
  Part out;
  out.head = head_;
  out.next = first_ + lines_.size();
  out.missed = from < first_ ? first_ - from : 0;
  const std::uint64_t begin = std::clamp(from, first_, out.next);
  out.lines.assign(lines_.begin() + static_cast<std::ptrdiff_t>(begin - first_), lines_.end());
  return out;
}

}  // namespace headgate
