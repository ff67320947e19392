// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/result.h"

namespace headgate {

class LimitCache;

/// Which tree owns which controller: v1, v2 or hybrid is chosen per controller, never for the
/// whole host (case A16).
enum class Controller : std::uint8_t { kCpu, kCpuacct, kCpuset, kMemory, kCount };
enum class CgroupVersion : std::uint8_t { kNone, kV1, kV2 };

/// The cgroup trees of a host, or of a copied tree (`--cgroup-root`): found from the tree itself:
/// `cgroup.controllers` at the root = v2, one directory a controller = v1, `unified/` = hybrid.
/// Copies share one cache of the limits of ancestors, which is safe to use from several threads.
struct Hierarchy {
  enum class Mode : std::uint8_t { kV1, kV2, kHybrid };
  struct Mount {
    CgroupVersion version = CgroupVersion::kNone;
    std::string path;  ///< directory that a target's path is appended to
    /// The directory of the hierarchy that is mounted at `path`: "/" on a host; inside a container
    /// without the host's tree the container's own cgroup, which `directory` takes off (case A09).
    std::string mount_root = "/";

    /// Where the cgroup `cgroup_path` (begins with '/') is, whether it exists or not.
    [[nodiscard]] std::string directory(std::string_view cgroup_path) const;
  };
  Mode mode = Mode::kV2;
  std::string root;                                                             ///< as given
  std::array<Mount, static_cast<std::size_t>(Controller::kCount)> controllers;  ///< who owns what
  std::string unified;  ///< the v2 tree, where there is one: PSI and cgroup-BPF live there; else ""
  Mount unified_mount;  ///< the same with its mount root; version kNone where there is none
  /// v1 hierarchy that systemd keeps its units in (name=systemd), where there is one.
  Mount systemd_mount;
  std::shared_ptr<LimitCache> limits;

  [[nodiscard]] const Mount& of(Controller c) const {
    return controllers[static_cast<std::size_t>(c)];
  }
  /// Every distinct tree, the one that decides a cgroup's identity first: v2, then cpu, cpuacct,
  /// memory, cpuset, systemd.
  [[nodiscard]] std::vector<Mount> trees() const;

  /// `proc_root`: where self/mountinfo tells which part of a hierarchy is mounted; "" = the whole.
  /// Errors: no cgroup tree at `root`.
  [[nodiscard]] static Result<Hierarchy> detect(const std::string& root,
                                                const std::string& proc_root = {});
};
[[nodiscard]] std::string_view to_string(Hierarchy::Mode mode);
[[nodiscard]] std::string_view to_string(Controller controller);

/// A target's cgroup path in one form: begins with '/', no empty, "." or ".." component, no '/' at
/// the end. Errors: any other path, and "/": the root holds every process of the host and is never
/// a target (case A05).
[[nodiscard]] Result<std::string> normalise_target_path(std::string_view path);

/// What tells a cgroup from one made later under the same name: the inode of its directory in the
/// first of `Hierarchy::trees()` that has it (for v2 that is the kernel's cgroup id).
/// Errors: in none of the trees.
[[nodiscard]] Result<std::uint64_t> cgroup_identity(const Hierarchy& hierarchy,
                                                    const std::string& path);

}  // namespace headgate
