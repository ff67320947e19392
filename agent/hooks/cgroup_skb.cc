// SPDX-License-Identifier: Apache-2.0
#include "agent/hooks/cgroup_skb.h"

#include <linux/bpf.h>

#include <fmt/format.h>

namespace headgate {

Result<> CgroupSkbHook::hold(std::uint32_t target, const std::string& cgroup_path,
                             std::uint32_t netns, bool http2) {
  return hold_by(target, "live bytes are not known", [&](Instance& instance) -> Result<> {
    instance.where = cgroup_path;
    const std::string directory = unified_root() + cgroup_path;
    if (!holds_processes(directory, true)) {
      return fail(fmt::format(
          "no process of {} is in the v2 tree ({}): live bytes are not known; put the processes "
          "into the same group there",
          cgroup_path, unified_root()));
    }
    const auto cgroup = open_cgroup(directory);
    if (!cgroup) {
      return tl::unexpected<Error>(cgroup.error());
    }
    const Serves serves{netns, target, http2};
    if (auto ingress = add(instance, Program::kIngress, BPF_CGROUP_INET_INGRESS, "cgroup_ingress",
                           *cgroup, serves);
        !ingress) {
      return ingress;
    }
    return add(instance, Program::kEgress, BPF_CGROUP_INET_EGRESS, "cgroup_egress", *cgroup,
               serves);
  });
}

}  // namespace headgate
