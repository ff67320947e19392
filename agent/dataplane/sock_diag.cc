// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "agent/dataplane/net.h"
#include "agent/dataplane/netlink.h"

namespace headgate {
namespace {

constexpr std::uint32_t bit_of(int tcp_state) { return 1U << static_cast<unsigned>(tcp_state); }

IpAddress address_of(std::uint8_t family, const __be32 (&words)[4]) {  // NOLINT: kernel's array
  IpAddress address;
  if (family == AF_INET) {
    address.bytes[10] = address.bytes[11] = 0xff;
    std::memcpy(&address.bytes[12], words, 4);
  } else {
    std::memcpy(address.bytes.data(), words, address.bytes.size());
  }
  return address;
}

class NetlinkSockDiag final : public SockDiag {
 public:
  explicit NetlinkSockDiag(NetlinkSocket socket) : socket_(std::move(socket)) {}

  Result<std::vector<Listener>> listeners(std::uint8_t protocol, std::uint16_t port) override {
    if (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP) {
      return fail("sock_diag: protocol " + std::to_string(protocol) + " is neither TCP nor UDP");
    }
    // An unconnected UDP socket is in state CLOSE, a connected one ESTABLISHED (net/ipv4/udp.c).
    const std::uint32_t states = bit_of(protocol == IPPROTO_TCP ? TCP_LISTEN : TCP_CLOSE);
    std::vector<Listener> found;
    for (const std::uint8_t family : kFamilies) {
      std::vector<Listener> of_family;
      Result<> done = dump(
          family, protocol, states, port, [&] { of_family.clear(); },
          [&](const inet_diag_msg& socket, Bytes payload) {
            Listener listener;
            listener.address = address_of(socket.idiag_family, socket.id.idiag_src);
            listener.port = ntohs(socket.id.idiag_sport);
            listener.protocol = protocol;
            listener.inode = socket.idiag_inode;
            for_each_attribute(
                payload, sizeof(inet_diag_msg), [&](std::uint16_t type, Bytes value) {
                  if (type == INET_DIAG_SKV6ONLY) {
                    listener.ipv6_only = front_as<std::uint8_t>(value).value_or(0) != 0;
                  }
                });
            of_family.push_back(listener);
          });
      if (!done) {
        return tl::unexpected<Error>(done.error());
      }
      found.insert(found.end(), of_family.begin(), of_family.end());
    }
    return found;
  }

  Result<std::uint64_t> live_connections(std::uint16_t port, const IpAddress* address) override {
    const std::uint32_t states = bit_of(TCP_ESTABLISHED) | bit_of(TCP_CLOSE_WAIT);
    std::uint64_t total = 0;
    // An AF_INET6 socket holds IPv4 connections too, but never the other way round.
    const bool ipv6_alone = address != nullptr && !address->is_ipv4();
    for (const std::uint8_t family : kFamilies) {
      if (family == AF_INET && ipv6_alone) {
        continue;
      }
      std::uint64_t of_family = 0;
      Result<> done = dump(
          family, IPPROTO_TCP, states, port, [&] { of_family = 0; },
          [&](const inet_diag_msg& socket, Bytes) {
            if (address == nullptr ||
                address_of(socket.idiag_family, socket.id.idiag_src) == *address) {
              ++of_family;
            }
          });
      if (!done) {
        return tl::unexpected<Error>(done.error());
      }
      total += of_family;
    }
    return total;
  }

  Result<std::uint64_t> unread_bytes(std::uint16_t port) override {
    const std::uint32_t states = bit_of(TCP_ESTABLISHED) | bit_of(TCP_CLOSE_WAIT);
    std::uint64_t total = 0;
    for (const std::uint8_t family : kFamilies) {
      std::uint64_t of_family = 0;
      Result<> done = dump(
          family, IPPROTO_TCP, states, port, [&] { of_family = 0; },
          [&](const inet_diag_msg& socket, Bytes) { of_family += socket.idiag_rqueue; });
      if (!done) {
        return tl::unexpected<Error>(done.error());
      }
      total += of_family;
    }
    return total;
  }

 private:
  static constexpr std::array<std::uint8_t, 2> kFamilies{AF_INET, AF_INET6};

  Result<> dump(std::uint8_t family, std::uint8_t protocol, std::uint32_t states,
                std::uint16_t port, const std::function<void()>& begin,
                const std::function<void(const inet_diag_msg&, Bytes)>& each) {
    inet_diag_req_v2 request{};
    request.sdiag_family = family;
    request.sdiag_protocol = protocol;
    request.idiag_states = states;
    request.id.idiag_sport = htons(port);  // the kernel filters by it; 0 = any
    Result<> done = socket_.dump(SOCK_DIAG_BY_FAMILY, std::as_bytes(std::span(&request, 1)), begin,
                                 [&](const NetlinkMessage& message) {
                                   const auto socket = front_as<inet_diag_msg>(message.payload);
                                   if (message.type == SOCK_DIAG_BY_FAMILY && socket) {
                                     each(*socket, message.payload);
                                   }
                                 });
    if (!done) {
      const std::string what = std::string("sock_diag of ") +
                               (protocol == IPPROTO_TCP ? "TCP" : "UDP") +
                               (family == AF_INET ? " over IPv4" : " over IPv6");
      const std::string hint = done.error().sys_errno == ENOENT
                                   ? std::string(" (load the module ") +
                                         (protocol == IPPROTO_TCP ? "tcp_diag)" : "udp_diag)")
                                   : "";
      return tl::unexpected<Error>(done.error().within(what + hint));
    }
    return done;
  }

  NetlinkSocket socket_;
};

}  // namespace

Result<std::unique_ptr<SockDiag>> SockDiag::open(int netns_fd) {
  std::optional<NetlinkSocket> socket;
  Result<> opened = run_in_netns(netns_fd, [&]() -> Result<> {
    Result<NetlinkSocket> inside = NetlinkSocket::open(NETLINK_SOCK_DIAG, 0);
    if (!inside) {
      return tl::unexpected<Error>(inside.error());
    }
    socket = std::move(*inside);
    return {};
  });
  if (!opened) {
    return tl::unexpected<Error>(opened.error().within("open sock_diag"));
  }
  return std::make_unique<NetlinkSockDiag>(std::move(*socket));
}

}  // namespace headgate
