// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "headgate/result.h"

#include "agent/base/unique_fd.h"

namespace headgate::demo {

/// epoll with a timer of nanoseconds: what both kinds of clients wait on.
class EventQueue {
 public:
  /// The socket's `token` as given to add(), and the events of epoll_ctl(2).
  using Handler = std::function<void(std::uint64_t token, std::uint32_t events)>;

  [[nodiscard]] Result<> open();
  /// Edge-triggered, for reading and writing. False: errno says why.
  [[nodiscard]] bool add(int fd, std::uint64_t token);
  /// Waits until `wake_ns` (CLOCK_MONOTONIC) or until something has happened, and handles it.
  [[nodiscard]] Result<> wait(std::int64_t wake_ns, const Handler& handler);

 private:
  UniqueFd epoll_;
  UniqueFd timer_;
};

}  // namespace headgate::demo
