// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "headgate/bpf_abi.h"

namespace headgate {

/// The key of an HTTP path prefix in its normal form (normalize_path() of agent/config): as the
/// kernel writes the path of a request, with a '/' at its end, so that the longest prefix ends at a
/// border of segments. `port`: endpoint slot of the port.
[[nodiscard]] headgate_route_key route_key(std::uint32_t port, std::string_view path);

}  // namespace headgate
