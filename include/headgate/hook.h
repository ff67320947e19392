// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headgate {

/// How a hook stands for one target, as metrics, explain and doctor show it.
struct HookStatus {
  std::string hook;              ///< "sk_lookup", "sock_ops"
  std::string where;             ///< "netns 4026532281", "cgroup /system.slice/x"
  std::string mode;              ///< "attached", "adopted", "off"
  std::string variant;           ///< "atomic" or "spin_lock" (kernel < 5.12)
  std::uint32_t program_id = 0;  ///< 0 = none
  int sys_errno = 0;             ///< of the attach that failed
  std::string problem;           ///< why it is off, and what to do; empty = fine
};

}  // namespace headgate
