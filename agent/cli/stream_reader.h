// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headgate/bpf_abi.h"

#include "agent/cli/http2_reader.h"
#include "agent/config/config.h"

struct headgate_stream;

namespace headgate::cli {

/// A request as the kernel sees it, or where it ceased to see any.
struct SeenRequest {
  std::uint64_t number = 0;             ///< on its connection, from 1
  std::optional<std::string> protocol;  ///< "http/1.1", "http/2"
  std::optional<std::string> route;     ///< empty: none, the port's rule
  bool exempt = false;                  ///< one of exempt.paths
  std::optional<std::string> method;
  std::optional<std::string> path;  ///< normalised; empty where its target is no path
  std::uint32_t reason = HEADGATE_UNKNOWN_NONE;
  std::uint64_t offset_bytes = 0;  ///< in the stream, of its first byte
  bool operator==(const SeenRequest&) const = default;
};

/// What the requests of a port are told apart by.
struct PortRoutes {
  struct Path {
    headgate_route_key key{};
    std::string name;
    bool exempt = false;
  };
  struct Method {
    std::string path;
    std::string name;
    bool exempt = false;
  };
  std::vector<Path> paths;      ///< HTTP/1.1
  std::vector<Method> methods;  ///< HTTP/2
  bool http1 = false;
  bool http2 = false;
};
[[nodiscard]] PortRoutes routes_of(const TargetConfig& target, const EndpointConfig& endpoint);

/// Reads one connection, client to server, with the C of the kernel (bpf/lib): the same steps, the
/// same limits, packet by packet.
class StreamReader {
 public:
  explicit StreamReader(const PortRoutes& routes);
  ~StreamReader();
  StreamReader(StreamReader&&) noexcept;
  StreamReader& operator=(StreamReader&&) = delete;
  StreamReader(const StreamReader&) = delete;
  StreamReader& operator=(const StreamReader&) = delete;

  void feed(std::span<const std::uint8_t> packet);
  /// Nothing more is read: packets are missing, or none was seen from the beginning.
  void give_up(std::uint32_t reason);
  [[nodiscard]] const std::vector<SeenRequest>& requests() const { return requests_; }
  /// Bytes at the end that are the beginning of a request, of which no more has come.
  [[nodiscard]] std::uint64_t unfinished_bytes() const;

 private:
  void feed_http1(std::span<const std::uint8_t> packet);
  void add_http1(bool whole);
  void begin_http2(std::uint64_t offset_bytes);
  void feed_http2(std::span<const std::uint8_t> packet);

  const PortRoutes* routes_;
  std::unique_ptr<headgate_stream> stream_;
  std::unique_ptr<Http2Reader> http2_;
  std::uint64_t http2_offset_ = 0;  ///< in the stream, behind the preface
  std::vector<SeenRequest> requests_;
};

}  // namespace headgate::cli
