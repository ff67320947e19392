// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "headgate/hook.h"
#include "headgate/result.h"

#include "agent/dataplane/kernel_maps.h"
#include "agent/dataplane/programs.h"

namespace headgate {

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
