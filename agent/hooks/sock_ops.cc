// SPDX-License-Identifier: Apache-2.0
#include "agent/hooks/sock_ops.h"

#include <linux/bpf.h>

#include <fmt/format.h>

#include "agent/hooks/cgroup_directory.h"
#include "agent/hooks/remedy.h"

namespace headgate {

Result<> SockOpsHook::hold(std::uint32_t target, const std::string& cgroup_path,
                           std::uint32_t netns, bool host_netns, bool http2) {
  return hold_by(target, "connections in flight are not known",
                 [&](Instance& instance) -> Result<> {
                   instance.where = cgroup_path;
                   std::string directory = unified_root() + cgroup_path;
                   if (!holds_processes(directory, true)) {
                     // On a hybrid host a process may be in the v1 groups of its service only. From
                     // the root its connections are told by address and port, which is safe in the
                     // host's namespace alone.
                     if (!host_netns) {
                       return fail(
                           fmt::format("no process of {} is in the v2 tree ({}): connections in "
                                       "flight are not known; put the "
                                       "processes into the same group there",
                                       cgroup_path, unified_root()));
                     }
                     instance.where.assign(1, '/');
                     directory = unified_root();
                   }
                   const auto cgroup = open_cgroup(directory);
                   if (!cgroup) {
                     return tl::unexpected<Error>(cgroup.error());
                   }
                   return add(instance, Program::kSockOps, BPF_CGROUP_SOCK_OPS, "sock_ops", *cgroup,
                              {netns, target, http2});
                 });
}

}  // namespace headgate
