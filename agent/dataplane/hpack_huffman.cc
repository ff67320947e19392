// SPDX-License-Identifier: Apache-2.0
#include "agent/dataplane/hpack_huffman.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace headgate {
namespace {

/// Bits of the code of each octet, by RFC 7541 appendix B. The code is canonical: codes of one
/// length follow one another in the order of their octets, so the lengths say everything.
constexpr std::array<std::uint8_t, 256> kCodeBits = {
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,  // 0x00
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,  // 0x10
    6,  10, 10, 12, 13, 6,  8,  11, 10, 10, 8,  11, 8,  6,  6,  6,   // 0x20: space to /
    5,  5,  5,  6,  6,  6,  6,  6,  6,  6,  7,  8,  15, 6,  12, 10,  // 0x30: 0 to ?
    13, 6,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,   // 0x40: @ to O
    7,  7,  7,  7,  7,  7,  7,  7,  8,  7,  8,  13, 19, 13, 14, 6,   // 0x50: P to _
    15, 5,  6,  5,  6,  5,  6,  6,  6,  5,  7,  7,  6,  6,  6,  5,   // 0x60: ` to o
    6,  7,  6,  5,  5,  6,  7,  7,  7,  7,  7,  15, 11, 14, 13, 28,  // 0x70: p to DEL
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,  // 0x80
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,  // 0x90
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,  // 0xa0
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,  // 0xb0
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,  // 0xc0
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,  // 0xd0
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,  // 0xe0
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,  // 0xf0
};

constexpr std::array<std::uint32_t, 256> codes() {
  std::array<std::uint32_t, 256> out{};
  std::uint32_t next = 0;
  for (unsigned bits = 1; bits <= 30; ++bits) {
    next <<= 1U;
    for (std::size_t octet = 0; octet < out.size(); ++octet) {
      if (kCodeBits[octet] == bits) {
        out[octet] = next++;
      }
    }
  }
  return out;
}

constexpr std::array<std::uint32_t, 256> kCodes = codes();

}  // namespace

std::string hpack_huffman(std::string_view text) {
  std::string out;
  std::uint64_t held = 0;  // the last `bits` bits are still to be written
  unsigned bits = 0;
  for (const char c : text) {
    const auto octet = static_cast<std::uint8_t>(c);
    held = held << kCodeBits[octet] | kCodes[octet];
    bits += kCodeBits[octet];
    while (bits >= 8) {
      bits -= 8;
      out.push_back(static_cast<char>(held >> bits & 0xffU));
    }
  }
  if (bits > 0) {
    const unsigned padding = 8 - bits;
    out.push_back(static_cast<char>((held << padding | ((1U << padding) - 1)) & 0xffU));
  }
  return out;
}

std::optional<std::string> hpack_huffman_decode(std::string_view octets) {
  std::string out;
  std::uint32_t held = 0;  // the last `bits` bits belong to no octet yet
  unsigned bits = 0;
  for (const char c : octets) {
    for (unsigned i = 8; i-- > 0;) {
      held = held << 1U | (static_cast<std::uint8_t>(c) >> i & 1U);
      ++bits;
      for (std::size_t octet = 0; octet < kCodes.size(); ++octet) {
        if (kCodeBits[octet] == bits && kCodes[octet] == held) {
          out.push_back(static_cast<char>(octet));
          held = bits = 0;
          break;
        }
      }
      if (bits == 30) {
        return std::nullopt;  // "end of string", which is no octet
      }
    }
  }
  const bool padded = bits < 8 && held == (1U << bits) - 1;
  return padded ? std::optional(std::move(out)) : std::nullopt;
}

}  // namespace headgate
