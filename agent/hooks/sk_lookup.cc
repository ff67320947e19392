// SPDX-License-Identifier: Apache-2.0
#include "agent/hooks/sk_lookup.h"

#include <linux/bpf.h>
#include <sys/socket.h>

#include <utility>

#include <fmt/format.h>

#include "agent/hooks/remedy.h"

namespace headgate {
namespace {

std::string pin_name(std::uint32_t netns) { return fmt::format("sk_lookup-{}", netns); }

}  // namespace

Result<> SkLookupHook::hold(std::uint32_t netns, int netns_fd) {
  if (const auto it = instances_.find(netns); it != instances_.end()) {
    ++it->second.holders;
    return {};
  }
  if (maps_.is_detached()) {
    failed_[netns] = no_maps();
    return tl::unexpected<Error>(no_maps());
  }
  Instance instance;
  auto program = load_program(Program::kSkLookup, {netns}, maps_);
  if (!program) {
    failed_[netns] = program.error();
    ++attach_errors_[program.error().sys_errno];
    return tl::unexpected<Error>(program.error());
  }
  auto link = Link::attach(*program, netns_fd, BPF_SK_LOOKUP, netns, pins_, pin_name(netns));
  if (!link) {
    failed_[netns] = link.error();
    ++attach_errors_[link.error().sys_errno];
    return tl::unexpected<Error>(link.error());
  }
  instance.holders = 1;
  instance.program = std::move(*program);
  instance.program.fd.reset();  // the link holds the program
  instance.link = std::move(*link);
  instances_.emplace(netns, std::move(instance));
  failed_.erase(netns);
  return {};
}

const std::string& SkLookupHook::look_for_others(std::uint32_t netns, int netns_fd) {
  static const std::string kNone;
  const auto it = instances_.find(netns);
  if (it == instances_.end()) {
    return kNone;
  }
  std::string& text = it->second.others;
  text.clear();
  for (const AttachedProgram& program : sk_lookup_programs(netns_fd)) {
    if (program.id == it->second.program.id) {
      continue;
    }
    const bool agent = program.name.starts_with("headgate_");
    text += fmt::format(
        "{}sk_lookup program {} '{}' {} is attached to network namespace {}, too: {}",
        text.empty() ? "" : "; ", program.id, program.name,
        agent ? "of another headgate agent (another --pin-root?)" : "of somebody else", netns,
        agent ? "both refuse, and neither knows of the other: stop one of them"
              : "what it redirects to a socket is not refused");
  }
  return text;
}

std::vector<std::string> SkLookupHook::problems() const {
  std::vector<std::string> out;
  for (const auto& [netns, instance] : instances_) {
    if (!instance.others.empty()) {
      out.push_back(instance.others);
    }
  }
  return out;
}

Result<> SkLookupHook::open_pit(std::uint32_t netns, int netns_fd) {
  const auto it = instances_.find(netns);
  if (it == instances_.end()) {
    return fail(fmt::format("netns {}: no gate is attached", netns));
  }
  if (it->second.pit != nullptr) {
    return {};
  }
  auto pit = Pit::open(netns_fd);
  if (!pit) {
    return tl::unexpected<Error>(pit.error());
  }
  for (const auto& [family, fd] :
       {std::pair{AF_INET, (*pit)->ipv4_fd()}, std::pair{AF_INET6, (*pit)->ipv6_fd()}}) {
    if (fd >= 0) {
      if (auto set = maps_.set_pit(netns, family, fd); !set) {
        return set;
      }
    }
  }
  it->second.pit = std::move(*pit);
  return {};
}

void SkLookupHook::release(std::uint32_t netns) {
  const auto it = instances_.find(netns);
  if (it == instances_.end() || --it->second.holders > 0) {
    return;
  }
  it->second.link.detach();
  maps_.clear_pit(netns);
  instances_.erase(it);
}

void SkLookupHook::detach_all() {
  for (auto& [netns, instance] : instances_) {
    instance.link.detach();
    maps_.clear_pit(netns);
  }
  instances_.clear();
}

HookStatus SkLookupHook::status(std::uint32_t netns) const {
  HookStatus out;
  out.hook = "sk_lookup";
  out.where = fmt::format("netns {}", netns);
  const auto it = instances_.find(netns);
  if (it != instances_.end()) {
    out.mode = it->second.link.adopted() ? "adopted" : "attached";
    out.variant = it->second.program.variant;
    out.program_id = it->second.program.id;
    return out;
  }
  out.mode = "off";
  const auto error = failed_.find(netns);
  if (error != failed_.end()) {
    out.sys_errno = error->second.sys_errno;
    out.problem = with_remedy(error->second);
  }
  return out;
}

bool SkLookupHook::has_pit(std::uint32_t netns) const {
  const auto it = instances_.find(netns);
  return it != instances_.end() && it->second.pit != nullptr;
}

void SkLookupHook::add_pin_names(std::vector<std::string>& names) const {
  for (const auto& [netns, instance] : instances_) {
    names.push_back(pin_name(netns));
  }
}

}  // namespace headgate
