// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent/config/config.h"
#include "agent/config/reader.h"

namespace headgate {

// What an endpoint says of its requests. `out` has its protocol and its refusal already.

/// routes:
void read_routes(Reader& reader, const Map& endpoint, EndpointConfig& out);
/// http: and grpc:, and whether the form of refusal has what it needs. After read_routes().
void read_request_forms(Reader& reader, const Map& endpoint, EndpointConfig& out);
/// exempt.paths, against the routes of the target's endpoints.
void read_exempt_paths(Reader& reader, const Map& exempt, TargetConfig& out);

/// Slots that an endpoint takes in the kernel: the port, its routes, what has none.
[[nodiscard]] std::size_t slots_of(const EndpointConfig& endpoint);

}  // namespace headgate
