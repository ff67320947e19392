// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/result.h"

#include "deploy/demo/scenario.h"

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
  std::size_t jump = 0;      ///< units in a request of 2 MB; 0 = the story has no such phase
  std::uint16_t groups = 8;  ///< requests rotate over so many groups
  Traffic traffic = Traffic::kConnections;
  std::size_t connections = 0;  ///< live ones before the first request
  std::string protocol = "http";
  std::string refuse = "reset";     ///< form of a refusal, unless the user says another
  std::vector<std::string> routes;  ///< of the endpoint, as in the configuration
  int refused_status = 0;           ///< see LoadTarget
  std::string grpc_method;          ///< see LoadTarget
  /// One whole request.
  std::function<std::string(std::size_t group, std::size_t units)> request;
  /// The same of the critical class; empty = there is no such class.
  std::function<std::string(std::size_t group, std::size_t units)> critical_request;
};

/// Debian's prometheus-pushgateway without persistence. A push replaces its group, and the gateway
/// checks the result for consistency over all groups: so the cost depends on both. With kKeepAlive
/// the clients keep their connections, and push to jobs of two classes.
[[nodiscard]] Subject pushgateway(std::string_view host, Traffic traffic = Traffic::kConnections);
/// `binary` as built from deploy/demo/otelcol, `config` its collector.yaml; OTLP/HTTP, JSON. With
/// kGrpc: OTLP/gRPC, unary calls.
[[nodiscard]] Subject otelcol(std::string_view host, std::string_view binary,
                              std::string_view config, Traffic traffic = Traffic::kConnections);

}  // namespace headgate::demo
