// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "headgate/bpf_abi.h"

namespace headgate {

/// Longest path of a route: its key in the kernel ends with one more '/'.
inline constexpr std::size_t kRoutePathMax = HEADGATE_ROUTE_PATH_BYTES - 1;

/// A path as the kernel compares it, or why it is none.
struct RoutePath {
  std::string path;
  std::string problem;  ///< not empty: what is wrong, as the end of a sentence
};

/// The form to which bpf/lib/http1.h brings the path of a request before it looks it up (RFC 3986,
/// sections 6.2.2 and 6.2.3): no empty or "." segment, no trailing '/', unreserved octets decoded,
/// the digits of other %XX in capitals. A query, a fragment, a ".." segment, a bad %XX and octets
/// that no URI has are problems.
[[nodiscard]] RoutePath normalize_path(std::string_view text);

/// "/package.Service/Method": names of Protocol Buffers, dots between those of the package.
[[nodiscard]] bool is_grpc_method(std::string_view text);

/// Methods that are known to take exactly one message a call: the Export of OTLP's services.
[[nodiscard]] bool is_known_unary(std::string_view method);

}  // namespace headgate
