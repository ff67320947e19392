// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "headgate/bpf_abi.h"

namespace headgate {

/// May this path be a key of headgate_methods? In plain it has to fit; the Huffman form of a longer
/// one might, but then only some clients would be recognised.
[[nodiscard]] bool method_fits(std::string_view method);

/// The two keys under which a gRPC method (any exact path of HTTP/2) stands in headgate_methods: as
/// it is, and in the Huffman code of HPACK. Needs method_fits(). Text that grows by coding beyond
/// the key (rare octets only) has the plain form twice.
[[nodiscard]] std::array<headgate_method_key, 2> method_keys(std::uint32_t port_slot,
                                                             std::string_view method);

}  // namespace headgate
