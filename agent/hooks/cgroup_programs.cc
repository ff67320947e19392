// SPDX-License-Identifier: Apache-2.0
#include "agent/hooks/cgroup_programs.h"

#include <fmt/format.h>

#include "agent/hooks/remedy.h"

namespace headgate {

Result<> CgroupPrograms::add(Instance& instance, Program program, int attach_type,
                             std::string_view pin, const CgroupDirectory& cgroup,
                             const Serves& serves) const {
  auto loaded = load_program(program, serves, maps_);
  if (!loaded) {
    return tl::unexpected<Error>(loaded.error());
  }
  Part part;
  part.pin_name = fmt::format("{}-{}-{}", pin, cgroup.id, serves.target);
  auto link = Link::attach(*loaded, cgroup.fd.get(), attach_type, cgroup.id, pins_, part.pin_name);
  if (!link) {
    return tl::unexpected<Error>(link.error());
  }
  part.program = std::move(*loaded);
  part.program.fd.reset();  // the link holds the program
  part.link = std::move(*link);
  instance.parts.push_back(std::move(part));
  return {};
}

Result<> CgroupPrograms::hold_by(std::uint32_t target, const std::string& lost,
                                 const std::function<Result<>(Instance&)>& attach) {
  if (const auto it = instances_.find(target); it != instances_.end()) {
    ++it->second.holders;
    return {};
  }
  Instance instance;
  Result<> done = unified_root_.empty() ? tl::unexpected<Error>(no_unified(lost))
                  : maps_.is_detached() ? tl::unexpected<Error>(no_maps())
                                        : attach(instance);
  if (!done) {
    for (Part& part : instance.parts) {
      part.link.detach();
    }
    failed_[target] = done.error();
    ++attach_errors_[done.error().sys_errno];
    return done;
  }
  failed_.erase(target);
  instances_.emplace(target, std::move(instance));
  return {};
}

void CgroupPrograms::release(std::uint32_t target) {
  const auto it = instances_.find(target);
  if (it != instances_.end() && --it->second.holders <= 0) {
    for (Part& part : it->second.parts) {
      part.link.detach();
    }
    instances_.erase(it);
  }
}

void CgroupPrograms::detach_all() {
  for (auto& [target, instance] : instances_) {
    for (Part& part : instance.parts) {
      part.link.detach();
    }
  }
  instances_.clear();
}

HookStatus CgroupPrograms::status(std::uint32_t target) const {
  HookStatus out;
  out.hook = hook_;
  const auto it = instances_.find(target);
  if (it != instances_.end()) {
    const Part& first = it->second.parts.front();
    out.where = "cgroup " + it->second.where;
    out.mode = first.link.adopted() ? "adopted" : "attached";
    out.variant = first.program.variant;
    out.program_id = first.program.id;
    return out;
  }
  out.mode = "off";
  if (const auto error = failed_.find(target); error != failed_.end()) {
    out.sys_errno = error->second.sys_errno;
    out.problem = with_remedy(error->second);
  }
  return out;
}

void CgroupPrograms::add_pin_names(std::vector<std::string>& names) const {
  for (const auto& [target, instance] : instances_) {
    for (const Part& part : instance.parts) {
      names.push_back(part.pin_name);
    }
  }
}

}  // namespace headgate
