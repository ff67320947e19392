// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headgate/hook.h"
#include "headgate/result.h"

#include "agent/dataplane/kernel_maps.h"
#include "agent/dataplane/programs.h"
#include "agent/hooks/cgroup_directory.h"
#include "agent/hooks/holders.h"

namespace headgate {

/// Programs on the v2 cgroups of targets, by the target's slot: what a hook there has attached, who
/// holds it, and what failed. The hooks say what they attach.
class CgroupPrograms {
 public:
  void release(std::uint32_t target);
  void detach_all();
  [[nodiscard]] bool attached(std::uint32_t target) const {
    return instances_.find(target) != nullptr;
  }
  [[nodiscard]] HookStatus status(std::uint32_t target) const;
  [[nodiscard]] const std::map<int, std::uint64_t>& attach_errors() const {
    return instances_.attach_errors();
  }
  void add_pin_names(std::vector<std::string>& names) const;

 protected:
  struct Part {
    std::string pin_name;
    LoadedProgram program;
    Link link;
  };
  struct Instance {
    std::string where;
    std::vector<Part> parts;
  };

  CgroupPrograms(std::string_view hook, KernelMaps& maps, const PinDirectory& pins,
                 std::string unified_root)
      : hook_(hook), maps_(maps), pins_(pins), unified_root_(std::move(unified_root)) {}

  /// Counts one more holder, or attaches: there must be a v2 tree and maps (`lost` says what is
  /// missing without), then `attach` fills an instance. Where that fails nothing stays attached.
  [[nodiscard]] Result<> hold_by(std::uint32_t target, const std::string& lost,
                                 const std::function<Result<>(Instance&)>& attach);
  /// Loads one program and attaches it to `cgroup`, pinned as PIN-CGROUP-TARGET.
  [[nodiscard]] Result<> add(Instance& instance, Program program, int attach_type,
                             std::string_view pin, const CgroupDirectory& cgroup,
                             const Serves& serves) const;
  [[nodiscard]] const std::string& unified_root() const { return unified_root_; }

 private:
  std::string_view hook_;
  KernelMaps& maps_;
  const PinDirectory& pins_;
  std::string unified_root_;
  static void detach(Instance& instance);
  Holders<Instance> instances_;
};

}  // namespace headgate
