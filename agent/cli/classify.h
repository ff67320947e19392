// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/result.h"
#include "headgate/strategy.h"

#include "agent/cli/options.h"
#include "agent/cli/stream_reader.h"

namespace headgate {

/// `headgate classify`: which route each request of a byte stream or capture belongs to, as the
/// kernel would say; 0 done, 1 the file cannot be read, 2 no such port or the configuration is not
/// valid.
int run_classify(const ClassifyOptions& options, std::span<const StrategyInfo> strategies,
                 std::ostream& out, std::ostream& err);

namespace cli {

/// One connection and what was seen on it.
struct Classified {
  std::string client;  ///< empty: a byte stream
  std::vector<SeenRequest> requests;
  std::uint64_t unfinished_bytes = 0;
};

/// `file`: a byte stream, cut into packets before the bytes with these numbers, or a capture, of
/// which the connections to `port` are read. Pure.
[[nodiscard]] Result<std::vector<Classified>> classify(std::string_view file, std::uint16_t port,
                                                       const std::vector<std::uint64_t>& cuts,
                                                       const PortRoutes& routes);

/// {schema, request, protocol, route, method, path, reason, offset_bytes} and `exempt`; `client`
/// too where it came from a capture. Pure.
[[nodiscard]] std::string classified_json(const std::string& client, const SeenRequest& request);

}  // namespace cli
}  // namespace headgate
