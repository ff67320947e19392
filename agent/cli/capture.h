// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/result.h"

namespace headgate::cli {

/// What one client has sent to a port, in order, each byte once.
struct CapturedStream {
  std::string client;                ///< "10.0.0.1:40000", "[::1]:40000"
  bool from_start = false;           ///< its SYN is in the capture
  bool gap = false;                  ///< bytes are missing behind the last packet
  std::vector<std::string> packets;  ///< payload, as the packets came or were put in order
};

/// Does the file begin as a capture does: pcap or pcapng, in either byte order?
[[nodiscard]] bool is_capture(std::string_view file);

/// The TCP connections to `port` in a capture, in the order in which they first occur. Reads files
/// alone, and what tcpdump, Wireshark and tshark write by default: that needs a page of code, where
/// libpcap would bring a dozen shared libraries into the memory of a privileged agent.
///
/// pcap: draft-ietf-opsawg-pcap; pcapng: draft-ietf-opsawg-pcapng (interface and packet blocks).
/// Ethernet with VLAN tags, Linux cooked (v1, v2), raw IP and BSD loopback; IPv4 and IPv6.
/// Fragments of IP and IPv6 extension headers are left out.
[[nodiscard]] Result<std::vector<CapturedStream>> read_capture(std::string_view file,
                                                               std::uint16_t port);

}  // namespace headgate::cli
