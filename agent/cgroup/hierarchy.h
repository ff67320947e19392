// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/result.h"

namespace headgate {

/// Which tree owns which controller: v1, v2 or hybrid is chosen per controller, never for the
/// whole host (case A16).
enum class Controller : std::uint8_t { kCpu, kCpuacct, kCpuset, kMemory, kCount };
enum class CgroupVersion : std::uint8_t { kNone, kV1, kV2 };

/// The cgroup trees of a host, or of a copied tree (`--cgroup-root`): found from the tree itself:
/// `cgroup.controllers` at the root = v2, one directory a controller = v1, `unified/` = hybrid.
struct Hierarchy {
  enum class Mode : std::uint8_t { kV1, kV2, kHybrid };
  struct Mount {
    CgroupVersion version = CgroupVersion::kNone;
    std::string path;  ///< directory that a target's path is appended to
  };
  Mode mode = Mode::kV2;
  std::string root;                                                          ///< as given
  std::array<Mount, static_cast<std::size_t>(Controller::kCount)> controllers;  ///< who owns what
  std::string unified;  ///< the v2 tree, where there is one: PSI and cgroup-BPF live there; else ""

  [[nodiscard]] const Mount& of(Controller c) const {
    return controllers[static_cast<std::size_t>(c)];
  }
  /// Errors: no cgroup tree at `root`.
  [[nodiscard]] static Result<Hierarchy> detect(const std::string& root);
};
[[nodiscard]] std::string_view to_string(Hierarchy::Mode mode);

}  // namespace headgate
