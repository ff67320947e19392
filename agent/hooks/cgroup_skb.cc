// SPDX-License-Identifier: Apache-2.0
#include "agent/hooks/cgroup_skb.h"

#include <linux/bpf.h>

#include <fmt/format.h>

#include "agent/hooks/cgroup_directory.h"
#include "agent/hooks/remedy.h"

namespace headgate {

Result<CgroupSkbHook::Instance> CgroupSkbHook::attach(std::uint32_t target,
                                                      const std::string& cgroup_path,
                                                      std::uint32_t netns) {
  if (unified_root_.empty()) {
    return tl::unexpected<Error>(no_unified("live bytes are not known"));
  }
  if (maps_.is_detached()) {
    return tl::unexpected<Error>(no_maps());
  }
  const std::string directory = unified_root_ + cgroup_path;
  if (!holds_processes(directory, true)) {
    return fail(fmt::format(
        "no process of {} is in the v2 tree ({}): live bytes are not known; put the processes into "
        "the same group there",
        cgroup_path, unified_root_));
  }
  auto cgroup = open_cgroup(directory);
  if (!cgroup) {
    return tl::unexpected<Error>(cgroup.error());
  }
  struct Direction {
    const char* name;
    Program program;
    int attach_type;
  };
  constexpr std::array<Direction, 2> kDirections = {
      Direction{"ingress", Program::kIngress, BPF_CGROUP_INET_INGRESS},
      Direction{"egress", Program::kEgress, BPF_CGROUP_INET_EGRESS}};
  Instance out;
  out.where = cgroup_path;
  for (std::size_t i = 0; i < kDirections.size(); ++i) {
    Half& half = out.halves[i];
    auto program = load_program(kDirections[i].program, {netns, target}, maps_);
    if (!program) {
      out.halves[0].link.detach();
      return tl::unexpected<Error>(program.error());
    }
    half.pin_name = fmt::format("cgroup_{}-{}-{}", kDirections[i].name, cgroup->id, target);
    auto link = Link::attach(*program, cgroup->fd.get(), kDirections[i].attach_type, cgroup->id,
                             pins_, half.pin_name);
    if (!link) {
      out.halves[0].link.detach();
      return tl::unexpected<Error>(link.error());
    }
    half.program = std::move(*program);
    half.program.fd.reset();  // the link holds the program
    half.link = std::move(*link);
  }
  return out;
}

Result<> CgroupSkbHook::hold(std::uint32_t target, const std::string& cgroup_path,
                             std::uint32_t netns) {
  if (const auto it = instances_.find(target); it != instances_.end()) {
    ++it->second.holders;
    return {};
  }
  auto instance = attach(target, cgroup_path, netns);
  if (!instance) {
    failed_[target] = instance.error();
    ++attach_errors_[instance.error().sys_errno];
    return tl::unexpected<Error>(instance.error());
  }
  failed_.erase(target);
  instances_.emplace(target, std::move(*instance));
  return {};
}

void CgroupSkbHook::release(std::uint32_t target) {
  const auto it = instances_.find(target);
  if (it != instances_.end() && --it->second.holders <= 0) {
    for (Half& half : it->second.halves) {
      half.link.detach();
    }
    instances_.erase(it);
  }
}

void CgroupSkbHook::detach_all() {
  for (auto& [target, instance] : instances_) {
    for (Half& half : instance.halves) {
      half.link.detach();
    }
  }
  instances_.clear();
}

bool CgroupSkbHook::attached(std::uint32_t target) const { return instances_.count(target) != 0; }

HookStatus CgroupSkbHook::status(std::uint32_t target) const {
  HookStatus out;
  out.hook = "cgroup_skb";
  const auto it = instances_.find(target);
  if (it != instances_.end()) {
    const Half& ingress = it->second.halves[0];
    out.where = "cgroup " + it->second.where;
    out.mode = ingress.link.adopted() ? "adopted" : "attached";
    out.variant = ingress.program.variant;
    out.program_id = ingress.program.id;
    return out;
  }
  out.mode = "off";
  if (const auto error = failed_.find(target); error != failed_.end()) {
    out.sys_errno = error->second.sys_errno;
    out.problem = with_remedy(error->second);
  }
  return out;
}

void CgroupSkbHook::add_pin_names(std::vector<std::string>& names) const {
  for (const auto& [target, instance] : instances_) {
    for (const Half& half : instance.halves) {
      names.push_back(half.pin_name);
    }
  }
}

}  // namespace headgate
