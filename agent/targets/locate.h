// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/cgroup/hierarchy.h"
#include "agent/config/config.h"
#include "headgate/result.h"

namespace headgate {

/// One living thing that a target of the configuration matches: a cgroup, the network namespaces of
/// its processes, and one process to reach each of them by.
struct Located {
  struct Netns {
    std::uint32_t inode = 0;
    std::vector<int> pids;  ///< processes of the target in it, at most 16
    bool host = false;      ///< it is the agent's own host's namespace
  };
  std::string cgroup_path;      ///< below the cgroup root
  std::uint64_t cgroup_id = 0;  ///< inode of its directory: another inode is another target
  std::vector<Netns> namespaces;
  std::vector<std::string> warnings;  ///< e.g. the cgroup of a process holds others too
};

/// Finds targets in /proc and the cgroup trees: by cgroup path, systemd unit or executable. All
/// paths below `proc_root` and the hierarchy's root, so that a copied tree can be examined.
/// A target that is not there is an Error that says what was looked for; that is normal.
class Locator {
 public:
  Locator(Hierarchy hierarchy, std::string proc_root);
  [[nodiscard]] Result<std::vector<Located>> locate(const Match& match) const;
  /// The namespaces of the processes in one cgroup and below.
  [[nodiscard]] std::vector<Located::Netns> namespaces_of(const std::string& cgroup_path) const;
  /// Cgroup path of a process, normalised (case B: `/../..` in a private cgroup namespace).
  [[nodiscard]] Result<std::string> cgroup_of(int pid) const;
  [[nodiscard]] const Hierarchy& hierarchy() const { return hierarchy_; }
  [[nodiscard]] std::uint32_t host_netns_inode() const { return host_netns_inode_; }

 private:
  Hierarchy hierarchy_;
  std::string proc_root_;
  std::uint32_t host_netns_inode_ = 0;
};

/// A TARGET of the command line that is no configured name: "cgroup:/path", "unit:name",
/// "pid:1234", "pod:NAMESPACE/NAME[/CONTAINER]". Errors name the forms.
[[nodiscard]] Result<Match> parse_target(std::string_view text, const Locator& locator);

}  // namespace headgate
