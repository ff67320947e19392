// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "headgate/clock.h"

namespace headgate::log {

/// Decides which of many equal events are worth a line: a new value at once, the same value again
/// no more than once in `interval`. Pure: time is an argument. Not thread-safe.
class RepeatFilter {
 public:
  explicit RepeatFilter(Duration interval, std::size_t keys_max = 4096)
      : interval_(interval), keys_max_(keys_max) {}

  /// Empty = hold it back. Else the number of events of this key held back since its last line.
  [[nodiscard]] std::optional<std::uint64_t> pass(std::string_view key, std::string_view value,
                                                  Instant now);

 private:
  struct Last {
    std::string value;
    Instant printed{};
    std::uint64_t held_back = 0;
  };
  void make_room();

  Duration interval_;
  std::size_t keys_max_;
  std::map<std::string, Last, std::less<>> last_;
};

}  // namespace headgate::log
