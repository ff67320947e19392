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
                              std::uint32_t netns, bool host_netns);
};

/// Notes the node's own connects (bpf/node_connects.bpf.c), so that probes are exempt exactly. Sits
/// on the top-level cgroups that hold no pods, or on the root where processes of the node live
/// there. One for the agent.
class NodeConnectsHook {
 public:
  NodeConnectsHook(KernelMaps& maps, const PinDirectory& pins, std::string unified_root)
      : maps_(maps), pins_(pins), unified_root_(std::move(unified_root)) {}

  /// Attaches where it is not yet; call again now and then, new slices come up. Errors: no v2 tree,
  /// no right: then the node's addresses are exempt up to a rate instead.
  [[nodiscard]] Result<> attach();
  void detach_all();
  [[nodiscard]] bool attached() const { return !links_.empty(); }
  [[nodiscard]] HookStatus status() const;
  [[nodiscard]] const std::map<int, std::uint64_t>& attach_errors() const { return attach_errors_; }
  void add_pin_names(std::vector<std::string>& names) const;

 private:
  KernelMaps& maps_;
  const PinDirectory& pins_;
  std::string unified_root_;
  LoadedProgram program_;
  std::map<std::uint64_t, Link> links_;  ///< by cgroup id
  Error failed_;
  std::map<int, std::uint64_t> attach_errors_;
};

}  // namespace headgate
