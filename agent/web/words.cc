// SPDX-License-Identifier: Apache-2.0
#include "agent/web/words.h"

#include <cstring>
#include <ctime>

#include <fmt/format.h>

namespace headgate::web {
namespace {

/// Length of the UTF-8 sequence that `text` begins with (RFC 3629: no overlong forms, no
/// surrogates, nothing above U+10FFFF); 0 = none.
std::size_t utf8_sequence(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned>(static_cast<unsigned char>(text[i])) : 0U;
  };
  const auto follows = [&](std::size_t i, unsigned low = 0x80, unsigned high = 0xbf) {
    return byte(i) >= low && byte(i) <= high;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return follows(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const unsigned low = first == 0xe0 ? 0xa0 : 0x80;
    const unsigned high = first == 0xed ? 0x9f : 0xbf;
    return follows(1, low, high) && follows(2) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const unsigned low = first == 0xf0 ? 0x90 : 0x80;
    const unsigned high = first == 0xf4 ? 0x8f : 0xbf;
    return follows(1, low, high) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::string_view to_string(headgate_reason reason) {
  switch (reason) {
    case HEADGATE_REASON_NONE: return "none";
    case HEADGATE_REASON_CIRCUIT: return "circuit";
    case HEADGATE_REASON_CONNECTIONS: return "connections";
    case HEADGATE_REASON_RATE: return "rate";
    case HEADGATE_REASON_SHARE: return "share";
    case HEADGATE_REASON_BUDGET: return "budget";
    case HEADGATE_REASON_MEMORY: return "memory";
    case HEADGATE_REASON_WAITED: return "waited";
    case HEADGATE_REASON_COUNT: break;
  }
  return "?";
}

std::string_view to_string(headgate_left why) {
  switch (why) {
    case HEADGATE_LEFT_FRAGMENT: return "fragment";
    case HEADGATE_LEFT_DEEP: return "deep";
    case HEADGATE_LEFT_MALFORMED: return "malformed";
    case HEADGATE_LEFT_COUNT: break;
  }
  return "?";
}

std::string_view to_string(headgate_action action) {
  switch (action) {
    case HEADGATE_ACTION_RESET: return "reset";
    case HEADGATE_ACTION_DEFER: return "defer";
    case HEADGATE_ACTION_DROP: return "drop";
    case HEADGATE_ACTION_HTTP_429: return "429";
    case HEADGATE_ACTION_HTTP_503: return "503";
    case HEADGATE_ACTION_GRPC_EXHAUSTED: return "grpc-exhausted";
    case HEADGATE_ACTION_COUNT: break;
  }
  return "?";
}

std::string errno_name(int sys_errno) {
  // glibc 2.32: the names of errno(3), the same in every locale.
  const char* name = strerrorname_np(sys_errno);
  return name != nullptr ? name : fmt::format("errno {}", sys_errno);
}

std::string utc_time(std::int64_t unix_ms) {
  const std::time_t time = static_cast<std::time_t>(unix_ms / 1000);
  std::tm utc{};
  gmtime_r(&time, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", utc.tm_year + 1900, utc.tm_mon + 1,
                     utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

std::string valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_sequence(text);
    if (length == 0) {
      out += "\xef\xbf\xbd";
      text.remove_prefix(1);
    } else {
      out += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return out;
}

}  // namespace headgate::web
