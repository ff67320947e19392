// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "headgate/result.h"

#include "agent/web/http.h"

namespace headgate::web {

/// HTTP/1.1 for a scraper and a few people: one thread, non-blocking sockets, one request a
/// connection. A client that is slow costs its own buffer and nobody's time.
///
/// Why not civetweb, which Debian has: its build there knows no IPv6 (an IPv6-only cluster needs
/// it), needs 2 s to stop (the agent has 1 s), and as many silent clients as it has threads keep
/// everybody else waiting for the time-out.
class HttpServer {
 public:
  using Handler = std::function<HttpResponse(const HttpRequest&)>;  ///< runs on the server's thread

  struct Limits {
    std::chrono::milliseconds client_timeout{5000};  ///< without progress
    std::size_t connections_max = 64;  ///< above it the one idle for longest is dropped
    std::size_t head_bytes_max = 16384;
  };

  /// `listen_address`: as in the configuration, see parse_listen_address(). Listens when it
  /// returns.
  [[nodiscard]] static Result<std::unique_ptr<HttpServer>> start(const std::string& listen_address,
                                                                 Handler handler, Limits limits);
  HttpServer() = default;
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  HttpServer(HttpServer&&) = delete;
  HttpServer& operator=(HttpServer&&) = delete;
  virtual ~HttpServer() = default;
  [[nodiscard]] virtual std::uint16_t port() const = 0;
};

/// Where to listen. An empty host means every address of both families.
struct ListenAddress {
  std::string host;  ///< numeric, without brackets
  std::uint16_t port = 0;
};

/// IPV4:PORT, [IPV6]:PORT, localhost:PORT or :PORT. Names are not resolved: a listener whose
/// address depends on a name server is a surprise.
[[nodiscard]] Result<ListenAddress> parse_listen_address(const std::string& text);

}  // namespace headgate::web
