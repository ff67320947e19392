// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

/// The wire format of protocol buffers, written:
/// https://protobuf.dev/programming-guides/encoding
namespace headgate::test::wire {

inline std::string varint(std::uint64_t value) {
  std::string out;
  while (value >= 0x80) {
    out += static_cast<char>((value & 0x7fU) | 0x80U);
    value >>= 7U;
  }
  return out + static_cast<char>(value);
}
inline std::string number(unsigned field, std::uint64_t value) {
  return varint(field << 3U) + varint(value);
}
inline std::string bytes(unsigned field, const std::string& value) {
  return varint(field << 3U | 2U) + varint(value.size()) + value;
}
/// Of a map from text to text.
inline std::string entry(unsigned field, const std::string& key, const std::string& value) {
  return bytes(field, bytes(1, key) + bytes(2, value));
}

}  // namespace headgate::test::wire
