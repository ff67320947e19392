// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace headgate {

/// An IPv4 or IPv6 network in the one form that is kept: "10.9.0.0/16".
struct Network {
  std::string text;         ///< bits behind the prefix are cleared; empty = not a network
  bool host_bits = false;   ///< there were such bits
  bool everything = false;  ///< the prefix is 0
};
/// "ADDRESS/PREFIX", or "ADDRESS" for a single one.
[[nodiscard]] Network parse_network(std::string_view text);

}  // namespace headgate
