// SPDX-License-Identifier: Apache-2.0
#include "deploy/demo/net.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <charconv>

#include <fmt/format.h>

namespace headgate::demo {

sockaddr_in address_of(std::string_view host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, std::string(host).c_str(), &address.sin_addr);
  return address;
}

UniqueFd try_connect(const sockaddr_in& to, int timeout_ms) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) {
    return {};
  }
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
    pollfd waiting{fd.get(), POLLOUT, 0};
    int error = 0;
    socklen_t size = sizeof error;
    if (errno != EINPROGRESS || poll(&waiting, 1, timeout_ms) != 1 ||
        getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
      return {};
    }
  }
  return fd;
}

HttpAnswer http_get(std::uint16_t port, std::string_view path) {
  HttpAnswer answer;
  const UniqueFd fd = try_connect(address_of("127.0.0.1", port), 500);
  if (!fd) {
    return answer;
  }
  const std::string request =
      fmt::format("GET {} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", path);
  if (send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) {
    return answer;
  }
  std::string text;
  std::array<char, 4096> buffer{};
  for (pollfd waiting{fd.get(), POLLIN, 0}; poll(&waiting, 1, 1000) == 1;) {
    const ssize_t n = recv(fd.get(), buffer.data(), buffer.size(), 0);
    if (n <= 0) {
      break;
    }
    text.append(buffer.data(), static_cast<std::size_t>(n));
  }
  const std::size_t head = text.find("\r\n\r\n");
  if (head != std::string::npos && text.size() > 12) {
    std::from_chars(text.data() + 9, text.data() + 12, answer.status);
    answer.body = text.substr(head + 4);
  }
  return answer;
}

Result<std::uint16_t> free_loopback_port() {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = address_of("127.0.0.1", 0);
  socklen_t size = sizeof address;
  if (!fd || bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return sys_fail(errno, "find a free port on 127.0.0.1");
  }
  return ntohs(address.sin_port);
}

}  // namespace headgate::demo
