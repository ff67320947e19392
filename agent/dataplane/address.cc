// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "agent/dataplane/net.h"

namespace headgate {
namespace {

constexpr std::array<std::uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr unsigned kMappedBits = 96;

constexpr std::string_view kExamples =
    R"(write an address or a network such as "10.1.2.3", "10.9.0.0/16", "2001:db8::/32")";

bool parse_address(const std::string& text, IpAddress& address, bool& ipv4) {
  ipv4 = ::inet_pton(AF_INET, text.c_str(), &address.bytes[kMapped.size()]) == 1;
  if (ipv4) {
    std::copy(kMapped.begin(), kMapped.end(), address.bytes.begin());
    return true;
  }
  return ::inet_pton(AF_INET6, text.c_str(), address.bytes.data()) == 1;
}

IpAddress network_of(const IpAddress& address, unsigned bits) {
  IpAddress network = address;
  for (unsigned i = 0; i < network.bytes.size(); ++i) {
    const unsigned kept = bits > i * 8 ? std::min(8U, bits - i * 8) : 0;
    network.bytes[i] &= static_cast<std::uint8_t>(0xff00U >> kept);
  }
  return network;
}

IpAddress all_ipv4() {
  IpAddress address;
  std::copy(kMapped.begin(), kMapped.end(), address.bytes.begin());
  return address;
}

// In the 16-byte form IPv4 is ::ffff:0:0/96, which lies within short IPv6 prefixes of zeros.
bool holds_ipv4(const IpPrefix& prefix) {
  return prefix.bits < kMappedBits && network_of(all_ipv4(), prefix.bits) == prefix.address;
}

tl::unexpected<Error> refuse(const std::string& text, const std::string& reason) {
  return fail("\"" + text + "\" " + reason);
}

Result<IpPrefix> parse_any(const std::string& text) {
  const std::size_t slash = text.find('/');
  const std::string address_text = text.substr(0, slash);
  IpPrefix prefix;
  bool ipv4 = false;
  if (text.find('\0') != std::string::npos || !parse_address(address_text, prefix.address, ipv4)) {
    return refuse(text, "is no IP address: " + std::string(kExamples));
  }
  if (slash == std::string::npos) {
    return prefix;
  }

  const unsigned longest = ipv4 ? 32 : 128;
  const std::string length_text = text.substr(slash + 1);
  unsigned length = 0;
  const char* const end = length_text.data() + length_text.size();
  const auto [parsed_to, error] = std::from_chars(length_text.data(), end, length);
  const bool leading_zero = length_text.size() > 1 && length_text.front() == '0';
  if (error != std::errc{} || parsed_to != end || leading_zero || length > longest) {
    return refuse(text, std::string("has a bad prefix length: allowed for ") +
                            (ipv4 ? "IPv4 is 0 to 32" : "IPv6 is 0 to 128"));
  }

  prefix.bits = ipv4 ? kMappedBits + length : length;
  const IpAddress network = network_of(prefix.address, prefix.bits);
  if (network != prefix.address) {
    return refuse(text, "has bits set beyond its prefix length: write \"" + to_string(network) +
                            "/" + length_text + "\" for the network or \"" + address_text +
                            "\" for the address");
  }
  return prefix;
}

}  // namespace

bool IpAddress::is_ipv4() const {
  return std::equal(kMapped.begin(), kMapped.end(), bytes.begin());
}

bool IpAddress::is_any() const {
  const auto zero = [](std::uint8_t b) { return b == 0; };
  return std::all_of(bytes.begin() + kMapped.size(), bytes.end(), zero) &&
         (is_ipv4() || std::all_of(bytes.begin(), bytes.begin() + kMapped.size(), zero));
}

bool IpAddress::is_loopback() const {
  if (is_ipv4()) {
    return bytes[kMapped.size()] == 127;  // 127.0.0.0/8, RFC 1122 section 3.2.1.3
  }
  IpAddress one;  // ::1, RFC 4291 section 2.5.3
  one.bytes.back() = 1;
  return *this == one;
}

std::string to_string(const IpAddress& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.is_ipv4()) {
    ::inet_ntop(AF_INET, &address.bytes[kMapped.size()], text.data(), text.size());
  } else {
    ::inet_ntop(AF_INET6, address.bytes.data(), text.data(), text.size());
  }
  return text.data();
}

Result<IpPrefix> parse_prefix(const std::string& text) {
  Result<IpPrefix> prefix = parse_any(text);
  if (prefix && holds_ipv4(*prefix)) {
    return refuse(text,
                  "would take in every IPv4 address too: write \"0.0.0.0/0\" for those, and "
                  "\"2000::/3\", \"fc00::/7\", \"fe80::/10\" for IPv6");
  }
  return prefix;
}

Result<std::vector<IpPrefix>> parse_prefixes(const std::string& text) {
  const Result<IpPrefix> whole = parse_any(text);
  if (!whole) {
    return tl::unexpected<Error>(whole.error());
  }
  if (!holds_ipv4(*whole)) {
    return std::vector<IpPrefix>{*whole};
  }
  // On the way down to ::ffff:0:0/96 each bit leaves one half behind: those are the parts.
  std::vector<IpPrefix> parts;
  for (unsigned bits = whole->bits + 1; bits <= kMappedBits; ++bits) {
    IpPrefix part{network_of(all_ipv4(), bits), bits};
    part.address.bytes[(bits - 1) / 8] ^= static_cast<std::uint8_t>(0x80U >> ((bits - 1) % 8));
    parts.push_back(part);
  }
  return parts;
}

}  // namespace headgate
