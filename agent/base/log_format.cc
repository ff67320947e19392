// SPDX-License-Identifier: Apache-2.0
#include "agent/base/log_format.h"

#include <algorithm>
#include <ctime>

#include <nlohmann/json.hpp>

namespace headgate::log {
namespace {

std::string_view word(Level level) {
  switch (level) {
    case Level::kDebug: return "debug";
    case Level::kInfo: return "info";
    case Level::kWarn: return "warn";
    case Level::kError: return "error";
  }
  return "?";
}

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f;
}

bool needs_quotes(std::string_view value) {
  return value.empty() || std::any_of(value.begin(), value.end(), [](char c) {
           return c == ' ' || c == '"' || c == '=' || c == '\\' || is_control(c);
         });
}

void append_quoted(std::string& out, std::string_view value) {
  out += '"';
  for (const char c : value) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (is_control(c)) {
          out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

// An event is a sentence and is not quoted, but it must not break the line either.
void append_sentence(std::string& out, std::string_view event) {
  for (const char c : event) {
    out += is_control(c) ? ' ' : c;
  }
}

}  // namespace

std::string rfc3339(WallTime at) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(at);
  const auto rest = std::chrono::floor<std::chrono::milliseconds>(at - whole).count();
  const std::time_t time = std::chrono::system_clock::to_time_t(whole);
  std::tm utc{};
  gmtime_r(&time, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900,
                     utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, rest);
}

std::string format_text(WallTime at, Level level, std::string_view event,
                        std::span<const Field> fields) {
  std::string line = rfc3339(at);
  line += ' ';
  line += word(level);
  line += ' ';
  append_sentence(line, event);
  for (const Field& field : fields) {
    line += ' ';
    append_sentence(line, field.key);
    line += '=';
    if (needs_quotes(field.value)) {
      append_quoted(line, field.value);
    } else {
      line += field.value;
    }
  }
  return line;
}

std::string format_json(WallTime at, Level level, std::string_view event,
                        std::span<const Field> fields) {
  nlohmann::ordered_json object;
  object["time"] = rfc3339(at);
  object["level"] = word(level);
  object["msg"] = event;
  for (const Field& field : fields) {
    std::string key(field.key);
    while (object.contains(key)) {
      key += '_';
    }
    object[key] = field.value;
  }
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace headgate::log
