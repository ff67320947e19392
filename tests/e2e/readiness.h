// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include <fmt/format.h>

#include "agent/base/unique_fd.h"
#include "agent/targets/http_client.h"

namespace headgate::e2e {

/// A TCP port of the loopback that nobody listens on.
inline std::uint16_t free_port() {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);  // NOLINT: the socket API wants it
  if (::bind(fd.get(), generic, size) != 0 || ::getsockname(fd.get(), generic, &size) != 0) {
    throw std::runtime_error("no free port");
  }
  return ntohs(address.sin_port);
}

struct Readiness {
  long status = 0;  ///< 0 = no answer
  std::string text;
};

/// /readyz?verbose, as the kubelet asks for it, of an agent whose web server has this port.
inline Readiness readiness(std::uint16_t port) {
  Readiness out;
  const auto http = HttpClient::create();
  if (http) {
    HttpRequest request;
    request.url = fmt::format("http://127.0.0.1:{}/readyz?verbose", port);
    const auto answer = (*http)->ask(request, [&](std::string_view bytes) {
      out.text += bytes;
      return true;
    });
    out.status = answer ? answer->status : 0;
  }
  return out;
}

}  // namespace headgate::e2e
