// SPDX-License-Identifier: Apache-2.0
#include "agent/hooks/node_connects.h"

#include <linux/bpf.h>

#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "agent/hooks/cgroup_directory.h"
#include "agent/hooks/remedy.h"

namespace headgate {
namespace {

/// Not "node_connects-N": under that name an older agent pins a link of another kind.
std::string node_pin_name(std::uint64_t cgroup_id) {
  return fmt::format("node_egress-{}", cgroup_id);
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
    auto link = Link::attach(program_, cgroup->fd.get(), BPF_CGROUP_INET_EGRESS, cgroup->id, pins_,
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
