// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace headgate::web {

/// As much of a request as the pages need (RFC 9112); bodies are not looked at.
struct HttpRequest {
  std::string method;
  std::string path;   ///< decoded, without the query
  std::string query;  ///< not decoded, without '?'
  std::string host;
  std::optional<std::string> origin;
};

/// `head`: request line and header fields, without the empty line at the end. Empty optional = not
/// HTTP/1.x, or no path. Pure; takes any bytes.
[[nodiscard]] std::optional<HttpRequest> parse_request(std::string_view head);

/// Value of a query parameter, decoded: "a=1&b" has a = "1" and b = "". Empty optional = not there.
[[nodiscard]] std::optional<std::string> query_value(std::string_view query, std::string_view name);

struct HttpResponse {
  int status = 200;
  std::string body;
  std::string_view type = "text/plain; charset=utf-8";
  std::string_view extra_headers{};  ///< complete lines
};

/// The bytes of the answer; every answer closes its connection. `head_only`: for HEAD.
[[nodiscard]] std::string to_wire(const HttpResponse& response, bool head_only);

}  // namespace headgate::web
