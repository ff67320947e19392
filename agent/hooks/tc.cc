// SPDX-License-Identifier: Apache-2.0
#include "agent/hooks/tc.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "agent/dataplane/devices.h"
#include "agent/hooks/remedy.h"

namespace headgate {
namespace {

UniqueFd own_netns() { return UniqueFd(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC)); }

}  // namespace

Result<TcHook::Instance> TcHook::attach(std::uint32_t netns, int netns_fd) const {
  if (maps_.is_detached()) {
    return tl::unexpected<Error>(no_maps());
  }
  const UniqueFd own = own_netns();
  std::vector<HostEnd> ends;
  int where_fd = -1;
  for (const int candidate : {host_.get(), own.get()}) {
    if (!ends.empty() || candidate < 0) {
      continue;
    }
    auto found = host_ends(netns_fd, candidate);
    if (!found) {
      return tl::unexpected<Error>(found.error());
    }
    ends = std::move(*found);
    where_fd = candidate;
  }
  if (ends.empty()) {
    return tl::unexpected<Error>(
        Error{fmt::format("network namespace {} has no veth whose other end is the host's: what "
                          "enters it passes no device where a program could sit",
                          netns),
              ENODEV});
  }
  Instance out;
  auto program = load_program(Program::kTcEgress, {netns, 0}, maps_);
  if (!program) {
    return tl::unexpected<Error>(program.error());
  }
  for (const HostEnd& host : ends) {
    End end;
    end.ifindex = host.ifindex;
    end.pin_name = fmt::format("tc-{}-{}", netns, host.ifindex);
    auto attached = TcAttachment::attach(*program, where_fd, host.ifindex, TcSide::kEgress, pins_,
                                         end.pin_name, way_);
    if (!attached) {
      detach(out);
      return tl::unexpected<Error>(attached.error().within("tc of " + host.device));
    }
    end.attachment = std::move(*attached);
    out.where += fmt::format("{}{} ({} of netns {})", out.where.empty() ? "" : ", ", host.device,
                             host.pod_device, netns);
    out.ends.push_back(std::move(end));
  }
  out.program = std::move(*program);
  out.program.fd.reset();  // the attachments hold the program
  return out;
}

void TcHook::detach(Instance& instance) {
  for (End& end : instance.ends) {
    end.attachment.detach();
  }
}

Result<> TcHook::hold(std::uint32_t netns, int netns_fd) {
  return instances_.hold(netns, [&] { return attach(netns, netns_fd); });
}

void TcHook::release(std::uint32_t netns) {
  if (auto last = instances_.release(netns)) {
    detach(*last);
  }
}

void TcHook::detach_all() {
  instances_.release_all([](std::uint32_t /*netns*/, Instance& instance) { detach(instance); });
}

bool TcHook::may_serve(std::uint32_t netns) const {
  const Error* error = instances_.failure(netns);
  return error == nullptr || error->sys_errno == 0;
}

HookStatus TcHook::status(std::uint32_t netns) const {
  HookStatus out;
  out.hook = "tc";
  out.where = fmt::format("netns {}", netns);
  if (const Instance* instance = instances_.find(netns); instance != nullptr) {
    out.where = instance->where;
    out.mode = std::string(instance->ends.front().attachment.mechanism());
    out.variant = instance->program.variant;
    out.program_id = instance->program.id;
    return out;
  }
  instances_.explain_absence(netns, out);
  return out;
}

void TcHook::add_pin_names(std::vector<std::string>& names) const {
  instances_.for_each([&](std::uint32_t /*netns*/, const Instance& instance) {
    for (const End& end : instance.ends) {
      names.push_back(end.pin_name);
    }
  });
}

std::size_t TcHook::remove_orphans() const {
  std::set<int> held;
  instances_.for_each([&](std::uint32_t /*netns*/, const Instance& instance) {
    for (const End& end : instance.ends) {
      held.insert(end.ifindex);
    }
  });
  const UniqueFd own = own_netns();
  std::size_t removed = 0;
  for (const int netns_fd : {host_.get(), own.get()}) {
    removed += netns_fd < 0 ? 0 : remove_tc_orphans(netns_fd, TcSide::kEgress, held);
  }
  return removed;
}

}  // namespace headgate
