// SPDX-License-Identifier: Apache-2.0
#include "tests/support/server_loop.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <unordered_map>

#include "agent/base/unique_fd.h"

namespace headgate::lab {
namespace {

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
  int family = AF_UNSPEC;
};

Address parse(const std::string& text, std::uint16_t port) {
  Address address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (::inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    address.family = AF_INET;
    address.length = sizeof(sockaddr_in);
  } else if (::inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    address.family = AF_INET6;
    address.length = sizeof(sockaddr_in6);
  }
  return address;
}

UniqueFd open_socket(const ServerOptions& options, std::uint16_t& port) {
  const Address address = parse(options.address, options.port);
  UniqueFd fd(::socket(address.family,
                       (options.udp ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int one = 1;
  const int only = options.ipv6_only ? 1 : 0;
  const int receive_bytes = 8 << 20;
  if (!fd ||
      (!options.udp && ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0) ||
      (address.family == AF_INET6 &&
       ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only)) != 0) ||
      (options.udp && ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUFFORCE, &receive_bytes,
                                   sizeof(receive_bytes)) != 0) ||
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0 ||
      (!options.udp && ::listen(fd.get(), options.backlog) != 0)) {
    return {};
  }
  Address bound;
  bound.length = sizeof(bound.storage);
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound.storage), &bound.length) != 0) {
    return {};
  }
  // sin_port and sin6_port lie at the same place.
  port = ntohs(reinterpret_cast<const sockaddr_in*>(&bound.storage)->sin_port);
  return fd;
}

/// Burns CPU time of this thread.
void work(unsigned microseconds) {
  const auto used_ns = [] {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
  };
  if (microseconds == 0) {
    return;
  }
  const std::int64_t until_ns = used_ns() + 1000LL * microseconds;
  while (used_ns() < until_ns) {
  }
}

class Loop {
 public:
  Loop(const ServerOptions& options, ServerCounters& counters)
      : options_(options), counters_(counters), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {}

  bool run(int stop_fd) {
    std::uint16_t port = 0;
    listener_ = open_socket(options_, port);
    if (!listener_ || !watch(listener_.get(), EPOLLIN) || !watch(stop_fd, EPOLLIN)) {
      counters_.sys_errno = errno != 0 ? errno : EINVAL;
      return false;
    }
    counters_.port = port;
    bool running = true;
    while (running) {
      std::array<epoll_event, 64> events{};
      const int ready =
          ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), -1);
      if (ready < 0 && errno != EINTR) {
        break;
      }
      for (int i = 0; i < ready; ++i) {
        const int fd = events[static_cast<std::size_t>(i)].data.fd;
        if (fd == stop_fd) {
          running = false;
        } else if (fd != listener_.get()) {
          echo(fd);
        } else if (options_.udp) {
          take_datagrams();
        } else {
          accept_all();
        }
      }
    }
    counters_.port = 0;
    counters_.closed += connections_.size();
    return true;
  }

 private:
  bool watch(int fd, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  }

  void accept_all() {
    while (true) {
      UniqueFd connection(
          ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!connection) {
        if (errno == EINTR || errno == ECONNABORTED) {
          continue;
        }
        return;
      }
      if (options_.mode == ServerMode::kClose) {
        // Counted before it can be seen closed, so that a client that saw it finds it counted.
        ++counters_.accepted;
        ++counters_.closed;
        continue;
      }
      ++counters_.accepted;
      const int fd = connection.get();
      if (options_.mode != ServerMode::kHold) {
        watch(fd, EPOLLIN);
      }
      connections_.emplace(fd, std::move(connection));
    }
  }

  void echo(int fd) {
    std::array<char, 4096> data;
    while (true) {
      const ssize_t got = ::recv(fd, data.data(), data.size(), 0);
      if (got > 0) {
        counters_.received_bytes += static_cast<std::uint64_t>(got);
        work(options_.work_us);
        std::string_view answer(data.data(), static_cast<std::size_t>(got));
        if (options_.mode == ServerMode::kSay) {
          const std::size_t mark = answer.rfind('>');
          answer = mark == answer.npos ? "" : answer.substr(mark + 1);
        }
        // Small messages only: what does not fit into the send buffer is a test's mistake.
        if (!answer.empty()) {
          (void)::send(fd, answer.data(), answer.size(), MSG_NOSIGNAL);
        }
        continue;
      }
      if (got < 0 && errno == EINTR) {
        continue;
      }
      if (got < 0 && errno == EAGAIN) {
        return;
      }
      connections_.erase(fd);  // closes it, and with that epoll forgets it
      ++counters_.closed;
      return;
    }
  }

  void take_datagrams() {
    std::array<char, 65536> data;
    while (true) {
      const ssize_t got = ::recv(listener_.get(), data.data(), data.size(), 0);
      if (got < 0) {
        if (errno == EINTR) {
          continue;
        }
        return;
      }
      ++counters_.datagrams;
      counters_.received_bytes += static_cast<std::uint64_t>(got);
    }
  }

  const ServerOptions& options_;
  ServerCounters& counters_;
  UniqueFd epoll_;
  UniqueFd listener_;
  std::unordered_map<int, UniqueFd> connections_;
};

}  // namespace

bool serve(const ServerOptions& options, ServerCounters& counters, int stop_fd) {
  errno = 0;
  return Loop(options, counters).run(stop_fd);
}

}  // namespace headgate::lab
