// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "agent/base/unique_fd.h"

namespace headgate {

/// The next client of a listening socket, for a poll loop; nothing where there is none.
[[nodiscard]] inline UniqueFd accept_client(int listener) {
  UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd && (errno == EMFILE || errno == ENFILE)) {
    // The pending connection stays readable; without a pause the loop would spin.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return fd;
}

}  // namespace headgate
