// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "headgate/result.h"

#include "deploy/demo/loadgen.h"

namespace headgate::demo {

/// The requests under way. Knows nothing of when to start one: both loops of loadgen.cc drive it.
class Client {
 public:
  using Ended = std::function<void(std::size_t index)>;

  Client() = default;
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  virtual ~Client() = default;

  [[nodiscard]] virtual Result<> open() = 0;
  [[nodiscard]] virtual bool idle() const = 0;  ///< none is under way
  /// Sends request `index`, which was due at `due_ns`; what becomes of it is told in its record.
  virtual void start(std::size_t index, std::int64_t due_ns, const std::string& request) = 0;
  /// Handles what has happened and waits until `wake_ns` at most (or the next deadline).
  [[nodiscard]] virtual Result<> wait(std::int64_t wake_ns) = 0;
};

/// HTTP/1.1 with one connection a request, or on connections that are kept: `target.traffic`.
/// `target` and `records` must outlive it; `ended` may be empty.
[[nodiscard]] std::unique_ptr<Client> make_http_client(const LoadTarget& target,
                                                       std::span<Record> records,
                                                       Client::Ended ended);

/// Unary gRPC calls of `target.grpc_method` on `target.connections` connections of HTTP/2 in turn.
[[nodiscard]] std::unique_ptr<Client> make_grpc_client(const LoadTarget& target,
                                                       std::span<Record> records,
                                                       Client::Ended ended);

}  // namespace headgate::demo
