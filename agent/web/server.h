// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "headgate/result.h"

#include "agent/snapshot.h"

namespace headgate {

/// HTTP for people and for Prometheus: /, /metrics, /healthz, /readyz[?verbose], /config,
/// /api/v1/state, /debug/targets, /debug/decisions[?target=], POST /-/reload.
///
/// Runs on a thread of its own and sees snapshots only: no client ever delays the loop.
class WebServer {
 public:
  struct Options {
    /// HOST:PORT, [IPV6]:PORT, or :PORT for every address. Port 0 = any free one.
    std::string listen_address = "127.0.0.1:9749";
    /// A client that neither sends nor reads for so long is dropped.
    std::chrono::milliseconds client_timeout{5000};
    std::size_t connections_max = 64;
    /// The configuration in force as YAML; called by the server's thread.
    std::function<std::string()> effective_config;
    /// Reads the configuration again; called by the server's thread.
    std::function<Result<void>()> reload;
  };

  /// Listens when it returns. `source` must outlive the server. Errors name the flag and the
  /// address.
  [[nodiscard]] static Result<std::unique_ptr<WebServer>> start(SnapshotSource& source,
                                                                Options options);
  WebServer() = default;
  WebServer(const WebServer&) = delete;
  WebServer& operator=(const WebServer&) = delete;
  WebServer(WebServer&&) = delete;
  WebServer& operator=(WebServer&&) = delete;
  virtual ~WebServer() = default;

  /// The port that it listens on.
  [[nodiscard]] virtual std::uint16_t port() const = 0;
};

}  // namespace headgate
