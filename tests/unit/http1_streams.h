// SPDX-License-Identifier: Apache-2.0
// Streams of HTTP/1.1 for tests, fed in pieces.
#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/cli/stream_reader.h"

namespace headgate::test {

/// Routes "traces" (/v1/traces), "metrics" (/v1/metrics) and the exempt path /healthz.
inline cli::PortRoutes otlp_routes() {
  TargetConfig target;
  target.exempt.paths = {"/healthz"};
  EndpointConfig endpoint;
  endpoint.protocol = Protocol::kHttp;
  endpoint.routes.resize(2);
  endpoint.routes[0].name = "traces";
  endpoint.routes[0].path = "/v1/traces";
  endpoint.routes[1].name = "metrics";
  endpoint.routes[1].path = "/v1/metrics";
  return cli::routes_of(target, endpoint);
}

inline void feed(cli::StreamReader& reader, std::string_view bytes) {
  reader.feed({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
}

/// `cuts` rise and are no larger than the stream.
inline std::vector<cli::SeenRequest> read_cut(std::string_view stream,
                                              const std::vector<std::size_t>& cuts) {
  const cli::PortRoutes routes = otlp_routes();
  cli::StreamReader reader(routes);
  std::size_t from = 0;
  for (const std::size_t cut : cuts) {
    feed(reader, stream.substr(from, cut - from));
    from = cut;
  }
  feed(reader, stream.substr(from));
  return reader.requests();
}
inline std::vector<cli::SeenRequest> read_whole(std::string_view stream) {
  return read_cut(stream, {});
}
/// Each byte in a packet of its own.
inline std::vector<cli::SeenRequest> read_by_bytes(std::string_view stream) {
  std::vector<std::size_t> cuts(stream.size());
  std::iota(cuts.begin(), cuts.end(), 1);
  return read_cut(stream, cuts);
}

}  // namespace headgate::test
