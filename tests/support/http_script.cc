// SPDX-License-Identifier: Apache-2.0
#include "tests/support/http_script.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <thread>

#include <fmt/format.h>

namespace headgate::test {
namespace {

constexpr int kLongest_ms = 30'000;

constexpr std::string_view kEndOfHead = "\r\n\r\n";

/// Bytes that follow the head of a request: 0 where it does not say.
std::size_t body_bytes(const std::string& head) {
  constexpr std::string_view kLength = "Content-Length: ";
  const auto at = head.find(kLength);
  return at == std::string::npos ? 0 : std::stoul(head.substr(at + kLength.size()));
}

struct Request {
  std::string head;
  std::string body;
};

Request read_request(int fd) {
  std::string all;
  std::array<char, 2048> block{};
  const auto whole = [&] {
    const auto end = all.find(kEndOfHead);
    return end != std::string::npos &&
           all.size() - end - kEndOfHead.size() >= body_bytes(all.substr(0, end));
  };
  while (!whole()) {
    pollfd ready{fd, POLLIN, 0};
    if (::poll(&ready, 1, kLongest_ms) <= 0) {
      break;
    }
    const ssize_t got = ::recv(fd, block.data(), block.size(), 0);
    if (got <= 0) {
      break;
    }
    all.append(block.data(), static_cast<std::size_t>(got));
  }
  const auto end = all.find(kEndOfHead);
  if (end == std::string::npos) {
    return {all, {}};
  }
  return {all.substr(0, end + kEndOfHead.size()), all.substr(end + kEndOfHead.size())};
}

}  // namespace

void HttpExchange::raw(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) {
      return;
    }
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

void HttpExchange::answer(int status, std::string_view body, std::string_view headers) const {
  raw(fmt::format("HTTP/1.1 {} X\r\nContent-Length: {}\r\nConnection: close\r\n{}\r\n{}", status,
                  body.size(), headers, body));
}

void HttpExchange::begin_stream() const {
  raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n");
}

void HttpExchange::piece(std::string_view bytes) const {
  raw(fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes));
}

void HttpExchange::end_stream() const { raw("0\r\n\r\n"); }

void HttpExchange::wait_for_end() const {
  pollfd ready{fd_, POLLIN | POLLRDHUP, 0};
  (void)::poll(&ready, 1, kLongest_ms);
}

struct HttpScript::State {
  Handler handler;
  int listener = -1;
  std::uint16_t port = 0;
  mutable std::mutex mutex;
  std::vector<std::string> heads;  ///< guarded by mutex
  std::vector<int> open;           ///< guarded by mutex
  std::vector<std::thread> workers;
  std::thread acceptor;

  void serve(int fd) {
    const Request request = read_request(fd);
    if (!request.head.empty()) {
      std::size_t number = 0;
      {
        const std::lock_guard lock(mutex);
        number = heads.size();
        heads.push_back(request.head);
      }
      handler(HttpExchange(fd, request.head, request.body, number));
    }
    const std::lock_guard lock(mutex);
    open.erase(std::find(open.begin(), open.end(), fd));
    ::shutdown(fd, SHUT_WR);
    ::close(fd);
  }

  void accept_all() {
    while (true) {
      const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) {
        return;
      }
      {
        const std::lock_guard lock(mutex);
        open.push_back(fd);
      }
      workers.emplace_back([this, fd] { serve(fd); });
    }
  }
};

HttpScript::HttpScript(Handler handler) : state_(std::make_unique<State>()) {
  state_->handler = std::move(handler);
  state_->listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* any = reinterpret_cast<sockaddr*>(&address);  // NOLINT: the sockets API
  if (::bind(state_->listener, any, size) != 0 || ::listen(state_->listener, 16) != 0 ||
      ::getsockname(state_->listener, any, &size) != 0) {
    std::abort();
  }
  state_->port = ntohs(address.sin_port);
  state_->acceptor = std::thread([this] { state_->accept_all(); });
}

HttpScript::~HttpScript() {
  ::shutdown(state_->listener, SHUT_RDWR);
  state_->acceptor.join();
  ::close(state_->listener);
  {
    const std::lock_guard lock(state_->mutex);
    for (const int fd : state_->open) {
      ::shutdown(fd, SHUT_RDWR);
    }
  }
  for (std::thread& worker : state_->workers) {
    worker.join();
  }
}

std::string HttpScript::url() const { return fmt::format("http://127.0.0.1:{}", state_->port); }

std::vector<std::string> HttpScript::heads() const {
  const std::lock_guard lock(state_->mutex);
  return state_->heads;
}

}  // namespace headgate::test
