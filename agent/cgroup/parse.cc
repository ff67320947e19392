// SPDX-License-Identifier: Apache-2.0
#include "agent/cgroup/parse.h"

#include <charconv>
#include <limits>
#include <system_error>

namespace headgate {
namespace {

constexpr std::uint64_t kNsPerUs = 1000;
constexpr std::int64_t kDefaultPeriodUs = 100'000;
/// LONG_MAX rounded down to a page of 64 KiB, the largest page size of any architecture.
constexpr std::uint64_t kUnlimitedBytes = 0x7fff'ffff'ffff'0000ULL;
/// Far above CONFIG_NR_CPUS of any kernel (8192).
constexpr std::uint32_t kMaxCpus = 65536;

template <class T>
std::optional<T> whole_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

constexpr bool is_blank(char c) { return c == ' ' || c == '\t'; }

std::string_view next_word(std::string_view& rest) {
  while (!rest.empty() && is_blank(rest.front())) {
    rest.remove_prefix(1);
  }
  std::size_t length = 0;
  while (length < rest.size() && !is_blank(rest[length])) {
    ++length;
  }
  const std::string_view word = rest.substr(0, length);
  rest.remove_prefix(length);
  return word;
}

/// The text without its one closing newline; nullopt where another line follows.
std::optional<std::string_view> only_line(std::string_view text) {
  if (!text.empty() && text.back() == '\n') {
    text.remove_suffix(1);
  }
  if (text.find('\n') != std::string_view::npos) {
    return std::nullopt;
  }
  return text;
}

/// Looks for "key value" lines; a last line without newline is whole too.
template <class Visit>
void for_each_key(std::string_view text, Visit visit) {
  while (!text.empty()) {
    std::string_view line = next_line(text);
    const std::string_view key = next_word(line);
    if (!key.empty()) {
      const std::string_view value = next_word(line);
      visit(key, value, next_word(line).empty());
    }
  }
}

Measured<std::uint64_t> keyed_value(std::string_view value, bool alone) {
  const auto number = whole_number<std::uint64_t>(value);
  if (!number || !alone) {
    return Unknown::kParse;
  }
  return *number;
}

Measured<std::uint64_t> us_to_ns(Measured<std::uint64_t> us) {
  if (us.known() && *us > std::numeric_limits<std::uint64_t>::max() / kNsPerUs) {
    return Unknown::kParse;
  }
  return us.known() ? Measured<std::uint64_t>(*us * kNsPerUs) : us;
}

/// 0 stands for "not a number": the kernel allows neither a quota nor a period of 0.
Measured<double> cores(std::int64_t quota_us, std::int64_t period_us) {
  if (quota_us <= 0 || period_us <= 0) {
    return Unknown::kParse;
  }
  return static_cast<double>(quota_us) / static_cast<double>(period_us);
}

/// mountinfo writes blanks and backslashes of a path as \ooo (proc(5)).
std::string unescape_octal(std::string_view text) {
  const auto digit = [&](std::size_t i) {
    return i < text.size() && text[i] >= '0' && text[i] <= '7';
  };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && digit(i + 1) && digit(i + 2) && digit(i + 3)) {
      const int code = (text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0');
      out.push_back(static_cast<char>(code & 0xff));
      i += 3;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

}  // namespace

std::string_view next_line(std::string_view& rest) {
  const std::size_t end = rest.find('\n');
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return line;
}

Measured<std::uint64_t> parse_number(std::string_view text) {
  const auto line = only_line(text);
  const auto number = line ? whole_number<std::uint64_t>(*line) : std::nullopt;
  return number ? Measured<std::uint64_t>(*number) : Unknown::kParse;
}

Measured<double> parse_load1(std::string_view text) {
  const auto line = only_line(text);
  if (!line) {
    return Unknown::kParse;
  }
  std::string_view rest = *line;
  const std::string_view word = next_word(rest);
  const auto point = word.find('.');
  if (point == std::string_view::npos || word.size() - point != 3) {
    return Unknown::kParse;
  }
  const auto whole = whole_number<std::uint64_t>(word.substr(0, point));
  const auto hundredths = whole_number<std::uint64_t>(word.substr(point + 1));
  if (!whole || !hundredths || next_word(rest).empty()) {
    return Unknown::kParse;
  }
  return static_cast<double>(*whole) + static_cast<double>(*hundredths) / 100;
}

Measured<double> parse_cpu_max(std::string_view text) {
  auto line = only_line(text);
  if (!line) {
    return Unknown::kParse;
  }
  const std::string_view quota = next_word(*line);
  const std::string_view period = next_word(*line);
  if (!next_word(*line).empty()) {
    return Unknown::kParse;
  }
  const std::int64_t period_us =
      period.empty() ? kDefaultPeriodUs : whole_number<std::int64_t>(period).value_or(0);
  if (quota == "max") {
    return period_us > 0 ? Unknown::kNoLimit : Unknown::kParse;
  }
  return cores(whole_number<std::int64_t>(quota).value_or(0), period_us);
}

Measured<double> parse_cfs(std::string_view quota, std::string_view period) {
  const auto quota_line = only_line(quota);
  const auto period_line = only_line(period);
  if (!quota_line || !period_line) {
    return Unknown::kParse;
  }
  const std::int64_t quota_us = whole_number<std::int64_t>(*quota_line).value_or(0);
  const std::int64_t period_us = whole_number<std::int64_t>(*period_line).value_or(0);
  if (quota_us == -1 && period_us > 0) {
    return Unknown::kNoLimit;
  }
  return cores(quota_us, period_us);
}

CpuStat parse_cpu_stat(std::string_view text, CgroupVersion version) {
  CpuStat stat;
  if (text.empty()) {
    stat.usage_ns = stat.periods = stat.throttled_periods = stat.throttled_ns = Unknown::kParse;
    return stat;
  }
  const bool v2 = version == CgroupVersion::kV2;
  for_each_key(text, [&](std::string_view key, std::string_view value, bool alone) {
    if (key == "nr_periods") {
      stat.periods = keyed_value(value, alone);
    } else if (key == "nr_throttled") {
      stat.throttled_periods = keyed_value(value, alone);
    } else if (v2 && key == "usage_usec") {
      stat.usage_ns = us_to_ns(keyed_value(value, alone));
    } else if (v2 && key == "throttled_usec") {
      stat.throttled_ns = us_to_ns(keyed_value(value, alone));
    } else if (!v2 && key == "throttled_time") {
      stat.throttled_ns = keyed_value(value, alone);
    }
  });
  return stat;
}

Measured<std::uint32_t> parse_cpu_list(std::string_view text) {
  const auto line = only_line(text);
  if (!line) {
    return Unknown::kParse;
  }
  std::string_view rest = *line;
  if (rest.empty()) {
    return Unknown::kAbsent;
  }
  std::uint32_t count = 0;
  std::uint32_t lowest_free = 0;
  while (true) {
    const std::size_t comma = rest.find(',');
    const std::string_view range = rest.substr(0, comma);
    const std::size_t dash = range.find('-');
    const auto first = whole_number<std::uint32_t>(range.substr(0, dash));
    const auto last = dash == std::string_view::npos
                          ? first
                          : whole_number<std::uint32_t>(range.substr(dash + 1));
    if (!first || !last || *first < lowest_free || *last < *first || *last >= kMaxCpus) {
      return Unknown::kParse;
    }
    count += *last - *first + 1;
    lowest_free = *last + 1;
    if (comma == std::string_view::npos) {
      return count;
    }
    rest.remove_prefix(comma + 1);
  }
}

Measured<std::uint64_t> parse_memory_limit(std::string_view text) {
  const auto line = only_line(text);
  if (line == "max") {
    return Unknown::kNoLimit;
  }
  const auto bytes = line ? whole_number<std::uint64_t>(*line) : std::nullopt;
  if (!bytes || *bytes == 0) {
    return Unknown::kParse;
  }
  return *bytes >= kUnlimitedBytes ? Measured<std::uint64_t>(Unknown::kNoLimit) : *bytes;
}

Measured<std::uint64_t> parse_inactive_file(std::string_view text, CgroupVersion version) {
  if (version == CgroupVersion::kV1) {
    const auto total = parse_keyed(text, "total_inactive_file");
    if (total.known() || total.reason != Unknown::kAbsent) {
      return total;
    }
  }
  return parse_keyed(text, "inactive_file");
}

Measured<std::uint64_t> parse_keyed(std::string_view text, std::string_view key) {
  if (text.empty()) {
    return Unknown::kParse;
  }
  Measured<std::uint64_t> found = Unknown::kAbsent;
  for_each_key(text, [&](std::string_view name, std::string_view value, bool alone) {
    if (name == key) {
      found = keyed_value(value, alone);
    }
  });
  return found;
}

Measured<std::uint64_t> parse_pressure_some_us(std::string_view text) {
  constexpr std::string_view kTotal = "total=";
  while (!text.empty()) {
    std::string_view line = next_line(text);
    if (next_word(line) != "some") {
      continue;
    }
    for (auto word = next_word(line); !word.empty(); word = next_word(line)) {
      if (word.substr(0, kTotal.size()) == kTotal) {
        return keyed_value(word.substr(kTotal.size()), true);
      }
    }
  }
  return Unknown::kParse;
}

std::optional<ProcCgroupLine> parse_proc_cgroup_line(std::string_view line) {
  const std::size_t first = line.find(':');
  const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
  if (second == std::string_view::npos) {
    return std::nullopt;
  }
  const auto id = whole_number<std::uint64_t>(line.substr(0, first));
  ProcCgroupLine out;
  out.controllers = line.substr(first + 1, second - first - 1);
  out.path = line.substr(second + 1);
  if (!id || out.path.empty() || out.path.front() != '/') {
    return std::nullopt;
  }
  out.hierarchy_id = *id;
  constexpr std::string_view kDeleted = " (deleted)";
  if (out.path.size() > kDeleted.size() &&
      out.path.substr(out.path.size() - kDeleted.size()) == kDeleted) {
    out.path.remove_suffix(kDeleted.size());
    out.deleted = true;
  }
  return out;
}

bool has_controller(std::string_view controllers, std::string_view name) {
  while (!controllers.empty()) {
    const std::size_t comma = controllers.find(',');
    if (controllers.substr(0, comma) == name) {
      return true;
    }
    controllers.remove_prefix(comma == std::string_view::npos ? controllers.size() : comma + 1);
  }
  return false;
}

std::optional<CgroupMount> parse_mountinfo_line(std::string_view line) {
  // ID PARENT MAJOR:MINOR ROOT MOUNT-POINT OPTIONS [OPTIONAL...] - TYPE SOURCE SUPER-OPTIONS
  for (int i = 0; i < 3; ++i) {
    if (next_word(line).empty()) {
      return std::nullopt;
    }
  }
  CgroupMount mount;
  mount.root = unescape_octal(next_word(line));
  mount.mount_point = unescape_octal(next_word(line));
  for (auto word = next_word(line); word != "-"; word = next_word(line)) {
    if (word.empty()) {
      return std::nullopt;
    }
  }
  const std::string_view type = next_word(line);
  mount.version = type == "cgroup2"  ? CgroupVersion::kV2
                  : type == "cgroup" ? CgroupVersion::kV1
                                     : CgroupVersion::kNone;
  if (mount.version == CgroupVersion::kNone || mount.root.empty() || mount.root.front() != '/' ||
      mount.mount_point.empty() || mount.mount_point.front() != '/') {
    return std::nullopt;
  }
  return mount;
}

std::optional<std::uint32_t> parse_netns_link(std::string_view link) {
  constexpr std::string_view kPrefix = "net:[";
  if (link.size() <= kPrefix.size() + 1 || link.substr(0, kPrefix.size()) != kPrefix ||
      link.back() != ']') {
    return std::nullopt;
  }
  return whole_number<std::uint32_t>(link.substr(kPrefix.size(), link.size() - kPrefix.size() - 1));
}

}  // namespace headgate
