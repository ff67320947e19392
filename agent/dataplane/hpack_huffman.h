// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace headgate {

/// `text` in the Huffman code of HPACK (RFC 7541, 5.2 and appendix B), padded with ones to an
/// octet. There is one such form of each string.
[[nodiscard]] std::string hpack_huffman(std::string_view text);

/// The reverse; nothing where `octets` are not of that code, or badly padded.
[[nodiscard]] std::optional<std::string> hpack_huffman_decode(std::string_view octets);

}  // namespace headgate
