// SPDX-License-Identifier: Apache-2.0
#include "agent/web/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <list>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "agent/base/log.h"
#include "agent/base/unique_fd.h"
#include "agent/web/accept.h"

namespace headgate::web {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

bool is_address(int family, const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> binary{};
  return inet_pton(family, host.c_str(), binary.data()) == 1;
}

std::optional<std::uint16_t> parse_port(std::string_view text) {
  std::uint16_t port = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, port);
  if (error != std::errc{} || rest != end) {
    return std::nullopt;
  }
  return port;
}

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  [[nodiscard]] const sockaddr* get() const {
    return reinterpret_cast<const sockaddr*>(&storage);  // NOLINT: the socket API wants it
  }
};

SocketAddress ipv4(const std::string& host, std::uint16_t port) {
  SocketAddress address;
  auto* in = reinterpret_cast<sockaddr_in*>(&address.storage);  // NOLINT: as above
  in->sin_family = AF_INET;
  in->sin_port = htons(port);
  inet_pton(AF_INET, host.c_str(), &in->sin_addr);
  address.size = sizeof(*in);
  return address;
}

SocketAddress ipv6(const std::string& host, std::uint16_t port) {
  SocketAddress address;
  auto* in = reinterpret_cast<sockaddr_in6*>(&address.storage);  // NOLINT: as above
  in->sin6_family = AF_INET6;
  in->sin6_port = htons(port);
  inet_pton(AF_INET6, host.c_str(), &in->sin6_addr);
  address.size = sizeof(*in);
  return address;
}

/// The listening socket, or errno.
tl::expected<UniqueFd, int> listen_on(const SocketAddress& address, bool both_families) {
  UniqueFd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) {
    return tl::unexpected<int>(errno);
  }
  const int on = 1;
  const int only_ipv6 = both_families ? 0 : 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.storage.ss_family == AF_INET6) {
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only_ipv6, sizeof(only_ipv6));
  }
  if (bind(fd.get(), address.get(), address.size) != 0 || listen(fd.get(), 64) != 0) {
    return tl::unexpected<int>(errno);
  }
  return fd;
}

Result<UniqueFd> open_listener(const std::string& text) {
  const auto where = parse_listen_address(text);
  if (!where) {
    return tl::unexpected<Error>(where.error());
  }
  tl::expected<UniqueFd, int> fd = tl::unexpected<int>(0);
  if (where->host.empty()) {
    fd = listen_on(ipv6("::", where->port), true);
    if (!fd && (fd.error() == EAFNOSUPPORT || fd.error() == EADDRNOTAVAIL)) {
      fd = listen_on(ipv4("0.0.0.0", where->port), false);  // IPv6 is switched off on this host
    }
  } else if (is_address(AF_INET6, where->host)) {
    fd = listen_on(ipv6(where->host, where->port), false);
  } else {
    fd = listen_on(ipv4(where->host, where->port), false);
  }
  if (!fd) {
    return sys_fail(fd.error(), fmt::format("web.listen-address {}: cannot listen", text));
  }
  return std::move(*fd);
}

/// One client: reads a head, writes an answer, waits until the client has it.
struct Connection {
  enum class Phase : std::uint8_t { kReading, kWriting, kDraining, kDone };
  UniqueFd fd;
  Phase phase = Phase::kReading;
  Clock::time_point deadline;
  std::string in;
  std::string out;
  std::size_t sent = 0;
};

class PollServer final : public HttpServer {
 public:
  PollServer(UniqueFd listener, UniqueFd stop, Handler handler, Limits limits)
      : listener_(std::move(listener)),
        stop_(std::move(stop)),
        handler_(std::move(handler)),
        limits_(limits),
        thread_([this] { serve(); }) {}
  PollServer(const PollServer&) = delete;
  PollServer& operator=(const PollServer&) = delete;
  PollServer(PollServer&&) = delete;
  PollServer& operator=(PollServer&&) = delete;
  ~PollServer() override {
    eventfd_write(stop_.get(), 1);
    thread_.join();
  }

  [[nodiscard]] std::uint16_t port() const override {
    sockaddr_storage bound{};
    socklen_t size = sizeof(bound);
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&bound), &size);  // NOLINT: as above
    // The port stands at the same place in both families.
    return ntohs(reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);  // NOLINT: as above
  }

 private:
  using Phase = Connection::Phase;

  void serve() {
    std::vector<pollfd> fds;
    while (true) {
      fds.assign({{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}});
      for (const Connection& c : connections_) {
        fds.push_back(
            {c.fd.get(), static_cast<short>(c.phase == Phase::kWriting ? POLLOUT : POLLIN), 0});
      }
      if (poll(fds.data(), fds.size(), poll_timeout_ms()) < 0 && errno != EINTR) {
        log::error("the web server does not work any more", {{"errno", errno}});
        return;
      }
      if (fds[0].revents != 0) {
        return;
      }
      std::size_t i = 2;
      for (Connection& c : connections_) {
        if (fds[i++].revents != 0) {
          advance(c);
        }
      }
      drop_finished();
      if (fds[1].revents != 0) {
        accept_new();
      }
    }
  }

  [[nodiscard]] int poll_timeout_ms() const {
    if (connections_.empty()) {
      return -1;
    }
    const auto first = std::min_element(
        connections_.begin(), connections_.end(),
        [](const Connection& a, const Connection& b) { return a.deadline < b.deadline; });
    const auto left = std::chrono::ceil<milliseconds>(first->deadline - Clock::now());
    return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
  }

  void drop_finished() {
    const auto now = Clock::now();
    connections_.remove_if(
        [&](const Connection& c) { return c.phase == Phase::kDone || c.deadline <= now; });
  }

  void accept_new() {
    UniqueFd fd = accept_client(listener_.get());
    if (!fd) {
      return;
    }
    if (connections_.size() >= limits_.connections_max) {
      connections_.erase(std::min_element(
          connections_.begin(), connections_.end(),
          [](const Connection& a, const Connection& b) { return a.deadline < b.deadline; }));
    }
    connections_.push_back({std::move(fd), Phase::kReading, next_deadline(), {}, {}, 0});
  }

  [[nodiscard]] Clock::time_point next_deadline() const {
    return Clock::now() + limits_.client_timeout;
  }

  void advance(Connection& c) {
    switch (c.phase) {
      case Phase::kReading: read_head(c); break;
      case Phase::kWriting: write_answer(c); break;
      case Phase::kDraining: drain(c); break;
      case Phase::kDone: break;
    }
  }

  // The deadline of reading does not move: a head that comes byte by byte must come to an end, too.
  void read_head(Connection& c) {
    std::array<char, 4096> buffer{};
    const ssize_t n = recv(c.fd.get(), buffer.data(), buffer.size(), 0);
    if (n <= 0) {
      if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        c.phase = Phase::kDone;
      }
      return;
    }
    c.in.append(buffer.data(), static_cast<std::size_t>(n));
    const auto end = c.in.find("\r\n\r\n");
    if (std::min(end, c.in.size()) > limits_.head_bytes_max) {
      answer(c, {431, "the request is too large\n"}, false);
      return;
    }
    if (end == std::string::npos) {
      return;
    }
    const auto request = parse_request(std::string_view(c.in).substr(0, end));
    if (!request) {
      answer(c, {400, "this is not an HTTP/1.1 request\n"}, false);
      return;
    }
    answer(c, handler_(*request), request->method == "HEAD");
  }

  void answer(Connection& c, const HttpResponse& response, bool head_only) {
    c.in.clear();
    c.out = to_wire(response, head_only);
    c.phase = Phase::kWriting;
    c.deadline = next_deadline();
    write_answer(c);
  }

  void write_answer(Connection& c) {
    const std::string_view rest = std::string_view(c.out).substr(c.sent);
    const ssize_t n = send(c.fd.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (n < 0) {
      if (errno != EAGAIN && errno != EINTR) {
        c.phase = Phase::kDone;
      }
      return;
    }
    c.sent += static_cast<std::size_t>(n);
    c.deadline = next_deadline();
    if (c.sent == c.out.size()) {
      // Closing with unread bytes (the body of a POST) sends a RST, which may overtake the answer
      // (RFC 9112, 9.6): say that nothing follows, and read until the client closes.
      shutdown(c.fd.get(), SHUT_WR);
      c.out.clear();
      c.phase = Phase::kDraining;
      c.deadline = Clock::now() + std::min(limits_.client_timeout, milliseconds(1000));
    }
  }

  static void drain(Connection& c) {
    std::array<char, 16384> buffer{};
    const ssize_t n = recv(c.fd.get(), buffer.data(), buffer.size(), 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
      c.phase = Phase::kDone;
    }
  }

  UniqueFd listener_;
  UniqueFd stop_;
  Handler handler_;
  Limits limits_;
  std::list<Connection> connections_;  // of the thread alone
  std::thread thread_;                 // last: it uses all of the above
};

}  // namespace

Result<ListenAddress> parse_listen_address(const std::string& text) {
  const auto wrong = [&](std::string_view why) {
    return fail(fmt::format(
        "web.listen-address '{}': {}; allowed are IPV4:PORT, [IPV6]:PORT, localhost:PORT and :PORT "
        "(every address), with a port from 0 (any free one) to 65535",
        text, why));
  };
  const auto colon = text.rfind(':');
  if (colon == std::string::npos) {
    return wrong("no port");
  }
  ListenAddress address;
  address.host = text.substr(0, colon);
  const auto port = parse_port(std::string_view(text).substr(colon + 1));
  if (!port) {
    return wrong("the port is not a number from 0 to 65535");
  }
  address.port = *port;
  if (address.host == "localhost") {
    address.host = "127.0.0.1";
  } else if (address.host.size() >= 2 && address.host.front() == '[' &&
             address.host.back() == ']') {
    address.host = address.host.substr(1, address.host.size() - 2);
    if (!is_address(AF_INET6, address.host)) {
      return wrong("no IPv6 address between the brackets");
    }
  } else if (is_address(AF_INET6, address.host)) {
    return wrong("an IPv6 address stands in brackets");
  } else if (!address.host.empty() && !is_address(AF_INET, address.host)) {
    return wrong("the host is not an address");
  }
  return address;
}

Result<std::unique_ptr<HttpServer>> HttpServer::start(const std::string& listen_address,
                                                      Handler handler, Limits limits) {
  auto listener = open_listener(listen_address);
  if (!listener) {
    return tl::unexpected<Error>(listener.error());
  }
  UniqueFd stop(eventfd(0, EFD_CLOEXEC));
  if (!stop) {
    return sys_fail(errno, "web server: eventfd");
  }
  return std::make_unique<PollServer>(std::move(*listener), std::move(stop), std::move(handler),
                                      limits);
}

}  // namespace headgate::web
