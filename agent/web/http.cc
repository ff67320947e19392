// SPDX-License-Identifier: Apache-2.0
#include "agent/web/http.h"

#include <algorithm>

#include <fmt/format.h>

namespace headgate::web {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// Percent-encoding (RFC 3986, 2.1); '+' is a space in queries. What is no encoding stays.
std::string decode(std::string_view text, bool plus_is_space) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 &&
        hex_digit(text[i + 2]) >= 0) {
      out += static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
      i += 2;
    } else {
      out += plus_is_space && text[i] == '+' ? ' ' : text[i];
    }
  }
  return out;
}

bool equal_names(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

/// Takes the text up to `separator` off the front of `rest`; all of it where there is none.
std::string_view take(std::string_view& rest, char separator) {
  const auto end = rest.find(separator);
  const std::string_view part = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  return part;
}

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 431: return "Request Header Fields Too Large";
    case 503: return "Service Unavailable";
    default: return "Internal Server Error";
  }
}

}  // namespace

std::optional<HttpRequest> parse_request(std::string_view head) {
  std::string_view line = trim(take(head, '\n'));
  HttpRequest request;
  request.method = take(line, ' ');
  std::string_view target = take(line, ' ');
  if (request.method.empty() || !line.starts_with("HTTP/1.")) {
    return std::nullopt;
  }
  // The absolute form is for proxies, but every server must take it (RFC 9112, 3.2.2).
  constexpr std::string_view kScheme = "http://";
  if (target.starts_with(kScheme)) {
    const auto slash = target.find('/', kScheme.size());
    target = slash == std::string_view::npos ? std::string_view("/") : target.substr(slash);
  }
  if (!target.starts_with('/')) {
    return std::nullopt;
  }
  const std::string_view path = take(target, '?');
  request.path = decode(path, false);
  request.query = target;
  while (!head.empty()) {
    std::string_view field = take(head, '\n');
    const std::string_view name = take(field, ':');
    if (equal_names(name, "host")) {
      request.host = trim(field);
    } else if (equal_names(name, "origin")) {
      request.origin = trim(field);
    }
  }
  return request;
}

std::optional<std::string> query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    std::string_view value = take(query, '&');
    if (decode(take(value, '='), true) == name) {
      return decode(value, true);
    }
  }
  return std::nullopt;
}

std::string to_wire(const HttpResponse& response, bool head_only) {
  std::string text = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n"
      "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n{}\r\n",
      response.status, reason_phrase(response.status), response.type, response.body.size(),
      response.extra_headers);
  if (!head_only) {
    text += response.body;
  }
  return text;
}

}  // namespace headgate::web
