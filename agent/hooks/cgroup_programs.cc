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
  return instances_.hold(target, [&]() -> Result<Instance> {
    Instance instance;
    Result<> done = unified_root_.empty() ? tl::unexpected<Error>(no_unified(lost))
                    : maps_.is_detached() ? tl::unexpected<Error>(no_maps())
                                          : attach(instance);
    if (!done) {
      detach(instance);
      return tl::unexpected<Error>(done.error());
    }
    return instance;
  });
}

void CgroupPrograms::detach(Instance& instance) {
  for (Part& part : instance.parts) {
    part.link.detach();
  }
}

void CgroupPrograms::release(std::uint32_t target) {
  if (auto last = instances_.release(target)) {
    detach(*last);
  }
}

void CgroupPrograms::detach_all() {
  instances_.release_all([](std::uint32_t /*target*/, Instance& instance) { detach(instance); });
}

HookStatus CgroupPrograms::status(std::uint32_t target) const {
  HookStatus out;
  out.hook = hook_;
  if (const Instance* instance = instances_.find(target); instance != nullptr) {
    const Part& first = instance->parts.front();
    out.where = "cgroup " + instance->where;
    out.mode = first.link.adopted() ? "adopted" : "attached";
    out.variant = first.program.variant;
    out.program_id = first.program.id;
    return out;
  }
  instances_.explain_absence(target, out);
  return out;
}

void CgroupPrograms::add_pin_names(std::vector<std::string>& names) const {
  instances_.for_each([&](std::uint32_t /*target*/, const Instance& instance) {
    for (const Part& part : instance.parts) {
      names.push_back(part.pin_name);
    }
  });
}

}  // namespace headgate
