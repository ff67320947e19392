// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/result.h"

namespace headgate {

inline constexpr std::string_view kDefaultSocketPath = "/run/headgate/headgate.sock";

/// The unix socket through which the verbs (`status`, `off`, ...) talk to a running agent.
///
/// One connection, one request line, one answer line:
///   {"verb":"state"}   ->  {"schema":1,"ok":true,"result":{...}}      (the state as JSON)
///   {"verb":"config"}  ->  {"schema":1,"ok":true,"result":"..."}      (effective YAML)
///   {"verb":"record","target":"...","from":0}
///                      ->  {"schema":1,"ok":true,"result":{"head":"...","lines":["...",...],
///                           "next":N,"missed":M}}                   (lines of a trace)
///   {"verb":"off"}, {"verb":"on"}, {"verb":"reload"}  ->  {"schema":1,"ok":true,"result":null}
///   failure            ->  {"schema":1,"ok":false,"error":"..."}
/// Only root and the agent's own user are heard: mode 0600, and the peer's credentials are checked.
/// A client that is silent keeps nobody waiting, and is dropped after a second.
class ControlServer {
 public:
  /// Called by the server's thread, one at a time.
  struct Handlers {
    std::function<Result<std::string>()> state;   ///< JSON text
    std::function<Result<std::string>()> config;  ///< YAML text
    /// JSON text: lines of the trace of a target, from a number on.
    std::function<Result<std::string>(const std::string& target, std::uint64_t from)> record;
    std::function<Result<void>()> off;
    std::function<Result<void>()> on;
    std::function<Result<void>()> reload;
  };

  /// Listens when it returns. Makes the directory (0755) where it is missing; replaces the socket
  /// of an agent that is dead. Errors: a living agent listens there, something that is no socket
  /// has the name, the path is too long.
  [[nodiscard]] static Result<std::unique_ptr<ControlServer>> start(const std::string& path,
                                                                    Handlers handlers);
  ControlServer() = default;
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;
  ControlServer(ControlServer&&) = delete;
  ControlServer& operator=(ControlServer&&) = delete;
  /// Removes the socket, unless another agent has replaced it meanwhile.
  virtual ~ControlServer() = default;
};

/// The other end. Each call is a connection of its own, and ends within `timeout`; errors say what
/// to do.
class ControlClient {
 public:
  explicit ControlClient(std::string path = std::string(kDefaultSocketPath),
                         std::chrono::milliseconds timeout = std::chrono::seconds(2))
      : path_(std::move(path)), timeout_(timeout) {}

  [[nodiscard]] Result<std::string> state() const;   ///< JSON text
  [[nodiscard]] Result<std::string> config() const;  ///< YAML text
  /// Lines of a trace.
  struct Recorded {
    std::string head;
    std::vector<std::string> lines;
    std::uint64_t next = 0;
    std::uint64_t missed = 0;
  };
  [[nodiscard]] Result<Recorded> record(const std::string& target, std::uint64_t from) const;
  [[nodiscard]] Result<void> off() const;
  [[nodiscard]] Result<void> on() const;
  [[nodiscard]] Result<void> reload() const;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::chrono::milliseconds timeout_;
};

}  // namespace headgate
