// SPDX-License-Identifier: Apache-2.0
#include "agent/config/network.h"

#include <arpa/inet.h>

#include <array>

#include <fmt/format.h>

#include "agent/config/quantity.h"

namespace headgate {

Network parse_network(std::string_view text) {
  const std::size_t slash = text.find('/');
  const std::string address(text.substr(0, slash));
  const int family = address.find(':') != std::string::npos ? AF_INET6 : AF_INET;
  const unsigned bits = family == AF_INET6 ? 128 : 32;
  std::array<unsigned char, 16> bytes{};
  if (::inet_pton(family, address.c_str(), bytes.data()) != 1) {
    return {};
  }
  unsigned prefix = bits;
  if (slash != std::string_view::npos) {
    const auto number = parse_integer(text.substr(slash + 1));
    if (!number || number->scientific || number->value > bits) {
      return {};
    }
    prefix = static_cast<unsigned>(number->value);
  }
  Network out;
  for (unsigned bit = prefix; bit < bits; ++bit) {
    const auto mask = static_cast<unsigned char>(0x80U >> (bit % 8));
    out.host_bits = out.host_bits || (bytes[bit / 8] & mask) != 0;
    bytes[bit / 8] = static_cast<unsigned char>(bytes[bit / 8] & ~mask);
  }
  std::array<char, INET6_ADDRSTRLEN> canonical{};
  ::inet_ntop(family, bytes.data(), canonical.data(), canonical.size());
  out.text = fmt::format("{}/{}", canonical.data(), prefix);
  out.everything = prefix == 0;
  return out;
}

}  // namespace headgate
