// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "headgate/hook.h"
#include "headgate/result.h"

#include "agent/dataplane/kernel_maps.h"
#include "agent/dataplane/programs.h"
#include "agent/hooks/cgroup_programs.h"

namespace headgate {

/// Counts what targets really got (established, in flight, closed, bytes): one instance of
/// bpf/sock_ops.bpf.c on the v2 cgroup of each target. cgroup-BPF lives in the v2 tree only, also
/// on a hybrid host; without one (pure v1) this hook is off and in flight is not known.
class SockOpsHook : public CgroupPrograms {
 public:
  SockOpsHook(KernelMaps& maps, const PinDirectory& pins, std::string unified_root)
      : CgroupPrograms("sock_ops", maps, pins, std::move(unified_root)) {}

  /// Attaches to the target's cgroup, or to the root of the tree where its processes are there.
  /// `target`: its slot. Errors: no v2 tree, no right, processes of another namespace in the root.
  [[nodiscard]] Result<> hold(std::uint32_t target, const std::string& cgroup_path,
                              std::uint32_t netns, bool host_netns, bool http2 = true);
};

}  // namespace headgate
