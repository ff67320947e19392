// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>

#include "agent/base/log.h"

namespace headgate::log {

using WallTime = std::chrono::system_clock::time_point;

/// "2026-03-01T12:00:00.123Z" (RFC 3339, UTC, milliseconds).
[[nodiscard]] std::string rfc3339(WallTime at);

/// "2026-03-01T12:00:00.123Z warn event key=value key="two words"". A value with a space, a quote,
/// an equals sign, a control character or nothing in it is quoted; no value can break the line.
[[nodiscard]] std::string format_text(WallTime at, Level level, std::string_view event,
                                      std::span<const Field> fields);

/// One JSON object: "time", "level", "msg", then the fields. Bytes that are no UTF-8 become U+FFFD.
/// A field named like one of the first three gets a "_" behind its name: no key stands twice.
[[nodiscard]] std::string format_json(WallTime at, Level level, std::string_view event,
                                      std::span<const Field> fields);

}  // namespace headgate::log
