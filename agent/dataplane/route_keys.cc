// SPDX-License-Identifier: Apache-2.0
#include "agent/dataplane/route_keys.h"

#include <algorithm>
#include <cstring>

namespace headgate {

headgate_route_key route_key(std::uint32_t port, std::string_view path) {
  headgate_route_key out{};
  const std::size_t bytes = std::min<std::size_t>(path.size(), HEADGATE_ROUTE_PATH_BYTES - 1);
  std::memcpy(out.path, path.data(), bytes);
  std::size_t used = bytes;
  if (path != "/") {
    out.path[used++] = '/';
  }
  out.port = port;
  out.prefix_bits = static_cast<__u32>(32 + 8 * used);
  return out;
}

}  // namespace headgate
