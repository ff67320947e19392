// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "agent/dataplane/net.h"

#ifndef IPV6_FREEBIND
#define IPV6_FREEBIND 78  // linux/in6.h, since 4.15; absent from glibc's netinet/in.h
#endif

namespace headgate {
namespace {

constexpr std::uint32_t kFirstPort = 61000;  // above the default local port range (ip(7))
constexpr std::uint32_t kLastPort = 65535;
constexpr std::uint32_t kFirstUnprivileged = 1024;

// On a TCP socket a classic filter begins at the TCP header (tcp_filter() in net/ipv4/tcp_ipv4.c);
// byte 13 holds the flags (RFC 9293 section 3.1). SYN without ACK is dropped before any state is
// made. Everything else goes on to the listener, which answers a stray segment by RST. A listener
// that saw no SYN never sent a SYN cookie either, so that no ACK can open a connection here.
constexpr std::uint32_t kSyn = 0x02;
constexpr std::uint32_t kSynAck = 0x12;
std::array<sock_filter, 5> drop_syn() {
  return {{{BPF_LD | BPF_B | BPF_ABS, 0, 0, 13},
           {BPF_ALU | BPF_AND | BPF_K, 0, 0, kSynAck},
           {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, kSyn},
           {BPF_RET | BPF_K, 0, 0, 0},
           {BPF_RET | BPF_K, 0, 0, 0xffffffff}}};
}

struct PortRange {
  std::uint32_t low = 32768;
  std::uint32_t high = 60999;
};

// Of the namespace of the calling thread: /proc/sys/net shows each task its own.
PortRange local_port_range() {
  PortRange range;
  const UniqueFd fd(::open("/proc/sys/net/ipv4/ip_local_port_range", O_RDONLY | O_CLOEXEC));
  std::array<char, 64> text{};
  if (fd && ::read(fd.get(), text.data(), text.size() - 1) > 0) {
    PortRange read;
    if (std::sscanf(text.data(), "%u %u", &read.low, &read.high) == 2) {  // NOLINT: two numbers
      range = read;
    }
  }
  return range;
}

// Ports to try, best first: above the range that the kernel hands out to clients, else below it,
// else (the range is everything) any high one, which a bind proves to be free.
std::vector<std::uint16_t> candidate_ports(PortRange range) {
  std::vector<std::uint16_t> ports;
  for (std::uint32_t port = std::max(kFirstPort, range.high + 1); port <= kLastPort; ++port) {
    ports.push_back(static_cast<std::uint16_t>(port));
  }
  for (std::uint32_t port = std::min(range.low, kFirstPort); port-- > kFirstUnprivileged;) {
    ports.push_back(static_cast<std::uint16_t>(port));
  }
  for (std::uint32_t port = kFirstPort; ports.empty() && port <= kLastPort; ++port) {
    ports.push_back(static_cast<std::uint16_t>(port));
  }
  return ports;
}

struct Mouth {
  UniqueFd fd;
  std::uint16_t port = 0;
};

Result<> set_option(int fd, int level, int option, int value, std::string_view what) {
  if (::setsockopt(fd, level, option, &value, sizeof(value)) != 0) {
    return sys_fail(errno, what);
  }
  return {};
}

Result<> prepare(int fd, int family) {
  std::array<sock_filter, 5> code = drop_syn();
  const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  if (::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) != 0) {
    return sys_fail(errno, "attach the filter");
  }
  if (Result<> locked = set_option(fd, SOL_SOCKET, SO_LOCK_FILTER, 1, "lock the filter"); !locked) {
    return locked;
  }
  // Free bind: loopback has no address before it is up, and the address plays no part anyway.
  if (family == AF_INET) {
    return set_option(fd, IPPROTO_IP, IP_FREEBIND, 1, "set IP_FREEBIND");
  }
  if (Result<> only = set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1, "set IPV6_V6ONLY"); !only) {
    return only;
  }
  return set_option(fd, IPPROTO_IPV6, IPV6_FREEBIND, 1, "set IPV6_FREEBIND");
}

int bind_loopback(int fd, int family, std::uint16_t port) {
  if (family == AF_INET) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  }
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  address.sin6_addr = IN6ADDR_LOOPBACK_INIT;
  return ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
}

// In the namespace of the calling thread. No fd: the address family is not there.
Result<Mouth> open_mouth(int family, const std::vector<std::uint16_t>& ports) {
  for (const std::uint16_t port : ports) {
    // A socket for each try: after a bind that failed late (listen) it would keep the port.
    Mouth mouth{UniqueFd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)), port};
    if (!mouth.fd) {
      if (errno == EAFNOSUPPORT) {
        return Mouth{};
      }
      return sys_fail(errno, "open a socket");
    }
    if (Result<> ready = prepare(mouth.fd.get(), family); !ready) {
      return tl::unexpected<Error>(ready.error());
    }
    if (bind_loopback(mouth.fd.get(), family, port) != 0) {
      if (errno == EADDRINUSE) {
        continue;
      }
      if (errno == EADDRNOTAVAIL || errno == EAFNOSUPPORT) {
        return Mouth{};
      }
      return sys_fail(errno, "bind to loopback port " + std::to_string(port));
    }
    if (::listen(mouth.fd.get(), SOMAXCONN) != 0) {
      if (errno == EADDRINUSE) {
        continue;
      }
      return sys_fail(errno, "listen on loopback port " + std::to_string(port));
    }
    return mouth;
  }
  return sys_fail(EADDRINUSE, "find a free port on loopback");
}

class ListeningPit final : public Pit {
 public:
  ListeningPit(Mouth ipv4, Mouth ipv6) : ipv4_(std::move(ipv4)), ipv6_(std::move(ipv6)) {}
  [[nodiscard]] int ipv4_fd() const override { return ipv4_.fd.get(); }
  [[nodiscard]] int ipv6_fd() const override { return ipv6_.fd.get(); }
  [[nodiscard]] std::uint16_t ipv4_port() const override { return ipv4_.fd ? ipv4_.port : 0; }
  [[nodiscard]] std::uint16_t ipv6_port() const override { return ipv6_.fd ? ipv6_.port : 0; }

 private:
  Mouth ipv4_;
  Mouth ipv6_;
};

}  // namespace

Result<std::unique_ptr<Pit>> Pit::open(int netns_fd) {
  Mouth ipv4;
  Mouth ipv6;
  Result<> opened = run_in_netns(netns_fd, [&]() -> Result<> {
    const std::vector<std::uint16_t> ports = candidate_ports(local_port_range());
    for (const auto& [family, mouth] : {std::pair{AF_INET, &ipv4}, std::pair{AF_INET6, &ipv6}}) {
      Result<Mouth> made = open_mouth(family, ports);
      if (!made) {
        return tl::unexpected<Error>(made.error().within(family == AF_INET ? "IPv4" : "IPv6"));
      }
      *mouth = std::move(*made);
    }
    return {};
  });
  if (!opened) {
    return tl::unexpected<Error>(opened.error().within("open the pit"));
  }
  if (!ipv4.fd && !ipv6.fd) {
    return fail("open the pit: the network namespace has neither IPv4 nor IPv6");
  }
  return std::make_unique<ListeningPit>(std::move(ipv4), std::move(ipv6));
}

}  // namespace headgate
