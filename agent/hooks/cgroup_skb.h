// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
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

/// Sees the payload that targets receive and when they answer (bpf/cgroup_ingress.bpf.c and
/// bpf/cgroup_egress.bpf.c on the target's v2 cgroup): live bytes, the largest request, bytes of
/// datagrams. Needs sock_ops on the same target, which marks its connections. Runs for every packet
/// of the cgroup, hence never on the root.
class CgroupSkbHook {
 public:
  CgroupSkbHook(KernelMaps& maps, const PinDirectory& pins, std::string unified_root)
      : maps_(maps), pins_(pins), unified_root_(std::move(unified_root)) {}

  /// Attaches both programs to the target's cgroup. `target`: its slot. Errors: no v2 tree, no
  /// process of the target in it, no right.
  [[nodiscard]] Result<> hold(std::uint32_t target, const std::string& cgroup_path,
                              std::uint32_t netns);
  void release(std::uint32_t target);
  void detach_all();
  [[nodiscard]] bool attached(std::uint32_t target) const;
  [[nodiscard]] HookStatus status(std::uint32_t target) const;
  [[nodiscard]] const std::map<int, std::uint64_t>& attach_errors() const { return attach_errors_; }
  void add_pin_names(std::vector<std::string>& names) const;

 private:
  struct Half {
    std::string pin_name;
    LoadedProgram program;
    Link link;
  };
  struct Instance {
    int holders = 1;
    std::string where;
    std::array<Half, 2> halves;  ///< ingress, egress
  };
  [[nodiscard]] Result<Instance> attach(std::uint32_t target, const std::string& cgroup_path,
                                        std::uint32_t netns);
  KernelMaps& maps_;
  const PinDirectory& pins_;
  std::string unified_root_;
  std::map<std::uint32_t, Instance> instances_;
  std::map<std::uint32_t, Error> failed_;
  std::map<int, std::uint64_t> attach_errors_;
};

}  // namespace headgate
