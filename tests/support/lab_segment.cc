// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "tests/support/net_lab.h"

namespace headgate::lab {
namespace {

std::uint32_t sum_words(const std::uint8_t* data, std::size_t length, std::uint32_t sum) {
  for (std::size_t i = 0; i < length; i += 2) {
    const std::uint32_t low = i + 1 < length ? data[i + 1] : 0U;
    sum += (static_cast<std::uint32_t>(data[i]) << 8) + low;
  }
  return sum;
}

// RFC 9293 section 3.1: over a pseudo header, the header and the payload.
std::uint16_t checksum_ipv4(const in_addr& from, const in_addr& to,
                            const std::vector<std::uint8_t>& segment) {
  std::uint32_t sum = sum_words(reinterpret_cast<const std::uint8_t*>(&from), 4, 0);
  sum = sum_words(reinterpret_cast<const std::uint8_t*>(&to), 4, sum);
  sum += IPPROTO_TCP + static_cast<std::uint32_t>(segment.size());
  sum = sum_words(segment.data(), segment.size(), sum);
  while (sum >> 16 != 0) {
    sum = (sum & 0xffff) + (sum >> 16);
  }
  return static_cast<std::uint16_t>(~sum);
}

std::uint8_t flags_of(const tcphdr& header) {
  std::uint8_t flags = 0;
  std::memcpy(&flags, reinterpret_cast<const char*>(&header) + 13, 1);
  return flags;
}

std::uint8_t exchange(const Segment& segment, std::chrono::milliseconds wait) {
  const bool ipv6 = segment.source.find(':') != std::string::npos;
  const int family = ipv6 ? AF_INET6 : AF_INET;
  sockaddr_storage from{};
  sockaddr_storage to{};
  auto* from4 = reinterpret_cast<sockaddr_in*>(&from);
  auto* to4 = reinterpret_cast<sockaddr_in*>(&to);
  auto* from6 = reinterpret_cast<sockaddr_in6*>(&from);
  auto* to6 = reinterpret_cast<sockaddr_in6*>(&to);
  from.ss_family = to.ss_family = static_cast<sa_family_t>(family);
  void* from_bytes = ipv6 ? static_cast<void*>(&from6->sin6_addr) : &from4->sin_addr;
  void* to_bytes = ipv6 ? static_cast<void*>(&to6->sin6_addr) : &to4->sin_addr;
  if (::inet_pton(family, segment.source.c_str(), from_bytes) != 1 ||
      ::inet_pton(family, segment.destination.c_str(), to_bytes) != 1) {
    throw SetupError(segment.source + " or " + segment.destination + " is no address");
  }
  const socklen_t length = ipv6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);

  const UniqueFd fd(::socket(family, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_TCP));
  const int checksum_offset = offsetof(tcphdr, check);
  if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&from), length) != 0 ||
      (ipv6 && ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_CHECKSUM, &checksum_offset,
                            sizeof(checksum_offset)) != 0)) {
    throw SetupError("raw socket on " + segment.source + ": " + std::strerror(errno));
  }

  tcphdr header{};
  header.source = htons(segment.source_port);
  header.dest = htons(segment.destination_port);
  header.seq = htonl(segment.sequence);
  header.ack_seq = htonl(segment.acknowledgment);
  header.doff = sizeof(header) / 4;
  header.window = htons(1024);
  std::vector<std::uint8_t> packet(sizeof(header) + segment.payload.size());
  std::memcpy(packet.data(), &header, sizeof(header));
  packet[13] = segment.flags;
  std::memcpy(packet.data() + sizeof(header), segment.payload.data(), segment.payload.size());
  if (!ipv6) {
    const std::uint16_t sum = checksum_ipv4(from4->sin_addr, to4->sin_addr, packet);
    packet[16] = static_cast<std::uint8_t>(sum >> 8);
    packet[17] = static_cast<std::uint8_t>(sum & 0xff);
  }
  if (::sendto(fd.get(), packet.data(), packet.size(), 0, reinterpret_cast<const sockaddr*>(&to),
               length) != static_cast<ssize_t>(packet.size())) {
    throw SetupError("send a segment to " + segment.destination + ": " + std::strerror(errno));
  }

  const auto end = std::chrono::steady_clock::now() + wait;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    pollfd waiting{fd.get(), POLLIN, 0};
    if (left.count() <= 0 || ::poll(&waiting, 1, static_cast<int>(left.count())) <= 0) {
      return 0;
    }
    std::array<char, 2048> data{};
    const ssize_t got = ::recv(fd.get(), data.data(), data.size(), 0);
    // A raw IPv4 socket delivers the IP header too, an IPv6 one does not (raw(7), ipv6(7)).
    std::size_t offset = 0;
    if (!ipv6 && got > 0) {
      ip ip_header{};
      std::memcpy(&ip_header, data.data(), sizeof(ip_header));
      offset = static_cast<std::size_t>(ip_header.ip_hl) * 4;
    }
    if (got < static_cast<ssize_t>(offset + sizeof(tcphdr))) {
      continue;
    }
    tcphdr answer{};
    std::memcpy(&answer, data.data() + offset, sizeof(answer));
    if (answer.source == header.dest && answer.dest == header.source) {
      return flags_of(answer);
    }
  }
}

}  // namespace

std::uint8_t send_segment(const Namespace& netns, const Segment& segment,
                          std::chrono::milliseconds wait) {
  return netns.get<std::uint8_t>([&] { return exchange(segment, wait); });
}

}  // namespace headgate::lab
