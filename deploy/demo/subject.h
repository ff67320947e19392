// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/result.h"

namespace headgate::demo {

/// A real collector and the requests that it is sent.
struct Subject {
  std::string name;   ///< "pushgateway"
  std::string title;  ///< for people, with the version where known
  std::vector<std::string> argv;
  std::vector<std::string> environment;  ///< KEY=VALUE, beside PATH
  std::uint16_t port = 0;
  std::string unit;          ///< what a request holds: "series", "spans"
  std::size_t light = 200;   ///< units in a request
  std::size_t heavy = 1000;  ///< upper end for the search of the size that costs four times
  std::uint16_t groups = 8;  ///< requests rotate over so many groups
  /// One whole HTTP/1.1 request that asks for the connection to be closed.
  std::function<std::string(std::size_t group, std::size_t units)> request;
};

/// Debian's prometheus-pushgateway without persistence. A push replaces its group, and the gateway
/// checks the result for consistency over all groups: so the cost depends on both.
[[nodiscard]] Subject pushgateway(std::string_view host);
/// `binary` as built from deploy/demo/otelcol, `config` its collector.yaml; OTLP/HTTP, JSON.
[[nodiscard]] Subject otelcol(std::string_view host, std::string_view binary,
                              std::string_view config);

/// An OTLP ExportTraceServiceRequest in JSON with so many spans of about 390 bytes
/// (opentelemetry.io/docs/specs/otlp, "JSON Protobuf Encoding").
[[nodiscard]] std::string otlp_trace_request(std::size_t group, std::size_t spans);

}  // namespace headgate::demo
