// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace headgate {

/// FNV-1a, 64 bits (Fowler, Noll, Vo). Never 0: 0 means "free" in the identity maps.
[[nodiscard]] constexpr std::uint64_t fnv1a(std::string_view text) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) {
    hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001b3ULL;
  }
  return hash != 0 ? hash : 1;
}

}  // namespace headgate
