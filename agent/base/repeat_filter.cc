// SPDX-License-Identifier: Apache-2.0
#include "agent/base/repeat_filter.h"

#include <algorithm>
#include <utility>

namespace headgate::log {

std::optional<std::uint64_t> RepeatFilter::pass(std::string_view key, std::string_view value,
                                                Instant now) {
  auto it = last_.find(key);
  if (it == last_.end()) {
    make_room();
    last_.emplace(std::string(key), Last{std::string(value), now, 0});
    return 0;
  }
  Last& last = it->second;
  if (last.value == value && now - last.printed < interval_) {
    ++last.held_back;
    return std::nullopt;
  }
  last.value = value;
  last.printed = now;
  return std::exchange(last.held_back, 0);
}

// Keys come from targets and files, which come and go: the one silent for longest is forgotten, so
// that memory stays bounded; at worst its next event is printed early.
void RepeatFilter::make_room() {
  if (last_.size() < keys_max_) {
    return;
  }
  const auto oldest = std::min_element(
      last_.begin(), last_.end(),
      [](const auto& a, const auto& b) { return a.second.printed < b.second.printed; });
  last_.erase(oldest);
}

}  // namespace headgate::log
