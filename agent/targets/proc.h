// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "headgate/result.h"

namespace headgate {

/// What of /proc the search for targets needs, below a root so that a copied tree works too.
/// Processes come and go at any time: whatever is not there any more is simply left out.
class Proc {
 public:
  explicit Proc(std::string root) : root_(std::move(root)) {}

  [[nodiscard]] const std::string& root() const { return root_; }
  /// In rising order.
  [[nodiscard]] std::vector<int> pids() const;
  /// Errors: no such process, or not allowed to look (sys_errno tells).
  [[nodiscard]] Result<std::string> cgroup_text(int pid) const;
  /// Path of the executable without the " (deleted)" of one that was replaced by an upgrade.
  /// Errors: kernel thread or no such process (ENOENT), not allowed (EACCES, EPERM).
  [[nodiscard]] Result<std::string> exe(int pid) const;
  /// Inode of its network namespace; nullopt where that cannot be read.
  [[nodiscard]] std::optional<std::uint32_t> netns(int pid) const;
  [[nodiscard]] std::optional<std::uint32_t> own_netns() const;
  /// What /proc/self points to: our process as this /proc numbers it.
  [[nodiscard]] std::optional<int> self() const;
  /// Kernel threads live in the host's first network namespace, always; they have no executable.
  [[nodiscard]] bool is_kthreadd(int pid) const;
  /// Inodes of the sockets that wait for connections or datagrams on a port, in the network
  /// namespace of a process.
  [[nodiscard]] std::set<std::uint64_t> listening_sockets(int pid, bool udp,
                                                          std::uint16_t port) const;
  /// It holds one of them open.
  [[nodiscard]] bool holds_socket(int pid, const std::set<std::uint64_t>& inodes) const;

 private:
  std::string root_;
};

/// Whole text of a small file; errors carry errno.
[[nodiscard]] Result<std::string> read_small_file(const std::string& path);
/// Target of a symbolic link; errors carry errno.
[[nodiscard]] Result<std::string> read_link(const std::string& path);
/// Names of the directories in `path`, sorted; none where it cannot be read.
[[nodiscard]] std::vector<std::string> subdirectories(const std::string& path);

}  // namespace headgate
