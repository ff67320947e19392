// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "headgate/result.h"

#include "agent/base/unique_fd.h"

namespace headgate {

/// An address as the kernel programs see it: 16 bytes in network order, IPv4 as ::ffff:a.b.c.d.
struct IpAddress {
  std::array<std::uint8_t, 16> bytes{};
  [[nodiscard]] bool is_any() const;  ///< :: or ::ffff:0.0.0.0
  [[nodiscard]] bool is_ipv4() const;
  [[nodiscard]] bool is_loopback() const;
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes the operator's own 0 for a pointer
  auto operator<=>(const IpAddress&) const = default;
};
[[nodiscard]] std::string to_string(const IpAddress& address);

/// A network: address and prefix length in bits of the 16-byte form (IPv4 /16 = 96 + 16).
struct IpPrefix {
  IpAddress address;
  unsigned bits = 128;  ///< [0, 128]; host bits of the address are 0
  // NOLINTNEXTLINE(modernize-use-nullptr): as above
  auto operator<=>(const IpPrefix&) const = default;
};
/// "10.9.0.0/16", "2001:db8::/32", "10.1.2.3". Errors say what is allowed. An IPv6 network
/// that would take in all of IPv4 in this form ("::/0") is an error here: see parse_prefixes.
[[nodiscard]] Result<IpPrefix> parse_prefix(const std::string& text);
/// The same, for sets of prefixes: "::/0" and other IPv6 networks that hold ::ffff:0:0/96 come back
/// as all their parts but that one, so that they never take in IPv4. Else one prefix.
[[nodiscard]] Result<std::vector<IpPrefix>> parse_prefixes(const std::string& text);

/// Runs `work` on a thread of its own inside the network namespace of `netns_fd` (setns(2) with
/// CLONE_NEWNET only: a new mount of sysfs would hide bpffs). The caller's thread never moves.
[[nodiscard]] Result<> run_in_netns(int netns_fd, const std::function<Result<>()>& work);

/// A listening TCP socket or an unconnected UDP one.
struct Listener {
  IpAddress address;
  std::uint16_t port = 0;
  std::uint8_t protocol = 0;  ///< IPPROTO_TCP or IPPROTO_UDP
  bool ipv6_only = false;     ///< an AF_INET6 socket that takes no IPv4
  std::uint32_t inode = 0;    ///< of the socket, as in /proc/PID/fd
};

/// sock_diag(7) in one network namespace. Holds one netlink socket that was opened inside it.
class SockDiag {
 public:
  [[nodiscard]] static Result<std::unique_ptr<SockDiag>> open(int netns_fd);
  virtual ~SockDiag() = default;
  /// Listeners on `port`; 0 = all ports.
  [[nodiscard]] virtual Result<std::vector<Listener>> listeners(std::uint8_t protocol,
                                                                std::uint16_t port) = 0;
  /// Connections whose local port is `port` and that the server still holds (ESTABLISHED and
  /// CLOSE_WAIT); `address`: only those on it, nullptr = any.
  [[nodiscard]] virtual Result<std::uint64_t> live_connections(std::uint16_t port,
                                                               const IpAddress* address) = 0;
  /// Bytes that connections on this local port have received and their server has not read
  /// (Recv-Q).
  [[nodiscard]] virtual Result<std::uint64_t> unread_bytes(std::uint16_t port) = 0;
};

/// The node's own addresses (all interfaces, IPv4 and IPv6, secondary ones, no loopback), kept
/// current by rtnetlink(7) in the namespace where it was opened.
class NodeAddresses {
 public:
  [[nodiscard]] static Result<std::unique_ptr<NodeAddresses>> open();
  virtual ~NodeAddresses() = default;
  [[nodiscard]] virtual const std::vector<IpAddress>& addresses() const = 0;
  /// Reads what netlink has to say without waiting; true = the list has changed. A lost message
  /// (ENOBUFS) makes it read everything anew.
  virtual bool refresh() = 0;
};

/// Two listening sockets (IPv4, IPv6) inside a namespace that swallow SYNs and nothing else: a
/// deferred SYN is steered to them. Bound to loopback, port above the local port range and unused
/// (61000+); a locked classic filter drops SYN without ACK before any state is made and lets every
/// other segment through, so that strays still get their RST. Holds the namespace alive: close it
/// when the target goes.
class Pit {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Pit>> open(int netns_fd);
  virtual ~Pit() = default;
  [[nodiscard]] virtual int ipv4_fd() const = 0;  ///< -1: no IPv4 there
  [[nodiscard]] virtual int ipv6_fd() const = 0;  ///< -1: no IPv6 there
  [[nodiscard]] virtual std::uint16_t ipv4_port() const = 0;
  [[nodiscard]] virtual std::uint16_t ipv6_port() const = 0;
};

}  // namespace headgate
