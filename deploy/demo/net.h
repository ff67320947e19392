// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "headgate/result.h"

#include "agent/base/unique_fd.h"

namespace headgate::demo {

[[nodiscard]] sockaddr_in address_of(std::string_view host, std::uint16_t port);

/// Connects within `timeout_ms`; an invalid descriptor when that fails.
[[nodiscard]] UniqueFd try_connect(const sockaddr_in& to, int timeout_ms);

struct HttpAnswer {
  int status = 0;  ///< 0 = no answer
  std::string body;
};

/// GET from a server on this machine's loopback.
[[nodiscard]] HttpAnswer http_get(std::uint16_t port, std::string_view path);

[[nodiscard]] Result<std::uint16_t> free_loopback_port();

}  // namespace headgate::demo
