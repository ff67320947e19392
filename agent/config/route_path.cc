// SPDX-License-Identifier: Apache-2.0
#include "agent/config/route_path.h"

#include <algorithm>
#include <array>
#include <optional>

#include <fmt/format.h>

namespace headgate {
namespace {

constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// RFC 3986, section 2.3.
constexpr bool is_unreserved(char c) {
  return is_letter(c) || is_digit(c) || c == '-' || c == '.' || c == '_' || c == '~';
}

/// Of a path, besides the unreserved ones and %XX (RFC 3986, section 3.3).
constexpr bool is_path_mark(char c) {
  return std::string_view("!$&'()*+,;=:@").find(c) != std::string_view::npos;
}

std::optional<unsigned> hex_digit(char c) {
  if (is_digit(c)) {
    return static_cast<unsigned>(c - '0');
  }
  const char low = static_cast<char>(c | 0x20);
  return low >= 'a' && low <= 'f' ? std::optional(static_cast<unsigned>(low - 'a') + 10)
                                  : std::nullopt;
}

/// Segments with their octets decoded where that changes no meaning.
RoutePath decode(std::string_view text) {
  RoutePath out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '?' || c == '#') {
      out.problem = fmt::format("has a '{}': a path without query or fragment is compared", c);
      return out;
    }
    if (c != '%') {
      if (!is_unreserved(c) && !is_path_mark(c) && c != '/') {
        out.problem =
            fmt::format("has the octet 0x{:02x}, which no path of a URI has: write %{:02X}",
                        static_cast<unsigned char>(c), static_cast<unsigned char>(c));
        return out;
      }
      out.path += c;
      continue;
    }
    const auto high = i + 1 < text.size() ? hex_digit(text[i + 1]) : std::nullopt;
    const auto low = i + 2 < text.size() ? hex_digit(text[i + 2]) : std::nullopt;
    if (!high || !low) {
      out.problem = "has a '%' without two hexadecimal digits";
      return out;
    }
    const unsigned octet = *high * 16 + *low;
    if (is_unreserved(static_cast<char>(octet))) {
      out.path += static_cast<char>(octet);
    } else {
      out.path += fmt::format("%{:02X}", octet);
    }
    i += 2;
  }
  return out;
}

bool is_identifier(std::string_view text) {
  return !text.empty() && (is_letter(text[0]) || text[0] == '_') &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return is_letter(c) || is_digit(c) || c == '_'; });
}

}  // namespace

RoutePath normalize_path(std::string_view text) {
  if (text.empty() || text[0] != '/') {
    return {{}, "does not begin with '/'"};
  }
  const RoutePath decoded = decode(text);
  if (!decoded.problem.empty()) {
    return decoded;
  }
  RoutePath out;
  std::string_view rest = decoded.path;
  while (!rest.empty()) {
    rest.remove_prefix(1);  // the '/'
    const std::string_view segment = rest.substr(0, rest.find('/'));
    rest.remove_prefix(segment.size());
    if (segment == "..") {
      return {{}, "has a '..' segment: write the path that it leads to"};
    }
    if (!segment.empty() && segment != ".") {
      out.path += '/';
      out.path += segment;
    }
  }
  if (out.path.empty()) {
    out.path = "/";
  }
  if (out.path.size() > kRoutePathMax) {
    return {{}, fmt::format("has {} bytes; allowed: at most {}", out.path.size(), kRoutePathMax)};
  }
  return out;
}

bool is_grpc_method(std::string_view text) {
  if (text.empty() || text[0] != '/') {
    return false;
  }
  const std::size_t slash = text.find('/', 1);
  if (slash == std::string_view::npos || !is_identifier(text.substr(slash + 1))) {
    return false;
  }
  std::string_view service = text.substr(1, slash - 1);
  for (;;) {
    const std::size_t dot = service.find('.');
    if (!is_identifier(service.substr(0, dot))) {
      return false;
    }
    if (dot == std::string_view::npos) {
      return true;
    }
    service.remove_prefix(dot + 1);
  }
}

bool is_known_unary(std::string_view method) {
  constexpr std::array<std::string_view, 4> kMethods{
      "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
      "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
      "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
      "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"};
  return std::find(kMethods.begin(), kMethods.end(), method) != kMethods.end();
}

}  // namespace headgate
