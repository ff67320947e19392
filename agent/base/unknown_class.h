// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace headgate {

/// One word for an enum headgate_unknown, as metrics and JSON have it: "tls". Empty: class known.
[[nodiscard]] std::string_view unknown_word(std::uint32_t reason);

/// The same for people: what was met, and what becomes of it.
[[nodiscard]] std::string_view unknown_text(std::uint32_t reason);

}  // namespace headgate
