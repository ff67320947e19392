// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "headgate/result.h"

namespace headgate::log {

enum class Level { kDebug, kInfo, kWarn, kError };
enum class Format { kText, kJson };

/// One field of a log line. Text format: key=value (quoted where needed); JSON: "key": "value".
struct Field {
  template <class T>
  Field(std::string_view k, const T& v) : key(k), value(fmt::format("{}", v)) {}
  std::string_view key;
  std::string value;
};

/// Writes to stderr, one line an event, time in RFC 3339 UTC. Call once, before threads start.
void setup(Level level, Format format);
[[nodiscard]] Result<Level> parse_level(std::string_view word);
[[nodiscard]] Result<Format> parse_format(std::string_view word);

void write(Level level, std::string_view event, std::initializer_list<Field> fields = {});
inline void debug(std::string_view e, std::initializer_list<Field> f = {}) {
  write(Level::kDebug, e, f);
}
inline void info(std::string_view e, std::initializer_list<Field> f = {}) {
  write(Level::kInfo, e, f);
}
inline void warn(std::string_view e, std::initializer_list<Field> f = {}) {
  write(Level::kWarn, e, f);
}
inline void error(std::string_view e, std::initializer_list<Field> f = {}) {
  write(Level::kError, e, f);
}

/// For what may repeat every tick: printed when `value` differs from the last one printed for
/// `key`, else at most once a minute for the key (with the count of those held back). Thread-safe.
void write_once(Level level, std::string_view key, std::string_view value, std::string_view event,
                std::initializer_list<Field> fields = {});

/// Tests: receives every line instead of stderr. An empty function restores stderr.
void set_sink(std::function<void(std::string_view line)> sink);

}  // namespace headgate::log
