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
  if (maps_.is_detached()) {
    instances_.note_failure(netns, no_maps());
    return tl::unexpected<Error>(no_maps());
  }
  return instances_.hold(netns, [&]() -> Result<Instance> {
    auto program = load_program(Program::kSkLookup, {netns}, maps_);
    if (!program) {
      return tl::unexpected<Error>(program.error());
    }
    auto link = Link::attach(*program, netns_fd, BPF_SK_LOOKUP, netns, pins_, pin_name(netns));
    if (!link) {
      return tl::unexpected<Error>(link.error());
    }
    Instance instance;
    instance.program = std::move(*program);
    instance.program.fd.reset();  // the link holds the program
    instance.link = std::move(*link);
    return instance;
  });
}

const std::string& SkLookupHook::look_for_others(std::uint32_t netns, int netns_fd) {
  static const std::string kNone;
  Instance* instance = instances_.find(netns);
  if (instance == nullptr) {
    return kNone;
  }
  std::string& text = instance->others;
  text.clear();
  for (const AttachedProgram& program : sk_lookup_programs(netns_fd)) {
    if (program.id == instance->program.id) {
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
  instances_.for_each([&](std::uint32_t /*netns*/, const Instance& instance) {
    if (!instance.others.empty()) {
      out.push_back(instance.others);
    }
  });
  return out;
}

Result<> SkLookupHook::open_pit(std::uint32_t netns, int netns_fd) {
  Instance* instance = instances_.find(netns);
  if (instance == nullptr) {
    return fail(fmt::format("netns {}: no gate is attached", netns));
  }
  if (instance->pit != nullptr) {
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
  instance->pit = std::move(*pit);
  return {};
}

void SkLookupHook::detach(std::uint32_t netns, Instance& instance) {
  instance.link.detach();
  maps_.clear_pit(netns);
}

void SkLookupHook::release(std::uint32_t netns) {
  if (auto last = instances_.release(netns)) {
    detach(netns, *last);
  }
}

void SkLookupHook::detach_all() {
  instances_.release_all(
      [this](std::uint32_t netns, Instance& instance) { detach(netns, instance); });
}

HookStatus SkLookupHook::status(std::uint32_t netns) const {
  HookStatus out;
  out.hook = "sk_lookup";
  out.where = fmt::format("netns {}", netns);
  if (const Instance* instance = instances_.find(netns); instance != nullptr) {
    out.mode = instance->link.adopted() ? "adopted" : "attached";
    out.variant = instance->program.variant;
    out.program_id = instance->program.id;
    return out;
  }
  instances_.explain_absence(netns, out);
  return out;
}

bool SkLookupHook::has_pit(std::uint32_t netns) const {
  const Instance* instance = instances_.find(netns);
  return instance != nullptr && instance->pit != nullptr;
}

void SkLookupHook::add_pin_names(std::vector<std::string>& names) const {
  instances_.for_each(
      [&](std::uint32_t netns, const Instance& /*instance*/) { names.push_back(pin_name(netns)); });
}

}  // namespace headgate
