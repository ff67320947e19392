// SPDX-License-Identifier: Apache-2.0
#include "agent/config/quantity.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

namespace headgate {
namespace {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// mantissa x 10^exponent, exactly.
struct Decimal {
  std::uint64_t mantissa = 0;
  int exponent = 0;
  bool scientific = false;
};

/// Digits, at most one point with digits on both sides, and an exponent where allowed. A leading
/// zero is refused: YAML 1.1 tools read 0123 as octal.
std::optional<Decimal> parse_decimal(std::string_view text) {
  Decimal out;
  std::size_t i = 0;
  std::size_t digits = 0;
  const auto take = [&](bool fraction) {
    for (; i < text.size() && is_digit(text[i]); ++i) {
      const auto digit = static_cast<std::uint64_t>(text[i] - '0');
      if (out.mantissa > (std::numeric_limits<std::uint64_t>::max() - digit) / 10) {
        return false;
      }
      out.mantissa = out.mantissa * 10 + digit;
      out.exponent -= fraction ? 1 : 0;
      ++digits;
    }
    return true;
  };
  if (!take(false) || digits == 0 || (digits > 1 && text[0] == '0')) {
    return std::nullopt;
  }
  if (i < text.size() && text[i] == '.') {
    ++i;
    digits = 0;
    if (!take(true) || digits == 0) {
      return std::nullopt;
    }
  }
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    out.scientific = true;
    const bool negative = i < text.size() && text[i] == '-';
    if (i < text.size() && (text[i] == '-' || text[i] == '+')) {
      ++i;
    }
    int exponent = 0;
    const auto [end, error] = std::from_chars(text.data() + i, text.data() + text.size(), exponent);
    if (i >= text.size() || !is_digit(text[i]) || error != std::errc{} || exponent > 400) {
      return std::nullopt;
    }
    i = static_cast<std::size_t>(end - text.data());
    out.exponent += negative ? -exponent : exponent;
  }
  if (i != text.size()) {
    return std::nullopt;
  }
  return out;
}

/// decimal x unit where that is a whole number that fits.
std::optional<std::uint64_t> times(const Decimal& decimal, std::uint64_t unit) {
  if (decimal.mantissa == 0) {
    return 0;
  }
  unsigned __int128 value = decimal.mantissa;
  value *= unit;
  for (int e = decimal.exponent; e < 0; ++e) {
    if (value % 10 != 0) {
      return std::nullopt;
    }
    value /= 10;
  }
  for (int e = decimal.exponent; e > 0; --e) {
    if (value > std::numeric_limits<std::uint64_t>::max()) {
      return std::nullopt;
    }
    value *= 10;
  }
  if (value > std::numeric_limits<std::uint64_t>::max()) {
    return std::nullopt;
  }
  return static_cast<std::uint64_t>(value);
}

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};
constexpr std::array<Unit, 6> kTimeUnits{{{"h", 3'600'000'000'000},
                                          {"m", 60'000'000'000},
                                          {"s", 1'000'000'000},
                                          {"ms", 1'000'000},
                                          {"us", 1'000},
                                          {"ns", 1}}};
constexpr std::array<Unit, 8> kSizeUnits{{{"Ti", 1ULL << 40},
                                          {"Gi", 1ULL << 30},
                                          {"Mi", 1ULL << 20},
                                          {"Ki", 1ULL << 10},
                                          {"T", 1'000'000'000'000},
                                          {"G", 1'000'000'000},
                                          {"M", 1'000'000},
                                          {"k", 1'000}}};

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') {
    text.remove_prefix(1);
  }
  while (!text.empty() && text.back() == ' ') {
    text.remove_suffix(1);
  }
  return text;
}

}  // namespace

std::optional<Integer> parse_integer(std::string_view text) {
  const auto decimal = parse_decimal(text);
  if (!decimal || (!decimal->scientific && decimal->exponent != 0)) {
    return std::nullopt;
  }
  const auto value = times(*decimal, 1);
  if (!value) {
    return std::nullopt;
  }
  return Integer{*value, decimal->scientific};
}

std::optional<double> parse_plain_number(std::string_view text) {
  const std::size_t start = !text.empty() && text[0] == '-' ? 1 : 0;
  if (start == text.size() || !is_digit(text[start])) {
    return std::nullopt;
  }
  if (text.size() > start + 1 && text[start] == '0' && is_digit(text[start + 1])) {
    return std::nullopt;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

std::string format_number(double value) { return fmt::format("{}", value); }

std::optional<Duration> parse_duration(std::string_view text) {
  if (text == "0") {
    return Duration{0};
  }
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  std::uint64_t total = 0;
  std::size_t largest = 0;  // index of the largest unit that may still come
  if (text.empty()) {
    return std::nullopt;
  }
  while (!text.empty()) {
    const auto number_end =
        std::find_if_not(text.begin(), text.end(), [](char c) { return is_digit(c) || c == '.'; });
    const auto unit_end = std::find_if(number_end, text.end(), is_digit);
    const auto decimal = parse_decimal({text.begin(), number_end});
    const std::string_view name(number_end, unit_end);
    const auto* const unit = std::find_if(kTimeUnits.begin() + largest, kTimeUnits.end(),
                                          [&](const Unit& u) { return u.name == name; });
    if (!decimal || unit == kTimeUnits.end()) {
      return std::nullopt;
    }
    const auto part = times(*decimal, unit->factor);
    if (!part || *part > kMax || total > kMax - *part) {
      return std::nullopt;
    }
    total += *part;
    largest = static_cast<std::size_t>(unit - kTimeUnits.begin()) + 1;
    text = {unit_end, text.end()};
  }
  return Duration{static_cast<std::int64_t>(total)};
}

std::string format_duration(Duration duration) {
  auto rest = static_cast<std::uint64_t>(std::max<std::int64_t>(duration.count(), 0));
  if (rest == 0) {
    return "0s";
  }
  std::string out;
  for (const Unit& unit : kTimeUnits) {
    if (rest >= unit.factor) {
      out += fmt::format("{}{}", rest / unit.factor, unit.name);
      rest %= unit.factor;
    }
  }
  return out;
}

std::optional<Integer> parse_size(std::string_view text) {
  if (const auto plain = parse_integer(text)) {
    return plain;
  }
  for (const Unit& unit : kSizeUnits) {
    if (text.size() > unit.name.size() && text.ends_with(unit.name)) {
      const auto decimal = parse_decimal(text.substr(0, text.size() - unit.name.size()));
      const auto bytes =
          decimal && !decimal->scientific ? times(*decimal, unit.factor) : std::nullopt;
      return bytes ? std::optional<Integer>{{*bytes, false}} : std::nullopt;
    }
  }
  return std::nullopt;
}

std::string format_size(std::uint64_t bytes) {
  for (const Unit& unit : kSizeUnits) {
    if (unit.name.size() == 2 && bytes != 0 && bytes % unit.factor == 0) {
      return fmt::format("{}{}", bytes / unit.factor, unit.name);
    }
  }
  return fmt::format("{}", bytes);
}

std::optional<double> parse_cores(std::string_view text) {
  if (text.ends_with('m')) {
    const auto millis = parse_decimal(text.substr(0, text.size() - 1));
    const auto value =
        millis && !millis->scientific && millis->exponent == 0 ? times(*millis, 1) : std::nullopt;
    return value ? std::optional{static_cast<double>(*value) / 1000.0} : std::nullopt;
  }
  const auto value = parse_plain_number(text);
  return value && *value >= 0 ? value : std::nullopt;
}

Ports parse_ports(std::string_view text) {
  Ports out;
  const auto bad = [&](std::string problem) {
    out.ranges.clear();
    out.problem = std::move(problem);
    return out;
  };
  const auto port = [&](std::string_view word) -> std::optional<std::uint32_t> {
    const auto number = parse_integer(word);
    if (!number || number->value < 1 || number->value > 65535) {
      return std::nullopt;
    }
    out.scientific = out.scientific || number->scientific;
    return static_cast<std::uint32_t>(number->value);
  };
  std::string_view rest = text;
  while (true) {
    const std::size_t comma = rest.find(',');
    const std::string_view item = trim(rest.substr(0, comma));
    if (const auto single = port(item)) {
      out.ranges.push_back({*single, *single});
    } else {
      const std::size_t dash = item.find('-');
      const auto first =
          dash == std::string_view::npos ? std::nullopt : port(trim(item.substr(0, dash)));
      const auto last =
          dash == std::string_view::npos ? std::nullopt : port(trim(item.substr(dash + 1)));
      if (!first || !last) {
        return bad(fmt::format("'{}' is no port", item));
      }
      if (*first > *last) {
        return bad(fmt::format("the range '{}' is reversed; write {}-{}", item, *last, *first));
      }
      out.ranges.push_back({*first, *last});
    }
    if (comma == std::string_view::npos) {
      break;
    }
    rest.remove_prefix(comma + 1);
  }
  std::vector<PortRange> sorted = out.ranges;
  std::sort(sorted.begin(), sorted.end(),
            [](const PortRange& a, const PortRange& b) { return a.first < b.first; });
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i].first <= sorted[i - 1].last) {
      return bad(fmt::format("'{}' has port {} twice", text, sorted[i].first));
    }
  }
  return out;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the table of the optimal string alignment distance.
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> above(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) {
    above[j] = j;
  }
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t cost = a[i - 1] == b[j - 1] ? 0 : 1;
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + cost});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

}  // namespace headgate
