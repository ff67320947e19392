// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "headgate/result.h"

#include "agent/base/unique_fd.h"

namespace headgate {

/// A directory of the v2 tree, open to attach programs to.
struct CgroupDirectory {
  UniqueFd fd;
  std::uint64_t id = 0;  ///< inode, which is the cgroup id that links report
};
[[nodiscard]] Result<CgroupDirectory> open_cgroup(const std::string& path);

/// Has the cgroup, or one `below` it, a process? Kernel threads do not count: they have no exe.
[[nodiscard]] bool holds_processes(const std::string& directory, bool below);

/// The error of a hook on cgroups where there is no v2 tree; `lost` says what is then missing.
[[nodiscard]] Error no_unified(const std::string& lost);

}  // namespace headgate
