// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace headgate::demo {

/// An OTLP ExportTraceServiceRequest with so many spans (opentelemetry.io/docs/specs/otlp): in JSON
/// about 390 bytes each, in protobuf about 200. The same spans for the same arguments.
[[nodiscard]] std::string otlp_trace_json(std::size_t group, std::size_t spans);
[[nodiscard]] std::string otlp_trace_protobuf(std::size_t group, std::size_t spans);

/// A message as gRPC sends it, uncompressed (grpc.io: doc/PROTOCOL-HTTP2.md,
/// "Length-Prefixed-Message").
[[nodiscard]] std::string grpc_message(const std::string& message);

}  // namespace headgate::demo
