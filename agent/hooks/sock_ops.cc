// SPDX-License-Identifier: Apache-2.0
#include "agent/hooks/sock_ops.h"

#include <linux/bpf.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "agent/hooks/cgroup_directory.h"
#include "agent/hooks/remedy.h"

namespace headgate {

Result<> SockOpsHook::hold(std::uint32_t target, const std::string& cgroup_path,
                           std::uint32_t netns, bool host_netns) {
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
                     instance.where = "/";
                     directory = unified_root();
                   }
                   const auto cgroup = open_cgroup(directory);
                   if (!cgroup) {
                     return tl::unexpected<Error>(cgroup.error());
                   }
                   return add(instance, Program::kSockOps, BPF_CGROUP_SOCK_OPS, "sock_ops", *cgroup,
                              {netns, target});
                 });
}

namespace {

std::string node_pin_name(std::uint64_t cgroup_id) {
  return fmt::format("node_connects-{}", cgroup_id);
}

bool is_pods_slice(const std::string& name) { return name.find("kubepods") != std::string::npos; }

/// The groups whose processes are the node itself.
std::vector<std::string> node_groups(const std::string& unified_root) {
  if (holds_processes(unified_root, false)) {
    return {unified_root};
  }
  std::vector<std::string> out;
  std::error_code ec;
  for (const auto& entry : std::filesystem::directory_iterator(unified_root, ec)) {
    if (entry.is_directory(ec) && !is_pods_slice(entry.path().filename().string())) {
      out.push_back(entry.path().string());
    }
  }
  return out;
}

}  // namespace

Result<> NodeConnectsHook::attach() {
  const auto failed = [this](const Error& error) -> Result<> {
    failed_ = error;
    ++attach_errors_[error.sys_errno];
    return tl::unexpected<Error>(error);
  };
  if (unified_root_.empty()) {
    return failed(no_unified("connects of the node are not known exactly"));
  }
  if (maps_.is_detached()) {
    return failed(no_maps());
  }
  if (!program_.fd) {
    auto program = load_program(Program::kNodeConnects, {}, maps_);
    if (!program) {
      return failed(program.error());
    }
    program_ = std::move(*program);
  }
  for (const std::string& group : node_groups(unified_root_)) {
    auto cgroup = open_cgroup(group);
    if (!cgroup || links_.count(cgroup->id) != 0) {
      continue;
    }
    auto link = Link::attach(program_, cgroup->fd.get(), BPF_CGROUP_SOCK_OPS, cgroup->id, pins_,
                             node_pin_name(cgroup->id));
    if (!link) {
      return failed(link.error());
    }
    links_.emplace(cgroup->id, std::move(*link));
  }
  failed_ = {};
  return {};
}

void NodeConnectsHook::detach_all() {
  for (auto& [id, link] : links_) {
    link.detach();
  }
  links_.clear();
}

HookStatus NodeConnectsHook::status() const {
  HookStatus out;
  out.hook = "node_connects";
  out.where = fmt::format("{} cgroups", links_.size());
  out.mode = links_.empty() ? "off" : "attached";
  out.variant = program_.variant;
  out.program_id = program_.id;
  out.sys_errno = failed_.sys_errno;
  out.problem = failed_.message.empty() ? "" : with_remedy(failed_);
  return out;
}

void NodeConnectsHook::add_pin_names(std::vector<std::string>& names) const {
  for (const auto& [id, link] : links_) {
    names.push_back(node_pin_name(id));
  }
}

}  // namespace headgate
