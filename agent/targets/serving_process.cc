// SPDX-License-Identifier: Apache-2.0
#include "agent/targets/serving_process.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>

#include <fmt/format.h>

namespace headgate {

std::set<std::uint32_t> sockets_of(const std::string& proc_root, std::span<const int> pids) {
  std::set<std::uint32_t> out;
  for (const int pid : pids) {
    std::error_code ec;
    for (const auto& entry :
         std::filesystem::directory_iterator(fmt::format("{}/{}/fd", proc_root, pid), ec)) {
      unsigned inode = 0;
      std::error_code link_ec;
      const std::string goal = std::filesystem::read_symlink(entry.path(), link_ec).string();
      if (std::sscanf(goal.c_str(), "socket:[%u]", &inode) == 1) {  // NOLINT: fixed format
        out.insert(inode);
      }
    }
  }
  return out;
}

void ServingProcess::follow(const std::string& proc_root, std::span<const int> pids,
                            const std::set<std::uint32_t>& sockets) {
  if (fd_ || sockets.empty()) {
    return;
  }
  for (const int pid : pids) {
    // The fd first: had the number been given to another process by then, it holds no such socket.
    UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!fd) {
      continue;
    }
    const std::set<std::uint32_t> held = sockets_of(proc_root, std::array{pid});
    if (std::any_of(sockets.begin(), sockets.end(),
                    [&](std::uint32_t inode) { return held.contains(inode); })) {
      fd_ = std::move(fd);
      pid_ = pid;
      return;
    }
  }
}

bool ServingProcess::has_ended() {
  if (!fd_) {
    return false;
  }
  pollfd ready{fd_.get(), POLLIN, 0};
  if (::poll(&ready, 1, 0) != 1 || (ready.revents & POLLIN) == 0) {
    return false;
  }
  fd_.reset();
  return true;
}

}  // namespace headgate
