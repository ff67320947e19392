// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>

#include "agent/base/unique_fd.h"

namespace headgate {

/// Inodes of the sockets that these processes hold open (proc(5), /proc/PID/fd). Processes that are
/// gone, or may not be looked into, hold none.
[[nodiscard]] std::set<std::uint32_t> sockets_of(const std::string& proc_root,
                                                 std::span<const int> pids);

/// The process that serves a target, followed by its pidfd (pidfd_open(2), Linux 5.3), so that its
/// end is seen in the tick in which it comes. What it had taken in ends with it and was not served.
class ServingProcess {
 public:
  /// Follows the first of `pids` that holds one of `sockets`; of a server with workers that is the
  /// parent, which comes first. Does nothing while one is followed.
  void follow(const std::string& proc_root, std::span<const int> pids,
              const std::set<std::uint32_t>& sockets);
  [[nodiscard]] int pid() const { return fd_ ? pid_ : 0; }  ///< 0 = none is followed
  /// It has ended since it was found: true once, then none is followed. One poll(2).
  [[nodiscard]] bool has_ended();

 private:
  UniqueFd fd_;
  int pid_ = 0;
};

}  // namespace headgate
