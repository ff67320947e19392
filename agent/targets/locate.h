// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/result.h"

#include "agent/base/unique_fd.h"
#include "agent/cgroup/hierarchy.h"
#include "agent/config/config.h"
#include "agent/targets/proc.h"

namespace headgate {

/// One living thing that a target of the configuration matches: a cgroup, the network namespaces of
/// its processes, and one process to reach each of them by.
struct Located {
  /// What of a pod it is.
  struct Pod {
    std::string namespace_name;  ///< "" and the name likewise: only the UID is known
    std::string name;
    std::string uid;
    std::string container;  ///< its name, else its id
    std::optional<double> cpu_request_cores{};
    std::optional<std::uint64_t> memory_request_bytes{};
  };
  struct Netns {
    std::uint32_t inode = 0;
    std::vector<int> pids;  ///< processes of the target in it, at most 16
    bool host = false;      ///< it is the agent's own host's namespace
  };
  std::string cgroup_path;      ///< below the cgroup root
  std::uint64_t cgroup_id = 0;  ///< inode of its directory: another inode is another target
  std::vector<Netns> namespaces;
  std::vector<std::string> warnings;  ///< e.g. the cgroup of a process holds others too
  std::optional<Pod> pod;
};

/// Finds targets in /proc and the cgroup trees: by cgroup path, systemd unit or executable (pods:
/// locate_pods.h). All paths are below `proc_root` and the hierarchy's root, so that a copied tree
/// can be examined.
/// A target that is not there is an Error that says what was looked for; that is normal.
/// A search costs one walk (of the cgroup directories for a unit, of /proc for an executable):
/// call it once a second, not once a tick. Thread-safe: it keeps nothing but what it was made with.
class Locator {
 public:
  Locator(Hierarchy hierarchy, std::string proc_root);
  /// Not for pods.
  [[nodiscard]] Result<std::vector<Located>> locate(const Match& match) const;
  /// The namespaces of the processes in one cgroup and below, in the order of their first process.
  [[nodiscard]] std::vector<Located::Netns> namespaces_of(const std::string& cgroup_path) const;
  /// The processes in one cgroup and below, in rising order; at most kMaxPids.
  [[nodiscard]] std::vector<int> pids_of(const std::string& cgroup_path) const;
  /// Cgroup path of a process, normalised (`/../..` in a private cgroup namespace).
  /// Errors: no such process; it sits in the root cgroup (names the remedy); its cgroup is removed.
  [[nodiscard]] Result<std::string> cgroup_of(int pid) const;
  /// What is known of one cgroup. Errors: it is not there.
  [[nodiscard]] Result<Located> describe(const std::string& path) const;
  [[nodiscard]] const Hierarchy& hierarchy() const { return hierarchy_; }
  [[nodiscard]] const Proc& proc() const { return proc_; }
  /// 0 = it could not be told from any process.
  [[nodiscard]] std::uint32_t host_netns_inode() const { return host_netns_inode_; }
  /// The same, open for setns(2); not valid where no process of it may be entered.
  [[nodiscard]] UniqueFd open_host_netns() const;

  static constexpr std::size_t kMaxPids = 4096;
  static constexpr std::size_t kPidsPerNamespace = 16;

 private:
  [[nodiscard]] Result<std::vector<Located>> locate_unit(const std::string& unit) const;
  [[nodiscard]] Result<std::vector<Located>> locate_exe(const std::string& exe) const;
  [[nodiscard]] std::optional<std::string> absolute(std::string_view seen) const;

  Hierarchy hierarchy_;
  Proc proc_;
  std::uint32_t host_netns_inode_ = 0;
  /// The cgroup that a private cgroup namespace calls "/", found by our own process; "" where the
  /// namespace is the host's or cannot be told.
  std::string namespace_root_;
};

/// A TARGET of the command line that is no configured name: "cgroup:/path", "unit:name",
/// "pid:1234", "pod:NAMESPACE/NAME[/CONTAINER]", "pod:UID[/CONTAINER]". Errors name the forms.
[[nodiscard]] Result<Match> parse_target(std::string_view text, const Locator& locator);

}  // namespace headgate
