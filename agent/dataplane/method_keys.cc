// SPDX-License-Identifier: Apache-2.0
#include "agent/dataplane/method_keys.h"

#include <algorithm>
#include <string>

#include "agent/dataplane/hpack_huffman.h"

namespace headgate {
namespace {

headgate_method_key key_of(std::uint32_t port_slot, std::string_view octets, bool huffman) {
  headgate_method_key key{};
  key.port = port_slot;
  key.bytes = static_cast<std::uint16_t>(octets.size());
  key.huffman = huffman ? 1 : 0;
  std::copy(octets.begin(), octets.end(), std::begin(key.path));
  return key;
}

}  // namespace

bool method_fits(std::string_view method) {
  return !method.empty() && method.size() <= HEADGATE_ROUTE_PATH_BYTES;
}

std::array<headgate_method_key, 2> method_keys(std::uint32_t port_slot, std::string_view method) {
  const headgate_method_key plain = key_of(port_slot, method, false);
  const std::string coded = hpack_huffman(method);
  return {plain, method_fits(coded) ? key_of(port_slot, coded, true) : plain};
}

}  // namespace headgate
